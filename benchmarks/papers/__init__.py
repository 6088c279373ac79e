"""The tables and figures of papers; one result each."""

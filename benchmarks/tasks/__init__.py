"""What is measured; one result each."""

"""Published figures beside ours."""

"""Online learners, one file each."""

"""Learners that see the whole training set at every step, one file each."""

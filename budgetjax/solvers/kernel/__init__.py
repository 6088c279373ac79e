"""Solvers of kernel machines over a whole training set, one file each."""

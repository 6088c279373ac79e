"""Solvers of a whole training set: kernel and linear."""

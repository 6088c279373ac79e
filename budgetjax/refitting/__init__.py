"""Recomputes the coefficients of support vectors, and moves the vectors."""

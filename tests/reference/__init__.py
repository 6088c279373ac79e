"""Slow, plain NumPy float64 versions of the online learners: the tests' oracle."""

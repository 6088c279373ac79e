"""Loops that are timed per commit."""

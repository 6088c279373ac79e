"""Readers of data files: CSV, Parquet, Arrow, LIBSVM text, npy."""

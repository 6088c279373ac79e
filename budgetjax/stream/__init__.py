"""Streams: examples from files and iterators, in batches."""

from budgetjax.stream.batches import Batches, labels
from budgetjax.stream.readers.formats import arrow, csv, libsvm, npy, parquet, read

__all__ = ["Batches", "arrow", "csv", "labels", "libsvm", "npy", "parquet", "read"]

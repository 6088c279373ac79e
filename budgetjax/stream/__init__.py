"""Streams: examples from files and iterators, in batches."""

from budgetjax.stream.batches import Batches, labels
from budgetjax.stream.readers.csv_text import csv
from budgetjax.stream.readers.formats import read, register_format
from budgetjax.stream.readers.libsvm_text import libsvm
from budgetjax.stream.readers.npy_arrays import npy
from budgetjax.stream.readers.tables import arrow, parquet

__all__ = [
    "Batches",
    "arrow",
    "csv",
    "labels",
    "libsvm",
    "npy",
    "parquet",
    "read",
    "register_format",
]

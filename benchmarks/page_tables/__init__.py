"""The tables of the README and of the benchmarks' pages; see `__main__`."""

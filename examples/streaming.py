"""Trains on a file that is larger than the memory limit of the process.

    python examples/streaming.py
    python examples/streaming.py --format csv --rows 15000000

A file of 1.2 GiB is generated: eight sensors, each with its own units, measure points
on a checkerboard from eight directions. A process with 1 GiB of address space for
itself, JAX and everything else then learns from the file, batch by batch, and brings
the sensors to one scale on the way. (The limit is on address space, not on memory in
use, because Linux can enforce it; it is for two cores, as each thread reserves more.)
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import budgetjax as bj
from budgetjax import datasets

try:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet
except ImportError as error:
    raise SystemExit(f'streaming: {error}; pip install ".[stream]"') from error

SENSORS = 8
NOISE = 0.01  # the noise of a sensor whose signal has a standard deviation of 1
TEST_SEED, TEST_ROWS = 1, 5000
CHUNK = 500_000
GIB = 2**30
# Without these, libraries reserve address space that they never use, Arrow 1 GiB.
FRUGAL = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def sensed(num_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The measurements of points on the board, and their colours -1 and +1."""
    points, y = datasets.checkerboard(num_rows, seed)
    angles = np.pi * np.arange(SENSORS) / SENSORS
    signals = points @ np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)
    noise = np.random.default_rng([seed, 1]).normal(0, NOISE, signals.shape)
    units = 10.0 ** np.arange(-4, SENSORS - 4)
    return units * (3 + signals + noise), y


def tables(num_rows: int, seed: int) -> Iterator[pyarrow.Table]:
    """The rows of the file, in parts."""
    names = [f"sensor{i}" for i in range(SENSORS)]
    for i, start in enumerate(range(0, num_rows, CHUNK)):
        X, y = sensed(min(CHUNK, num_rows - start), seed + i)
        columns = [*np.ascontiguousarray(X.T), y.astype(np.int8)]
        yield pyarrow.table(columns, names=[*names, "colour"])


def write(path: Path, num_rows: int, seed: int) -> None:
    """Generates the file."""
    writer = None
    for table in tables(num_rows, seed):
        if writer is None and path.suffix == ".csv":
            writer = pyarrow.csv.CSVWriter(path, table.schema)
        elif writer is None:
            writer = pyarrow.parquet.ParquetWriter(
                path, table.schema, compression="none", use_dictionary=False
            )
        writer.write_table(table)
    if writer is not None:
        writer.close()


def limit_memory(num_bytes: int) -> None:
    """Limits the address space of this process."""
    resource.setrlimit(resource.RLIMIT_AS, (num_bytes, num_bytes))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


def hold(path: Path) -> None:
    """Tries to hold all rows at once, as a learner of arrays must."""
    try:
        parts = list(bj.stream.read(path, target="colour"))
    except MemoryError:
        print("all rows at once    out of memory")
    else:
        print(f"all rows at once    fit: {sum(len(y) for _, y in parts):,} of them")


def learn(path: Path, budget: int) -> None:
    """Makes one pass over the file, and reports time and memory."""
    start = time.perf_counter()
    batches = bj.stream.read(path, target="colour")
    first, _ = next(iter(batches))
    state = bj.AROW().init(bj.RBF(gamma=2.0), num_features=SENSORS, budget=budget)
    encode = bj.encoding.fit(first, 0)
    model = bj.fit_stream(state, batches, encode=encode, progress=True)
    seconds = time.perf_counter() - start
    X, y = sensed(TEST_ROWS, TEST_SEED)
    wrong = np.mean(model.predict(X) != y)
    print(
        f"one batch at a time {seconds:.0f} s, {model.num_rows / seconds:,.0f} rows/s, "
        f"with reading and compiling\n"
        f"peak                {peak('VmPeak'):.2f} GiB of addresses, "
        f"{peak('VmHWM'):.2f} GiB of memory in use\n"
        f"progressive error   {model.error:.2%} of {model.num_rows:,} rows\n"
        f"test error          {wrong:.2%} of {TEST_ROWS:,} rows"
    )


def peak(name: str) -> float:
    """A memory figure of this process from Linux, in GiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)[name]
    return int(found.removesuffix("kB")) * 1024 / GIB


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of the file")
    parser.add_argument("--format", choices=["parquet", "csv"], default="parquet")
    parser.add_argument("--limit", type=float, default=1.0, help="GiB of address space")
    parser.add_argument("--budget", type=int, default=100, help="support vectors")
    # The tasks of the limited processes, and their files.
    parser.add_argument("--hold", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--learn", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not sys.platform.startswith("linux"):
        parser.error("needs Linux, which enforces the limit")
    if options.hold or options.learn:
        limit_memory(int(options.limit * GIB))
        if options.hold:
            return hold(options.hold)
        return learn(options.learn, options.budget)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"board.{options.format}"
        # The test rows do not occur in the file.
        write(path, options.rows, seed=TEST_SEED + 1)
        size = path.stat().st_size / GIB
        print(
            f"file                {path.name}, {options.rows:,} rows, {size:.2f} GiB\n"
            f"limit               {options.limit:.2f} GiB of addresses",
            flush=True,
        )
        limited = [sys.executable, __file__, "--limit", str(options.limit)]
        limited += ["--budget", str(options.budget)]
        for task in ("--hold", "--learn"):
            environment = os.environ | FRUGAL
            done = subprocess.run([*limited, task, path], env=environment, check=False)
            if done.returncode:
                raise SystemExit(f"streaming: {task} failed; is --limit too small?")


if __name__ == "__main__":
    main()

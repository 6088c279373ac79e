"""Twenty million rows, learned from a file in 1 GiB: rows per second, and the memory.

The benchmark writes twenty million rows of a checkerboard, chunk by chunk, to a Parquet
file and a CSV file in a temporary folder. Pegasos with merging and a
budget of 100 then learns them with `bj.fit_stream` in a process whose address space is
limited to 1 GiB, everything included: Python, JAX with its compiler, pyarrow. For
comparison, `bj.run` learns the same rows from arrays in a process without a limit. The
processes take turns; rates are medians, without compilation. The rate of
`bj.fit_stream` includes reading and decoding the file and, for CSV, parsing the text.

`rows=` and `limit=`, in GiB, are fields.
"""

import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner import Case, Row, given

GIB = 2**30
CHUNK = 1_000_000
TEST_ROWS = 100_000
# Without them, glibc and OpenBLAS each reserve address space for every thread.
FRUGAL = {"MALLOC_ARENA_MAX": "1", "OPENBLAS_NUM_THREADS": "1"}
BUDGET, GAMMA, REGULARIZATION = 100, 8.0, 1e-4
KINDS = ("Parquet", "CSV")


def generate(folder: Path, rows: int) -> dict[str, Path]:
    """The files of each format."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet
    from tqdm import tqdm

    from budgetjax.datasets import checkerboard

    files = {kind: folder / f"checkerboard.{kind.lower()}" for kind in KINDS}
    kinds = {"x1": pa.float32(), "x2": pa.float32(), "label": pa.int8()}
    schema = pa.schema(list(kinds.items()))
    writers: list[Any] = [
        pyarrow.parquet.ParquetWriter(files["Parquet"], schema),
        pyarrow.csv.CSVWriter(files["CSV"], schema),
    ]
    for seed, start in enumerate(tqdm(range(0, rows, CHUNK), unit=" chunks")):
        X, y = checkerboard(min(CHUNK, rows - start), seed)
        arrays = [X[:, 0].copy(), X[:, 1].copy(), y.astype("int8")]
        for writer in writers:
            writer.write_table(pa.table(arrays, schema=schema))
    for writer in writers:
        writer.close()
    return files


def streamed(kind: str, path: str) -> Row:
    """The result of `bj.fit_stream` on a file."""
    import budgetjax as bj

    read = bj.stream.csv if kind == "CSV" else bj.stream.parquet
    batches = read(path, target="label")
    first = next(iter(batches))
    bj.fit_stream(empty(), [first])
    start = time.perf_counter()
    model = bj.fit_stream(empty(), batches)
    seconds = time.perf_counter() - start
    return result(model.num_rows, seconds, model.state)


def in_memory(kind: str, path: str) -> Row:
    """The result of `bj.run` on the same rows as arrays."""
    import jax
    import numpy as np
    import pyarrow.parquet

    import budgetjax as bj

    table = pyarrow.parquet.read_table(path)
    X = np.stack([table["x1"].to_numpy(), table["x2"].to_numpy()], axis=1)
    y = table["label"].to_numpy()
    del table
    state = empty()
    bj.run(state, X, y)
    start = time.perf_counter()
    state = jax.block_until_ready(bj.run(state, X, y)[0])
    return result(len(y), time.perf_counter() - start, state)


def empty() -> Any:
    import budgetjax as bj

    return bj.Pegasos(regularization=REGULARIZATION).init(
        bj.RBF(GAMMA), num_features=2, budget=BUDGET
    )


def result(rows: int, seconds: float, state: Any) -> Row:
    """The figures that a child process prints."""
    from models import accuracy_of

    from budgetjax.datasets import checkerboard

    lines = Path("/proc/self/status").read_text().splitlines()
    kept = dict(line.split(":", 1) for line in lines)
    return {
        "rows": rows,
        "seconds": seconds,
        "accuracy": accuracy_of(state, *checkerboard(TEST_ROWS, seed=2**31)),
        "GiB of addresses": int(kept["VmPeak"].split()[0]) * 1024 / GIB,
        "GiB resident": int(kept["VmHWM"].split()[0]) * 1024 / GIB,
    }


def child(job: str, kind: str, path: Path, limit: int | None) -> Row:
    """Runs a job in a process with a limited address space.

    The process has imported nothing large before.
    """
    import timing

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    given = {"env": FRUGAL, "preexec_fn": limited}
    return timing.apart("tasks.streaming", job, kind, str(path), **given)


def measured(rows: int, limit: float) -> list[Row]:
    """All jobs, which take turns, on files that are deleted afterwards."""
    most = round(limit * GIB)
    jobs: list[tuple[str, str, int | None]] = [("in_memory", "Parquet", None)]
    jobs += [("streamed", kind, most) for kind in KINDS]
    told: dict[tuple, list[Row]] = {job: [] for job in jobs}
    with tempfile.TemporaryDirectory() as folder:
        files = generate(Path(folder), rows)
        for _ in range(3):
            for job, kind, limit_of in jobs:
                made = child(job, kind, files[kind], limit_of)
                told[job, kind, limit_of].append(made)
        sizes = {kind: path.stat().st_size / GIB for kind, path in files.items()}
    rates = {
        job: statistics.median(one["rows"] / one["seconds"] for one in of)
        for job, of in told.items()
    }
    table = []
    for job, of in told.items():
        in_memory, rate = job == jobs[0], rates[job]
        row: Row = {"learned by": "bj.run" if in_memory else "bj.fit_stream"}
        row |= {"from": "memory" if in_memory else job[1], "rows": of[0]["rows"]}
        row |= {"rows/s": round(rate), "part of bj.run": rate / rates[jobs[0]]}
        row["accuracy"] = of[0]["accuracy"]
        if not in_memory:
            row |= {"GiB of file": sizes[job[1]], "limit in GiB": limit}
        for size in ("GiB of addresses", "GiB resident"):
            row[size] = max(one[size] for one in of)
        table.append(row)
    return table


def cases() -> Iterator[Case]:
    """One of all jobs."""
    (rows,), (limit,) = given("rows", 20_000_000), given("limit", 1.0)
    yield Case({"rows": rows}, lambda: measured(rows, limit))

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from runner import Case, given

GIB = 2**30
CHUNK = 1_000_000
TEST_ROWS = 100_000
# Without them, glibc and OpenBLAS each reserve address space for every thread.
FRUGAL = {"MALLOC_ARENA_MAX": "1", "OPENBLAS_NUM_THREADS": "1"}
BUDGET, GAMMA, REGULARIZATION = 100, 8.0, 1e-4


def generate(folder: Path, rows: int) -> dict[str, Path]:
    """The files of each format."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet
    from tqdm import tqdm

    from budgetjax.datasets import checkerboard

    files = {
        "Parquet": folder / "checkerboard.parquet",
        "CSV": folder / "checkerboard.csv",
    }
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


def streamed(kind: str, path: str) -> dict[str, Any]:
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


def in_memory(kind: str, path: str) -> dict[str, Any]:
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


JOBS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "fit_stream": streamed,
    "run": in_memory,
}


def empty() -> Any:
    import budgetjax as bj

    return bj.Pegasos(regularization=REGULARIZATION).init(
        bj.RBF(GAMMA), num_features=2, budget=BUDGET
    )


def result(rows: int, seconds: float, state: Any) -> dict[str, Any]:
    """The figures that a child process prints."""
    import numpy as np

    import budgetjax as bj
    from budgetjax.datasets import checkerboard

    X, y = checkerboard(TEST_ROWS, seed=2**31)
    kept = dict(
        line.split(":", 1)
        for line in Path("/proc/self/status").read_text().splitlines()
    )
    return {
        "rows": rows,
        "seconds": seconds,
        "accuracy": 100 * float(np.mean(np.asarray(bj.predict(state, X)) == y)),
        "GiB of addresses": int(kept["VmPeak"].split()[0]) * 1024 / GIB,
        "GiB resident": int(kept["VmHWM"].split()[0]) * 1024 / GIB,
    }


def job(name: str, kind: str, path: str) -> dict[str, Any]:
    """The result of a job in this process, which has imported nothing large yet."""
    return JOBS[name](kind, path)


def child(name: str, kind: str, path: Path, limit: int | None) -> dict[str, Any]:
    """Runs a job in a process with a limited address space."""
    import timing

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    return timing.apart(
        *("tasks.streaming", "job", name, kind, str(path)),
        env=FRUGAL,
        preexec_fn=limited,
    )


def compared(files: dict[str, Path], repeats: int, limit: int) -> list[dict[str, Any]]:
    """The table of results; the jobs take turns."""
    jobs: list[tuple[str, str, int | None]] = [("run", "Parquet", None)]
    jobs += [("fit_stream", kind, limit) for kind in files]
    told: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for _ in range(repeats):
        for job, kind, most in jobs:
            made = child(job, kind, files[kind], most)
            told.setdefault((job, kind), []).append(made)

    def rate(of: list[dict[str, Any]]) -> float:
        return statistics.median(one["rows"] / one["seconds"] for one in of)

    best = rate(told["run", "Parquet"])
    return [
        {
            "learned by": f"bj.{job}",
            "from": "memory" if job == "run" else kind,
            "rows": of[0]["rows"],
            "GiB of file": files[kind].stat().st_size / GIB if most else "",
            "rows/s": round(rate(of)),
            "part of bj.run": rate(of) / best,
            "accuracy": of[0]["accuracy"],
            "limit in GiB": most / GIB if most else "",
            "GiB of addresses": max(one["GiB of addresses"] for one in of),
            "GiB resident": max(one["GiB resident"] for one in of),
        }
        for job, kind, most in jobs
        for of in [told[job, kind]]
    ]


def measured(rows: int, limit: float) -> list[dict[str, Any]]:
    """All jobs, on files that are deleted afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        return compared(generate(Path(folder), rows), 3, round(limit * GIB))


def cases() -> Iterator[Case]:
    """One of all jobs."""
    (rows,), (limit,) = given("rows", 20_000_000), given("limit", 1.0)
    yield Case({"rows": rows}, lambda: measured(rows, limit))

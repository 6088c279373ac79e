"""Shared by the benchmarks: the clock, the plain scan, the report."""

import contextlib
import functools
import itertools
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from tqdm import tqdm

import budgetjax as bj
from budgetjax.online import driver, examples

# A row of results without its figures, and the function that measures them.
Case = tuple[dict[str, Any], Callable[[], dict[str, Any]]]
RESULTS = Path(__file__).parent / "results"
PACKAGES = ("budgetjax", "jax", "jaxlib", "numpy", "scikit-learn", "river")


def median(call: Callable[[], Any], repeats: int) -> float:
    """The median seconds of a call, after one call that is not counted."""
    return medians({"": call}, repeats)[""]


def medians(
    calls: dict[Any, Callable[[], Any]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Any, float]:
    """The median seconds of several calls, taken in turn: all see the same noise."""
    seconds = {name: [] for name in calls}
    for call in calls.values():
        jax.block_until_ready(call())
    for _ in range(repeats):
        for name, call in calls.items():
            start = clock()
            jax.block_until_ready(call())
            seconds[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def learning(state, X, y, block_size=None) -> Callable[[], Any]:
    """`budgetjax.run` as a call without arguments, and without its checks of values."""
    X, y, weights = examples.check_stream(state, X, y, None)
    size = driver.block_length(block_size)
    return lambda: driver.run_checked(state, X, y, weights, size)


def begin(solver: bj.Solver, data: bj.TrainingSet, cache: bj.KernelCache) -> Any:
    """The first state of a solver for `advance`: no two of its arrays are one."""
    state, rows = solver.split_rows(solver.init(data, cache))
    return solver.join_rows(jax.tree.map(jnp.copy, state), rows)


@functools.partial(jax.jit, donate_argnums=0)
def advance(state: Any, data: bj.TrainingSet, steps: jax.Array) -> Any:
    """The state after some steps of its solver, in the memory of the state before.

    So `solve` takes them without a callback.
    """
    step = state.solver.step
    return jax.lax.fori_loop(0, steps, lambda _, state: step(state, data), state)


def held() -> float:
    """MiB that this process holds itself, without pages of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


@contextlib.contextmanager
def memory() -> Iterator[dict[str, float]]:
    """The memory before, and the peak meanwhile, sampled every 20 ms."""
    found = {"MiB before": held()}
    found["MiB"] = found["MiB before"]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            found["MiB"] = max(found["MiB"], held())

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield found
    finally:
        ended.set()
        watching.join()


def program() -> str:
    """The started script, relative to the root of the repository."""
    path = Path(sys.argv[0]).absolute()
    root = Path(__file__).absolute().parents[1]
    return str(path.relative_to(root) if path.is_relative_to(root) else sys.argv[0])


def commit() -> tuple[str | None, bool | None]:
    """The commit that is measured, and whether what is measured differs from it.

    Results do not count, which are written meanwhile. Both are None outside of git.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parents[1]), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        others = git("status", "--porcelain", "--", ":!benchmarks/results")
        return git("rev-parse", "--short=7", "HEAD"), bool(others)
    except (OSError, subprocess.CalledProcessError):
        return None, None


@functools.cache
def this_run() -> dict[str, Any]:
    """What is measured in this process, when, and by which machine and versions."""
    try:
        text = Path("/proc/cpuinfo").read_text()
        model = next(
            line.split(":")[1].strip()
            for line in text.splitlines()
            if line.startswith("model name")
        )
    except (OSError, StopIteration):
        model = platform.processor()
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    measured, differs = commit()
    return {
        "commit": measured,
        "dirty": differs,
        "date": time.strftime("%Y-%m-%d"),
        "device": jax.devices()[0].device_kind,
        "processor": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        "commands": [shlex.join(["python", *program().split(), *sys.argv[1:]])],
    }


def resumed(
    cases: Iterable[Case],
    output: Path,
    deadline: float = math.inf,
    clear: bool = True,
) -> list[dict[str, Any]]:
    """Measures the cases that the file lacks, and writes each figure at once.

    Args:
      cases: what to measure.
      output: JSON file of all rows.
      deadline: seconds of the monotonic clock after which no measurement begins.
      clear: whether to clear compiled programs after each case.

    Returns:
      The rows of the cases, in their order.
    """
    cases = list(cases)
    rows = json.loads(output.read_text())["rows"] if output.exists() else []
    for key, call in tqdm(cases, disable=None):
        if any(key.items() <= row.items() for row in rows):
            continue
        if time.monotonic() > deadline:
            print(f"{output}: stopped after its minutes; the same command goes on")
            break
        rows.append(key | call())
        save(rows, output)
        if clear:
            jax.clear_caches()
    return [row for key, _ in cases for row in rows if key.items() <= row.items()]


def report(rows: list[dict[str, Any]], output: Path) -> None:
    """Prints a table and writes it, with its runs, as JSON."""
    show(rows)
    save(rows, output)
    print(f"{output}")


def show(rows: list[dict[str, Any]]) -> None:
    """Prints a table."""

    def text(value):
        if not isinstance(value, float):
            return str(value)
        return f"{value:.1e}" if 0 < abs(value) < 0.005 else f"{value:.2f}"

    names = [n for n in dict.fromkeys(n for row in rows for n in row) if n != "made"]
    cells = [names, *([text(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    for line in cells:
        print(
            "  ".join(
                cell.rjust(width) for cell, width in zip(line, widths, strict=True)
            )
        )


def save(rows: list[dict[str, Any]], output: Path) -> None:
    """Writes results as JSON, a line for each run and each row.

    A row says by which run it was `made`, and a run has the commit, whether the code
    differed from it, the date, the machine, the versions and the command. Rows that the
    file has already keep theirs; all others are of `this_run`. Runs without rows are
    dropped.

    Older runs were recorded later: their commit is the one that brought their rows,
    `dirty` is None, and so is what history does not tell.
    """
    runs, kept = {}, []
    if output.exists():
        before = json.loads(output.read_text())
        runs, kept = before["runs"], before["rows"]
    own = this_run()
    name = next((name for name, run in runs.items() if run == own), None)
    if name is None:
        names = (f"{own['commit']}-{number}" for number in itertools.count(1))
        name = next(name for name in names if name not in runs)
        runs[name] = own
    rows = [
        row if row in kept else {"made": name} | row | {"made": name} for row in rows
    ]
    runs = {name: runs[name] for name in runs if any(r["made"] == name for r in rows)}
    output.parent.mkdir(parents=True, exist_ok=True)
    told = ",\n".join(f"{json.dumps(name)}: {json.dumps(runs[name])}" for name in runs)
    lines = ",\n".join(json.dumps(row) for row in rows)
    output.write_text(f'{{"runs": {{\n{told}\n}},\n"rows": [\n{lines}\n]}}\n')

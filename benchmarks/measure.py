"""What the benchmarks share: the clock, the plain scan, the report."""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from budgetjax import examples
from budgetjax.online import engine

PACKAGES = ("budgetjax", "jax", "jaxlib", "numpy", "scikit-learn", "river")


def median(call: Callable[[], Any], repeats: int) -> float:
    """The median seconds of a call, after one that is not counted."""
    return medians({"": call}, repeats)[""]


def medians(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median seconds of some calls, taken in turn: all see the same noise."""
    seconds = {name: [] for name in calls}
    for call in calls.values():
        jax.block_until_ready(call())
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def learning(algorithm, state, X, y, block_size=None) -> Callable[[], Any]:
    """`budgetjax.run` as a call without arguments, and without its checks of values."""
    X, y, weights = examples.stream("benchmark", state, X, y, None)
    capacity = state.expansion.ages.shape[0] - 1
    size = engine.block_length("benchmark", block_size, capacity)
    return lambda: engine.run_checked(algorithm, state, X, y, weights, size)


def machine() -> dict[str, Any]:
    """Where and with what the figures were made."""
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
    return {
        "device": jax.devices()[0].device_kind,
        "processor": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        "command": "python " + " ".join(sys.argv),
        "date": time.strftime("%Y-%m-%d"),
    }


def report(rows: list[dict[str, Any]], output: Path) -> None:
    """Prints a table and writes it, with the machine, as JSON."""
    show(rows)
    save(rows, output)
    print(f"{output}")


def show(rows: list[dict[str, Any]]) -> None:
    """Prints a table."""

    def text(value):
        if not isinstance(value, float):
            return str(value)
        return f"{value:.1e}" if 0 < abs(value) < 0.005 else f"{value:.2f}"

    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([text(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    for line in cells:
        print(
            "  ".join(
                cell.rjust(width) for cell, width in zip(line, widths, strict=True)
            )
        )


def save(rows: list[dict[str, Any]], output: Path) -> None:
    """Writes results, with the machine, as JSON."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")

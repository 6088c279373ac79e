"""Clocks, memory and processes of the benchmarks."""

import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import budgetjax as bj
from budgetjax.online import driver, examples

HERE = Path(__file__).resolve().parent


def median(call: Callable[[], Any], repeats: int) -> float:
    """The median seconds of a call, after one call that is not counted."""
    return medians({"": call}, repeats)[""]


def medians(calls: dict[Any, Callable[[], Any]], repeats: int) -> dict[Any, float]:
    """The median seconds of several calls, taken in turn: all see the same noise."""
    seconds = {name: [] for name in calls}
    for call in calls.values():
        jax.block_until_ready(call())
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def spent(call: Callable[[], Any], clock=time.process_time) -> tuple[Any, float]:
    """The result of one call, and its seconds, by default of the processor."""
    start = clock()
    result = jax.block_until_ready(call())
    return result, clock() - start


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
def advance(state: Any, data: bj.TrainingSet, steps: Any) -> Any:
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


def apart(module: str, function: str, *arguments: Any, **given: Any) -> Any:
    """What a function of a module returns in a process of its own.

    Arguments and result are JSON. The process knows the modules of this folder, and
    takes the keywords of `subprocess.run`.
    """
    code = f"import json, sys; from {module} import {function} as call; "
    code += "print('\\n' + json.dumps(call(*json.loads(sys.argv[1]))))"
    paths = (str(HERE), os.environ.get("PYTHONPATH", ""))
    environment = {**os.environ, **given.pop("env", {}), "PYTHONPATH": ":".join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        **given,
    )
    return json.loads(done.stdout.splitlines()[-1])

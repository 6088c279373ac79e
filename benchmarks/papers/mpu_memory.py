"""Peak memory of linear solvers on 350,000 x 254 numbers, and on the generated text.

Each solver trains in its own process to a gap of 1 percent, in at most ten steps.
"""

import functools
import resource
import time
from collections.abc import Iterator

import numpy as np
import timing
from runner import Case, Row

import budgetjax as bj
from papers import mpu_tables

KINDS = {"mpu": bj.MPU, "dcd": bj.DCD, "linear_pegasos": bj.LinearPegasos}


def wide() -> tuple[np.ndarray, np.ndarray]:
    """Random numbers of Webspam's size: 350,000 x 254."""
    rng = np.random.default_rng(0)
    X = rng.random((350_000, 254), np.float32)
    X *= rng.random((350_000, 254), np.float32) < 0.33
    X /= np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
    scores = X @ rng.normal(size=254).astype(np.float32)
    return X, np.where(scores + 0.1 * rng.normal(size=len(X)) > 0, 1, -1)


def fitted(name: str, method: str) -> Row:
    """Memory and time of one solver on one set, in this process."""
    X, y = {"350,000 x 254": wide, "text": mpu_tables.text}[name]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start = time.perf_counter()
    found = mpu_tables.solved(KINDS[method], X, y, tolerance=1e-2, max_steps=10)
    return {
        "gap": float(found.history.gap[-1]),
        "seconds": time.perf_counter() - start,
        "GiB at most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "GiB with the data": before,
    }


def cases() -> Iterator[Case]:
    """Both sets and all solvers."""
    for name in ("350,000 x 254", "text"):
        for method in KINDS:
            run = functools.partial(
                timing.apart, "papers.mpu_memory", "fitted", name, method
            )
            yield Case({"data": name, "method": method}, run)

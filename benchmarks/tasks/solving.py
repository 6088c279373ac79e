"""Times of `solve` on real data, three penalties too, and the memory of ten.

Processor seconds, the median of three runs after a first one, which compiles; and the
peak of a process that solves ten problems of 20,000 rows with shared kernel rows. It
takes a minute on two cores.
"""

import functools
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import timing
from runner import Case, Row

import budgetjax as bj
from budgetjax import datasets


def several(solvers: Sequence[Any], X: Any, y: np.ndarray) -> list[Any]:
    """Solutions on one training set; linear solvers start from the one before."""
    data, linear = solvers[0].read(X, y), solvers[0].linear
    cache = None if linear else bj.KernelCache()
    found: list[Any] = []
    for solver in solvers:
        start = found[-1].state if linear and found else None
        found.append(bj.solve(solver, data, cache=cache, start=start))
    return found


@functools.cache
def jobs() -> dict[str, Callable[[], Any]]:
    """What is timed, by its name."""
    ijcnn1, mnist = datasets.load("ijcnn1"), datasets.load("mnist")
    reuters = datasets.load("reuters_moneyfx", standardise=False)
    X, y = ijcnn1.X_train, ijcnn1.y_train
    images, odd = mnist.X_train[:3000], np.where(mnist.y_train[:3000] % 2, -1, 1)
    words: Any = scipy.sparse.csr_matrix(reuters.X_train)
    topic = reuters.y_train
    wide, narrow, least = bj.RBF(0.02), bj.RBF(2.0), (0.5, 1.0, 2.0)
    both: list[Any] = [bj.DCD, bj.MPU]
    dual, unlearning = ([kind(one) for one in least] for kind in both)
    sbp = bj.SBP(wide, slack=0.01, tolerance=None)
    smo = [bj.SMO(narrow, penalty=penalty) for penalty in (1.0, 2.0, 4.0)]
    return {
        "SMO, ijcnn1": lambda: bj.solve(smo[-1], X[:6000], y[:6000]),
        "SBP, MNIST": lambda: bj.solve(sbp, images, odd, max_steps=200),
        "SMO, MNIST": lambda: bj.solve(bj.SMO(wide, penalty=4.0), images, odd),
        "DCD, ijcnn1": lambda: bj.solve(bj.DCD(), X, y),
        "MPU, ijcnn1": lambda: bj.solve(bj.MPU(), X, y),
        "DCD, Reuters": lambda: bj.solve(bj.DCD(), words, topic),
        "MPU, Reuters": lambda: bj.solve(bj.MPU(), words, topic),
        "SMO, three": lambda: several(smo, X[:6000], y[:6000]),
        "DCD, three": lambda: several(dual, words, topic),
        "MPU, three": lambda: several(unlearning, X, y),
    }


def penalties(number: int) -> Row:
    """The memory and the time of many problems, in this process."""
    data, start = datasets.load("ijcnn1"), time.process_time()
    every = np.geomspace(0.5, 8, number).tolist()
    solvers = [bj.SMO(bj.RBF(2.0), one, tolerance=0.05) for one in every]
    several(solvers, data.X_train[:20_000], data.y_train[:20_000])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"GiB": peak, "processor s": time.process_time() - start}


def timed(name: str) -> Row:
    """The seconds of a job."""
    job = jobs()[name]
    return {"processor s": timing.medians({"": job}, 3, time.process_time)[""]}


NAMES = (
    *("SMO, ijcnn1", "SBP, MNIST", "SMO, MNIST", "DCD, ijcnn1", "MPU, ijcnn1"),
    *("DCD, Reuters", "MPU, Reuters", "SMO, three", "DCD, three", "MPU, three"),
)


def cases() -> Iterator[Case]:
    """All jobs, and the ten problems."""
    for name in NAMES:
        yield Case({"what": name}, functools.partial(timed, name))
    apart = functools.partial(timing.apart, "tasks.solving", "penalties", 10)
    yield Case({"what": "SMO, ten"}, apart)

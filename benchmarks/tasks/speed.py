"""Microseconds per example: the plain scan, the block engine, and predicting.

Every learner sees each stream once, in one order. The times are medians over runs of
the whole stream from an empty model, taken in turn in one process, compilation
excluded. "predict" scores the same examples with the final model: learning cannot be
faster. The peers are the tools that a user would pick instead (see `peers.py`). In the
part "sweep" one model is compared with 64 on a CPU, in turn ("map") and in lockstep
("vmap"), and with up to 1,024 on an accelerator. The time on the clock is followed by
the CPU time of all cores, which other work on the machine changes less.
"""

import functools
import itertools
import os
import time
from collections.abc import Iterator
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import peers
import timing
from models import accuracy_of
from runner import Case, asked, given

import budgetjax as bj
from budgetjax import datasets
from budgetjax.online import sweeps as sweeping

LEARNERS = ("oldest", "forgetron", "smallest", "merge")
# Learners with matrices of pairs, O(B^2) per update: measured only by name.
OF_PAIRS = ("project", "projectron", "arow")
KINDS = {
    "forgetron": bj.Forgetron(),
    "projectron": bj.Projectron(),
    "arow": bj.AROW(),
    "oldest": bj.Perceptron(),
}
# Pegasos, except for the first.
STRATEGIES = {
    "oldest": bj.RemoveOldest(),
    "merge": bj.Merge(),
    "project": bj.Project(),
    "smallest": bj.RemoveSmallest(),
}
BUDGETS = (50, 100, 500)
# Data: rows, gamma, regularization. ijcnn1 comes scaled; mnist is digits below 5
# against the others, covtype the most frequent type against the others.
DATA = {
    "checkerboard": (20_000, 8.0, 1e-4),
    "ijcnn1": (None, 2.0, 1e-5),
    "covtype": (100_000, 0.06, 1e-5),
    "mnist": (20_000, 0.004, 1e-4),
}
SWEEP_GAMMAS = 2.0 ** np.arange(-4, 4)
SWEEP_REGULARIZATIONS = 10.0 ** np.linspace(-6, -2.5, 8)


def load(name, most=None):
    """The stream and a test set, with two classes."""
    rows, gamma, regularization = DATA[name]
    rows = most if rows is None else min(rows, most or rows)
    data = datasets.load(name, standardise=name != "ijcnn1")
    parts = []
    for X, y in ((data.X_train, data.y_train), (data.X_test, data.y_test)):
        if name == "covtype":
            y = np.where(y == 1, 1, -1)
        elif name == "mnist":
            y = np.where(y < 5, 1, -1)
        parts += [X[:rows], y[:rows].astype(np.int32)]
    return (*parts, gamma, regularization)


def empty(name, gamma, regularization, num_features, budget):
    """An empty model."""
    learner = KINDS.get(name) or bj.Pegasos(regularization=regularization)
    given = {"maintenance": STRATEGIES[name]} if name in STRATEGIES else {}
    shape = {"num_features": num_features, "budget": budget}
    return learner.init(bj.RBF(gamma), **shape, **given)


@functools.lru_cache(1)
def stream(name, most):
    """The stream, also on the device."""
    X, y, *rest = load(name, most)
    return X, jnp.asarray(X), y, *rest


def learned(name, most, budget, which, repeats):
    """The times of a learner, and its accuracy."""
    X, X_device, y, X_test, y_test, gamma, regularization = stream(name, most)
    n, num_features = X.shape
    state = empty(which, gamma, regularization, num_features, budget)
    scan = timing.learning(state, X_device, y, block_size=1)
    blocks = timing.learning(state, X_device, y)
    (final, _), (expected, _) = blocks(), scan()
    calls = {
        "scan us": scan,
        "blocks us": blocks,
        "predict us": functools.partial(bj.decision_function, final, X_device),
    }
    seconds = timing.medians(calls, repeats)
    row = {"violations": int(final.num_updates) / n}
    row |= {key: value / n * 1e6 for key, value in seconds.items()}
    row["scan/blocks"] = row["scan us"] / row["blocks us"]
    row["blocks/predict"] = row["blocks us"] / row["predict us"]
    row["accuracy %"] = accuracy_of(final, X_test, y_test)
    row["mistakes %"] = 100 * int(final.num_mistakes) / n
    same = np.array_equal(final.expansion.ages, expected.expansion.ages)
    return row | {"same model": "yes" if same else "no"}


def peer(name, budget, which):
    """What a rival reaches; no row where it is not installed."""
    X, _, y, X_test, y_test, gamma, regularization = stream(name, None)
    data = peers.Data(X, y, X_test, y_test)
    found = peers.PEERS[which](data, budget, gamma, regularization, 0)
    return [] if found is None else found


def sweep(rows, repeats):
    """Time per model and example of many models at once, on ijcnn1 with B = 100."""
    _, X, y, *_ = stream("ijcnn1", rows)
    on_cpu = jax.default_backend() == "cpu"
    for name in ("smallest", "merge"):
        for copies in (1,) if on_cpu else (1, 4, 16):
            calls = sweep_calls(stacked(name, X.shape[1], copies), X, y, on_cpu)
            wall = timing.medians(calls, repeats)
            of_cores = timing.medians(calls, repeats, time.process_time)
            for how, devices, number in calls:
                unit = len(X) * number * 1e-6
                yield {
                    "learner": name,
                    "models": number,
                    "how": how,
                    "devices": devices,
                    "us a model and example": wall[how, devices, number] / unit,
                    "of all cores": of_cores[how, devices, number] / unit,
                }


def sweep_calls(models, X, y, on_cpu):
    """What is timed, by the way, the number of devices and that of models."""
    count, calls = models.expansion.vectors.shape[0], {}
    if count == 64:
        # On an accelerator one model is enough: the others would only queue up.
        number = count if on_cpu else 1
        alone = [
            timing.learning(jax.tree.map(lambda leaf, i=i: leaf[i], models), X, y)
            for i in range(number)
        ]
        calls["one by one", 1, number] = lambda: [call() for call in alone]
    for how in ("map", "vmap") if on_cpu else ("vmap",):
        for devices in sorted({1, len(jax.devices())}):
            calls[how, devices, count] = functools.partial(
                sweep_how, how, models, X, y, jax.devices()[:devices]
            )
    together = jax.jit(jax.vmap(lambda state: bj.run(state, X, y)))
    calls["vmap of run", 1, count] = functools.partial(together, models)
    return calls


def sweep_how(how, models, X, y, devices):
    """A sweep with the models side by side or in turn, whichever it would choose."""
    with mock.patch.object(sweeping, "side_by_side", return_value=how == "vmap"):
        return bj.sweep(models, X, y, devices=devices)


def stacked(name, num_features, copies):
    """64 models, or the same 64 several times."""
    grid = bj.grid(
        gamma=SWEEP_GAMMAS, regularization=SWEEP_REGULARIZATIONS, copy=range(copies)
    )
    return grid.init(
        lambda gamma, regularization, copy: empty(
            name, gamma, regularization, num_features, 100
        )
    )


def cases() -> Iterator[Case]:
    """Whole streams, their first rows, rivals, and many models at once."""
    (repeats,), merging = given("repeats", 7), ("merge",)
    parts = {
        "streams": (None, tuple(DATA), BUDGETS, LEARNERS),
        "first 20,000 rows": (20_000, tuple(DATA)[:3], (100, 500), merging),
        "pairs": (20_000, ("ijcnn1", "covtype"), (100, 500), OF_PAIRS),
        "peers": (None, ("checkerboard", "ijcnn1"), BUDGETS, ("forgetron", "merge")),
    }
    for part, (rows, names, budgets, learners) in parts.items():
        (most,) = given("rows", rows)
        for name, budget in itertools.product(names, budgets):
            for which in learners:
                key = {"part": part, "data": name, "B": budget, "learner": which}
                run = functools.partial(learned, name, most, budget, which, repeats)
                yield Case(key, run, part == "streams")
            for which in peers.PEERS if part == "peers" else ():
                key = {"part": part, "data": name, "B": budget, "learner": which}
                yield Case(key, functools.partial(peer, name, budget, which), False)
    (most,) = given("rows", None)
    yield Case({"part": "sweep"}, lambda: list(sweep(most, repeats)), False)


def prepare() -> None:
    if "sweep" in asked.get("part", ()):
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

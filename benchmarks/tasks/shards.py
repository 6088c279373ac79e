"""Models of parts of the data, merged, and a refit of rows on one and two devices.

The training rows of a data set are divided among machines, in random order or sorted by
label; the rows of a machine are in random order. Each machine streams its rows through
Pegasos with 100 vectors, `bj.merge_models` makes one model of theirs, and a refit adds
sums over the rows of all machines. Beside them stand one stream of all rows, and its
refit. Test accuracy in percent; processor seconds with compilation, of the stream the
largest of a machine; and the numbers that a machine sends, for its model and for its
sums, beside those of its rows.

`part=devices`: the same refit of a million rows of 22 features, on one and on two
devices of a CPU in turn, after one refit of fewer rows that compiles. About 10 minutes.
"""

import functools
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import numpy as np
from runner import Case

import budgetjax as bj
from budgetjax import datasets
from budgetjax._sharding import Shards

BUDGET, MACHINES = 100, (2, 4, 16)
ROWS = 1_000_000


@functools.cache
def problem(name: str) -> tuple[Any, float]:
    """The data and the kernel's width."""
    data = datasets.load(name)
    return data, float(bj.default_gamma(data.X_train))


def order_rows(name: str, order: str, machines: int) -> list[np.ndarray]:
    """The rows of each machine."""
    y = problem(name)[0].y_train
    random = np.random.default_rng(0)
    rows = random.permutation(len(y))
    if order == "by label":
        rows = rows[np.argsort(y[rows], kind="stable")]
    return [random.permutation(part) for part in np.array_split(rows, machines)]


def timed(call: Any) -> tuple[Any, float]:
    """A result, and the processor seconds that it took."""
    start = time.process_time()
    result = jax.block_until_ready(call())
    return result, time.process_time() - start


def learn(name: str, rows: np.ndarray) -> Any:
    """A stream of these rows."""
    data, gamma = problem(name)
    state = bj.Pegasos().init(
        bj.RBF(gamma),
        num_features=data.X_train.shape[1],
        budget=BUDGET,
        num_classes=data.num_classes,
    )
    return bj.run(state, data.X_train[rows], data.y_train[rows])[0]


def refit(name: str, model: Any) -> tuple[Any, int]:
    """A refit of all rows, and how many numbers each machine would send for it."""
    data, _ = problem(name)
    known, sent = Shards.sum, 0

    def count(shards: Shards, parts: Any) -> Any:
        nonlocal sent
        sent += sum(np.size(leaf) for leaf in jax.tree.leaves(parts))
        return known(shards, parts)

    with mock.patch.object(Shards, "sum", count):
        return bj.refit(model, data.X_train, data.y_train), sent


def accuracy(name: str, model: Any) -> float:
    """Test accuracy in percent."""
    data, _ = problem(name)
    return 100 * float(
        np.mean(np.asarray(bj.predict(model, data.X_test)) == data.y_test)
    )


def figures(name: str, order: str, machines: int) -> dict[str, Any]:
    """One row of the table."""
    data, _ = problem(name)
    parts = [
        timed(lambda rows=rows: learn(name, rows))
        for rows in order_rows(name, order, machines)
    ]
    models, seconds = zip(*parts, strict=True)
    model, merging = models[0], 0.0
    if machines > 1:
        model, merging = timed(lambda: bj.merge_models(models, BUDGET))
    (refitted, sums), refitting = timed(lambda: refit(name, model))
    features = data.X_train.shape[1]
    columns = bj.support(model).coefficients.shape[1]
    return {
        "vectors in all": sum(int(one.expansion.num_active) for one in models),
        "streamed %": float(np.mean([accuracy(name, one) for one in models])),
        "merged %": accuracy(name, model),
        "refitted %": accuracy(name, refitted),
        "stream s": max(seconds),
        "merge s": merging,
        "refit s": refitting,
        "numbers of a model": BUDGET * (features + columns),
        "numbers of sums": sums,
        "numbers of rows": len(data.y_train) * (features + 1) // machines,
    }


def devices(repeats: int) -> Iterator[dict[str, Any]]:
    """Seconds of a refit of a million rows, on one and on two devices in turn."""
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS, 22)).astype(np.float32)
    y = np.where(np.sin(X[:, 0]) + X[:, 1] * X[:, 2] > 0, 1, -1)
    state = bj.Pegasos(regularization=1e-5).init(
        bj.RBF(0.02), num_features=22, budget=BUDGET
    )
    state, _ = bj.run(state, X[:20_000], y[:20_000])
    found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    scores = {}
    for i in range(repeats + 1):
        for number in found:
            part = slice(20_000 if i == 0 else ROWS)
            rows = X[part], y[part]
            if number > 1:
                rows = bj.shard_rows(*rows, devices=jax.devices()[:number])[:2]
            wall, start = time.perf_counter(), time.process_time()
            model = bj.refit(state, *rows)
            spent = time.perf_counter() - wall, time.process_time() - start
            scores[number] = np.asarray(bj.decision_function(model, X[:1000]))
            if i:
                found[number].append(spent)
    for number, spent in found.items():
        wall, processor = np.median(spent, axis=0)
        apart = float(np.max(np.abs(scores[number] - scores[1])))
        yield {
            "devices": number,
            "rows": ROWS,
            "s": wall,
            "processor s": processor,
            "difference of scores": apart,
        }


def prepare() -> None:
    jax.config.update("jax_num_cpu_devices", 2)


def cases() -> Iterator[Case]:
    """All sets, orders and numbers of machines, and the devices where asked for."""
    for name in ("letter", "covtype"):
        for machines in (1, *MACHINES):
            for order in ("shuffled", "by label")[: 1 if machines == 1 else 2]:
                key = {"part": "parts", "data": name}
                key |= {"order": order, "machines": machines}
                yield Case(key, functools.partial(figures, name, order, machines))
    yield Case({"part": "devices"}, lambda: list(devices(3)), False)

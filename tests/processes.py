"""What each of several processes runs: `task rank count port file`."""

import sys

import jax
import numpy as np
import pytest

import budgetjax as bj
from budgetjax.datasets import checkerboard
from budgetjax.tables.scaling import Scaling


def share_sweep(rank, count):
    X, y = checkerboard(200, seed=0)
    grid = bj.grid(gamma=[1.0, 8.0, 20.0], budget=[10])
    states = grid.init(
        lambda gamma, budget: bj.Perceptron().init(
            bj.RBF(gamma),
            num_features=2,
            budget=budget,
            capacity=20,
            maintenance=bj.RemoveOldest(),
        )
    )
    result = bj.sweep(states, X, y)
    expansion = result.states.expansion
    # The spare row of the vectors is arbitrary.
    vectors = expansion.vectors[:, :-1]
    return result.errors, result.rounds, vectors, expansion.coefficients_and_sums


def share_rows(rank, count):
    """Refits on rows of which each process has a half; the first has two rows more."""
    X, y = checkerboard(256, seed=0)
    state = bj.Perceptron().init(
        bj.RBF(1.0), num_features=2, budget=20, maintenance=bj.RemoveOldest()
    )
    state, _ = bj.run(state, X, y)
    targets = bj.SGD().init(bj.RBF(1.0), num_features=2, budget=20, num_classes=None)
    targets, _ = bj.run(targets, X, np.ones(256))

    def own(n):
        """Data of n rows: those of this process, or all of them."""
        if count == 1:
            return X[:n], y[:n], np.ones(n, np.float32)
        middle = n // 2 + (1 if n > 128 else 0)
        part = slice(middle) if rank == 0 else slice(middle, n)
        return bj.shard_rows(X[part], y[part])

    found = []
    rows, labels, weight = own(256)
    scaled = bj.TableModel(state, Scaling.translation(np.zeros(2)), np.array([3, 5]))
    words = labels if count == 1 else np.where(local(labels) > 0, 5, 3)
    for model, names, more in [
        (state, labels, {"loss": "squared"}),
        (state, labels, {"tolerance": 1e-7}),
        (scaled, np.where(y > 0, 5, 3) if count == 1 else words, {}),
        (state, labels, {"penalty": [0.1, 10.0], "calibrate": True}),
        (state, labels, {"learn_metric": True, "epochs": 5}),
    ]:
        model = bj.refit(model, rows, names, weight=weight, **more)
        found.append(bj.decision_function(model, X))
    # One batch per epoch, so the order of rows does not matter.
    rows, labels, weight = own(128)
    moved = bj.refit(state, rows, labels, weight=weight, move_vectors=True, epochs=3)
    found.append(bj.decision_function(moved, X))
    once = bj.refit(state, iter([(rows, labels, weight)]), loss="squared")
    found.append(bj.decision_function(once, X))
    known = bj.one_class(targets, rows, weight=weight)
    found.append(bj.decision_function(known, X))
    # What is wrong in one process is an error in all.
    wrong = np.full((10, 2), np.nan if rank == 0 else 1.0, np.float32)
    wrong, ones, _ = bj.shard_rows(wrong, np.ones(10))
    with pytest.raises(ValueError, match=r"refit: .* in (row 0|process 0)"):
        bj.refit(state, wrong, ones)
    scores = bj.decision_function(moved, rows)
    mistakes = (bj.predict(moved, rows) != labels).sum()
    return *found, mistakes, scores.max()


def local(array):
    shards = sorted(array.addressable_shards, key=lambda shard: shard.index[0].start)
    return np.concatenate([shard.data for shard in shards])


def main(task, rank, count, port, path):
    jax.config.update("jax_num_cpu_devices", 1)
    if count > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", count, rank)
    assert jax.device_count() == count
    np.savez(path, *TASKS[task](rank, count))


TASKS = {"sweep": share_sweep, "rows": share_rows}

if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5])

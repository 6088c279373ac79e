"""A forked child of a process that has used JAX: what needs JAX says so and returns."""

import multiprocessing
import sys
import warnings

import numpy as np
import pytest

import budgetjax as bj
from budgetjax import _forks, river
from budgetjax.estimators import (
    BudgetedKernelClassifier,
    BudgetedOneClass,
    MPUClassifier,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="others do not fork")
X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
FIXED = {"gamma": 0.5, "penalty": 1.0, "encode": False, "learn_metric": False}
KERNEL = bj.RBF(0.5)
# Seconds that no child needs, which would wait for ever.
LONG = 60.0


def in_child(calls):
    """What calls give in a forked child, or the text of their errors."""

    def run(connection):
        for call in calls:
            try:
                connection.send(call())
            except Exception as error:
                connection.send(f"{type(error).__name__}: {error}")

    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=run, args=(there,))
    with warnings.catch_warnings():
        # JAX warns of forks, and so does Python from 3.12 on.
        warnings.simplefilter("ignore")
        child.start()
    try:
        found = []
        for _ in calls:
            assert here.poll(LONG), f"call {len(found)} waits"
            found.append(here.recv())
        return found
    finally:
        child.kill()
        child.join()


def test_a_forked_child_is_told_what_to_do(tmp_path):
    model = BudgetedKernelClassifier(10, random_state=0, **FIXED).fit(X, y)
    stream = BudgetedKernelClassifier(10, random_state=0, **FIXED)
    stream.partial_fit(X, y, classes=[-1, 1])
    alone = BudgetedOneClass(10, random_state=0).fit(X)
    linear = MPUClassifier(random_state=0).fit(X, y)
    one = bj.Perceptron().init(KERNEL, num_features=2, budget=10, average=True)
    state, _ = bj.run(one, X, y)
    solved = bj.solve(bj.SMO(KERNEL), X, y).model
    states = bj.grid(margin=[0.0, 0.5]).init(
        lambda margin: bj.Perceptron(margin=margin).init(
            KERNEL, num_features=2, budget=10
        )
    )
    path = tmp_path / "model.safetensors"
    bj.save(str(path), state)
    learns = river.BudgetedClassifier(budget=10)
    for row, label in zip(X.tolist(), y.tolist(), strict=True):
        learns.learn_one(dict(enumerate(row)), label)
    known = learns.predict_proba_one({0: 0.5, 1: 0.5})
    refused = (
        lambda: model.predict(X),
        lambda: model.predict_proba(X),
        lambda: model.fit(X, y),
        lambda: model.partial_fit(X, y),
        lambda: model.support_vectors_,
        lambda: stream.predict(X),
        lambda: alone.predict(X),
        lambda: linear.predict(X),
        lambda: linear.fit(X, y),
        lambda: bj.predict(state, X),
        lambda: bj.decision_function(solved, X),
        lambda: bj.Perceptron().init(KERNEL, num_features=2, budget=10),
        lambda: bj.step(state, X[0], 1),
        lambda: bj.run(state, X, y),
        lambda: bj.sweep(states, X, y),
        lambda: bj.fit_stream(one, [(X, y)], classes=[-1, 1]),
        lambda: bj.refit(state, [(X, y)]),
        lambda: bj.one_class(state, X),
        lambda: bj.solve(bj.SMO(KERNEL), X, y),
        lambda: bj.compress(solved, 5),
        lambda: bj.average_iterates(state),
        lambda: bj.support(state),
        lambda: bj.load(str(path)),
        lambda: [learns.learn_one({0: 0.0, 1: 1.0}, 1) for _ in range(10**4)],
    )
    works = (
        # Learns nothing before it has refused.
        lambda: learns.clone().predict_proba_one({0: 0.5}),
        lambda: model.n_support_,
    )
    predicts = (lambda: learns.predict_proba_one({0: 0.5, 1: 0.5}),)
    found = in_child((*predicts, *works, *refused))
    assert found[0] == pytest.approx(known)
    assert found[2] == model.n_support_
    for said in found[3:]:
        assert (
            said == f"RuntimeError: budgetjax: this process is forked: {_forks.ADVICE}"
        )
    # The parent goes on.
    assert model.predict(X).shape == (60,)


def test_a_child_of_a_process_that_has_not_used_jax_computes(monkeypatch):
    monkeypatch.setattr(_forks.xla_bridge, "_backends", {})
    monkeypatch.setattr(_forks, "is_broken", False)
    assert in_child([lambda: _forks.check()]) == [None]

"""One model of several that learned parts of the data."""

import jax
import numpy as np
import pytest

import budgetjax as bj
from budgetjax.tables.scaling import Scaling

X, Y = bj.datasets.checkerboard(800, seed=0)
PARTS = [slice(i, i + 200) for i in range(0, 800, 200)]
CLASSES = (X[:, 0] > 0).astype(np.int32) + 2 * (X[:, 1] > 0)


def learned(part=slice(200), y=Y, gamma=8.0, **more):
    given = {"maintenance": bj.RemoveOldest()} | more
    kernel = bj.RBF(gamma)
    state = bj.Perceptron().init(kernel, num_features=2, budget=20, **given)
    return run(state, np.arange(800)[part], y)


def run(state, rows, y):
    """Of these rows, by the program that all parts share: the others do not count."""
    every = np.concatenate([rows, np.setdiff1d(np.arange(800), rows)])
    weight = np.arange(800) < len(rows)
    return bj.run(state, X[every], y[every], weight=weight, block_size=1)[0]


def mean(parts):
    return np.mean([bj.decision_function(part, X) for part in parts], axis=0)


@pytest.mark.parametrize("y", [Y, CLASSES], ids=["binary", "classes"])
def test_without_compression_the_mean(y):
    more = {} if y is Y else {"num_classes": 4}
    parts = [learned(part, y, **more) for part in PARTS]
    merged = bj.merge_models(parts, 80)
    assert len(merged.vectors) == 80
    np.testing.assert_allclose(
        bj.decision_function(merged, X), mean(parts), rtol=1e-4, atol=1e-5
    )


def test_models_count_by_their_rows_or_by_weights():
    parts = [learned(slice(600)), learned(slice(600, 800))]
    both = [bj.decision_function(part, X) for part in parts]
    for weights, share in ((None, 0.75), ([1, 3], 0.25), (np.array([2, 0]), 1.0)):
        merged = bj.merge_models(parts, 40, weights=weights)
        expected = share * both[0] + (1 - share) * both[1]
        found = bj.decision_function(merged, X)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    # Kernel models do not know their rows.
    values = [bj.decision_function(one, X) for one in both_ways(parts)]
    np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-5)


def both_ways(parts):
    """States that count alike, and their models."""
    yield bj.merge_models(parts, 40, weights=[5, 5])
    yield bj.merge_models([part.to_kernel_model() for part in parts], 40)


def second_order(rows, y, learner):
    given = {"num_features": 2, "budget": 40}
    given["num_classes"] = 2 if y is Y else None
    return run(learner.init(bj.RBF(2.0), **given), rows, y)


@pytest.mark.parametrize("learner", [bj.KRLST(), bj.AROW()], ids=["targets", "labels"])
def test_models_that_know_where_they_learned(learner):
    """Each has seen half of the square, and decides there alone."""
    real = isinstance(learner, bj.KRLST)
    y = np.sin(4 * X[:, 0]) * X[:, 1] if real else Y
    random = np.random.default_rng(0)
    halves = np.array_split(np.argsort(X[:, 0]), 2)
    parts = [second_order(random.permutation(half), y, learner) for half in halves]

    def wrong(model):
        said = np.asarray(bj.predict(model, X))
        return np.mean((said - y) ** 2 if real else said != y)

    mean = wrong(bj.merge_models(parts, 80, weights=[1, 1]))
    for budget in 80, 40:
        assert wrong(bj.merge_models(parts, budget)) < (0.1 if real else 0.6) * mean


def test_a_model_alone_and_models_that_agree():
    y = np.sin(4 * X[:, 0]) * X[:, 1]
    state = second_order(np.arange(800), y, bj.KRLST())
    own = bj.decision_function(state, X)
    for parts in [state], [state, state]:
        found = bj.decision_function(bj.merge_models(parts, 80), X)
        np.testing.assert_allclose(found, own, atol=2e-3)


@pytest.mark.usefixtures("as_installed")
def test_wrong_weights():
    parts = [learned(part) for part in PARTS[:2]]
    for weights, says in (
        ([1, 1, 1], r"have the shape \(2,\), one per model, got shape \(3,\)"),
        ([1, -1], "weights must be .*0"),
        ([0, 0], "have one above 0, got none"),
    ):
        with pytest.raises(ValueError, match=says):
            bj.merge_models(parts, 40, weights=weights)


def test_stacked_states():
    state = learned(slice(0))
    learn = jax.vmap(lambda X, y: bj.run(state, X, y)[0])
    stack = learn(X.reshape(4, 200, 2), Y.reshape(4, 200))
    parts = [learned(part) for part in PARTS]
    merged = [bj.merge_models(each, 80) for each in (stack, parts)]
    np.testing.assert_allclose(*(bj.decision_function(one, X) for one in merged), 1e-4)


def test_compressed_and_refitted():
    parts = [learned(part) for part in PARTS]
    small = bj.merge_models(parts, 20)
    assert len(small.vectors) == 20
    refitted = bj.merge_models(parts, 20, X, Y, penalty=1.0)
    expected = bj.refit(small, X, Y, penalty=1.0)
    np.testing.assert_array_equal(
        *(bj.decision_function(one, X) for one in (refitted, expected))
    )
    accuracy = [
        np.mean(np.asarray(bj.predict(one, X)) == Y) for one in (*parts, refitted)
    ]
    assert accuracy[-1] > max(accuracy[:-1])


def test_labelled_models():
    """Classes stay, and intercepts are averaged in their unit."""
    scaling = Scaling.translation(np.ones(2))
    names = np.array(["a", "b"])
    parts = [bj.TableModel(learned(part), scaling, names) for part in PARTS]
    merged = bj.merge_models(parts, 80)
    assert set(bj.predict(merged, X).tolist()) == {"a", "b"}
    np.testing.assert_allclose(
        bj.decision_function(merged, X), mean(parts), rtol=1e-4, atol=1e-5
    )
    values = [
        bj.TableModel(
            bj.KernelModel(
                bj.RBF(8.0), X[part], Y[part] * np.float32(1), np.float32(0)
            ),
            intercept=float(i),
            unit=2.0,
        )
        for i, part in enumerate(PARTS)
    ]
    np.testing.assert_allclose(
        bj.decision_function(bj.merge_models(values, 800), X),
        mean(values),
        rtol=1e-4,
        atol=1e-4,
    )
    several = [bj.TableModel((learned(part), learned(part, -Y))) for part in PARTS]
    np.testing.assert_allclose(
        bj.decision_function(bj.merge_models(several, 80), X),
        mean(several),
        rtol=1e-4,
        atol=1e-5,
    )


def labelled(**changes):
    return bj.TableModel(learned(), classes=np.array([0, 1]))._replace(**changes)


@pytest.mark.parametrize(
    ("make", "budget", "message"),
    [
        (list, 5, "parts must have models, got none"),
        (learned, 5, "parts must be a list of models, or states stacked"),
        (lambda: [learned()], 0, "budget must be at least 1, got 0"),
        (
            lambda: [learned(), learned(gamma=4.0)],
            5,
            r"model 1 must have the kernel of model 0",
        ),
        (
            lambda: [learned(), learned(y=CLASSES, num_classes=4)],
            5,
            "model 1 must have the number of columns of model 0, 1, got 4",
        ),
        (lambda: [learned(), learned(slice(0))], 0, "budget must be at least 1"),
        (lambda: [labelled(), learned()], 5, "model 1 must have the kind of model 0"),
        (
            lambda: [labelled(), labelled(classes=np.array([1, 0]))],
            5,
            r"model 1 must have the classes of model 0, \[0, 1\], got \[1, 0\]",
        ),
        (
            lambda: [
                labelled(),
                labelled(scaling=Scaling.translation(np.ones(2))),
            ],
            5,
            "model 1 must have the scaling of model 0",
        ),
        (
            lambda: [labelled(), labelled(unit=2.0)],
            5,
            "model 1 must have the unit of model 0",
        ),
        (
            lambda: [learned(), bj.LinearModel(np.ones(2), np.zeros(()))],
            5,
            "model must have support vectors, got LinearModel",
        ),
    ],
)
def test_what_cannot_be_merged(make, budget, message):
    parts = make()
    with pytest.raises(ValueError, match=f"^(merge_models|support): {message}"):
        bj.merge_models(parts, budget)

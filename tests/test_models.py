"""One way to score, predict and read support vectors, whoever made the model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import budgetjax as bj

D, B = 2, 5
X = np.random.default_rng(0).normal(size=(30, D)).astype(np.float32)
CLASSES = np.argmax(X @ np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]]), axis=1)
y = np.where(X[:, 0] > 0, 1, -1)
KERNEL = bj.RBF(0.5)
PARTS = {"num_features": D, "budget": B, "maintenance": bj.RemoveSmallest()}


def learned(num_classes=2):
    """A perceptron, whose program is the quickest to compile."""
    state = bj.perceptron.init(KERNEL, num_classes=num_classes, **PARTS)
    labels = CLASSES if num_classes == 3 else y
    return bj.run(bj.perceptron, state, X, labels)[0]


def regressor():
    state = bj.sgd.init(
        KERNEL, loss=bj.losses.absolute, learning_rate=0.1, num_features=D, budget=B
    )
    return bj.sgd.step(state, X[0], 2.5)


def models():
    """Models of every kind, and the scores of X by hand."""
    for classes in (2, 3):
        state = learned(classes)
        vectors, coefficients, mask = map(np.asarray, bj.support(state))
        gram = np.asarray(KERNEL.gram(X, vectors))
        columns = coefficients[mask, 0] if classes == 2 else coefficients[mask]
        expected = gram[:, mask] @ columns
        kernel_model = bj.KernelModel(
            KERNEL,
            jnp.asarray(vectors[mask]),
            jnp.asarray(columns),
            jnp.asarray(np.full(columns.shape[1:], 0.25, np.float32)),
        )
        yield f"state of {classes} classes", state, expected
        yield f"kernel model of {classes} classes", kernel_model, expected + 0.25
    weights = np.array([1.0, -0.5], np.float32)
    linear = bj.LinearModel(jnp.asarray(weights), jnp.float32(0.5))
    yield "linear model", linear, X @ weights + 0.5
    solution = bj.dcd.solve(X, y, penalty=0.1, max_passes=5)
    expected = X @ np.asarray(solution.model.weights) + float(solution.model.bias)
    yield "solution", solution, expected


MODELS = {name: (model, expected) for name, model, expected in models()}


@pytest.mark.parametrize("name", MODELS)
def test_scores_and_labels_of_models_of_every_kind(name):
    model, expected = MODELS[name]
    scores = bj.decision_function(model, X)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    labels = bj.predict(model, X)
    assert labels.dtype == jnp.int32
    if expected.ndim == 1:
        np.testing.assert_array_equal(labels, np.where(scores > 0, 1, -1))
    else:
        np.testing.assert_array_equal(labels, np.argmax(scores, axis=1))
    if hasattr(model, "predict"):
        np.testing.assert_array_equal(model.predict(X), labels)
        np.testing.assert_array_equal(model.decision_function(X), scores)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_rows_that_are_not_finite_are_refused(name, value, as_installed):
    bad = X.copy()
    bad[7, 1] = value
    given = [bad, scipy.sparse.csr_matrix(bad)]
    for rows in given if name in ("linear model", "solution") else given[:1]:
        for call in (bj.predict, bj.decision_function):
            says = f"^{call.__name__}: X must be finite, got {value} in row 7, column 1"
            with pytest.raises(ValueError, match=says):
                call(MODELS[name][0], rows)


def test_a_regressor_predicts_values():
    state = regressor()
    scores = bj.decision_function(state, X)
    assert scores[0] != 0
    np.testing.assert_array_equal(bj.predict(state, X), scores)


def test_states_of_all_algorithms_share_a_program():
    from budgetjax.models import _kernel_scores

    bj.predict(learned(), X)
    known = _kernel_scores._cache_size()
    bj.predict(regressor(), X)
    assert _kernel_scores._cache_size() == known


@pytest.mark.parametrize("classes", [2, 3])
def test_the_largest_coefficients_of_a_state(classes):
    state = learned(classes)
    vectors, coefficients, mask = map(np.asarray, bj.support(state))
    lengths = np.where(mask, np.linalg.norm(coefficients, axis=1), -1)
    kept = np.sort(np.argsort(-lengths, kind="stable")[:2])
    small = bj.prune(state, 2)
    np.testing.assert_array_equal(small.vectors, vectors[kept])
    np.testing.assert_array_equal(bj.support(small).coefficients, coefficients[kept])
    whole = bj.prune(state, B)
    np.testing.assert_allclose(
        bj.decision_function(whole, X), bj.decision_function(state, X), atol=1e-5
    )


def test_models_without_support_vectors(as_installed):
    waves = bj.fourier.init(KERNEL, num_features=D, budget=4)
    for model, got in (
        (waves, "one of fourier"),
        (MODELS["linear model"][0], "LinearModel"),
        (MODELS["solution"][0], "LinearModel"),
    ):
        for call in (bj.support, lambda model: bj.prune(model, 2)):
            says = f"^support: model must have support vectors, got {got}$"
            with pytest.raises(ValueError, match=says):
                call(model)


def test_a_stack_of_models_is_for_vmap(as_installed):
    state = learned()
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    with pytest.raises(
        ValueError, match=r"must be a single one, got a stack of shape .2,"
    ):
        bj.predict(stacked, X)
    each = jax.vmap(lambda state: bj.predict(state, X))(stacked)
    np.testing.assert_array_equal(each[1], bj.predict(state, X))

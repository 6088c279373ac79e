"""Data far from 0 in float32: every learner, solver and model as for centred rows.

The rows are multiples of 2^-8, so adding a mean of up to 30,000 rounds nothing, and
only the rounding of distances is left to differ.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
from marks import first_quick, slow
from solving import CLASSES, KERNEL_SOLVERS

import budgetjax as bj

MEANS = (300, 30_000)
KERNELS = {
    "RBF": bj.RBF(0.5),
    "Laplacian": bj.Laplacian(0.3),
    "Matern, 1/2": bj.Matern(2.0, nu=0.5),
    "Matern, 3/2": bj.Matern(2.0),
    "Matern, 5/2": bj.Matern(2.0, nu=2.5),
    "RationalQuadratic": bj.RationalQuadratic(2.0),
    "scales": bj.Mapped(bj.RBF(0.5), np.array([1.0, 0.5, 1.0], np.float32)),
    "metric": bj.Mapped(bj.RBF(0.5), np.eye(3, 2, dtype=np.float32)),
    "normalized": bj.Normalized(bj.RBF(0.5)),
    "sum": bj.RBF(0.5) + bj.Matern(2.0),
    "product": bj.RBF(0.3) * bj.Laplacian(0.1),
}


def rounded(X):
    """The nearest multiples of 2^-8."""
    return (np.round(np.asarray(X, np.float64) * 256) / 256).astype(np.float32)


def problem(n=120, seed=0):
    """Rows of two classes that a kernel separates."""
    X = rounded(np.random.default_rng(seed).normal(size=(n, 3)))
    return X, np.where(np.sin(2 * X[:, 0]) * X[:, 1] > 0, 1, -1)


def far_rows(rows):
    return [row for row in rows if row.unlike != registry.FIXED_FEATURES]


@functools.partial(registry.each, rows=far_rows(registry.ROWS))
def test_learners_see_distances_alone(row):
    X, y = row.stream()
    X, state = rounded(X), row.roomy()
    if not state.kernel.stationary:
        state = row.roomy(kernel=bj.RBF(0.5))
    near, scores = bj.run(state, X, y)
    for mean in MEANS:
        far, found = bj.run(state, X + np.float32(mean), y)
        # Squared norms of 3e9 would leave no digit of a score.
        np.testing.assert_allclose(found, scores, rtol=1e-3, atol=1e-3)
        assert int(far.num_mistakes) == int(near.num_mistakes)
        known, shifted = bj.support(near), bj.support(far)
        np.testing.assert_allclose(
            np.asarray(shifted.vectors - mean)[np.asarray(shifted.mask)],
            np.asarray(known.vectors)[np.asarray(known.mask)],
            atol=mean * 2e-7,
        )
        np.testing.assert_allclose(
            bj.decision_function(far, X + np.float32(mean)),
            bj.decision_function(near, X),
            rtol=1e-3,
            atol=1e-3,
        )


PEGASOS = bj.Pegasos(regularization=1e-2)


def start(learner=PEGASOS, **more):
    """A small model under a Gaussian kernel."""
    return learner.init(bj.RBF(0.5), num_features=3, budget=20, **more)


@pytest.mark.parametrize(
    "learner", [bj.AROW(), *slow(PEGASOS)], ids=["arow", "pegasos"]
)
def test_steps_have_the_origin_of_a_run(learner):
    X, y = problem()
    X = X + np.float32(3000)
    state = start(learner)

    def step(state, example):
        return bj.step(state, *example), None

    stepped, _ = jax.lax.scan(step, state, (jnp.asarray(X), jnp.asarray(y)))
    run, _ = bj.run(state, X, y)
    scores = bj.decision_function(run, X)
    np.testing.assert_allclose(
        bj.decision_function(stepped, X), scores, rtol=1e-3, atol=1e-3
    )
    # The first row alone is the origin of one, and a middle one of the other.
    assert np.linalg.norm(stepped.expansion.origin - run.expansion.origin) < 20
    assert np.all(np.abs(run.expansion.vectors[run.expansion.mask]) < 20)


def test_rows_near_0_are_kept_as_they_are():
    X, y = problem()
    state = start()
    state, _ = bj.run(state, X, y)
    assert not np.any(state.expansion.origin)
    vectors = np.asarray(bj.support(state).vectors)
    # Some are rows that no merge has moved.
    assert np.any((vectors[:, None] == X[None]).all(axis=2))


@pytest.mark.parametrize("outlier", [-9999.0, *slow(1e6)])
def test_rows_that_do_not_count_and_outliers_are_no_origin(outlier):
    X, y = problem()
    state = start()
    odd = np.full_like(X[:2], outlier)
    weight = np.append([0.0, 0.0], np.ones(len(X)))
    # The same rows, with two at the end that do not count.
    last = np.concatenate([X, X[:2]]), np.append(y, y[:2])
    expected, _ = bj.run(state, *last, weight=weight[::-1])
    rows, labels = np.concatenate([odd, X]), np.append([1, -1], y)
    found, _ = bj.run(state, rows, labels, weight=weight)
    for one in (found, bj.step(state, odd[0], 1, 0.0)):
        assert not np.any(one.expansion.origin)
    # Blocks begin elsewhere, so sums are rounded otherwise.
    np.testing.assert_allclose(
        bj.decision_function(found, X), bj.decision_function(expected, X), atol=1e-5
    )
    # One outlier that counts scores its own side, and moves nothing.
    weight[0] = 1
    found, _ = bj.run(state, rows, labels, weight=weight)
    assert not np.any(found.expansion.origin)


def test_an_empty_model_forgets_its_origin():
    X, y = problem()
    state = start()
    far, _ = bj.run(state, X + np.float32(3000), y)
    assert np.any(far.expansion.origin)
    again, _ = bj.run(far.restart(), X, y)
    assert not np.any(again.expansion.origin)


def test_models_of_a_sweep_have_the_origin():
    X, y = problem()
    states = jax.vmap(
        lambda gamma: PEGASOS.init(bj.RBF(gamma), num_features=3, budget=20)
    )(jnp.array([1e-9, 0.5]))
    near = bj.sweep(states, X, y)
    far = bj.sweep(states, X + np.float32(30_000), y)
    # Each model has its own: under a wide kernel the rows are near 0.
    assert np.any(far.states.expansion.origin, axis=1).tolist() == [False, True]
    assert far.error[1] == near.error[1]


@pytest.mark.parametrize("name", first_quick(KERNEL_SOLVERS))
@pytest.mark.parametrize("size", [64.0, *slow(0.01)], ids=["complete", "ring"])
def test_solvers_see_distances_alone(name, size):
    X, y = problem()
    solver = CLASSES[name](bj.RBF(0.5), **KERNEL_SOLVERS[name])
    near, far = (
        bj.solve(solver, rows, y, cache=bj.KernelCache(size), max_steps=200)
        for rows in (X, X + np.float32(30_000))
    )
    np.testing.assert_allclose(
        far.model.decision_function(X + np.float32(30_000)),
        near.model.decision_function(X),
        atol=5e-3,
    )
    vectors = np.asarray(far.model.vectors) - 30_000
    assert np.all((vectors[:, None] == X[None]).all(axis=2).any(axis=1))


@pytest.mark.parametrize("name", first_quick(KERNELS))
def test_stationary_kernels_see_distances_alone(name):
    X, y = problem()
    kernel = KERNELS[name]
    near = bj.solve(bj.SMO(kernel), X, y).model
    far = near._replace(vectors=near.vectors + np.float32(30_000))
    np.testing.assert_allclose(
        bj.decision_function(far, X + np.float32(30_000)),
        bj.decision_function(near, X),
        # A Matern kernel of 1/2 has a corner at equal points.
        atol=1e-3,
    )


@pytest.mark.parametrize("mapped", [False, *slow(True)])
def test_smaller_models_see_distances_alone(mapped):
    X, y = problem()
    kernel, found = bj.RBF(0.5), []
    if mapped:
        kernel = bj.Mapped(kernel, np.eye(3, 2, dtype=np.float32))
    for rows in (X, X + np.float32(30_000)):
        state = PEGASOS.init(kernel, num_features=3, budget=40)
        state, _ = bj.run(state, rows, y)
        solution = bj.solve(bj.SMO(kernel), rows, y)
        models = [
            bj.refit(state, rows, y, penalty=1.0),
            bj.refit(solution, rows, y, penalty=1.0),
            bj.compress(state, 10, steps=20),
            bj.prune(state, 10, rows, y),
            bj.compact(state),
            bj.merge_models([state, state], 30, steps=0),
            bj.refit(state, rows, y, penalty=1.0, move_vectors=True, epochs=2),
        ]
        found.append([np.asarray(bj.decision_function(m, rows)) for m in models])
    for near, far in zip(*found, strict=True):
        np.testing.assert_allclose(far, near, rtol=0.02, atol=0.02)


def test_a_metric_far_from_0_is_that_of_centred_rows():
    X, y = problem(300)
    state = start()
    right = []
    for mean in (0, 30_000):
        rows = X + np.float32(mean)
        far, _ = bj.run(state, rows, y)
        model = bj.refit(far, rows, y, penalty=1.0, learn_metric=True, epochs=3)
        right.append(float((bj.predict(model, rows) == y).mean()))
    assert right[1] == pytest.approx(right[0], abs=0.02)


def test_given_vectors_far_from_0():
    X, y = problem()
    found = []
    for mean in (0, 30_000):
        rows = X + np.float32(mean)
        for learner in (bj.Nystrom(), bj.AROW()):
            state, _ = bj.run(start(learner, vectors=rows[:20]), rows, y)
            found.append(np.asarray(bj.decision_function(state, rows)))
    for near, far in zip(found[:2], found[2:], strict=True):
        np.testing.assert_allclose(far, near, rtol=1e-3, atol=1e-3)


def test_gradients_see_distances_alone():
    X, y = problem()
    near = bj.solve(bj.SMO(bj.RBF(0.5)), X, y).model

    @jax.jit
    @functools.partial(jax.grad, argnums=(0, 1))
    def slopes(vectors, rows):
        return jnp.sum(bj.decision_function(near._replace(vectors=vectors), rows))

    vectors, rows, mean = near.vectors, jnp.asarray(X[:8]), np.float32(30_000)
    for found, known in zip(
        slopes(vectors + mean, rows + mean), slopes(vectors, rows), strict=True
    ):
        # Sums of a hundred terms of up to 1.
        np.testing.assert_allclose(found, known, atol=1e-4)

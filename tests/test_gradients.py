"""Derivatives of learning equal difference quotients, in both modes.

A learner is a piecewise smooth function of numbers: of the kernel's, of its own, and of
the rows. Its pieces are told apart by the integers in its state, such as ages and
counts; a quotient is taken within one piece. With a step of 1e-6 in float64 its own
error is some 1e-9 of the numbers in it, and more where kernel matrices are inverted.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry

import budgetjax as bj
from budgetjax.online import span

STEP = 1e-6
# Factors of the kernel's numbers and the learner's, and a distance along a direction.
AT = np.array([1.0, 1.0, 0.0])
BLOCK = 8


def scaled_kernel(kernel, factor):
    """A kernel whose numbers are multiplied, except an exponent."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf if "degree" in str(path) else leaf * factor, kernel
    )


def objective(row, seed=0, garbage=False, n=25):
    """A function of `AT`: a number, and the integers of the state."""
    X, y = row.stream(n, seed=seed)
    random = np.random.default_rng(seed)
    along, points = (random.normal(size=(k, registry.NUM_FEATURES)) for k in (n, 9))
    weight = np.ones(n)
    if garbage:
        weight[3:6] = weight[-2:] = 0
        # 0 times NaN is not 0, so a direction moves no padding.
        along[weight == 0], X[weight == 0] = 0, np.nan
    own = row.learner.get_params(deep=False)
    numbers = {k: v for k, v in own.items() if type(v) is float}

    def learn(at):
        state = row.init(
            scaled_kernel(row.kernel, at[0]),
            dtype=jnp.float64,
            **{name: value * at[1] for name, value in numbers.items()},
        )
        rows = X.astype(np.float64) + at[2] * along
        state, scores = bj.run(state, rows, y, weight=weight, block_size=BLOCK)
        ours = bj.decision_function(state, points)
        total = jnp.mean(ours**2) + jnp.mean(jnp.sin(scores[weight > 0]))
        whole = [leaf for leaf in jax.tree.leaves(state) if leaf.dtype == jnp.int32]
        return total, whole

    return learn


def quotients(learn):
    """Central differences, each within one piece of the function."""
    learn = jax.jit(learn)
    found = []
    for step in STEP * np.eye(len(AT)):
        (one, left), (other, right) = learn(AT + step), learn(AT - step)
        for a, b in zip(left, right, strict=True):
            np.testing.assert_array_equal(a, b)
        found.append((one - other) / (2 * STEP))
    return np.array(found)


# Without the two whose loops take longest to differentiate: `projectron` projects, too.
QUICK = registry.named("forgetron", "pegasos-merge", "projectron", "fourier-average")


@functools.partial(registry.each, quick=QUICK)
def test_derivatives_of_a_run_are_difference_quotients(row, double):
    """Also where some rows are padding."""
    learn = objective(row, garbage=True)
    expected = quotients(learn)

    # One direction a call compiles in a third of the time of all of them at once, which
    # rows with padding have below.
    @jax.jit
    def forward(at, direction):
        return jax.jvp(lambda at: learn(at)[0], (at,), (direction,))[1]

    one_by_one = np.array([forward(AT, direction) for direction in np.eye(len(AT))])
    for actual in (one_by_one, reverse(learn)):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)


def reverse(learn):
    return jax.jit(jax.grad(learn, has_aux=True))(AT)[0]


@functools.partial(
    registry.each,
    rows=registry.named("projectron", "nystrom-regression"),
    quick=(),
)
def test_padding_has_no_part_in_derivatives(row, double):
    """To the last digits, in all directions at once."""
    learn = objective(row, garbage=True)
    forward, _ = jax.jit(jax.jacfwd(learn, has_aux=True))(AT)
    assert np.all(np.isfinite(forward))
    np.testing.assert_allclose(forward, reverse(learn), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["projectron"], ids="@{}".format)
def test_derivatives_of_steps_are_those_of_a_run(name, double):
    (row,) = registry.named(name)
    X, y = row.stream(25)

    def by_run(gamma):
        state = row.init(bj.RBF(gamma), dtype=jnp.float64)
        return jnp.sum(bj.run(state, X, y, block_size=BLOCK)[1] ** 2)

    def by_steps(gamma):
        state = row.init(bj.RBF(gamma), dtype=jnp.float64)

        def body(state, example):
            score = bj.decision_function(state, example[0][None])[0]
            return bj.step(state, *example), score

        return jnp.sum(jax.lax.scan(body, state, (X, y))[1] ** 2)

    runs = jax.jit(lambda gamma: jax.jvp(by_run, (gamma,), (1.0,)))(0.5)
    steps = jax.jit(jax.value_and_grad(by_steps))(0.5)
    np.testing.assert_allclose(runs, steps, rtol=1e-9)
    assert abs(steps[1]) > 1e-3


@pytest.mark.parametrize("part", ["factor", "inverse root"])
def test_derivatives_of_a_span_are_difference_quotients(part, double):
    """A ridge is a constant, and eigenvalues may be equal."""
    random = np.random.default_rng(0)
    half, along = random.normal(size=(2, 4, 4))
    gram, change = np.eye(4) + half @ half.T, along + along.T
    if part == "factor":
        mask = np.array([True, True, False, True])

        def found(at):
            return span.factorise(gram + at * change, mask)[1]
    else:
        gram = np.diag([1.0, 1.0, 2.0, 3.0])

        def found(at):
            return span._inverse_root(gram + at * change)

    found = jax.jit(found)
    _, actual = jax.jit(lambda at: jax.jvp(found, (at,), (1.0,)))(0.0)
    expected = (found(STEP) - found(-STEP)) / (2 * STEP)
    np.testing.assert_allclose(actual, expected, atol=1e-8)

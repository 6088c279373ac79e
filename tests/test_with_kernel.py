"""A state with another kernel: nothing in it is of the old one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
import runs

import budgetjax as bj
from budgetjax.online.span import Span

pytestmark = pytest.mark.usefixtures("plain_loops")

NAMES = (
    *("arow-multiclass", "projectron", "projectron-same-class"),
    *("pegasos-project-multiclass", "pegasos-ball", "forgetron-basic", "alma"),
    *("pegasos-merge-best-pair", "passive-aggressive-onto-nearest-multiclass"),
    *("nystrom-regression", "ahpatron-multiclass", "krlst-regression"),
)
OTHER = 1.3


def other_kernel(kernel):
    """The same kernel with other numbers."""
    return jax.tree.map(lambda leaf: leaf * OTHER, kernel)


@jax.jit
def gram_of(kernel, A, B):
    """One program for a matrix, and not one for each of its operations."""
    return kernel.gram(A, B)


def spans(tree):
    """All spans and kernel matrices in a state."""

    def is_span(node):
        return isinstance(node, Span)

    return [one for one in jax.tree.leaves(tree, is_leaf=is_span) if is_span(one)]


@functools.partial(registry.each, rows=registry.named(*NAMES))
def test_everything_in_a_state_is_of_its_kernel(row, double):
    X, y = row.stream()
    # The start that other tests of the row have, and their program.
    learn = functools.partial(runs.loop, row, X=X, y=y)
    state = jax.tree.map(jnp.asarray, learn(runs.exact(row))[0])
    kernel = other_kernel(row.kernel)
    new = jax.jit(bj.with_kernel)(state, kernel)
    support = bj.support(state)
    expected = gram_of(kernel, X.astype(float), support.vectors)
    expected = np.asarray(expected) @ np.asarray(support.coefficients)
    scores = np.reshape(bj.decision_function(new, X), expected.shape)
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)
    mask = np.asarray(new.expansion.mask)
    gram = np.asarray(gram_of(kernel, *[new.expansion.vectors] * 2))
    for span in spans(new):
        per_slot = len(span.selves) // len(mask)
        kept = np.repeat(mask, per_slot)
        root = np.asarray(span.root)[kept][:, kept]
        inner = root @ np.asarray(span.gram)[kept][:, kept] @ root.T
        np.testing.assert_allclose(inner, np.eye(len(inner)), atol=1e-9)
        whole = np.repeat(np.repeat(gram, per_slot, 0), per_slot, 1)
        shown = np.asarray(span.gram)
        ratio = np.where(shown == 0, 1, shown / whole)[kept][:, kept]
        np.testing.assert_allclose(ratio, 1, atol=2e-3)
    # Another kernel and back learns as before.
    _, back = learn(bj.with_kernel(new, row.kernel))
    _, expected = learn(bj.with_kernel(state, row.kernel))
    np.testing.assert_allclose(back, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("learner", "more"),
    [(bj.Pegasos(), {"maintenance": bj.Project()}), (bj.AROW(), {})],
    ids=["pegasos", "arow"],
)
def test_learning_goes_on_with_the_new_kernel(learner, more):
    """As well as with a state whose kernel was the new one from the start."""
    X, y = bj.datasets.checkerboard(1600, seed=0)

    state = learner.init(bj.RBF(6.0), num_features=2, budget=50, **more)
    state, _ = bj.run(state, X[:800], y[:800])
    state = jax.jit(bj.with_kernel)(state, bj.RBF(jnp.float32(8.0)))
    _, scores = bj.run(state, X[800:], y[800:])
    assert np.mean(np.sign(scores[400:]) == y[1200:]) > 0.85


def test_a_kernel_of_whole_rows_sees_them(double):
    """Rows are kept as differences from an origin where the kernel allows it."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(20, 2)) + 100, np.where(np.arange(20) % 3, 1, -1)
    more = {"maintenance": bj.RemoveOldest(), "dtype": jnp.float64}
    state = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=5, **more)
    state, _ = bj.run(state, X, y)
    assert np.any(state.expansion.origin != 0)
    kernel = bj.Polynomial(2, gamma=1e-4)
    support = bj.support(state)
    expected = gram_of(kernel, X, support.vectors) @ support.coefficients
    actual = bj.decision_function(bj.with_kernel(state, kernel), X)
    np.testing.assert_allclose(actual, expected[:, 0], rtol=1e-9)


@pytest.mark.usefixtures("as_installed")
def test_a_kernel_is_not_swapped_by_hand():
    state = bj.AROW().init(bj.RBF(1.0), num_features=2, budget=3)
    with pytest.raises(ValueError, match=r"kernel must be replaced by .*with_kernel"):
        state._replace(kernel=bj.RBF(2.0))
    same = state._replace(kernel=state.kernel, memory=None)
    assert same.kernel is state.kernel
    assert same.memory is None
    fourier = bj.Fourier().init(bj.RBF(1.0), num_features=2, budget=4)
    with pytest.raises(ValueError, match=r"with_kernel: state must .* got Fourier"):
        bj.with_kernel(fourier, bj.RBF(2.0))
    merging = bj.Pegasos().init(bj.RBF(1.0), num_features=2, budget=3)
    with pytest.raises(ValueError, match="Merge: kernel must be Gaussian"):
        bj.with_kernel(merging, bj.Laplacian(2.0))
    with pytest.raises(ValueError, match="with_kernel: kernel must be a kernel"):
        bj.with_kernel(merging, 2.0)
    stacked = jax.jit(
        jax.vmap(lambda gamma: bj.AROW().init(bj.RBF(gamma), num_features=2, budget=3))
    )(np.float32([1, 2]))
    with pytest.raises(ValueError, match=r"use jax\.vmap over with_kernel"):
        bj.with_kernel(stacked, bj.RBF(1.0))
    swapped = jax.jit(jax.vmap(lambda state, g: bj.with_kernel(state, bj.RBF(g))))(
        stacked, np.float32([3, 4])
    )
    assert swapped.kernel.gamma.tolist() == [3, 4]


def test_a_kernel_of_products_has_rows_as_they_are():
    """Distances are taken from an origin among the rows; other kernels have none."""
    X, y = bj.datasets.checkerboard(60, seed=0)
    X = (X + 1000).astype(np.float32)
    given = {"num_features": 2, "budget": 10, "maintenance": bj.RemoveOldest()}
    state = bj.Perceptron().init(bj.RBF(2.0), **given)
    state, _ = bj.run(state, X, y)
    vectors, coefficients, _ = bj.support(state)
    for kernel in (bj.Polynomial(2, 1e-6), bj.RBF(3.0)):
        state = bj.with_kernel(state, kernel)
        np.testing.assert_array_equal(bj.support(state).vectors, vectors)
        exact = kernel.gram(*(jnp.array(rows - 1000 * isinstance(kernel, bj.RBF))
                              for rows in (X, vectors)))  # fmt: skip
        # Both are sums of ten products of numbers up to 4 and 1.
        scores = bj.decision_function(state, X)
        np.testing.assert_allclose(
            scores, (exact @ coefficients)[:, 0], rtol=1e-4, atol=1e-4
        )

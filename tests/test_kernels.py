"""Kernels: one table of them drives every property."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import slow
from sklearn.gaussian_process import kernels as gaussian_process
from sklearn.metrics import pairwise

import budgetjax as bj
from budgetjax import _checks

N, M, D = 7, 5, 4


class Row(NamedTuple):
    """A kernel, and what another program says it is."""

    name: str
    kernel: bj.Kernel
    expected: Callable[[np.ndarray, np.ndarray], np.ndarray]
    semidefinite: bool = True


def sk_polynomial(degree, gamma, coef0):
    return lambda X, Z: pairwise.polynomial_kernel(X, Z, degree, gamma, coef0)


def sk_rbf(gamma):
    return lambda X, Z: pairwise.rbf_kernel(X, Z, gamma)


def sk_laplacian(gamma):
    return lambda X, Z: pairwise.laplacian_kernel(X, Z, gamma)


def sk_sigmoid(gamma, coef0):
    return lambda X, Z: pairwise.sigmoid_kernel(X, Z, gamma, coef0)


def normalized(expected):
    def norms(X):
        return np.sqrt(np.diag(expected(X, X)))

    return lambda X, Z: expected(X, Z) / norms(X)[:, None] / norms(Z)[None]


linear = pairwise.linear_kernel
SCALES = np.array([1.0, 0.5, -2.0, 0.0])
ROWS = (
    Row("linear", bj.Linear(), linear),
    Row("polynomial", bj.Polynomial(3, 0.5, 1.0), sk_polynomial(3, 0.5, 1.0)),
    Row("polynomial-degree-1", bj.Polynomial(1, 0.5, 0.2), sk_polynomial(1, 0.5, 0.2)),
    Row("homogeneous", bj.Polynomial(2, 0.3, 0.0), sk_polynomial(2, 0.3, 0.0)),
    Row("rbf", bj.RBF(0.3), sk_rbf(0.3)),
    Row("rbf-exact", bj.RBF(0.3, exact=True), sk_rbf(0.3)),
    Row("laplacian", bj.Laplacian(0.4), sk_laplacian(0.4)),
    *(
        Row(
            f"matern-{nu}",
            bj.Matern(1.3, nu=nu),
            gaussian_process.Matern(1.3, nu=nu),
        )
        for nu in (0.5, 1.5, 2.5)
    ),
    Row(
        "rational-quadratic",
        bj.RationalQuadratic(1.3, alpha=0.7),
        gaussian_process.RationalQuadratic(1.3, alpha=0.7),
    ),
    Row(
        "mapped-vector",
        bj.Mapped(bj.RBF(0.3), SCALES),
        lambda X, Z: sk_rbf(0.3)(X * SCALES, Z * SCALES),
    ),
    Row(
        "mapped-matrix",
        bj.Mapped(bj.Polynomial(2, 0.3, 1.0), np.outer(SCALES, [1.0, -2.0])),
        lambda X, Z: sk_polynomial(2, 0.3, 1.0)(
            X @ np.outer(SCALES, [1.0, -2.0]), Z @ np.outer(SCALES, [1.0, -2.0])
        ),
    ),
    Row("sigmoid", bj.Sigmoid(0.6, -0.5), sk_sigmoid(0.6, -0.5), semidefinite=False),
    Row(
        "normalized-linear",
        bj.Normalized(bj.Linear()),
        pairwise.cosine_similarity,
    ),
    Row(
        "normalized-polynomial",
        bj.Normalized(bj.Polynomial(3, 0.5, 1.0)),
        normalized(sk_polynomial(3, 0.5, 1.0)),
    ),
    Row(
        "sum",
        bj.RBF(0.3) + bj.Linear(),
        lambda X, Z: sk_rbf(0.3)(X, Z) + linear(X, Z),
    ),
    Row(
        "product",
        bj.Laplacian(0.1) * bj.Polynomial(2, 0.3, 1.0),
        lambda X, Z: sk_laplacian(0.1)(X, Z) * sk_polynomial(2, 0.3, 1.0)(X, Z),
    ),
    Row(
        "precedence",
        bj.RBF(0.1) + bj.Linear() * bj.RBF(2.0),
        lambda X, Z: sk_rbf(0.1)(X, Z) + linear(X, Z) * sk_rbf(2.0)(X, Z),
    ),
    Row(
        "normalized-sum",
        bj.Normalized(bj.RBF(0.3) + bj.Linear()),
        normalized(lambda X, Z: sk_rbf(0.3)(X, Z) + linear(X, Z)),
    ),
)


def each(test):
    """Runs a test once for every row."""
    return pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)(test)


def each_with_parameters(test):
    rows = [row for row in ROWS if jax.tree.leaves(row.kernel)]
    return pytest.mark.parametrize("row", rows, ids=lambda row: row.name)(test)


def points(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, D))


def varied(kernel, i):
    """The same kernel with other values of the same types."""
    return jax.tree.map(lambda p: p + i if isinstance(p, int) else p * (1 + i), kernel)


# Values.


@jax.jit
def values(kernel, X, Z):
    """Those of all rows, of the first alone, of a pair, and of rows with themselves."""
    # A single row is a product of its own.
    grams = kernel.gram(X, Z), kernel.gram(X[:1], Z)
    return *grams, kernel(X[2], Z[3]), kernel.diag(X)


@each
def test_values_are_those_of_scikit_learn(row, double):
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5)):
        X, Z = points(N).astype(dtype), points(M, seed=1).astype(dtype)
        expected = row.expected(X.astype(float), Z.astype(float))
        gram, first, one, diag = values(row.kernel, X, Z)
        assert gram.shape == (N, M)
        assert first.shape == (1, M)
        assert one.shape == ()
        assert gram.dtype == first.dtype == one.dtype == diag.dtype == dtype
        np.testing.assert_allclose(gram, expected, tolerance, tolerance)
        np.testing.assert_allclose(first, expected[:1], tolerance, tolerance)
        np.testing.assert_allclose(one, expected[2, 3], tolerance, tolerance)
        own = np.diag(row.expected(X.astype(float), X.astype(float)))
        np.testing.assert_allclose(diag, own, tolerance, tolerance)


@each
def test_squared_norms_may_be_given_and_points_may_be_none(row):
    X, Z = jnp.asarray(points(N)), jnp.asarray(points(M, seed=1))
    of_X, of_Z = jnp.sum(X * X, axis=1), jnp.sum(Z * Z, axis=1)
    expected = row.expected(np.asarray(X, float), np.asarray(Z, float))
    for squares in ((), (of_X, of_Z), (of_X, None), (None, of_Z)):
        gram = row.kernel.gram(X, Z, *squares)
        np.testing.assert_allclose(gram, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(row.kernel.diag(X, of_X), row.kernel.diag(X), rtol=1e-6)
    assert row.kernel.gram(X[:0], X).shape == (0, N)
    assert row.kernel.gram(X, X[:0]).shape == (N, 0)
    assert row.kernel.diag(X[:0]).shape == (0,)


@each
def test_symmetric_and_semidefinite(row, double):
    X = points(30)
    gram = np.asarray(row.kernel.gram(X, X))
    np.testing.assert_allclose(gram, gram.T, rtol=1e-13, atol=1e-13)
    values = np.linalg.eigvalsh(gram)
    if row.semidefinite:
        assert values[0] > -1e-12 * values[-1]
    else:
        assert values[0] < -1e-3 * values[-1]


@each
def test_bytes_integers_and_lists_are_points(row, as_installed):
    # Bytes wrap around at 256, so a product or a difference of two would be wrong.
    X = np.round(40 * np.abs(points(N)))
    for exact, others in (
        (X, (X.astype(np.uint8), X.astype(np.int32), X.tolist())),
        (X > 20, (X > 20,)),
    ):
        exact = exact.astype(np.float32)
        gram, diag = row.kernel.gram(exact, exact), row.kernel.diag(exact)
        for other in others:
            np.testing.assert_array_equal(row.kernel.gram(other, other), gram)
            np.testing.assert_array_equal(row.kernel.diag(other), diag)
            one = row.kernel(other[0], other[1])
            np.testing.assert_array_equal(one, row.kernel(exact[0], exact[1]))


def test_polynomial_keeps_the_sign_of_a_negative_base():
    x, z = jnp.array([1.0, 2.0]), jnp.array([-1.0, -3.0])
    assert [bj.Polynomial(p, 1.0, 0.0)(x, z) for p in (3, 2, 1)] == [-343, 49, -7]


def test_zero_vectors_under_a_normalized_kernel():
    kernel = bj.Normalized(bj.Linear())
    X = jnp.asarray(points(N)).at[2].set(0)
    gram = np.asarray(kernel.gram(X, X))
    assert np.all(gram[2] == 0)
    assert np.all(gram[:, 2] == 0)
    np.testing.assert_array_equal(kernel.diag(X), np.arange(N) != 2)
    assert kernel(X[2], X[0]) == 0
    # Nor is there a NaN in the gradient, where the norm has none.
    slope = jax.grad(lambda X: jnp.sum(kernel.gram(X, X)))(X)
    assert np.all(np.isfinite(slope))


# Data far from the origin.


def test_far_from_the_origin():
    X = (1000 + points(20)).astype(np.float32)
    truth = sk_rbf(0.5)(X.astype(np.float64), X.astype(np.float64))

    def error(kernel):
        return np.max(np.abs(kernel.gram(X, X) - truth))

    assert error(bj.RBF(0.5)) > 1e-2
    assert error(bj.RBF(0.5, exact=True)) < 1e-5
    laplacian = sk_laplacian(0.5)(X.astype(np.float64), X.astype(np.float64))
    np.testing.assert_allclose(bj.Laplacian(0.5).gram(X, X), laplacian, atol=1e-5)


@given(
    mean=st.floats(-1e6, 1e6, width=32),
    spread=st.floats(0, 1e3, width=32),
    gamma=st.floats(1e-6, 1e6),
    seed=st.integers(0, 1000),
)
@settings(max_examples=50, deadline=None)
def test_a_distance_is_never_negative(mean, spread, gamma, seed):
    # A rounded `||x||^2 + ||z||^2 - 2 x.z` below 0 would make a kernel above 1.
    X = points(N, seed).astype(np.float32)
    X = np.float32(mean) + np.float32(spread) * X
    X[1] = X[0]
    for exact in (False, True):
        gram = np.asarray(bj.RBF(gamma, exact=exact).gram(X, X))
        assert np.all((gram >= 0) & (gram <= 1))
    assert np.all(np.diag(gram) == 1)
    assert gram[0, 1] == 1
    np.testing.assert_array_equal(bj.RBF(gamma).diag(X), np.ones(N))


# Parameters are leaves; the rest is structure.


@each_with_parameters
def test_new_values_and_stacks_of_them_are_one_program(row):
    traces = []

    def gram_and_diag(kernel, X, Z):
        traces.append(kernel)
        return kernel.gram(X, Z), kernel.diag(X)

    X, Z = points(N), points(M, seed=1)
    kernels = [varied(row.kernel, i) for i in range(3)]
    one = jax.jit(gram_and_diag)
    expected = [one(kernel, X, Z) for kernel in kernels]
    assert len(traces) == 1
    for kernel, (gram, _) in zip(kernels[::2], expected[::2], strict=True):
        np.testing.assert_allclose(gram, kernel.gram(X, Z), rtol=1e-5, atol=1e-6)
    assert not np.allclose(expected[0][0], expected[1][0])
    stack = jax.tree.map(lambda *parameters: jnp.stack(parameters), *kernels)
    found = jax.jit(jax.vmap(gram_and_diag, (0, None, None)))(stack, X, Z)
    for i in range(3):
        for part, of_one in zip(found, expected[i], strict=True):
            np.testing.assert_allclose(part[i], of_one, rtol=1e-5, atol=1e-6)


def test_vmap_over_constructors():
    X = points(N)
    gammas = jnp.array([0.1, 1.0, 3.0])
    grams = jax.vmap(lambda gamma: bj.RBF(gamma).gram(X, X))(gammas)
    for gamma, gram in zip(gammas, grams, strict=True):
        expected = sk_rbf(float(gamma))(X, X)
        assert np.all(np.abs(gram - expected) <= rounding.rbf(gamma, X, X))
    degrees = jnp.array([1, 2, 3])
    grams = jax.vmap(lambda degree: bj.Polynomial(degree).gram(X, X))(degrees)
    for degree, gram in zip(degrees, grams, strict=True):
        expected = sk_polynomial(int(degree), 1.0, 1.0)(X, X)
        np.testing.assert_allclose(gram, expected, rtol=1e-4, atol=1e-4)


@each
def test_gradients_in_the_parameters_and_in_the_points(row, double):
    X, Z = points(N), points(M, seed=1)
    weights = np.random.default_rng(2).normal(size=(N, M))
    leaves, structure = jax.tree.flatten(row.kernel)
    real = [i for i, leaf in enumerate(leaves) if isinstance(leaf, float)]

    @jax.jit
    def value(numbers, X):
        new = list(leaves)
        for place, i in enumerate(real):
            new[i] = numbers[place]
        kernel = jax.tree.unflatten(structure, new)
        return jnp.sum(weights * kernel.gram(X, Z)) + jnp.sum(kernel.diag(X))

    here = np.array([leaves[i] for i in real])
    slopes = jax.jit(jax.grad(value, (0, 1)))(here, X)
    ways = [(unit, 0 * X) for unit in np.eye(len(real))]
    for way in (*ways, (0 * here, points(N, seed=3))):
        slope = sum(np.vdot(*pair) for pair in zip(slopes, way, strict=True))
        ends = (value(here + h * way[0], X + h * way[1]) for h in (1e-6, -1e-6))
        difference = (next(ends) - next(ends)) / 2e-6
        np.testing.assert_allclose(slope, difference, rtol=1e-6, atol=1e-7)


@each
def test_rebuilt_from_any_leaves(row):
    # Transformations of JAX put tracers, axis numbers, None and bare objects in the
    # place of parameters, so rebuilding must not check them.
    leaves, structure = jax.tree.flatten(row.kernel)
    for filler in (0, -1, None, object(), "a name", np.arange(3)):
        other = jax.tree.map(lambda _, filler=filler: filler, row.kernel)
        assert type(other) is type(row.kernel)
        rebuilt = jax.tree.unflatten(structure, [filler] * len(leaves))
        assert all(leaf is filler for leaf in structure.flatten_up_to(rebuilt))
    assert jax.tree.structure(jax.tree.unflatten(structure, leaves)) == structure


def test_classes_and_flags_are_structure():
    structures = [jax.tree.structure(row.kernel) for row in ROWS]
    same = {("polynomial", "polynomial-degree-1"), ("polynomial", "homogeneous")}
    same |= {("polynomial-degree-1", "homogeneous")}
    for i, one in enumerate(ROWS):
        for j, other in enumerate(ROWS[:i]):
            equal = structures[i] == structures[j]
            assert equal == ((other.name, one.name) in same), (one.name, other.name)
    assert jax.tree.leaves(bj.RBF(0.5, exact=True)) == [0.5]
    assert jax.tree.leaves(bj.Linear()) == []


def test_leaves_have_names():
    kernel = bj.Normalized(bj.RBF(0.1) + bj.Polynomial(2, 3.0, 4.0))
    named = jax.tree_util.tree_leaves_with_path(kernel)
    assert {jax.tree_util.keystr(path): leaf for path, leaf in named} == {
        ".kernel.left.gamma": 0.1,
        ".kernel.right.degree": 2,
        ".kernel.right.gamma": 3.0,
        ".kernel.right.coef0": 4.0,
    }


def test_scalars_of_numpy_and_jax_are_parameters(as_installed):
    X = points(N)
    of_numpy = (np.float32, np.float64, np.float16, np.int32, np.uint8, np.array)
    for scalar in (int, *of_numpy, jnp.float32, jnp.bfloat16, jnp.int32, jnp.array):
        one = scalar(1)
        for kernel, expected in (
            (bj.RBF(one), sk_rbf(1.0)),
            (bj.RBF(one, exact=np.True_), sk_rbf(1.0)),
            (bj.Laplacian(one), sk_laplacian(1.0)),
            (bj.Polynomial(1, one, one), sk_polynomial(1, 1.0, 1.0)),
            (bj.Sigmoid(one, one), sk_sigmoid(1.0, 1.0)),
        ):
            gram = kernel.gram(X, X)
            assert gram.dtype == jnp.float32
            np.testing.assert_allclose(gram, expected(X, X), rtol=1e-5, atol=1e-5)
    for degree in (np.int32(3), np.uint8(3), np.array(3), jnp.int32(3), jnp.uint8(3)):
        gram = bj.Polynomial(degree).gram(X, X)
        np.testing.assert_allclose(gram, bj.Polynomial(3).gram(X, X), rtol=1e-6)


# Composition.


def test_kernels_add_and_multiply_with_kernels_only():
    a, b = bj.RBF(0.1), bj.Linear()
    assert isinstance(a + b, bj.Sum)
    assert isinstance(a * b, bj.Product)
    assert isinstance(a + b * a, bj.Sum)
    for other in (2, 0.5, None, "rbf", (1,), np.float32(2), np.ones(3), bj.RBF):
        for operate in (
            lambda other=other: a + other,
            lambda other=other: other + a,
            lambda other=other: a * other,
            lambda other=other: other * a,
        ):
            with pytest.raises(TypeError, match=r"unsupported|concatenate|multiply"):
                operate()


def test_parts_must_be_kernels(as_installed):
    rbf = bj.RBF(0.5)
    for part in (bj.RBF, 3, None, "rbf"):
        for make, name in (
            (lambda part=part: bj.Normalized(part), "Normalized: kernel"),
            (lambda part=part: bj.Mapped(part, SCALES), "Mapped: kernel"),
            (lambda part=part: bj.Sum(rbf, part), "Sum: right"),
            (lambda part=part: bj.Product(part, rbf), "Product: left"),
        ):
            with pytest.raises(ValueError, match=f"^{name} must be a kernel") as error:
                make()
            assert repr(part) in str(error.value)


# Bad input.

NOT_FINITE = (float("nan"), float("inf"), -float("inf"))
NOT_NUMBERS = ("1", None, True, 1j, np.array(True), np.array("a"), np.array([1, None]))
NOT_NUMBERS = (*NOT_FINITE, *NOT_NUMBERS)
NOT_ABOVE = (-1, 0, -0.5, np.float32(-1), np.array(0), np.array([1.0, -1.0]))
NOT_A_DEGREE = (0, -1, 2.5, 2.0, np.float32(2), np.array([2, 0]), jnp.float32(2.5))
# Every kind of value once for every check, and one for every parameter.
BAD_PARAMETERS = (
    (bj.RBF, {}, "gamma", "number", (*NOT_ABOVE, jnp.float32(-1), *NOT_NUMBERS)),
    (bj.Polynomial, {}, "degree", "integer", (*NOT_A_DEGREE, *NOT_NUMBERS)),
    (bj.Sigmoid, {"gamma": 1.0}, "coef0", "number", NOT_NUMBERS),
    (bj.RBF, {"gamma": 1.0}, "exact", "True or False", ("no", 1, None, np.ones(2))),
    (bj.Laplacian, {}, "gamma", "number", (-1,)),
    (bj.Sigmoid, {}, "gamma", "number", (-1,)),
    (bj.Polynomial, {"degree": 2}, "gamma", "number", (-1,)),
    (bj.Polynomial, {"degree": 2}, "coef0", "number", NOT_FINITE[:1]),
    (bj.Matern, {}, "length_scale", "number", (-1,)),
    (bj.Matern, {"length_scale": 1.0}, "nu", "0.5, 1.5 or 2.5", (1.0, "1.5")),
    (bj.Matern, {"length_scale": 1.0}, "exact", "True or False", (1,)),
    (bj.RationalQuadratic, {}, "length_scale", "number", (-1,)),
    (bj.RationalQuadratic, {"length_scale": 1.0}, "alpha", "number", (-1,)),
    (bj.RationalQuadratic, {"length_scale": 1.0}, "exact", "True or False", (1,)),
)


@pytest.mark.parametrize(
    ("kernel", "good", "name", "expected", "values"),
    BAD_PARAMETERS,
    ids=[f"{kernel.__name__}-{name}" for kernel, _, name, *_ in BAD_PARAMETERS],
)
def test_bad_parameters(kernel, good, name, expected, values, as_installed):
    for value in values:
        says = f"{kernel.__name__}: {name} must be"
        with pytest.raises(ValueError, match=says) as error:
            kernel(**good | {name: value})
        message = str(error.value)
        dtype = str(getattr(value, "dtype", "?"))
        assert f"got {_checks.value_text(value)}" in message or dtype in message
        # A degree is either no integer, or one below 1.
        assert expected in message or (name == "degree" and "at least 1" in message)


def test_traced_degrees_must_be_integers(as_installed):
    with pytest.raises(ValueError, match="Polynomial: degree must be an integer"):
        jax.vmap(lambda degree: bj.Polynomial(degree).gram(points(2), points(2)))(
            jnp.array([1.0, 2.5])
        )


# One feature would broadcast against any number of them.
BAD_SHAPES = (
    *(((N, D), (M, D + 1)), ((N, D), (M, 1)), ((N, 1), (M, D)), ((D,), (M, D))),
    *(((N, D), (D,)), ((), (M, D)), ((2, N, D), (M, D)), ((1, N, D), (1, M, D))),
)


@each
def test_bad_shapes_of_points(row, as_installed):
    for X, Z in BAD_SHAPES:
        with pytest.raises(ValueError, match=r"^\w+: .*(shape|features).* got .*\("):
            row.kernel.gram(np.ones(X, np.float32), np.ones(Z, np.float32))
    X = np.ones((N, D), np.float32)
    name = type(row.kernel).__name__
    for x, z in ((X, X), (X[0], X), (X[0, 0], X[0])):
        with pytest.raises(ValueError, match=rf"^{name}: x and z must have shape"):
            row.kernel(x, z)
    with pytest.raises(ValueError, match=r"^\w+: .*features.* got"):
        row.kernel(X[0], X[0, :1])
    for x in (X[0], X[0, 0], X[None]):
        with pytest.raises(ValueError, match=r"^\w+: points must have shape .* got"):
            row.kernel.diag(x)


@each_with_parameters
def test_a_stack_of_parameters_never_broadcasts(row, as_installed):
    # One value for every column of the Gram matrix would fit it without a sound.
    X = points(M)
    stack = jax.tree.map(lambda p: jnp.stack([jnp.asarray(p)] * M), row.kernel)
    message = (
        r"must be a scalar.* got shape \(5,\)|matrix must have shape .*, got \(5, "
    )
    with pytest.raises(ValueError, match=message):
        stack.gram(X, X)


def test_kernels_are_true_and_differ_by_their_kind():
    assert bj.Linear() and bj.Normalized(bj.Linear())  # noqa: PT018
    both = bj.RBF(1.0), bj.Linear()
    assert bj.equal(both[0] + both[1], both[0] + both[1])
    assert not bj.equal(both[0] + both[1], both[0] * both[1])
    # As objects they are equal to themselves alone.
    assert len({both[0], both[0], bj.Linear(), bj.Linear()}) == 3


def test_a_kernel_of_your_own_that_lacks_a_part_says_so():
    for parts in ({}, {"diag": bj.Linear.diag}):
        with pytest.raises(TypeError, match="Own: a kernel must define evaluate or gr"):
            type("Own", (bj.Kernel,), parts)


@bj.register
class ByPoints(bj.Kernel):
    """The Gaussian kernel of two points."""

    gamma: float

    def evaluate(self, x, z):
        return jnp.exp(-self.gamma * jnp.sum((x - z) ** 2))


@bj.register
class ByRows(bj.Kernel):
    """The Gaussian kernel of rows, without a diagonal."""

    gamma: float

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        return bj.RBF(self.gamma).gram(X, Z, X_squares, Z_squares)


OWN = pytest.mark.parametrize("own", [ByPoints, ByRows])
# What is made of a kernel.
MADE_OF = {
    "itself": lambda kernel: kernel,
    "normalized": lambda kernel: bj.Normalized(kernel * bj.Polynomial(2)),
    "sum": lambda kernel: kernel + bj.Linear(),
    "mapped": lambda kernel: bj.Mapped(kernel, np.array([1.0, 0.5, 2.0, 0.0])),
}


@OWN
@pytest.mark.parametrize("made", MADE_OF.values(), ids=MADE_OF)
def test_one_definition_is_a_kernel(own, made):
    X, Z = points(N, 1), points(M, 2)
    one, other = made(own(0.3)), made(bj.RBF(0.3))
    np.testing.assert_allclose(one.gram(X, Z), other.gram(X, Z), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one.diag(X), other.diag(X), rtol=1e-5)
    np.testing.assert_allclose(one(X[0], Z[0]), other(X[0], Z[0]), rtol=1e-5)
    np.testing.assert_allclose(one.evaluate(X[0], Z[0]), one(X[0], Z[0]), rtol=1e-6)
    assert one.gram(X[:0], Z).shape == (0, M)
    slopes = [
        jax.grad(lambda X, k=k: jnp.sum(k.gram(X, Z)) + jnp.sum(k.diag(X)))(X)
        for k in (one, other)
    ]
    np.testing.assert_allclose(*slopes, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"equally many features|must have shape"):
        one.gram(X, Z[:, :2])


def test_points_of_every_dtype_have_kernel_values_of_it(double):
    # In one program.
    @jax.jit
    def values(X):
        kernel, same = ByPoints(0.3), bj.RBF(0.3, exact=True)
        return kernel.gram(X, X), kernel.diag(X), same.gram(X, X)

    for dtype in (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64):
        gram, diag, expected = values(points(N, 1).astype(dtype))
        assert gram.dtype == diag.dtype == dtype
        np.testing.assert_allclose(
            np.asarray(gram, float),
            np.asarray(expected, float),
            rtol=8 * float(jnp.finfo(dtype).eps),
            atol=8 * float(jnp.finfo(dtype).eps),
        )
    whole = ByPoints(0.5).gram(np.eye(2, dtype=int), np.zeros((1, 2), int))
    np.testing.assert_allclose(whole[:, 0], np.exp(-0.5), rtol=1e-6)
    # Bytes do not wrap around.
    far = ByPoints(0.5)(np.zeros(1, np.uint8), np.ones(1, np.uint8))
    np.testing.assert_allclose(far, np.exp(-0.5), rtol=1e-6)


@pytest.mark.usefixtures("as_installed")
def test_a_kernel_of_points_that_is_no_scalar_is_refused():
    class Vector(bj.Kernel):
        def evaluate(self, x, z):
            return x * z

    says = (
        r"gram of 2 and 3 points that is float32\[2, 3\], got float32\[2, 3, 4\] from"
    )
    with pytest.raises(ValueError, match=says):
        bj.Perceptron().init(Vector(), num_features=D, budget=5)


@pytest.mark.parametrize("own", [ByPoints, *slow(ByRows)])
def test_a_model_of_a_kernel_of_your_own_is_that_of_the_same_kernel(own, tmp_path):
    """Learned, predicted, refitted, solved and saved."""
    X = points(60, 1)
    y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    scores = {}
    for kernel in (own(0.3), bj.RBF(0.3, exact=True)):
        shape = {"num_features": D, "budget": 8, "maintenance": bj.Project()}
        state = bj.PassiveAggressive().init(kernel, **shape)
        state, before = bj.run(state, X, y, block_size=1)
        refitted = bj.refit(state, X, y, penalty=1.0)
        solution = bj.solve(bj.SMO(kernel, penalty=1.0), X, y)
        bj.save(tmp_path / "model", solution.model)
        models = state, refitted, solution, bj.load(tmp_path / "model")
        after = [bj.decision_function(model, X) for model in models]
        np.testing.assert_array_equal(after[2], after[3])
        scores[kernel] = np.stack([before, *after])
    # Rounding is all that differs; a stream of projections adds that of its rounds.
    np.testing.assert_allclose(*scores.values(), rtol=1e-3, atol=1e-3)


@OWN
def test_many_kernels_of_your_own_are_one_under_vmap(own):
    X = points(N, 1)
    gammas = jnp.array([0.1, 0.5, 2.0])
    found = jax.jit(jax.vmap(lambda gamma: own(gamma).gram(X, X)))(gammas)
    for gamma, gram in zip(gammas, found, strict=True):
        np.testing.assert_allclose(gram, bj.RBF(gamma).gram(X, X), rtol=1e-5, atol=1e-6)
    slope, expected = (
        jax.grad(lambda gamma, k=k: jnp.sum(k(gamma).gram(X, X)))(0.5)
        for k in (own, bj.RBF)
    )
    np.testing.assert_allclose(slope, expected, rtol=1e-4)


def test_a_kernel_made_of_another_is_what_it_defines():
    class Twice(bj.RBF):
        def evaluate(self, x, z):
            return 2 * jnp.exp(-self.gamma * jnp.sum((x - z) ** 2))

    class Thrice(Twice):
        def gram(self, X, Z, X_squares=None, Z_squares=None):
            return 3 * bj.RBF(self.gamma).gram(X, Z, X_squares, Z_squares)

    X = points(N, 1)
    for factor, kernel in ((2, Twice(0.3)), (3, Thrice(0.3))):
        expected = factor * np.asarray(bj.RBF(0.3).gram(X, X))
        np.testing.assert_allclose(kernel.gram(X, X), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(kernel(X[0], X[1]), expected[0, 1], rtol=1e-5)
    np.testing.assert_allclose(Twice(0.3).diag(X), 2)

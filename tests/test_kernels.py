"""Kernels: one table of them drives every property."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as gaussian_process
from sklearn.metrics import pairwise

import budgetjax as bj
from budgetjax import checks

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


def points(n, seed=0, d=D):
    return np.random.default_rng(seed).normal(size=(n, d))


def varied(kernel, i):
    """The same kernel with other values of the same types."""
    return jax.tree.map(lambda p: p + i if isinstance(p, int) else p * (1 + i), kernel)


# Values.


@each
@pytest.mark.parametrize(("n", "m"), [(N, M), (1, M), (N, 1), (1, 1)])
def test_gram_agrees_with_scikit_learn(row, n, m, x64):
    X, Z = points(n), points(m, seed=1)
    gram = row.kernel.gram(X, Z)
    assert gram.shape == (n, m)
    assert gram.dtype == (jnp.float64 if x64 else jnp.float32)
    tolerance = 1e-12 if x64 else 1e-5
    np.testing.assert_allclose(gram, row.expected(X, Z), rtol=tolerance, atol=tolerance)


@each
def test_data_sets_the_dtype(row, x64):
    X = points(N).astype(np.float32)
    assert row.kernel.gram(X, X).dtype == jnp.float32
    assert row.kernel.diag(X).dtype == jnp.float32
    assert row.kernel(X[0], X[1]).dtype == jnp.float32


@each
def test_call_gram_and_diag_agree(row, x64):
    tolerance = 1e-12 if x64 else 1e-5
    X, Z = points(N), points(M, seed=1)
    gram = row.kernel.gram(X, Z)
    for i in range(N):
        for j in range(M):
            one = row.kernel(X[i], Z[j])
            assert one.shape == ()
            np.testing.assert_allclose(one, gram[i, j], rtol=tolerance, atol=tolerance)
    diag = row.kernel.diag(X)
    assert diag.shape == (N,)
    np.testing.assert_allclose(
        diag, np.diag(row.kernel.gram(X, X)), rtol=tolerance, atol=tolerance
    )


@each
def test_given_squared_norms_change_nothing(row):
    X, Z = jnp.asarray(points(N)), jnp.asarray(points(M, seed=1))
    of_X, of_Z = jnp.sum(X * X, axis=1), jnp.sum(Z * Z, axis=1)
    gram = row.kernel.gram(X, Z)
    for squares in ((of_X, of_Z), (of_X, None), (None, of_Z)):
        np.testing.assert_allclose(row.kernel.gram(X, Z, *squares), gram, rtol=1e-6)
    np.testing.assert_allclose(row.kernel.diag(X, of_X), row.kernel.diag(X), rtol=1e-6)


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
def test_no_points(row):
    X = points(N)
    assert row.kernel.gram(X[:0], X).shape == (0, N)
    assert row.kernel.gram(X, X[:0]).shape == (N, 0)
    assert row.kernel.diag(X[:0]).shape == (0,)


@each
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, bool, list])
def test_bytes_integers_and_lists_are_points(row, dtype, as_installed):
    # Bytes wrap around at 256, so a product or a difference of two would be wrong.
    X = np.round(40 * np.abs(points(N)))
    X = X > 20 if dtype is bool else X
    other = X.tolist() if dtype is list else X.astype(dtype)
    X = X.astype(np.float32)
    np.testing.assert_array_equal(row.kernel.gram(other, other), row.kernel.gram(X, X))
    np.testing.assert_array_equal(row.kernel.diag(other), row.kernel.diag(X))
    np.testing.assert_array_equal(
        row.kernel(other[0], other[1]), row.kernel(X[0], X[1])
    )


def test_polynomial_keeps_the_sign_of_a_negative_base():
    x, z = jnp.array([1.0, 2.0]), jnp.array([-1.0, -3.0])
    assert bj.Polynomial(3, 1.0, 0.0)(x, z) == -343
    assert bj.Polynomial(2, 1.0, 0.0)(x, z) == 49
    assert bj.Polynomial(1, 1.0, 0.0)(x, z) == -7


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
    X = np.random.default_rng(seed).normal(size=(N, D)).astype(np.float32)
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
def test_a_stack_of_kernels_under_vmap(row):
    X, Z = points(N), points(M, seed=1)
    kernels = [varied(row.kernel, i) for i in range(3)]
    stack = jax.tree.map(lambda *parameters: jnp.stack(parameters), *kernels)
    grams = jax.vmap(lambda kernel: kernel.gram(X, Z))(stack)
    diags = jax.vmap(lambda kernel: kernel.diag(X))(stack)
    assert not np.allclose(grams[0], grams[1])
    for kernel, gram, diag in zip(kernels, grams, diags, strict=True):
        np.testing.assert_allclose(gram, kernel.gram(X, Z), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(diag, kernel.diag(X), rtol=1e-5, atol=1e-6)


def test_vmap_over_constructors():
    X = points(N)
    gammas = jnp.array([0.1, 1.0, 3.0])
    grams = jax.vmap(lambda gamma: bj.RBF(gamma).gram(X, X))(gammas)
    for gamma, gram in zip(gammas, grams, strict=True):
        np.testing.assert_allclose(gram, sk_rbf(float(gamma))(X, X), atol=1e-6)
    degrees = jnp.array([1, 2, 3])
    grams = jax.vmap(lambda degree: bj.Polynomial(degree).gram(X, X))(degrees)
    for degree, gram in zip(degrees, grams, strict=True):
        expected = sk_polynomial(int(degree), 1.0, 1.0)(X, X)
        np.testing.assert_allclose(gram, expected, rtol=1e-4, atol=1e-4)


@each_with_parameters
def test_gradients_in_the_parameters(row, double):
    X, Z, weights = points(N), points(M, seed=1), points(N, seed=2, d=M)
    leaves, structure = jax.tree.flatten(row.kernel)
    real = [i for i, leaf in enumerate(leaves) if isinstance(leaf, float)]

    def value(numbers):
        new = list(leaves)
        for place, i in enumerate(real):
            new[i] = numbers[place]
        return jnp.sum(weights * jax.tree.unflatten(structure, new).gram(X, Z))

    here = jnp.array([leaves[i] for i in real])
    slopes = jax.grad(value)(here)
    for i in range(len(real)):
        step = 1e-6 * np.eye(len(real))[i]
        difference = (value(here + step) - value(here - step)) / 2e-6
        np.testing.assert_allclose(slopes[i], difference, rtol=1e-6, atol=1e-7)


@each
def test_gradients_in_the_points(row, double):
    X, Z = points(N), points(M, seed=1)
    direction = points(N, seed=2)

    def value(X):
        return jnp.sum(row.kernel.gram(X, Z)) + jnp.sum(row.kernel.diag(X))

    slope = jnp.sum(jax.grad(value)(jnp.asarray(X)) * direction)
    step = 1e-6 * direction
    difference = (value(X + step) - value(X - step)) / 2e-6
    np.testing.assert_allclose(slope, difference, rtol=1e-6, atol=1e-7)


@each
def test_new_values_do_not_retrace(row):
    traces = []

    @jax.jit
    def gram(kernel, X):
        traces.append(kernel)
        return kernel.gram(X, X)

    X = jnp.asarray(points(N))
    for i in range(3):
        kernel = varied(row.kernel, i)
        np.testing.assert_allclose(
            gram(kernel, X), kernel.gram(X, X), rtol=1e-5, atol=1e-5
        )
    assert len(traces) == 1


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


@pytest.mark.parametrize(
    "scalar",
    [
        int,
        np.float32,
        np.float64,
        np.float16,
        np.int32,
        np.uint8,
        np.array,
        jnp.float32,
        jnp.bfloat16,
        jnp.int32,
        jnp.array,
    ],
)
def test_scalars_of_numpy_and_jax_are_parameters(scalar, as_installed):
    X, value = points(N), scalar(1)
    for one, expected in (
        (bj.RBF(value), sk_rbf(1.0)),
        (bj.RBF(value, exact=np.True_), sk_rbf(1.0)),
        (bj.Laplacian(value), sk_laplacian(1.0)),
        (bj.Polynomial(1, value, value), sk_polynomial(1, 1.0, 1.0)),
        (bj.Sigmoid(value, value), sk_sigmoid(1.0, 1.0)),
    ):
        gram = one.gram(X, X)
        assert gram.dtype == jnp.float32
        np.testing.assert_allclose(gram, expected(X, X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("degree", [np.int32(3), np.uint8(3), np.array(3)])
def test_integers_of_numpy_are_degrees(degree):
    X = points(N)
    np.testing.assert_allclose(
        bj.Polynomial(degree).gram(X, X),
        bj.Polynomial(3).gram(X, X),
        rtol=1e-6,
    )
    assert bj.Polynomial(jnp.asarray(degree))(X[0], X[1]) == bj.Polynomial(3)(
        X[0], X[1]
    )


# Composition.


def test_operators():
    a, b = bj.RBF(0.1), bj.Linear()
    assert isinstance(a + b, bj.Sum)
    assert isinstance(a * b, bj.Product)
    assert isinstance(a + b * a, bj.Sum)


@pytest.mark.parametrize("kernel", [bj.RBF(0.5), bj.Polynomial(2), bj.Linear()])
@pytest.mark.parametrize(
    "other",
    [
        2,
        0.5,
        None,
        "rbf",
        (1,),
        np.float32(2),
        np.ones(3),
        jnp.float32(2),
        bj.RBF,
    ],
    ids=repr,
)
def test_only_kernels_add_and_multiply(kernel, other):
    for operate in (
        lambda: kernel + other,
        lambda: other + kernel,
        lambda: kernel * other,
        lambda: other * kernel,
    ):
        with pytest.raises(TypeError, match=r"unsupported|concatenate|multiply"):
            operate()


@pytest.mark.parametrize("part", [bj.RBF, 3, None, "rbf"], ids=repr)
def test_parts_must_be_kernels(part, as_installed):
    rbf = bj.RBF(0.5)
    for make, names in (
        (lambda: bj.Normalized(part), ("Normalized", "kernel")),
        (lambda: bj.Sum(rbf, part), ("Sum", "right")),
        (lambda: bj.Sum(part, rbf), ("Sum", "left")),
        (lambda: bj.Product(rbf, part), ("Product", "right")),
        (lambda: bj.Product(part, rbf), ("Product", "left")),
    ):
        with pytest.raises(ValueError, match="must be a kernel") as error:
            make()
        assert all(word in str(error.value) for word in (*names, repr(part)))


# Bad input.

NOT_FINITE = (float("nan"), float("inf"), -float("inf"))
NOT_NUMBERS = ("1", None, True, 1j, np.array(True), np.array("a"), np.array([1, None]))
NOT_POSITIVE = (
    -1,
    0,
    -0.5,
    np.float32(-1),
    np.array(0),
    np.array([1.0, -1.0]),
    jnp.float32(-1),
    *NOT_FINITE,
    *NOT_NUMBERS,
)
NOT_A_DEGREE = (
    0,
    -1,
    2.5,
    2.0,
    np.float32(2),
    np.array([2, 0]),
    jnp.float32(2.5),
    *NOT_FINITE,
    *NOT_NUMBERS,
)
BAD_PARAMETERS = [
    (kernel, name, value, "number")
    for kernel, name, values in (
        ("RBF", "gamma", NOT_POSITIVE),
        ("Laplacian", "gamma", NOT_POSITIVE),
        ("Sigmoid", "gamma", NOT_POSITIVE),
        ("Polynomial", "gamma", NOT_POSITIVE),
        ("Sigmoid", "coef0", (*NOT_FINITE, *NOT_NUMBERS)),
        ("Polynomial", "coef0", (*NOT_FINITE, *NOT_NUMBERS)),
    )
    for value in values
]
BAD_PARAMETERS += [("Polynomial", "degree", value, "integer") for value in NOT_A_DEGREE]
BAD_PARAMETERS += [
    ("RBF", "exact", value, "True or False") for value in ("no", 1, None, np.ones(2))
]
GOOD_PARAMETERS = {
    "RBF": {"gamma": 1.0},
    "Laplacian": {"gamma": 1.0},
    "Sigmoid": {"gamma": 1.0},
    "Polynomial": {"degree": 2},
}


@pytest.mark.parametrize(
    ("kernel", "name", "value", "expected"),
    BAD_PARAMETERS,
    ids=lambda value: value if isinstance(value, str) else repr(value),
)
def test_bad_parameters(kernel, name, value, expected, as_installed):
    with pytest.raises(ValueError, match=f"{kernel}: {name} must be") as error:
        getattr(bj, kernel)(**(GOOD_PARAMETERS[kernel] | {name: value}))
    message = str(error.value)
    assert "got" in message
    dtype = str(getattr(value, "dtype", "?"))
    assert f"got {checks.written(value)}" in message or dtype in message
    if name != "degree":
        assert expected in message
    else:
        # Either not an integer, or one below 1.
        assert expected in message or "at least 1" in message


def test_traced_degrees_must_be_integers(as_installed):
    with pytest.raises(ValueError, match="Polynomial: degree must be an integer"):
        jax.vmap(lambda degree: bj.Polynomial(degree).gram(points(2), points(2)))(
            jnp.array([1.0, 2.5])
        )


@each
@pytest.mark.parametrize(
    ("X", "Z"),
    [
        ((N, D), (M, D + 1)),
        # One feature would broadcast against any number of them.
        ((N, D), (M, 1)),
        ((N, 1), (M, D)),
        ((D,), (M, D)),
        ((N, D), (D,)),
        ((), (M, D)),
        ((2, N, D), (M, D)),
        ((1, N, D), (1, M, D)),
    ],
    ids=str,
)
def test_bad_shapes_of_points(row, X, Z, as_installed):
    with pytest.raises(ValueError, match=r"^\w+: .*(shape|features).* got .*\("):
        row.kernel.gram(np.ones(X, np.float32), np.ones(Z, np.float32))


@each
def test_bad_shapes_of_one_point(row, as_installed):
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
    assert both[0] + both[1] == both[0] + both[1] != both[0] * both[1]
    assert len({both[0] + both[1], both[0] * both[1], bj.Linear(), bj.Linear()}) == 3


def test_a_kernel_of_your_own_that_lacks_a_part_says_so():
    with pytest.raises(TypeError, match="Own: a kernel must define gram and diag"):
        type("Own", (bj.Kernel,), {"gram": bj.Linear.gram})

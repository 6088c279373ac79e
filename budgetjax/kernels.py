r"""Kernels as pytrees: `k(x, z)`, `k.gram(X, Z)`, `k.diag(X)`.

A kernel is a frozen dataclass. Its parameters are leaves, so they can be traced, swept
by `vmap` and differentiated; the class is part of the tree's structure, so it is static
under `jit`. Kernels add and multiply: `RBF(0.1) + Linear() * RBF(2.0)`.

Most kernels (not the Laplacian and `exact` ones) need only inner products and squared
norms. `gram` therefore accepts squared norms that the caller has already, which makes a
kernel row of a stored support set one matrix-vector product.
"""

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, Shaped

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import Record, leaf, static

__all__ = ["RBF", "Kernel", "Laplacian", "Linear", "Mapped", "Matern", "Normalized"]
__all__ += ["Polynomial", "Product", "RationalQuadratic", "Sigmoid", "Sum"]


def squared_norms(X: Float[Array, "n d"]) -> Float[Array, " n"]:
    """`||x||^2` of every row."""
    return jnp.sum(X * X, axis=1)


def inner_products(
    X: Float[Array, "n d"], Z: Float[Array, "m d"]
) -> Float[Array, "n m"]:
    """`X Z^T` at full precision; the default of accelerators loses 3 digits of k."""
    if X.shape[0] == 1:
        # The same product, in the form that compiles best on CPUs.
        return jnp.matmul(Z, X[0], precision="highest")[None]
    return jnp.matmul(X, Z.T, precision="highest")


def squared_distances(
    X: Float[Array, "n d"],
    Z: Float[Array, "m d"],
    X_squares: Float[Array, " n"] | None,
    Z_squares: Float[Array, " m"] | None,
) -> Float[Array, "n m"]:
    """`||x||^2 + ||z||^2 - 2 x.z`, at least 0."""
    X_squares = squared_norms(X) if X_squares is None else X_squares
    Z_squares = squared_norms(Z) if Z_squares is None else Z_squares
    expanded = X_squares[:, None] + Z_squares[None] - 2 * inner_products(X, Z)
    return jnp.maximum(expanded, 0)


def _points(kernel: "Kernel", X: ArrayLike) -> Float[Array, "n d"]:
    """`X` as floats of shape `(n, d)`, since bytes would wrap around."""
    X = jnp.asarray(X)
    if X.ndim != 2:
        name = type(kernel).__name__
        raise ArgumentError("points", "have shape (n, d)", X.shape, name)
    return X if jnp.issubdtype(X.dtype, jnp.floating) else X.astype(float)


def _pair(
    kernel: "Kernel", X: ArrayLike, Z: ArrayLike
) -> tuple[Float[Array, "n d"], Float[Array, "m d"]]:
    """Two point sets with equal feature counts."""
    X, Z = _points(kernel, X), _points(kernel, Z)
    if X.shape[1] != Z.shape[1]:
        name, shapes = type(kernel).__name__, f"shapes {X.shape} and {Z.shape}"
        raise ArgumentError("X and Z", "have equally many features", shapes, name)
    return X, Z


def _squares(
    kernel: "Kernel", X: ArrayLike, squares: Float[Array, " n"] | None
) -> Float[Array, " n"]:
    """`||x||^2` of every row, unless they are known."""
    return squared_norms(_points(kernel, X)) if squares is None else squares


def _scalar(kernel: "Kernel", name: str, dtype: DTypeLike) -> Shaped[Array, ""]:
    """A parameter in the dtype of the data."""
    value = getattr(kernel, name)
    if jnp.shape(value) != ():
        got = f"shape {jnp.shape(value)}; sweep kernels by jax.vmap"
        kind = type(kernel).__name__
        raise ArgumentError(name, "be a scalar to compute with", got, kind)
    return jnp.asarray(value, dtype)


class Kernel(Record, abstract=True):
    """The base of all kernels; a kernel is a subclass with its parameters as fields.

    A new kernel defines `evaluate`, the kernel of two points. `gram` and `diag` follow
    from it; a kernel may define them for speed, and ignore the squared norms there. To
    define `gram` alone is enough too.

    Example:
      >>> class Cauchy(bj.Kernel):
      ...     gamma: float = 1.0
      ...     def evaluate(self, x, z):
      ...         return 1 / (1 + self.gamma * jnp.sum((x - z) ** 2))
      >>> Cauchy(0.5).gram(np.eye(2), np.zeros((1, 2))).tolist()
      [[0.666...], [0.666...]]
    """

    # Whether Z are examples, so that a model has support vectors.
    of_examples: ClassVar[bool] = True

    @property
    def stationary(self) -> bool:
        """Whether `k(x, z)` depends only on `x - z`, so that rows may be shifted."""
        return False

    @property
    def shifts(self) -> bool:
        """Whether rows and vectors may be shifted alike: both are in one space."""
        return self.stationary

    @property
    def gaussian(self) -> bool:
        """Whether it is `exp(-||A (x - z)||^2)`, so that vectors can be merged."""
        return False

    def __init_subclass__(cls, *, abstract: bool = False, name: str = "") -> None:
        super().__init_subclass__(abstract=abstract, name=name)
        # A kernel made of another one keeps nothing that contradicts what it defines.
        if "evaluate" in vars(cls):
            for name in {"gram", "diag"} - vars(cls).keys():
                setattr(cls, name, getattr(Kernel, name))
        elif "gram" in vars(cls):
            cls.evaluate = Kernel.evaluate
        undefined = cls.evaluate is Kernel.evaluate and cls.gram is Kernel.gram
        if undefined and not abstract:
            raise TypeError(f"{cls.__name__}: a kernel must define evaluate or gram")

    def __call__(self, x: ArrayLike, z: ArrayLike) -> Float[Array, ""]:
        """`k(x, z)` of two points of shape `(d,)`, a scalar."""
        x, z = jnp.asarray(x), jnp.asarray(z)
        if x.ndim != 1 or z.ndim != 1:
            got = f"{x.shape} and {z.shape}; for sets of points use gram"
            kind = type(self).__name__
            raise ArgumentError("x and z", "have shape (d,)", got, kind)
        return self.gram(x[None], z[None])[0, 0]

    def evaluate(self, x: ArrayLike, z: ArrayLike) -> ArrayLike:
        """`k(x, z)` of two points of shape `(d,)`, floats, which are not checked."""
        return self.gram(jnp.asarray(x)[None], jnp.asarray(z)[None])[0, 0]

    def gram(
        self,
        X: ArrayLike,
        Z: ArrayLike,
        X_squares: Float[Array, " n"] | None = None,
        Z_squares: Float[Array, " m"] | None = None,
    ) -> Float[Array, "n m"]:
        """`k(X[i], Z[j])` for all pairs, shape `(n, m)`; O(n m d).

        Args:
          X: points, shape `(n, d)`.
          Z: points, shape `(m, d)`.
          X_squares: `||X[i]||^2`, shape `(n,)`; computed if None.
          Z_squares: `||Z[j]||^2`, shape `(m,)`; computed if None.
        """
        X, Z = _pair(self, X, Z)
        dtype = jnp.result_type(X, Z)
        row = jax.vmap(self.evaluate, (None, 0))
        return jnp.asarray(jax.vmap(row, (0, None))(X, Z), dtype)

    def diag(
        self, X: ArrayLike, squares: Float[Array, " n"] | None = None
    ) -> Float[Array, " n"]:
        """`k(X[i], X[i])`, shape `(n,)`; `squares` are `||X[i]||^2`, if known."""
        X = _points(self, X)
        return jnp.asarray(jax.vmap(self.evaluate)(X, X), X.dtype)

    def __add__(self, other: "Kernel") -> "Sum":
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: "Kernel") -> "Product":
        return Product(self, other) if isinstance(other, Kernel) else NotImplemented


# Points so many widths of a kernel from 0 are far: in float32 the rounding of `||x||^2`
# then changes kernel values by 1e-5.
FAR = 8
# Evenly spaced rows whose median of medians is an origin.
MEDIANS = 3


def origin_of(
    kernel: Kernel, X: Float[Array, "n d"], present: Bool[Array, " n"] | None = None
) -> Float[Array, " d"]:
    """The origin to subtract from rows before distances are computed from products.

    Distances by `||x||^2 + ||z||^2 - 2 x.z` lose digits far from 0. The origin is in
    the middle of some of the rows, those that are `present`, if the kernel is
    stationary and the middle is far from 0 in widths of the kernel; otherwise it is 0,
    which changes no bit of a row. Its coordinates are those of rows, so subtracting it
    from rows nearby is exact; a single outlier does not move it. O(d).
    """
    n, zeros = X.shape[0], jnp.zeros(X.shape[1], X.dtype)
    if not kernel.shifts or n == 0:
        return zeros
    first = X[0]
    if present is not None:
        first = X[jnp.argmax(present)]
    middle = first
    if n > 1:
        some = np.linspace(0, n - 1, MEDIANS**2).astype(np.int32)
        rows = X[some]
        if present is not None:
            rows = jnp.where(present[some, None], rows, first[None])
        rows = rows.reshape(MEDIANS, MEDIANS, -1)
        middle = _median_of_three(*_median_of_three(*rows))
    near = kernel.gram(zeros[None], middle[None] / FAR)[0, 0]
    is_far = near < kernel.diag(zeros[None])[0] * np.exp(-1).astype(X.dtype)
    origin = jnp.where(is_far & jnp.all(jnp.isfinite(middle)), middle, zeros)
    # No distance depends on it.
    return jax.lax.stop_gradient(origin)


def _median_of_three(a: Array, b: Array, c: Array) -> Array:
    """The median of each three numbers, without a sort."""
    return jnp.maximum(jnp.minimum(a, b), jnp.minimum(jnp.maximum(a, b), c))


def as_leaves(kernel: Kernel, num_features: int, dtype: DTypeLike) -> Kernel:
    """The kernel as part of a state: its parameters become arrays of this dtype."""
    check_kernel("kernel", kernel)
    kernel = _cast(kernel, dtype)
    two, three = (jax.ShapeDtypeStruct((n, num_features), dtype) for n in (2, 3))
    try:
        gram = jax.eval_shape(kernel.gram, two, three)
        diag = jax.eval_shape(kernel.diag, two)
    except ValueError as error:
        raise ArgumentError("kernel", "fit", error) from error
    for name, found, shape in (("gram", gram, (2, 3)), ("diag", diag, (2,))):
        got = f"{found.dtype}{list(found.shape)}"
        if got != f"{np.dtype(dtype)}{list(shape)}":
            of = "2 and 3 points" if name == "gram" else "2 points"
            raise ArgumentError(
                "kernel",
                f"have a {name} of {of} that is {np.dtype(dtype)}{list(shape)}",
                f"{got} from {type(kernel).__name__}",
            )
    return kernel


def _cast(kernel: Kernel, dtype: DTypeLike) -> Kernel:
    """The kernel with its parameters as arrays, which must be in the dtype's range."""

    def cast(path, leaf):
        name = "kernel" + jax.tree_util.keystr(path)
        if callable(leaf):
            raise ArgumentError(
                name,
                "be a number or an array; a function belongs in a static field, by "
                "dataclasses.field(metadata={'static': True})",
                f"{leaf!r}",
            )
        return _checks.as_leaves(name, leaf, dtype)

    return jax.tree_util.tree_map_with_path(cast, kernel)


def check_range(kernel: Kernel, dtype: DTypeLike) -> None:
    """Raises if a parameter is not in the range of the dtype of the rows."""
    try:
        _cast(kernel, dtype)
    except ArgumentError as error:
        raise error.advised("scale X") from None


def check_kernel(name: str, kernel: object) -> None:
    """Raises unless this is a kernel."""
    if not isinstance(kernel, Kernel):
        raise ArgumentError(name, "be a kernel", f"{kernel!r}")


class InnerProduct(Kernel, abstract=True):
    """A kernel that is a function of the inner product, by default itself."""

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        return self._function(inner_products(*_pair(self, X, Z)))

    def diag(self, X, squares=None):
        return self._function(_squares(self, X, squares))

    def _function(self, products):
        return products


class Linear(InnerProduct):
    """The linear kernel, `k(x, z) = x.z`.

    Example:
      >>> float(bj.Linear()(np.array([1.0, 2.0]), np.array([3.0, 4.0])))
      11.0
    """


class Polynomial(InnerProduct):
    """The polynomial kernel, `k(x, z) = (gamma x.z + coef0)^degree`.

    Args:
      degree: an integer of at least 1.
      gamma: the factor of the inner product, positive.
      coef0: the constant; 0 is the homogeneous kernel.

    Example:
      >>> float(bj.Polynomial(degree=3)(np.ones(1), np.ones(1)))
      8.0
    """

    degree: ArrayLike = leaf(_checks.positive_integer)
    gamma: ArrayLike = leaf(_checks.positive, default=1.0)
    coef0: ArrayLike = leaf(_checks.finite, default=1.0)

    def _function(self, products):
        gamma = _scalar(self, "gamma", products.dtype)
        coef0 = _scalar(self, "coef0", products.dtype)
        # Rounded to an integer, the exponent keeps the sign of a negative base and has
        # no gradient. It is cast to float because the derivative of `pow` multiplies by
        # it.
        degree = _scalar(self, "degree", jnp.int32).astype(products.dtype)
        return jax.lax.pow(gamma * products + coef0, degree)


class Stationary(Kernel, abstract=True):
    """A kernel of `x - z`, with `k(x, x) = 1`."""

    @property
    def stationary(self) -> bool:
        return True

    def diag(self, X, squares=None):
        return jnp.ones_like(_squares(self, X, squares))


def _distances(kernel, X, Z, X_squares, Z_squares) -> Float[Array, "n m"]:
    """`||x - z||^2`, from the differences if the kernel is `exact`."""
    X, Z = _pair(kernel, X, Z)
    if not kernel.exact:
        return squared_distances(X, Z, X_squares, Z_squares)
    difference = X[:, None] - Z[None]
    return jnp.sum(difference * difference, axis=2)


class RBF(Stationary):
    r"""The Gaussian kernel, `k(x, z) = exp(-gamma ||x - z||^2)`.

    Args:
      gamma: positive, `1 / (2 sigma^2)` for a standard deviation of `sigma`; the
        convention of scikit-learn and LIBSVM.
      exact: compute `||x - z||^2` from the differences. The default expands it into a
        matrix product, which is several times faster but loses digits if the points
        lie far from 0: at a mean of 1000 the error of `gram` in float32 is 0.3.
        Learners, solvers and models subtract an origin before, so they need this only
        for points in clusters that lie thousands of kernel widths apart.

    Example:
      >>> float(bj.RBF(gamma=0.5)(np.zeros(2), np.ones(2)))
      0.3678...
    """

    gamma: ArrayLike = leaf(_checks.positive)
    exact: bool = static(default=False, check=_checks.flag)

    @property
    def gaussian(self) -> bool:
        return True

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        distances = _distances(self, X, Z, X_squares, Z_squares)
        return jnp.exp(-_scalar(self, "gamma", distances.dtype) * distances)


class Laplacian(Stationary):
    """The Laplacian kernel, `k(x, z) = exp(-gamma sum_i |x_i - z_i|)`.

    Args:
      gamma: positive.

    Example:
      >>> float(bj.Laplacian(gamma=0.5)(np.zeros(2), np.ones(2)))
      0.3678...
    """

    gamma: ArrayLike = leaf(_checks.positive)

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        X, Z = _pair(self, X, Z)
        distances = jnp.sum(jnp.abs(X[:, None] - Z[None]), axis=2)
        return jnp.exp(-_scalar(self, "gamma", distances.dtype) * distances)


def _check_nu(name: str, value: object) -> None:
    if value not in (0.5, 1.5, 2.5):
        raise ArgumentError(name, "be 0.5, 1.5 or 2.5", f"{value!r}")


class Matern(Stationary):
    r"""The Matern kernel of the distance `r = ||x - z|| / length_scale`.

    `exp(-r)` for nu = 1/2, `(1 + s) exp(-s)` with `s = sqrt(3) r` for 3/2, and
    `(1 + s + s^2 / 3) exp(-s)` with `s = sqrt(5) r` for 5/2. Its functions are rougher
    than those of `RBF`, its limit for large nu.

    Args:
      length_scale: positive.
      nu: 0.5, 1.5 or 2.5; the convention of scikit-learn. It is static.
      exact: as for `RBF`. In float32, the expansion treats points as equal if their
        distance is below a thousandth of their norm.

    Example:
      >>> float(bj.Matern(length_scale=1.0)(np.zeros(1), np.ones(1)))
      0.4833...
    """

    length_scale: ArrayLike = leaf(_checks.positive)
    nu: float = static(default=1.5, check=_check_nu)
    exact: bool = static(default=False, check=_checks.flag)

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        X_squares = _squares(self, X, X_squares)
        Z_squares = _squares(self, Z, Z_squares)
        squares = _distances(self, X, Z, X_squares, Z_squares)
        # For equal points a rounding error is left, whose root would be large. The root
        # has no derivative at 0, where the derivative of k is 0 or does not exist.
        rounding = 4 * jnp.finfo(squares.dtype).eps
        apart = squares > rounding * (X_squares[:, None] + Z_squares[None])
        roots = jnp.where(apart, jnp.sqrt(jnp.where(apart, squares, 1)), 0)
        length_scale = _scalar(self, "length_scale", squares.dtype)
        s = (2 * self.nu) ** 0.5 / length_scale * roots
        polynomial = {0.5: 1, 1.5: 1 + s, 2.5: 1 + s + s * s / 3}[self.nu]
        return polynomial * jnp.exp(-s)


class RationalQuadratic(Stationary):
    """The rational quadratic kernel, `(1 + ||x - z||^2 / (2 alpha l^2))^-alpha`.

    It is a mixture of Gaussian kernels of many widths.

    Args:
      length_scale: l, positive.
      alpha: positive; small values have heavy tails, large ones give an `RBF`.
      exact: as for `RBF`.

    Example:
      >>> float(bj.RationalQuadratic(length_scale=1.0)(np.zeros(1), np.ones(1)))
      0.6666...
    """

    length_scale: ArrayLike = leaf(_checks.positive)
    alpha: ArrayLike = leaf(_checks.positive, default=1.0)
    exact: bool = static(default=False, check=_checks.flag)

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        squares = _distances(self, X, Z, X_squares, Z_squares)
        length_scale = _scalar(self, "length_scale", squares.dtype)
        alpha = _scalar(self, "alpha", squares.dtype)
        return jnp.exp(-alpha * jnp.log1p(squares / (2 * alpha * length_scale**2)))


class Sigmoid(InnerProduct):
    """The sigmoid kernel, `k(x, z) = tanh(gamma x.z + coef0)`; not positive definite.

    Args:
      gamma: the factor of the inner product, positive.
      coef0: the constant.

    Example:
      >>> float(bj.Sigmoid(gamma=0.5)(np.ones(1), np.ones(1)))
      0.4621...
    """

    gamma: ArrayLike = leaf(_checks.positive)
    coef0: ArrayLike = leaf(_checks.finite, default=0.0)

    def _function(self, products):
        gamma = _scalar(self, "gamma", products.dtype)
        return jnp.tanh(gamma * products + _scalar(self, "coef0", products.dtype))


def _check_matrix(name: str, matrix: object) -> None:
    if isinstance(matrix, Tracer):
        return
    values = np.asarray(_checks.array(name, matrix))
    bad = np.count_nonzero(~np.isfinite(values))
    if values.ndim not in (1, 2) or bad:
        got = f"shape {values.shape} and {bad} values that are not finite"
        raise ArgumentError(name, "be finite, of shape (d, r) or (d,)", got)


class Mapped(Kernel):
    """A kernel on linearly mapped points, `k(x W, z W)`; W is a metric or reduces d.

    A kernel row costs an additional O(B d) for a vector W, and O(B d r) for a matrix.
    If W is a fixed matrix, map the rows once instead.

    Args:
      kernel: a kernel for points of r features; `RBF(1.0)` for a metric.
      matrix: W, shape `(d, r)`, or `(d,)` for one factor per feature. It is a leaf, so
        it can be traced, swept and learned.
      mapped_vectors: whether Z holds mapped points already, `k(x W, z)`, as in a model
        from `budgetjax.compact`, which only predicts.

    Example:
      >>> kernel = bj.Mapped(bj.RBF(0.5), np.array([1.0, 0.0]))  # one feature of two
      >>> float(kernel(np.zeros(2), np.array([1.0, 5.0])))
      0.6065...
    """

    kernel: Kernel = leaf(check_kernel)
    matrix: Array | np.ndarray = leaf(_check_matrix)
    mapped_vectors: bool = static(default=False)

    @property
    def stationary(self) -> bool:
        return self.kernel.stationary

    @property
    def shifts(self) -> bool:
        return self.stationary and not self.mapped_vectors

    @property
    def gaussian(self) -> bool:
        return self.kernel.gaussian

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        X = self._mapped(X)
        if not self.mapped_vectors:
            return self.kernel.gram(X, self._mapped(Z))
        Z = jnp.asarray(Z)
        origin = origin_of(self.kernel, Z)
        return self.kernel.gram(X - origin[None], Z - origin[None])

    def diag(self, X, squares=None):
        return self.kernel.diag(self._mapped(X))

    @names_errors("Mapped")
    def _mapped(self, X: ArrayLike) -> Float[Array, "n r"]:
        X = _points(self, X)
        matrix = jnp.asarray(self.matrix, X.dtype)
        if matrix.ndim not in (1, 2) or matrix.shape[0] != X.shape[1]:
            raise ArgumentError(
                "matrix",
                f"have shape ({X.shape[1]}, r) or ({X.shape[1]},), as points "
                f"have {X.shape[1]} features",
                matrix.shape,
            )
        if matrix.ndim == 1:
            return X * matrix[None]
        return jnp.matmul(X, matrix, precision="highest")


class Normalized(Kernel):
    """Any kernel scaled to `k(x, x) = 1`: `k(x, z) / sqrt(k(x, x) k(z, z))`.

    It is 0 where `k(x, x) = 0` (the zero vector under a linear kernel). The bounds of
    the Perceptron and the Forgetron need `k(x, x) <= 1`.

    Example:
      >>> float(bj.Normalized(bj.Linear())(np.array([2.0, 0.0]), np.ones(2)))
      0.7071...
    """

    kernel: Kernel = leaf(check_kernel)

    @property
    def stationary(self) -> bool:
        return self.kernel.stationary

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        X, Z = _pair(self, X, Z)
        X_norms = _inverse_norms(self.kernel.diag(X, X_squares))
        Z_norms = _inverse_norms(self.kernel.diag(Z, Z_squares))
        gram = self.kernel.gram(X, Z, X_squares, Z_squares)
        return gram * X_norms[:, None] * Z_norms[None]

    def diag(self, X, squares=None):
        diag = self.kernel.diag(X, squares)
        return jnp.where(diag > 0, jnp.ones_like(diag), jnp.zeros_like(diag))


def _inverse_norms(diag: Float[Array, " n"]) -> Float[Array, " n"]:
    positive = diag > 0
    return jnp.where(positive, jax.lax.rsqrt(jnp.where(positive, diag, 1)), 0)


class Combination(Kernel, abstract=True):
    """A kernel that combines the values of two kernels, by a sum or a product."""

    left: Kernel = leaf(check_kernel)
    right: Kernel = leaf(check_kernel)
    combine: ClassVar[Callable[[Array, Array], Array]]

    @property
    def stationary(self) -> bool:
        return self.left.stationary and self.right.stationary

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        left = self.left.gram(X, Z, X_squares, Z_squares)
        return self.combine(left, self.right.gram(X, Z, X_squares, Z_squares))

    def diag(self, X, squares=None):
        return self.combine(self.left.diag(X, squares), self.right.diag(X, squares))


class Sum(Combination):
    """The sum of two kernels; write `left + right`.

    Example:
      >>> float((bj.Linear() + bj.Polynomial(degree=3))(np.ones(1), np.ones(1)))
      9.0
    """

    combine = staticmethod(operator.add)


class Product(Combination):
    """The product of two kernels; write `left * right`.

    Example:
      >>> float((bj.Linear() * bj.Linear())(np.ones(2), np.array([3.0, 4.0])))
      49.0
    """

    combine = staticmethod(operator.mul)


# Kernels with a gamma, by their names in scikit-learn and with its defaults.
GAMMA_KERNELS: dict[str, Callable[[Any], Kernel]] = {
    "rbf": RBF,
    "laplacian": Laplacian,
    "poly": lambda gamma: Polynomial(3, gamma, 0.0),
    "sigmoid": Sigmoid,
}

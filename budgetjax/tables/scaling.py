"""The scale of features: running means and variances, and the default gamma."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, Shaped

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors, warn
from budgetjax._record import Record

# The ratio of standard deviations, or of the mean to them, that causes a warning.
TOO_UNEVEN = 100
# Fewer rows may lack the rare values that determine a feature's scale.
ENOUGH_ROWS = 50

# Examples; one number per feature; one number per pair of examples.
Rows = Shaped[np.ndarray, "n features"]
PerFeature = Float[np.ndarray, " features"]
# An array, or a number for a vector.
PerColumn = Float[Any, "..."]
Pairs = Float[np.ndarray, "n n"]


class Scaling(Record):
    """The mean and variance of every feature, over all rows so far.

    They are in float64, and do not depend on how the rows are divided: the squared
    deviations of each part from its own mean are added to those of the means (Chan,
    Golub and LeVeque 1983).

    Attributes:
      num_rows: the number of rows so far.
      mean: shape `(num_features,)`.
      variance: as `numpy.var`, divided by the number of rows, shape `(num_features,)`.

    Example:
      >>> from budgetjax.tables.scaling import Scaling
      >>> X = np.random.default_rng(0).normal(5, 2, (1000, 3))
      >>> scaling = Scaling.empty(3).updated(X[:700]).updated(X[700:])
      >>> bool(np.allclose(scaling.apply(X).std(axis=0), 1))
      True
    """

    num_rows: int
    mean: PerFeature
    variance: PerFeature

    @classmethod
    def empty(cls, num_features: int) -> "Scaling":
        """A scaling without rows."""
        return cls(0, np.zeros(num_features), np.zeros(num_features))

    @classmethod
    def translation(cls, origin: PerFeature) -> "Scaling":
        """A scaling that subtracts an origin and divides by 1.

        Its number of rows is 0, so no feature counts as constant, however far the
        origin is.
        """
        return cls(0, origin, np.ones(len(origin)))

    @property
    def constant(self) -> Bool[np.ndarray, " features"]:
        """Whether each feature has had only one value, up to rounding of the rows."""
        rounding = self.num_rows * np.finfo(np.float64).eps
        return self.variance <= np.square(rounding * self.mean)

    @property
    def deviation(self) -> PerFeature:
        """The standard deviation of every feature."""
        return np.sqrt(self.variance)

    def updated(self, X: Rows) -> "Scaling":
        """The scaling after more rows, finite numbers of shape `(n, num_features)`.

        It raises a `ValueError` if squares of the values overflow.
        """
        new = len(X)
        if new == 0:
            return self
        total = self.num_rows + new
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.asarray(np.mean(X, axis=0, dtype=np.float64))
            deviations = X - mean[None]
            squares = np.einsum("ij,ij->j", deviations, deviations)
            apart = mean - self.mean
            variance = (
                self.variance * self.num_rows
                + squares
                + np.square(apart) * (self.num_rows * new / total)
            ) / total
        good = np.isfinite(variance)
        if not np.all(good):
            column = int(np.argmin(good))
            row = int(np.argmax(np.abs(X[:, column])))
            raise ArgumentError(
                "X",
                "have squares that float64 can hold",
                f"{X[row, column]} in row {row}, column {column}",
            )
        mean = self.mean + apart * (new / total)
        return self._replace(num_rows=total, mean=mean, variance=variance)

    @property
    def divisor(self) -> PerFeature:
        """The divisor of centred rows; infinity makes a constant feature 0."""
        return np.where(self.constant, np.inf, self.deviation)

    def undone(self, X: Rows) -> Rows:
        """Raw rows, from scaled ones."""
        return self.mean[None] + self.deviation[None] * X

    @property
    def num_columns(self) -> int:
        """The number of raw columns, and of features."""
        return len(self.mean)

    def apply(
        self, X: Rows, dtype: DTypeLike = np.float32, *, first_row: int = 0
    ) -> Rows:
        """Rows, shape `(n, num_features)`, as deviations from the mean in this dtype.

        They are divided by the standard deviation. Constant features become 0. No row
        is refused.
        """
        scaled = X - self.mean[None]
        np.divide(scaled, self.divisor[None], out=scaled)
        with np.errstate(over="ignore"):
            return scaled.astype(dtype)

    def transform(self, X: ArrayLike) -> Float[Array, "n features"]:
        """The rows of `apply` under `jax.jit`, in the dtype of X.

        The mean is subtracted in two parts, so that rows far from 0 lose no more digits
        than X has lost.
        """
        if _checks.is_traced(self):
            wanted = "have values where a model scales rows"
            got = "a traced one; close over the model, or see budgetjax.export"
            raise ArgumentError("scaling", wanted, got)
        X = jnp.asarray(X)
        X = X if jnp.issubdtype(X.dtype, jnp.floating) else X.astype(float)
        first = self.mean.astype(X.dtype)
        rest, divisor = (
            part.astype(X.dtype)[None] for part in (self.mean - first, self.divisor)
        )
        return (X - first[None] - rest) / divisor


def warn_unscaled(name: str, X: Rows) -> None:
    """Warns if features of the source of this name look unscaled."""
    if message := scale_warning(X):
        warn(f"{name}: {message}")


def scale_warning(X: Rows, *, centred: bool = False) -> str | None:
    """A warning about the scale of features, or None.

    A kernel of distances depends mainly on the features with the largest spread; and in
    float32, inner products of points far from 0 lose the digits in which they differ.
    The warning comes from 50 rows on, if the largest standard deviation is more than
    100 times the lower quartile of those above 0, or the mean is further from 0 than
    100 times the total standard deviation, unless what learns them subtracts it.
    """
    if len(X) < ENOUGH_ROWS:
        return None
    scaling = Scaling.empty(X.shape[1]).updated(X)
    deviations = scaling.deviation[~scaling.constant]
    if not len(deviations):
        return None
    remedy = "a kernel learner needs features on one scale: standardise them"
    # method="lower" takes an actual value: a mean of two could hide a small one.
    usual = np.quantile(deviations, 0.25, method="lower")
    if deviations.max() > TOO_UNEVEN * usual:
        column = int(np.argmax(scaling.deviation))
        return (
            f"features look unscaled: column {column} has a standard deviation of "
            f"{scaling.deviation[column]:.4g}, a quarter of the others "
            f"at most {usual:.4g}; {remedy}"
        )
    if centred:
        return None
    spread = np.sqrt(np.sum(scaling.variance))
    away = np.linalg.norm(scaling.mean)
    if away > TOO_UNEVEN * spread:
        return (
            f"features look uncentred: their mean is {away:.4g} from 0, and their "
            f"total standard deviation {spread:.4g}, so that kernel values lose "
            f"digits; {remedy}"
        )
    return None


# The number of rows whose mutual distances determine the default gamma.
SAMPLED_ROWS = 1000
# A distance counts as at most this multiple of the median.
LARGEST_DISTANCE = 4.0


@names_errors("default_gamma")
def default_gamma(X: ArrayLike) -> float:
    """The default `gamma` for `RBF`: two divided by the mean squared distance.

    The distances are those of all pairs of up to 1,000 evenly spaced rows of X, each
    clipped at four times their median, so that few outliers do not matter. Without
    outliers it is one divided by the total variance of the features, which is
    scikit-learn's `gamma="scale"` if all features have the same mean, and the mean
    exponent of the kernel is -2. Standardise features with different units first. A
    model with a few hundred support vectors and many rows can use a gamma that is
    larger by a factor of 2 to 8.

    Args:
      X: examples, or a sample of them, shape `(n, num_features)`.

    Raises:
      ValueError: if X does not have two rows that differ, or is not finite.

    Example:
      >>> bj.default_gamma(np.array([[1.0, 0.0], [-1.0, 0.0]]))
      1.0
    """
    _checks.check_not_traced(X)
    X = np.asarray(_checks.array("X", X), np.float64)
    if X.ndim != 2 or not X.size:
        raise ArgumentError("X", "have shape (n, num_features)", X.shape)
    rows = X[sample_rows(len(X))]
    with np.errstate(over="ignore", invalid="ignore"):
        gamma = default_gamma_from_distances(squared_distances(rows))
    if not 0 < gamma < np.inf:
        raise ArgumentError(
            "X",
            "be finite and have rows that differ",
            "rows that are all alike" if gamma == 0 else "NaN or infinity",
        )
    return gamma


def sample_rows(num_rows: int) -> Shaped[np.ndarray, " rows"]:
    """The indices of the rows that determine the default gamma."""
    return np.linspace(0, num_rows - 1, min(num_rows, SAMPLED_ROWS)).astype(int)


def squared_distances(X: Shaped[np.ndarray, "n d"]) -> Pairs:
    """`||x - z||^2` of all pairs of rows, in float64."""
    X = np.asarray(X, np.float64)
    X = X - np.median(X, axis=0)[None]
    return distances_from_products(X @ X.T)


def distances_from_products(products: Pairs) -> Pairs:
    """`||x - z||^2` of all pairs of rows, from their inner products."""
    squares = np.diag(products)
    sums = squares[:, None] + squares[None]
    distances = sums - 2 * products
    # For equal rows a rounding error is left.
    return np.where(distances > 1e-12 * sums, distances, 0)


def default_gamma_from_distances(distances: Pairs) -> float:
    """The default gamma from squared distances; 0 if all are 0, NaN on NaN or inf."""
    if not np.all(np.isfinite(distances)):
        return float("nan")
    positive = distances[distances > 0]
    if not positive.size:
        return 0.0
    most = LARGEST_DISTANCE * np.median(positive)
    return float(2 / np.mean(np.minimum(distances, most)))


def centre_and_deviation(
    values: Float[np.ndarray, "n ..."], *, robust: bool
) -> tuple[PerColumn, PerColumn]:
    """The mean and standard deviation of each column, or robust estimates of them.

    The robust estimates are the median, and the median distance from it divided by that
    of a standard normal distribution. If that distance is 0, the standard deviation is
    used.
    """
    values = np.asarray(values, np.float64)
    if not len(values):
        return np.zeros(values.shape[1:]), np.zeros(values.shape[1:])
    # Squares of numbers beyond 1e154 overflow; a power of two rounds nothing.
    exponent = np.frexp(np.max(np.abs(values), axis=0))[1]
    values = np.ldexp(values, -exponent)
    centre, deviation = np.mean(values, axis=0), np.std(values, axis=0)
    if robust:
        centre = np.median(values, axis=0)
        away = 1.4826 * np.median(np.abs(values - centre), axis=0)
        deviation = np.where(away > 0, away, deviation)
    return np.ldexp(centre, exponent), np.ldexp(deviation, exponent)

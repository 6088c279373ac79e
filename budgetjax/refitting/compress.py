"""Reduced sets: fewer support vectors for a trained model; see `compress`."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from budgetjax import _checks, _progress, kernels, losses
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.kernels import Kernel
from budgetjax.model import KernelModel, model_of
from budgetjax.refitting.adam import apply_slopes
from budgetjax.refitting.moving_vectors import unit_of
from budgetjax.scoring import squeeze_columns
from budgetjax.tables.scaling import Scaling
from budgetjax.tables.table_model import TableModel

# A vector is in the span of others if its squared residual is below this fraction.
IN_SPAN = 1e-5
# The ridge of a kernel matrix, as a fraction of its largest diagonal entry.
RIDGE = 1e-5
# The first rate of Adam, for vectors in units of the deviation of their features; it
# falls to 0 along a cosine.
RATE = 0.03


@names_errors("compress")
def compress(
    model: Any, budget: int, *, steps: int = 200, progress: bool = False
) -> KernelModel | TableModel:
    r"""A model with few support vectors that approximates a model with many.

    Minimises :math:`\|f - g\|^2` in the kernel's space over functions g of B support
    vectors, without data. First, B vectors of f are chosen greedily, each with the
    largest reduction of the residual; then gradient steps move all B together. The
    coefficients always are those of the projection of f onto the span.

    It needs no data, so it works for models whose examples are gone or that others
    trained. With 200 vectors in place of the 2,879, 1,321 and 1,580 of an `SVC`, the
    accuracy on letter, usps and ijcnn1 was 1.3, 0.2 and 0.1 points lower.

    Cost: O(n B (d + B)) for n vectors, and O(n B (d + C) + B^3) per step. Memory: a few
    matrices of n x B numbers.

    Args:
      model: a model with support vectors: a `KernelModel`, the state of an online
        learner, a `TableModel` or `StreamModel`, a fitted estimator, or a
        fitted `SVR` or two-class `SVC` of scikit-learn.
      budget: B, at least 1; a model with at most B vectors is returned unchanged.
      steps: the number of gradient steps; 0 keeps vectors of the model.
      progress: show a bar with `||f - g||` as a fraction of `||f||`.

    Returns:
          A `KernelModel`; in a `TableModel` if the model has labels or a scaling. It
        predicts the same kind of targets: labels, or one or more values.
    Raises:
      ValueError: if the model has no support vectors, or is an `SVC` for more than two
        classes, which votes between pairs of classes; or a number is out of range.

    Example:
      >>> X, y = bj.datasets.checkerboard(300, seed=0)
      >>> model = bj.solve(bj.SMO(bj.RBF(8.0), penalty=10.0), X, y).model
      >>> small = bj.compress(model, 60)
      >>> len(small.vectors), float((small.predict(X) == model.predict(X)).mean()) > 0.9
      (60, True)

    References:
      Burges and Schoelkopf (1997), "Improving the accuracy and speed of support vector
      machines".
      https://papers.nips.cc/paper/1996/hash/01882513d5fa7c329e940dda99b12147-Abstract.html
      Chen, Cowan and Grant (1991), "Orthogonal least squares learning algorithm for
      radial basis function networks", for the choice.
      https://doi.org/10.1109/72.80341

    Differences from the papers: the vectors start as vectors of the model, not one by
    one from a fixed-point search, and Adam moves them together.
    """
    budget = _checks.size("budget", budget)
    steps = _checks.size("steps", steps, at_least=0)
    # Our estimators have attributes of the same name as an SVC.
    model = getattr(model, "model_", model)
    _checks.check_not_traced(model)
    model = _from_scikit_learn(model)
    if table := TableModel.find(model):
        one = functools.partial(compress, budget=budget, steps=steps, progress=progress)
        return table.with_parts(tuple(map(one, table.parts)))._replace(calibration=None)
    given = model_of(model).to_kernel_model()
    kernel = given.kernel
    X, coefficients = jnp.asarray(given.vectors), jnp.asarray(given.coefficients)
    _checks.check_invertible_dtype(X.dtype)
    if not len(X):
        raise ArgumentError("model", "have support vectors", "none yet")
    if len(X) <= budget:
        return given
    coefficients = coefficients.reshape(len(X), -1)
    _checks.check_memory(
        {"budget": budget, "vectors": len(X)},
        # A step holds kernel rows, their slopes and factors.
        4 * budget * (len(X) + budget) * X.dtype.itemsize,
        "of kernel rows",
        "lower it, or prune the model first",
    )
    # Distances lose digits far from 0.
    origin = kernels.origin_of(kernel, X)
    X = X - origin[None]
    with _progress.progress_bar("compress", progress, "steps", steps) as report:
        values = given.values_at_vectors().reshape(coefficients.shape)
        chosen = np.asarray(_choose_vectors(kernel, X, values, budget))
        vectors = X[np.sort(chosen[chosen >= 0])]
        if steps:
            whole = float(jnp.sum(coefficients * values))
            vectors = _move_vectors(
                kernel, X, coefficients, vectors, whole, steps, report
            )
    new = _solve_coefficients(kernel, X, coefficients, vectors)
    link = given.approximate_link
    vectors = vectors + origin[None]
    return KernelModel(kernel, vectors, squeeze_columns(new), given.bias, link)


def _from_scikit_learn(model: Any) -> Any:
    """The model of a fitted `SVC` or `SVR`; any other object unchanged."""
    if not hasattr(model, "support_vectors_"):
        return model
    from sklearn.base import is_regressor

    if len(model.dual_coef_) != 1:
        raise ArgumentError(
            "model",
            "be an SVC of two classes",
            f"{len(model.classes_)}: it votes between pairs of them, and "
            "has no score per class",
        )
    gamma, coef0 = model._gamma, model.coef0
    named = {
        "linear": lambda: kernels.Linear(),
        "rbf": lambda: kernels.RBF(gamma),
        "poly": lambda: kernels.Polynomial(model.degree, gamma, coef0),
        "sigmoid": lambda: kernels.Sigmoid(gamma, coef0),
    }
    if model.kernel not in named:
        raise ArgumentError(
            "the kernel of an SVC or SVR",
            f"be one of {', '.join(named)}",
            f"{model.kernel!r}",
        )
    dense = getattr(model.support_vectors_, "toarray", lambda: model.support_vectors_)
    vectors, scaling = np.asarray(dense()), None
    if model.kernel == "rbf":
        # Far from 0, float32 would lose the digits in which they differ.
        scaling = Scaling.translation(np.median(vectors, axis=0))
        vectors = scaling.apply(vectors)
    found = KernelModel(
        named[model.kernel](),
        _checks.to_device(vectors, np.float32),
        _checks.to_device(model.dual_coef_[0], np.float32),
        _checks.to_device(model.intercept_[0], np.float32),
        losses.IDENTITY if is_regressor(model) else losses.LABELS,
    )
    return TableModel(found, scaling, getattr(model, "classes_", None))


@functools.partial(jax.jit, static_argnums=3)
def _choose_vectors(
    kernel: Kernel, X: Float[Array, "n d"], values: Float[Array, "n columns"], size: int
) -> Array:
    """The indices of the vectors that reduce `||f||^2` most, chosen one by one.

    The steps are those of a pivoted Cholesky factorisation of the kernel matrix. The
    pivot is the vector with the largest gain, `|r(x)|^2 / k'(x, x)`, for the residual r
    of f and the kernel k' of the residual space. An index is -1 if no vector is left.
    """
    squares = kernels.squared_norms(X)
    selves = kernel.diag(X, squares)
    least = IN_SPAN * jnp.max(selves)

    def one(j, carry):
        factor, left, selves, chosen = carry
        free = selves > least
        gains = jnp.sum(left**2, axis=1) / jnp.where(free, selves, 1)
        pivot = jnp.argmax(jnp.where(free, gains, -1))
        root = jnp.sqrt(jnp.where(free[pivot], selves[pivot], 1))
        row = kernel.gram(X[pivot][None], X, squares[pivot][None], squares)[0]
        spanned = jnp.matmul(factor, factor[pivot], precision="highest")
        column = jnp.where(free[pivot], (row - spanned) / root, 0)
        left = left - column[:, None] * (left[pivot] / root)[None]
        selves = (selves - column**2).at[pivot].set(0)
        chosen = chosen.at[j].set(jnp.where(free[pivot], pivot, -1))
        return factor.at[:, j].set(column), left, selves, chosen

    factor = jnp.zeros((len(X), size), X.dtype)
    nothing = jnp.full((size,), -1, jnp.int32)
    return jax.lax.fori_loop(0, size, one, (factor, values, selves, nothing))[-1]


def _project(
    kernel: Kernel,
    X: Float[Array, "n d"],
    coefficients: Float[Array, "n columns"],
    vectors: Float[Array, "m d"],
) -> tuple[Float[Array, "m columns"], Float[Array, "m m"]]:
    """The values of f at the vectors, and the factor of their kernel matrix."""
    gram = kernel.gram(vectors, vectors)
    ridge = RIDGE * jnp.max(jax.lax.stop_gradient(jnp.diag(gram)))
    factor = jnp.linalg.cholesky(gram + ridge * jnp.eye(len(vectors), dtype=X.dtype))
    values = jnp.matmul(kernel.gram(vectors, X), coefficients, precision="highest")
    return values, factor


@jax.jit
def _solve_coefficients(*given: Any) -> Float[Array, "m columns"]:
    """The coefficients of the projection of f onto the span of the vectors."""
    values, factor = _project(*given)
    return jax.scipy.linalg.cho_solve((factor, True), values)


def _projection_norm(
    moving: Float[Array, "m d"],
    kernel: Kernel,
    X: Float[Array, "n d"],
    coefficients: Float[Array, "n columns"],
    unit: Float[Array, ""],
) -> Float[Array, ""]:
    """The squared norm of the projection of f, which is `||f||^2 - ||f - g||^2`."""
    values, factor = _project(kernel, X, coefficients, moving * unit)
    return jnp.sum(jax.scipy.linalg.solve_triangular(factor, values, lower=True) ** 2)


def _move_vectors(
    kernel: Kernel,
    X: Array,
    coefficients: Array,
    vectors: Array,
    whole: float,
    steps: int,
    report: Callable[..., object],
) -> Float[Array, "m d"]:
    """The vectors with the largest projection of f so far; `whole` is `||f||^2`."""
    unit = jnp.asarray(unit_of(np.asarray(X)))
    optimizer = optax.adam(optax.cosine_decay_schedule(RATE, steps))

    @jax.jit
    def step(moving: Array, memory: optax.OptState, *given: Any) -> tuple[Any, ...]:
        kept, slopes = jax.value_and_grad(_projection_norm)(moving, *given)
        return (*apply_slopes(optimizer.update, moving, memory, -slopes), kept)

    moving = vectors / unit
    best, most, memory = moving, -np.inf, optimizer.init(moving)
    for _ in range(steps):
        before = moving
        moving, memory, kept = step(before, memory, kernel, X, coefficients, unit)
        if float(kept) > most:
            best, most = before, float(kept)
        report(f"lost {np.sqrt(max(0.0, 1 - most / whole)):.4f} of the norm")
    return best * unit

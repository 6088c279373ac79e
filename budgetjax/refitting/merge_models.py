"""One model of several that learned parts of the data; see `merge_models`."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from budgetjax import _checks, kernels
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.model import KernelModel, model_of
from budgetjax.online.state import Online, State
from budgetjax.refitting.compress import RIDGE, compress
from budgetjax.refitting.refit import refit
from budgetjax.tables.table_model import TableModel

# What each model counts everywhere, beside what it has learned. Models of noisy rows in
# random order made up to 7 percent more errors than their mean, and with 1 up to 22;
# those of sorted rows had up to 38 percent more with 100 than with 10.
EVERYWHERE = 10.0


@names_errors("merge_models")
def merge_models(
    parts: Any,
    budget: int,
    X: Any = None,
    y: Any = None,
    *,
    weights: ArrayLike | None = None,
    steps: int = 200,
    **options: Any,
) -> KernelModel | TableModel:
    r"""One model of at most `budget` vectors for models that learned parts of the data.

    It is :math:`\sum_i w_i f_i` over all support vectors, compressed as by
    `budgetjax.compress`, with weights of sum 1. Each model needs :math:`B (d + C)`
    numbers, which is all that the machines that hold the data have to send. Rows, of
    any part of the data or all, refit the coefficients; do that if some models have not
    seen all classes.

    States of `budgetjax.AROW` and `budgetjax.KRLST` know where they have learned, and
    send a matrix of :math:`B^2` numbers more. On the vectors of the compressed mean,
    the merged model f minimises :math:`\sum_i (f - f_i)^T (10 \, w_i m I + P_i) (f -
    f_i)`, with :math:`P_i` what the examples of model i of m add to the precision of
    its weights. On four tables of labels and four of targets, divided in 2 or 8 parts
    by the values of a column, so that models know different regions, this had 0.85 and
    0.54 of the errors of the mean by rows; divided at random 1.00 and 0.96.

    Cost: for m models of B vectors that of `compress` for m B vectors, and that of
    `refit` for `budget` vectors if there are rows.

    Args:
      parts: models with the same kernel and columns, as for `compress`; or states of
        one algorithm stacked by `jax.lax.map` or `jax.vmap`, or by
        `jax.experimental.multihost_utils.process_allgather`.
      budget: the number of support vectors, at least 1; if all models together have no
        more, all are kept.
      X, y: rows for `budgetjax.refit`, also batches, or rows divided among devices;
        None leaves the coefficients of the compressed mean.
      weights: one per model, at least 0 and not all 0, of any scale. None is the number
        of rows that each has learned, if all are states, and otherwise 1 for all. If
        you give some, it is their mean, whatever the models know.
      steps: as for `compress`.
      **options: other arguments of `refit`.

    Returns:
      A `KernelModel`; in a `TableModel` if the models have labels or a scaling.

    Raises:
      ValueError: if there are no models, they differ in kind, kernel, scaling,
        classes, features, targets or units, or one has no support vectors; if weights
        are invalid; and as `compress` and `refit`.

    Example:
      >>> X, y = bj.datasets.checkerboard(4000, seed=0)
      >>> state = bj.Pegasos(regularization=1e-4).init(
      ...     bj.RBF(8.0), num_features=2, budget=40)
      >>> rows = X.reshape(4, 1000, 2), y.reshape(4, 1000)
      >>> shards = jax.lax.map(lambda part: bj.run(state, *part)[0], rows)
      >>> model = bj.merge_models(shards, 40, X, y)
      >>> len(model.vectors), float((model.predict(X) == y).mean()) > 0.9
      (40, True)
    """
    _checks.check_not_traced(parts, X, y)
    budget = _checks.size("budget", budget)
    steps = _checks.size("steps", steps, at_least=0)
    given = [TableModel.find(part) or model_of(part).inner for part in _unstack(parts)]
    if not given:
        raise ArgumentError("parts", "have models", "none")
    shares = _check_weights(weights, given)
    merged = compress(_merge(given, shares), budget, steps=steps)
    if weights is None:
        merged = _by_precision(merged, given, shares)
    return merged if X is None else refit(merged, X, y, **options)


def _unstack(parts: Any) -> list[Any]:
    """The models of a sequence, or of a stack of states."""
    if type(parts) in (list, tuple):
        return list(parts)
    vectors = parts.expansion.vectors if isinstance(parts, State) else None
    if vectors is None or vectors.ndim != 3:
        wanted = "be a list of models, or states stacked along one axis"
        raise ArgumentError("parts", wanted, _checks.kind_name(parts))
    leaves, structure = jax.tree.flatten(jax.device_get(parts))
    each = zip(*leaves, strict=True)
    return [jax.device_put(structure.unflatten(one)) for one in each]


def _check_weights(weights: Any, parts: list[Any]) -> Float[np.ndarray, " parts"]:
    """The weight of each model, with the sum 1."""
    if weights is None:
        inner = [part.inner for part in parts]
        rows = [int(one.num_seen) for one in inner if isinstance(one, Online)]
        known = len(rows) == len(parts) and min(rows) > 0
        weights = rows if known else [1] * len(parts)
    found = np.asarray(weights, np.float64)
    if found.shape != (len(parts),):
        wanted = f"have the shape ({len(parts)},), one per model"
        raise ArgumentError("weights", wanted, f"shape {found.shape}")
    _checks.non_negative("weights", found)
    if not np.any(found):
        raise ArgumentError("weights", "have one above 0", "none")
    return found / np.sum(found)


def _merge(parts: list[Any], weights: Float[np.ndarray, " parts"]) -> Any:
    """The weighted mean of models: the union of their support vectors."""
    first = parts[0]
    _check_equal("kind", [isinstance(part, TableModel) for part in parts])
    if not isinstance(first, TableModel):
        return _union(parts, weights)
    for name in ("scaling", "classes", "feature_names", "unit"):
        _check_equal(name, [getattr(part, name) for part in parts])
    _check_equal("kind", [part.is_several for part in parts])
    each = zip(*(part.parts for part in parts), strict=True)
    union = first.with_parts(tuple(_union(list(one), weights) for one in each))
    intercept = np.tensordot(weights, [part.intercept for part in parts], axes=1)
    intercept = intercept if intercept.ndim else float(intercept)
    return union._replace(intercept=intercept, calibration=None)


def _union(parts: list[Any], weights: Float[np.ndarray, " parts"]) -> KernelModel:
    """The weighted mean of states or kernel models."""
    small = [part.inner.to_kernel_model() for part in parts]
    first = small[0]
    for name, words in (
        ("kernel", "kernel"),
        ("link", "link"),
        ("num_features", "number of features"),
        ("num_columns", "number of columns"),
        ("dtype", "dtype"),
    ):
        _check_equal(words, [getattr(part, name) for part in small])
    vectors, coefficients, bias = (
        [np.asarray(getattr(part, name)) for part in small]
        for name in ("vectors", "coefficients", "bias")
    )
    parts = [
        (weight * one).astype(one.dtype)
        for weight, one in zip(weights, coefficients, strict=True)
    ]
    bias = np.tensordot(weights, bias, axes=1).astype(bias[0].dtype)
    return first._replace(
        vectors=jax.device_put(np.concatenate(vectors)),
        coefficients=jax.device_put(np.concatenate(parts)),
        bias=jax.device_put(bias),
    )


def _by_precision(
    merged: Any, parts: list[Any], weights: Float[np.ndarray, " parts"]
) -> Any:
    """The merged model with coefficients of those that know their precision."""
    if isinstance(merged, TableModel):
        each = zip(merged.parts, *(part.parts for part in parts), strict=True)
        fitted = (_by_precision(one, list(own), weights) for one, *own in each)
        return merged.with_parts(tuple(fitted))
    states = [part.inner for part in parts]
    told = (one.learner.precision(one) for one in states if isinstance(one, State))
    known = [one for one in told if one is not None]
    if len(known) < len(states):
        return merged
    kernel, vectors = merged.kernel, merged.vectors
    origin = kernels.origin_of(kernel, vectors)

    def gram(others: Any) -> Float[np.ndarray, "n m"]:
        found = kernel.gram(vectors - origin[None], others - origin[None])
        return np.asarray(found, np.float64)

    inner, right = gram(vectors), 0
    ridge = RIDGE * np.max(np.diag(inner)) * np.eye(len(inner))
    left = EVERYWHERE * len(states) * (inner + ridge)
    for state, precision, weight in zip(states, known, weights, strict=True):
        own = state.to_kernel_model()
        across = gram(own.vectors)
        coefficients, values = (
            np.asarray(one, np.float64).reshape(len(precision), -1)
            for one in (own.coefficients, own.values_at_vectors())
        )
        left += across @ precision @ across.T
        everywhere = EVERYWHERE * len(states) * weight
        right += across @ (everywhere * coefficients + precision @ values)
    found = np.linalg.solve(left, right).reshape(merged.coefficients.shape)
    coefficients = jax.device_put(found.astype(merged.dtype))
    return merged._replace(coefficients=coefficients)


def _check_equal(name: str, values: list[Any]) -> None:
    """Raises if a part of a model differs from that of the first."""
    leaves, kind = jax.tree.flatten(values[0])
    for i, value in enumerate(values):
        others, structure = jax.tree.flatten(value)
        same = structure == kind and all(map(np.array_equal, leaves, others))
        if not same:
            expected = f"have the {name} of model 0, {_checks.value_text(values[0])}"
            raise ArgumentError(f"model {i}", expected, _checks.value_text(value))

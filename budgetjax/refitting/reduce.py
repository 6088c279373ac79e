"""Smaller models: the largest coefficients, and mapped support vectors."""

import dataclasses
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int32

from budgetjax import _checks, losses
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._rows import RawRows
from budgetjax.kernels import Mapped
from budgetjax.model import KernelModel, model_of
from budgetjax.tables.labels import encode_labels_and_weights
from budgetjax.tables.table_model import TableModel


@overload
def prune(model: KernelModel, size: int, X: None = None) -> KernelModel: ...
@overload
def prune(
    model: Any,
    size: int,
    X: RawRows | None = None,
    y: ArrayLike | None = None,
    *,
    weight: ArrayLike | None = None,
) -> KernelModel | TableModel: ...
@names_errors("prune")
def prune(
    model: Any,
    size: int,
    X: RawRows | None = None,
    y: ArrayLike | None = None,
    *,
    weight: ArrayLike | None = None,
) -> KernelModel | TableModel:
    """The model reduced to its `size` largest coefficients; O(m log m).

    At the optimum of an SVM, many small coefficients matter, and removing them shifts
    the scores. Pass the training set too to choose the bias with the fewest errors on
    it, midway between two scores. `budgetjax.refit` of the result recomputes the
    coefficients, which helps far more: an SVM with 1,000 MNIST digits, pruned to 100
    vectors, makes 41 percent errors with the old coefficients and 10 after a refit.

    Cost: a training set adds O(n size d).

    Args:
      model: a model with support vectors.
      size: the number of support vectors to keep, at least 1; all if the model has
        fewer.
      X: examples for choosing the bias, shape `(n, num_features)`; None keeps it.
      y: their labels, two classes, shape `(n,)`.
      weight: their weights, at least 0, shape `(n,)`.

    Returns:
      A `KernelModel` with the vectors in their old order; in a `TableModel` if `model`
      is one. With several columns, the norms of the coefficients are compared; on ties
      the first vectors are kept.

    Raises:
      ValueError: if `size` is not an integer of at least 1, the model has no support
        vectors, or a training set is invalid or the model has more than two classes.

    Example:
      >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([-1, 1, 1])
      >>> svm = bj.solve(bj.SDCA(bj.RBF(1.0)), X, y)
      >>> small = bj.prune(svm, 2, X, y)
      >>> small.vectors.shape, small.predict(X).tolist()
      ((2, 1), [-1, 1, 1])

    References:
      Dekel and Singer (2006), "Support vector machines on a budget", Section 5,
      https://papers.nips.cc/paper/3125-support-vector-machines-on-a-budget.
    """
    _checks.check_not_traced(model, X, y, weight)
    size = _checks.size("size", size)
    small: Any
    if table := TableModel.find(model):
        parts = tuple(prune(part, size) for part in table.parts)
        small = table.with_parts(parts)._replace(calibration=None)
    else:
        inner = model_of(model).inner
        small = inner.to_kernel_model()
        coefficients = np.asarray(small.support().coefficients, np.float64)
        lengths = np.linalg.norm(coefficients, axis=1)
        kept = np.sort(np.argsort(-lengths, kind="stable")[:size])
        small = small._replace(
            vectors=jax.device_put(np.asarray(small.vectors)[kept]),
            coefficients=jax.device_put(np.asarray(small.coefficients)[kept]),
            link=inner.approximate_link,
        )
    if X is None:
        return small
    scores = np.asarray(small.evaluate(X, losses.IDENTITY), np.float64)
    if scores.ndim != 1 or y is None:
        got = "no y" if y is None else f"{scores.shape[1]} columns"
        raise ArgumentError(
            "X", "come with y, and a model of two classes, to find the bias", got
        )
    codes, masses = encode_labels_and_weights(small, len(scores), y, weight)
    known = small.inner
    shift = jnp.asarray(best_shift(scores, codes, masses), known.bias.dtype)
    return small.with_inner(known._replace(bias=known.bias + shift))


def best_shift(
    scores: Float[np.ndarray, " n"],
    codes: Int32[np.ndarray, " n"],
    masses: Float[np.ndarray, " n"],
) -> float:
    """The shift of all scores that minimises the weight of errors.

    It is midway between two scores, the lowest pair on ties; O(n log n). The codes are
    0 and 1, and the masses are the weights of the examples.
    """
    order = np.argsort(scores, kind="stable")
    scores, codes, masses = scores[order], codes[order], masses[order]
    # Errors if all examples up to each score, or none, are classified as negative.
    errors = np.cumsum(np.append(masses @ (1 - codes), masses * (2 * codes - 1)))
    # No threshold separates equal scores.
    errors[1:-1][scores[1:] == scores[:-1]] = np.inf
    beyond = np.concatenate([[scores[0] - 1], scores, [scores[-1] + 1]])
    best = int(np.argmin(errors))
    return -float(beyond[best] + beyond[best + 1]) / 2


@names_errors("compact")
def compact(model: Any) -> KernelModel | TableModel:
    """A smaller model with the same predictions; O(m d r).

    Only the support vectors and their coefficients are kept. Under a `budgetjax.Mapped`
    kernel to r < d features, the vectors are stored as mapped points: m r + d r numbers
    in place of m d + d r. The model can predict and be saved, but not learn.

    Args:
      model: a model with support vectors.

    Returns:
      A `KernelModel`; in a `TableModel` if `model` is one.

    Raises:
      ValueError: if the model has no support vectors.

    Example:
      >>> kernel = bj.Mapped(bj.RBF(1.0), np.ones((20, 2), np.float32))
      >>> state = bj.Perceptron().init(kernel, num_features=20, budget=5)
      >>> state = bj.step(state, np.ones(20, np.float32), 1)
      >>> bj.compact(state).vectors.shape
      (1, 2)
    """
    _checks.check_not_traced(model)
    if table := TableModel.find(model):
        return table.with_parts(tuple(map(compact, table.parts)))
    inner = model_of(model).inner
    if isinstance(inner, KernelModel) and inner.is_compact:
        return inner
    small = inner.to_kernel_model()
    kernel = small.kernel
    if not isinstance(kernel, Mapped) or np.ndim(kernel.matrix) != 2:
        return small
    features, rank = kernel.matrix.shape
    if rank >= features:
        return small
    return small._replace(
        kernel=dataclasses.replace(kernel, mapped_vectors=True),
        vectors=jnp.matmul(small.vectors, kernel.matrix, precision="highest"),
    )

"""What a linear solver ends with: one weight a feature, and a bias."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from budgetjax.linear.rows import DenseRows, SparseRows, as_rows, products


class LinearModel(NamedTuple):
    """A linear classifier, `f(x) = weights . x + bias`.

    Attributes:
      weights: shape `(d,)`.
      bias: a scalar, 0 for a model without one.
    """

    weights: Float[Array, " d"]
    bias: Float[Array, ""]

    def decision_function(self, X: Any) -> Float[Array, " n"]:
        """The scores `f(x)` of every row, shape `(n,)`; O(n d), or O(numbers).

        Args:
          X: shape `(n, d)`: an array, a matrix of `scipy.sparse` or `SparseRows`.

        Raises:
          ValueError: if the shape of `X` does not fit the model, or `X` is not finite.
        """
        where = "decision_function"
        rows = as_rows(where, X, some=False)
        if rows.size != self.weights.shape[0]:
            raise ValueError(
                f"{where}: X must have shape (n, {self.weights.shape[0]}), a column a "
                f"weight, got ({rows.number}, {rows.size})"
            )
        if not rows.number:
            return jnp.zeros(0, self.weights.dtype)
        return _scores(self, rows)

    def predict(self, X: Any) -> Shaped[Array, " n"]:
        """The label of every row, -1 or +1, shape `(n,)`; a score of 0 gives -1.

        Args:
          X: as for `decision_function`.

        Raises:
          ValueError: as for `decision_function`.
        """
        return jnp.where(self.decision_function(X) > 0, 1, -1).astype(jnp.int32)


@jax.jit
def _scores(model: LinearModel, rows: DenseRows | SparseRows) -> Float[Array, " n"]:
    return scores(rows, model.weights, model.bias)


def scores(
    rows: DenseRows | SparseRows, weights: Float[Array, " d"], bias: Float[Array, ""]
) -> Float[Array, " n"]:
    """`weights . x + bias` of all rows."""
    if isinstance(rows, SparseRows):
        return products(rows, weights) + bias
    values = rows.values.astype(weights.dtype)
    return jnp.matmul(values, weights, precision="highest") + bias


def weighed(
    weights: Float[Array, "*models size"],
    constant: Float[Array, "*models"] | None,
    d: int,
    scale: Float[Array, "*models"] | None = None,
) -> LinearModel:
    """The model, or models, of weights of patterns, over this scale if there is one."""
    features = weights[..., :d]
    bias = jnp.zeros_like(features[..., 0])
    if constant is not None:
        bias = constant * weights[..., d]
    if scale is not None:
        features, bias = features / scale[..., None], bias / scale
    return LinearModel(features, bias)

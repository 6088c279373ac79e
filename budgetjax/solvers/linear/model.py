"""What a linear solver ends with: one weight a feature, and a bias."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from budgetjax.solvers.linear.rows import DenseRows, SparseRows, as_rows, products


class LinearModel(NamedTuple):
    """A linear classifier, `f(x) = weights . x + bias`, or one per penalty.

    Attributes:
      weights: shape `(d,)`, or of several models `(p, d)`.
      bias: a scalar, or of several models shape `(p,)`; 0 for a model without one.
    """

    weights: Float[Array, "*models d"]
    bias: Float[Array, "*models"]

    def decision_function(self, X: Any) -> Float[Array, " n *models"]:
        """The scores `f(x)` of every row; O(n d), or O(numbers), per model.

        Args:
          X: shape `(n, d)`: an array, a matrix of `scipy.sparse` or `SparseRows`.

        Returns:
          Shape `(n,)`, or of several models `(n, p)`.

        Raises:
          ValueError: if the shape of `X` does not fit the model, or `X` is not finite.
        """
        where = "decision_function"
        rows = as_rows(where, X, some=False)
        size = self.weights.shape[-1]
        if rows.size != size:
            raise ValueError(
                f"{where}: X must have shape (n, {size}), one column per weight, got "
                f"({rows.number}, {rows.size})"
            )
        if not rows.number:
            return jnp.zeros((0, *self.bias.shape), self.weights.dtype)
        return _scores(self, rows)

    def predict(self, X: Any) -> Shaped[Array, " n *models"]:
        """The label of every row, -1 or +1; a score of 0 gives -1.

        Args:
          X: as for `decision_function`.

        Returns:
          Shape `(n,)`, or of several models `(n, p)`.

        Raises:
          ValueError: as for `decision_function`.
        """
        return jnp.where(self.decision_function(X) > 0, 1, -1).astype(jnp.int32)


@jax.jit
def _scores(
    model: LinearModel, rows: DenseRows | SparseRows
) -> Float[Array, " n *models"]:
    if model.weights.ndim == 1:
        return scores(rows, *model)
    return jax.lax.map(lambda one: scores(rows, *one), model).T


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

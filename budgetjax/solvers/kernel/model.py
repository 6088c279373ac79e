"""What a batch learner ends with: a kernel expansion and a bias."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Shaped

from budgetjax import checks, kernels
from budgetjax.kernels import Kernel
from budgetjax.online import engine


class KernelModel(NamedTuple):
    """A trained classifier, `f(x) = sum_j coefficients[j] k(vectors[j], x) + bias`.

    Attributes:
      kernel: of the training.
      vectors: the support vectors, shape `(m, d)`.
      coefficients: `y_j alpha_j`, shape `(m,)`.
      bias: a scalar, 0 for a model without one.
    """

    kernel: Kernel
    vectors: Float[Array, "m d"]
    coefficients: Float[Array, " m"]
    bias: Float[Array, ""]

    def decision_function(self, X: ArrayLike) -> Float[Array, " n"]:
        """The scores `f(x)` of every row, shape `(n,)`; O(n m d).

        The rows are taken in blocks, so a million of them never build an `(n, m)`
        matrix.

        Args:
          X: shape `(n, d)`.

        Raises:
          ValueError: if the shape of `X` does not fit the model.
        """
        X = checks.array("decision_function", "X", X)
        features = self.vectors.shape[1]
        if X.ndim != 2 or X.shape[1] != features:
            raise ValueError(
                f"decision_function: X must have shape (n, {features}), {features} "
                f"being the features of the support vectors, got {X.shape}"
            )
        return _scores(_padded(self), jnp.asarray(X, self.vectors.dtype))

    def predict(self, X: ArrayLike) -> Shaped[Array, " n"]:
        """The label of every row, -1 or +1, shape `(n,)`; a score of 0 gives -1.

        Args:
          X: shape `(n, d)`.

        Raises:
          ValueError: if the shape of `X` does not fit the model.
        """
        return jnp.where(self.decision_function(X) > 0, 1, -1).astype(jnp.int32)


def _padded(model: KernelModel) -> KernelModel:
    """The model with some vectors of coefficient 0, so that few sizes are compiled."""
    number = model.coefficients.shape[0]
    # To a multiple of a power of two: four sizes an octave, from 64 on.
    unit = 2 ** max(6, number.bit_length() - 3)
    more = -number % unit if number else unit
    # By NumPy where it can be: compiled for every number, it takes longer.
    pad = jnp.pad if isinstance(model.vectors, Tracer) else np.pad
    return model._replace(
        vectors=pad(model.vectors, ((0, more), (0, 0))),
        coefficients=pad(model.coefficients, (0, more)),
    )


@jax.jit
def _scores(model: KernelModel, X: Float[Array, "n d"]) -> Float[Array, " n"]:
    squares = kernels.squared_norms(model.vectors)

    def block(rows):
        gram = model.kernel.gram(rows, model.vectors, None, squares)
        return jnp.matmul(gram, model.coefficients, precision="highest")

    return engine.in_blocks(block, X, ()) + model.bias


def of_coefficients(
    kernel: Kernel,
    X: Float[Array, "n d"],
    y: Float[Array, " n"],
    coefficients: Float[Array, " n"],
    bias: Float[Array, ""],
) -> KernelModel:
    """The model of the examples whose coefficient is not 0. Not to be traced."""
    signed = np.asarray(y) * np.asarray(coefficients)
    active = np.flatnonzero(signed)
    return KernelModel(
        kernel=kernel,
        vectors=jax.device_put(np.asarray(X)[active]),
        coefficients=jax.device_put(signed[active]),
        bias=bias,
    )


def prune(model: KernelModel, size: int) -> KernelModel:
    """The model with its `size` largest coefficients only; O(m log m).

    The budget of an SVM on a budget bounds the coefficients that matter, and not their
    number: what it leaves beyond is small, and pruned at little cost.

    Args:
      model: of any batch learner.
      size: support vectors to keep, at least 1; a model with no more is returned as it
        is.

    Returns:
      A model whose vectors are in their former order. Of equal coefficients the first
      are kept.

    Raises:
      ValueError: if `size` is not an integer of at least 1.

    Example:
      >>> import budgetjax as bj, numpy as np
      >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([-1, 1, 1])
      >>> state = bj.sdca.init(bj.RBF(1.0), X, y, regularization=0.1)
      >>> state, _ = bj.solve(bj.sdca, state, X, y, max_steps=20)
      >>> bj.prune(bj.sdca.model(state, X, y), 2).vectors.shape
      (2, 1)

    References:
      Dekel and Singer (2006), "Support vector machines on a budget", Section 5.
    """
    size = checks.size("prune", "size", size)
    largest = np.argsort(-np.abs(np.asarray(model.coefficients)), kind="stable")
    kept = np.sort(largest[:size])
    return model._replace(
        vectors=jnp.asarray(np.asarray(model.vectors)[kept]),
        coefficients=jnp.asarray(np.asarray(model.coefficients)[kept]),
    )

"""NORMA, gradient descent that drops the oldest support vector; see `init`."""

from collections.abc import Callable

import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array

from budgetjax import _checks
from budgetjax._errors import names_errors
from budgetjax.kernels import Kernel
from budgetjax.online import gradient_descent
from budgetjax.online.maintenance.removal import RemoveOldest


@names_errors("norma.init")
def init(
    kernel: Kernel,
    *,
    num_features: int,
    budget: ArrayLike,
    num_classes: int | None = 2,
    num_outputs: int = 1,
    loss: Callable[..., Array] | None = None,
    learning_rate: ArrayLike | None = None,
    regularization: ArrayLike = 1e-4,
    average: bool | int = False,
    capacity: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> gradient_descent.State:
    r"""NORMA: gradient descent at a constant rate that drops the oldest support vector.

    Every round shrinks all coefficients by :math:`1 - \eta \lambda`, and an example
    enters with :math:`-\eta \, \partial \ell / \partial f`, so a vector of age a keeps
    a share :math:`(1 - \eta \lambda)^a` of its coefficient, and the oldest is the
    smallest. A model that forgets can follow a drifting stream.

    Cost: O(B (d + C)) per example.

    Args:
      loss: a function of `(scores, y)`, as for `budgetjax.sgd.init`.
      learning_rate: eta, a positive number; None is 1, or 0.3 for real targets.
      regularization: lambda, at least 0.

    Example:
      >>> state = bj.norma.init(
      ...     bj.RBF(gamma=1.0), num_features=2, budget=10, learning_rate=0.5,
      ...     regularization=0.01)
      >>> state = bj.norma.step(state, jnp.array([1.0, 2.0]), -1)
      >>> bj.support(state).coefficients[0].tolist()
      [-0.5]

    References:
      Kivinen, Smola and Williamson (2004), "Online learning with kernels", section III.
      https://doi.org/10.1109/TSP.2004.830991

    Differences from the paper: the margin of the loss is fixed (the paper's :math:`\nu`
    trick adapts it), and the model has no constant term b.
    """
    if learning_rate is None:
        learning_rate = gradient_descent.default_rate(num_classes)
    _checks.positive("learning_rate", learning_rate)
    return gradient_descent.init_state(
        "norma",
        kernel,
        *(num_features, budget, num_classes, capacity, dtype),
        loss=loss,
        learning_rate=learning_rate,
        regularization=regularization,
        num_outputs=num_outputs,
        average=average,
        maintenance=RemoveOldest(),
    )


norma = gradient_descent.learner("norma", init)

"""Kernel stochastic gradient descent on a budget; see `init`."""

from collections.abc import Callable

import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array

from budgetjax._errors import names_errors
from budgetjax.kernels import Kernel
from budgetjax.online import gradient_descent
from budgetjax.online.maintenance import Maintenance


@names_errors("sgd.init")
def init(
    kernel: Kernel,
    *,
    num_features: int,
    budget: ArrayLike,
    num_classes: int | None = 2,
    num_outputs: int = 1,
    loss: Callable[..., Array] | None = None,
    learning_rate: ArrayLike | Callable[[Array], Array] | None = None,
    regularization: ArrayLike = 0.0,
    maintenance: Maintenance | None = None,
    average: bool | int = False,
    seed: ArrayLike = 0,
    capacity: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> gradient_descent.State:
    r"""Kernel gradient descent on a budget, for any loss.

    Minimises :math:`\frac{\lambda}{2} \|w\|^2 + \frac1n \sum_t \ell(f(x_t), y_t)` over
    a stream, one example per step. Round t, with the score :math:`f_t(x_t)` of the old
    model, ``learning_rate`` :math:`\eta_t` and ``regularization`` :math:`\lambda`:

    1. All coefficients shrink by :math:`\max(0, 1 - \eta_t \lambda)`.
    2. Where the loss has a gradient, :math:`x_t` enters with the coefficients
       :math:`-\eta_t \, \partial \ell / \partial f`, one per column.
    3. If there are now B + 1 vectors, ``maintenance`` reduces them to B.

    If your own loss takes labels, mark it with `budgetjax.losses.classification_loss`.

    Cost: O(B (d + C)) per example; a nonzero gradient adds the cost of the maintenance,
    which a squared loss pays in every round.

    Args:
      loss: a function of `(scores, y)`, differentiable in the scores, which have shape
        `(C,)` for more than two classes and `()` otherwise: from `optax.losses`,
        `budgetjax.losses`, or your own. With several real outputs, scores and targets
        have shape `(num_outputs,)`, and the values of the loss are summed. The loss is
        part of the compiled program: pass the same function each time, since a new
        `lambda` compiles the loops again. Put numbers that may change into a
        `jax.tree_util.Partial`. None is the hinge loss, or the squared error for real
        targets.
      learning_rate: eta, a positive number, or an optax schedule: a function of the
        number of rounds before this one, a float. None is 1, or 0.3 for real targets.
      regularization: lambda, at least 0.

    Example:
      >>> import optax
      >>> state = bj.sgd.init(
      ...     bj.RBF(gamma=1.0), num_features=1, budget=10, num_classes=None,
      ...     loss=optax.losses.squared_error,
      ...     learning_rate=optax.exponential_decay(0.5, 100, 0.9))
      >>> state = bj.sgd.step(state, jnp.array([0.0]), 3.0)
      >>> bj.decision_function(state, jnp.array([[0.0]])).tolist()
      [3.0]

    References:
      Kivinen, Smola and Williamson (2004), "Online learning with kernels", section III,
      for the step. https://doi.org/10.1109/TSP.2004.830991
      Wang, Crammer and Vucetic (2010), "Multi-class Pegasos on a budget", Algorithm 1,
      for the budget; see https://jmlr.org/papers/volume13/wang12b/wang12b.pdf

    Differences from the papers: any loss, schedule and maintenance.
    """
    if learning_rate is None:
        learning_rate = gradient_descent.default_rate(num_classes)
    return gradient_descent.init_state(
        "sgd",
        kernel,
        *(num_features, budget, num_classes, capacity, dtype),
        loss=loss,
        learning_rate=learning_rate,
        regularization=regularization,
        num_outputs=num_outputs,
        average=average,
        maintenance=maintenance,
        seed=seed,
    )


sgd = gradient_descent.learner("sgd", init)

"""Pegasos with a kernel on a training set; see `init`."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from budgetjax.kernels import Kernel
from budgetjax.models import KernelModel
from budgetjax.solvers.kernel import hinge_dual
from budgetjax.solvers.kernel.hinge_dual import State
from budgetjax.solvers.kernel.solve import BatchAlgorithm, Objective
from budgetjax.solvers.kernel.training import of_state


def init(
    kernel: Kernel,
    X: ArrayLike,
    y: ArrayLike,
    *,
    regularization: ArrayLike,
    batch_size: int = 64,
    precompute: bool | str = "auto",
    cache_size: float = 512.0,
    seed: ArrayLike = 0,
) -> State:
    r"""The kernel SVM without a bias, by stochastic subgradient descent.

    Visit :math:`t` draws an example :math:`i`, with replacement, and counts it if its
    margin is below 1,

    .. math:: y_i \langle w_t, \Phi(x_i) \rangle < 1 \;\Rightarrow\; m_i \leftarrow
        m_i + 1, \qquad w_{t+1} = \frac{1}{\lambda t} \sum_j m_j y_j \Phi(x_j).

    No example ever leaves the model: `budgetjax.pegasos` is the learner with a budget,
    for streams. A step makes `batch_size` visits, as in `budgetjax.sdca`.

    Cost: a step is O(batch_size^2 d), and O(n d) for every violation whose kernel row
    is not kept.

    Args:
      kernel: `k`, positive definite.
      X: the training set, shape `(n, d)`; float64 stays so.
      y: -1 and +1, both, shape `(n,)`.
      regularization: lambda, positive; the penalty of other libraries is
        `C = 1 / (lambda n)`.
      batch_size: visits a step.
      precompute: True to compute all kernel values now, False to compute rows when they
        are needed, "auto" to choose by the number of examples; see `budgetjax.sbp`.
      cache_size: mebibytes for kernel rows that are kept.
      seed: of the draws, an integer.

    Returns:
      A state of the zero model; its coefficients are the counts.

    Raises:
      ValueError: if the training set is not of two classes, finite and of fitting
        shapes, or a number is out of its range.

    Example:
      >>> import budgetjax as bj
      >>> from budgetjax.datasets import load
      >>> data = load("checkerboard")
      >>> X, y = data.X_train[:1000], data.y_train[:1000]
      >>> state = bj.kernel_pegasos.init(bj.RBF(8.0), X, y, regularization=1e-3)
      >>> state, history = bj.solve(bj.kernel_pegasos, state, X, y, max_steps=100)
      >>> bool(history.primal[-1] < history.primal[0])
      True

    References:
      Shalev-Shwartz, Singer, Srebro and Cotter (2011), "Pegasos: primal estimated
      sub-gradient solver for SVM", Figure 3.

    Differences from the paper: at visit t the figure divides by lambda t, and its
    derivation, as here, by lambda (t - 1).
    """
    return hinge_dual.start(
        "kernel_pegasos.init",
        kernel,
        X,
        y,
        regularization=regularization,
        batch_size=batch_size,
        precompute=precompute,
        cache_size=cache_size,
        seed=seed,
    )


def step(state: State, X: Float[Array, "n d"], y: Float[Array, " n"]) -> State:
    """`batch_size` visits; see `init`.

    Args:
      state: of this algorithm.
      X: the training set of `init`, as floats, shape `(n, d)`.
      y: its labels, shape `(n,)`.

    Returns:
      The new state.
    """

    def change(coefficient, response, diagonal, count):
        # Not divided, as nothing has been counted at the first visit.
        elapsed = (count - 1).astype(response.dtype)
        violation = (response < state.regularization * elapsed) | (count == 1)
        return violation.astype(response.dtype)

    state, drawn = hinge_dual.draw(state, y)
    return hinge_dual.visit(state, X, y, drawn, change)


def _scale(state: State) -> Float[Array, ""]:
    """What a count is worth."""
    visits = jnp.maximum(state.num_visits, 1).astype(state.responses.dtype)
    return 1 / (state.regularization * visits)


def objective(state: State, X: Float[Array, "n d"], y: Float[Array, " n"]) -> Objective:
    """`P` of the model, and `D` of the best multiple of it that is feasible; O(n).

    Args:
      state: of this algorithm.
      X: the training set of `init`, as floats.
      y: its labels.

    Returns:
      `primal` is to be minimised, and `dual` is below it.

    Raises:
      ValueError: if the training set has not the shape of the state's.
    """
    X, y = of_state("kernel_pegasos.objective", state, X, y)
    scale = _scale(state)
    coefficients, responses = scale * state.coefficients, scale * state.responses
    squared_norm = jnp.sum(coefficients * responses)
    total, largest = jnp.sum(coefficients), jnp.max(coefficients)
    tiny = jnp.finfo(responses.dtype).tiny
    best = jnp.minimum(
        total / jnp.maximum(squared_norm, tiny),
        hinge_dual.penalty(state.regularization, y) / jnp.maximum(largest, tiny),
    )
    return Objective(
        hinge_dual.primal(squared_norm, responses, state.regularization),
        hinge_dual.dual(best * total, best * best * squared_norm, state.regularization),
    )


def model(state: State, X: ArrayLike, y: ArrayLike) -> KernelModel:
    """The last iterate.

    Args:
      state: of this algorithm.
      X: the training set of `init`, shape `(n, d)`.
      y: its labels, shape `(n,)`.

    Raises:
      ValueError: if the training set is not the state's.
    """
    scaled = state._replace(coefficients=_scale(state) * state.coefficients)
    return hinge_dual.model(scaled, X, y)


kernel_pegasos = BatchAlgorithm(init, step, objective, model, "kernel_pegasos")

r"""The kernel SVM without a bias, by stochastic subgradient descent.

Visit :math:`t` draws an example :math:`i`, with replacement, and counts it if its
margin is below 1. With weights, examples are drawn in proportion to them, and
:math:`n` is their sum.

.. math:: y_i \langle w_t, \Phi(x_i) \rangle < 1 \;\Rightarrow\; m_i \leftarrow
    m_i + 1, \qquad w_{t+1} = \frac{1}{\lambda t} \sum_j m_j y_j \Phi(x_j), \qquad
    \lambda = \frac{1}{n C}.

The counts :math:`m` are the state's `coefficients`. Examples never leave the model;
`budgetjax.Pegasos` is the learner on a budget, for streams. A step makes `batch_size`
visits, as in `budgetjax.sdca`.

Cost: a step is O(batch_size^2 d), plus O(n d) per violation whose kernel row is not
kept.

Args:
  X, y, kernel, penalty, weight, batch_size, cache_size, rows, seed: as in every
    kernel `init`; see `budgetjax.Solver`.

Example:
  >>> data = bj.datasets.load("checkerboard")
  >>> X, y = data.X_train[:1000], data.y_train[:1000]
  >>> found = bj.solve(bj.kernel_pegasos, X, y, kernel=bj.RBF(8.0), penalty=1.0)
  >>> bool((found.model.predict(data.X_test) == data.y_test).mean() > 0.9)
  True

References:
  Shalev-Shwartz, Singer, Srebro and Cotter (2011), "Pegasos: primal estimated
  sub-gradient solver for SVM", Figure 3. https://doi.org/10.1007/s10107-010-0420-4

Differences from the paper: at visit t the figure divides by lambda t, while its
derivation and this code divide by lambda (t - 1).
"""

import jax.numpy as jnp
from jax.typing import ArrayLike

from budgetjax.model import KernelModel
from budgetjax.solvers import training_set
from budgetjax.solvers.kernel import hinge_dual
from budgetjax.solvers.kernel.hinge_dual import State
from budgetjax.solvers.solver import Objective, objective_of_sum
from budgetjax.solvers.training_set import Matrix, Scalar, Vector


def step(state: State, X: Matrix, y: Vector) -> State:
    """`batch_size` visits."""
    decay = _decay(state)

    def change(coefficient, response, diagonal, limit, count):
        # Multiplied, not divided, since the count is 0 at the first visit.
        elapsed = (count - 1).astype(response.dtype)
        violation = (response < decay * elapsed) | (count == 1)
        return violation.astype(response.dtype)

    return hinge_dual.visit(state, X, y, change, state.weight)


def _decay(state: State) -> Scalar:
    """`lambda`."""
    total = training_set.total_weight(state.responses, state.weight)
    return 1 / (state.penalty * total)


def _scale(state: State) -> Scalar:
    """The coefficient per count."""
    visits = jnp.maximum(state.num_visits, 1).astype(state.responses.dtype)
    return 1 / (_decay(state) * visits)


def objective(state: State, X: Matrix, y: Vector) -> Objective:
    """`J` of the model, and the dual of its best multiple; O(n)."""
    scale = _scale(state)
    coefficients, responses = scale * state.coefficients, scale * state.responses
    return objective_of_sum(coefficients, responses, state.penalty, state.weight)


def model(state: State, X: ArrayLike, y: ArrayLike) -> KernelModel:
    """The model of the last iterate."""
    scaled = state._replace(coefficients=_scale(state) * state.coefficients)
    return hinge_dual.model(scaled, X, y)


kernel_pegasos = hinge_dual.make_visiting_solver(
    "kernel_pegasos", __doc__, step, objective, model
)

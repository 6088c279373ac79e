"""The kernel SVM without a bias, by stochastic subgradient descent."""

import jax.numpy as jnp

from budgetjax.model import KernelModel
from budgetjax.solvers import training_set
from budgetjax.solvers.kernel import hinge_dual
from budgetjax.solvers.kernel.hinge_dual import HingeSolver, HingeState
from budgetjax.solvers.solver import Objective, objective_of_sum
from budgetjax.solvers.training_set import Scalar, TrainingSet


class KernelPegasos(HingeSolver):
    r"""The kernel SVM without a bias, by stochastic subgradient descent.

    Visit :math:`t` draws an example :math:`i`, with replacement, and counts it if its
    margin is below 1. With weights, examples are drawn in proportion to them, and
    :math:`n` is their sum.

    .. math:: y_i \langle w_t, \Phi(x_i) \rangle < 1 \;\Rightarrow\; m_i \leftarrow
        m_i + 1, \qquad w_{t+1} = \frac{1}{\lambda t} \sum_j m_j y_j \Phi(x_j), \qquad
        \lambda = \frac{1}{n C}.

    The counts :math:`m` are the state's `coefficients`. Examples never leave the model;
    `budgetjax.Pegasos` is the learner on a budget, for streams. A step makes
    `batch_size` visits, as in `budgetjax.SDCA`.

    Cost: a step is O(batch_size^2 d), plus O(n d) per violation whose kernel row is not
    kept.

    Args:
      kernel, tolerance, seed: as of every `budgetjax.KernelSolver`.
      penalty: C, positive.
      batch_size: visits per step.

    Example:
      >>> data = bj.datasets.load("checkerboard")
      >>> X, y = data.X_train[:1000], data.y_train[:1000]
      >>> found = bj.solve(bj.KernelPegasos(bj.RBF(8.0), penalty=1.0), X, y)
      >>> bool((found.model.predict(data.X_test) == data.y_test).mean() > 0.9)
      True

    References:
      Shalev-Shwartz, Singer, Srebro and Cotter (2011), "Pegasos: primal estimated
      sub-gradient solver for SVM", Figure 3. https://doi.org/10.1007/s10107-010-0420-4

    Differences from the paper: at visit t the figure divides by lambda t, while its
    derivation and this code divide by lambda (t - 1).
    """

    def step(self, state: HingeState, data: TrainingSet) -> HingeState:
        decay = self._decay(data)

        def change(coefficient, response, diagonal, limit, count):
            # Multiplied, not divided, since the count is 0 at the first visit.
            elapsed = (count - 1).astype(response.dtype)
            violation = (response < decay * elapsed) | (count == 1)
            return violation.astype(response.dtype)

        return hinge_dual.visit(state, data, change, data.weight)

    def _decay(self, data: TrainingSet) -> Scalar:
        """`lambda`."""
        total = training_set.total_weight(data.y, data.weight)
        return jnp.asarray(1 / (self.penalty * total))

    def _scale(self, state: HingeState, data: TrainingSet) -> Scalar:
        """The coefficient per count."""
        visits = jnp.maximum(state.num_visits, 1).astype(state.responses.dtype)
        return 1 / (self._decay(data) * visits)

    def objective(self, state: HingeState, data: TrainingSet) -> Objective:
        """`J` of the model, and the dual of its best multiple; O(n)."""
        scale = self._scale(state, data)
        coefficients, responses = scale * state.coefficients, scale * state.responses
        return objective_of_sum(coefficients, responses, self.penalty, data.weight)

    def model(self, state: HingeState, data: TrainingSet) -> KernelModel:
        """The model of the last iterate."""
        coefficients = self._scale(state, data) * state.coefficients
        return self.model_of(data, coefficients, self.bias(state, data))

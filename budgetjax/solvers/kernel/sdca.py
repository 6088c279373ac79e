"""The kernel SVM without a bias, one random dual coefficient after another."""

from budgetjax.solvers.kernel import hinge_dual
from budgetjax.solvers.kernel.hinge_dual import HingeSolver, HingeState
from budgetjax.solvers.training_set import TrainingSet


class SDCA(HingeSolver):
    r"""The kernel SVM without a bias, one random dual coefficient after another.

    A visit draws an example :math:`i` and maximises the dual in its coefficient,

    .. math:: \alpha_i \leftarrow \min\Big(C v_i, \max\Big(0, \alpha_i +
        \frac{1 - c_i}{k(x_i, x_i)}\Big)\Big), \qquad c = Q \alpha.

    A step makes `batch_size` visits. Kernel values among the drawn examples update
    their responses, and one matrix product with the kernel rows of the changed examples
    updates all others.

    Cost: a step is O(batch_size^2 d), plus O(n d) per changed coefficient whose kernel
    row is not kept.

    Args:
      kernel, tolerance, seed: as of every `budgetjax.KernelSolver`.
      penalty: C, positive.
      batch_size: visits per step.

    Example:
      >>> data = bj.datasets.load("checkerboard")
      >>> X, y = data.X_train[:1000], data.y_train[:1000]
      >>> found = bj.solve(bj.SDCA(bj.RBF(8.0), penalty=1.0), X, y)
      >>> bool((found.model.predict(data.X_test) == data.y_test).mean() > 0.9)
      True

    References:
      Hsieh, Chang, Lin, Keerthi and Sundararajan (2008), "A dual coordinate descent
      method for large-scale linear SVM", Algorithm 1 with random draws, with a kernel
      as in Cotter, Shalev-Shwartz and Srebro (2012), Section 4.4.
      https://doi.org/10.1145/1390156.1390208, https://arxiv.org/abs/1204.0566

    Differences from the paper: examples are drawn with replacement, and there is no
    shrinking.
    """

    def step(self, state: HingeState, data: TrainingSet) -> HingeState:
        def change(coefficient, response, diagonal, limit, count):
            return hinge_dual.best_change(coefficient, response, diagonal, limit)

        return hinge_dual.visit(state, data, change)

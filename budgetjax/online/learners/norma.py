"""NORMA, gradient descent that drops the oldest support vector."""

from budgetjax import _checks
from budgetjax._record import leaf
from budgetjax._shapes import Number
from budgetjax.online.learners.sgd import SGD
from budgetjax.online.maintenance.removal import RemoveOldest


class NORMA(SGD):
    r"""NORMA: gradient descent at a constant rate that drops the oldest support vector.

    Every round shrinks all coefficients by :math:`1 - \eta \lambda`, and an example
    enters with :math:`-\eta \, \partial \ell / \partial f`, so a vector of age a keeps
    a share :math:`(1 - \eta \lambda)^a` of its coefficient, and the oldest is the
    smallest. A model that forgets can follow a drifting stream.

    Cost: O(B (d + C)) per example.

    Args:
      loss: a function of `(scores, y)`, as for `budgetjax.SGD`.
      learning_rate: eta, a positive number; None is 1, or 0.3 for real targets.
      regularization: lambda, at least 0.

    Example:
      >>> state = bj.NORMA(learning_rate=0.5, regularization=0.01).init(
      ...     bj.RBF(gamma=1.0), num_features=2, budget=10)
      >>> state = bj.step(state, jnp.array([1.0, 2.0]), -1)
      >>> bj.support(state).coefficients[0].tolist()
      [-0.5]

    References:
      Kivinen, Smola and Williamson (2004), "Online learning with kernels", section III.
      https://doi.org/10.1109/TSP.2004.830991

    Differences from the paper: the margin of the loss is fixed (the paper's :math:`\nu`
    trick adapts it), and the model has no constant term b.
    """

    takes = ("num_classes", "num_outputs", "average")
    learning_rate: Number = leaf(_checks.positive, default=None)
    regularization: Number = leaf(_checks.non_negative, default=1e-4)

    def default_maintenance(self, kernel):
        return RemoveOldest()

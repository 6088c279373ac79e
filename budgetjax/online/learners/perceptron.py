"""The kernel Perceptron on a budget, with any maintenance."""

import math

import jax.numpy as jnp

from budgetjax import _checks, losses
from budgetjax._record import leaf
from budgetjax._shapes import Number
from budgetjax.online import importance
from budgetjax.online.learner import Learner


class Perceptron(Learner):
    r"""The kernel Perceptron on a budget, with any maintenance.

    With the score :math:`f_t(x) = \sum_j a_j k(x_j, x)`, round t predicts
    :math:`f_t(x_t)`, and if the margin :math:`y_t f_t(x_t) \le \beta` (``margin``), it
    inserts :math:`x_t` with the coefficient :math:`y_t`. With C > 2 classes the margin
    is :math:`f^{(y)} - f^{(r)}`, where :math:`r = \arg\max_{i \neq y} f^{(i)}`, and the
    coefficients are +1 in column :math:`y_t` and -1 in column :math:`r_t`. If the
    budget is full, ``maintenance`` decides which support vector leaves:

    * None: `Merge`, or `Project` if the kernel is not Gaussian.
    * `Unbudgeted`: none leaves. The example is refused and counted in
      ``state.maintenance.num_refused``; `budgetjax.run` raises after the stream.
    * `RemoveOldest`: the remove-oldest Perceptron.
    * `RemoveRandom`: the Randomized Budget Perceptron.
    * `RemoveLargestMargin`: the algorithm of Crammer, Kandola and Singer (CKS).
    * `RemoveFewestErrors`: the tighter budget Perceptron.

    With ``average=True`` of `init` this is the averaged Perceptron, for which a mistake
    bound becomes a bound on the risk.

    Cost: O(B (d + C)) per example; a mistake adds the cost of the maintenance.

    Args:
      margin: beta, at least 0; 0 updates on mistakes only.

    Example:
      >>> state = bj.Perceptron().init(
      ...     bj.RBF(gamma=1.0), num_features=2, budget=10,
      ...     maintenance=bj.RemoveOldest())
      >>> state = bj.step(state, jnp.array([1.0, 2.0]), -1)
      >>> int(state.num_mistakes), int(bj.support(state).mask.sum())
      (1, 1)

    References:
      Dekel, Shalev-Shwartz and Singer (2005), "The Forgetron: a kernel-based Perceptron
      on a fixed budget", sections 2 and 3.
      https://papers.nips.cc/paper/2806-the-forgetron-a-kernel-based-perceptron-on-a-fixed-budget
      Cesa-Bianchi and Gentile (2006), "Tracking the best hyperplane with a simple
      budget Perceptron". https://doi.org/10.1007/s10994-007-5003-0
      Crammer, Kandola and Singer (2003), "Online classification on a budget", in
      https://papers.nips.cc/paper_files/paper/2003
      Freund and Schapire (1999), "Large margin classification using the Perceptron
      algorithm", for the average. https://doi.org/10.1023/A:1007662407062

    Differences from the papers: none in the binary case; the multi-class update is the
    one of multi-class Pegasos, without decay.
    """

    margin: Number = leaf(_checks.non_negative, default=0.0)

    def violates(self, state, score, y):
        """True if the margin is at most beta."""
        return losses.margin(score, y) <= self.margin

    def update(self, state, score, y, candidate):
        """The example enters; the strategy makes room for it."""
        direction = losses.margin_subgradient(score, y)
        gain = jnp.sum(direction**2) * candidate.kernel_self
        missing = self.margin - losses.margin(score, y)
        steps = importance.repeats(candidate.weight, missing, gain)
        return self.insert(state, steps * direction, candidate)

    def no_update_above(self, state):
        return math.nextafter(float(self.margin), math.inf)

"""The kernel Perceptron on a budget, with any maintenance; see `init`."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from budgetjax import _checks, losses
from budgetjax._errors import names_errors
from budgetjax._pytree import Counter, Name
from budgetjax._shapes import Flag, Label, Scalar, Score
from budgetjax.kernels import Kernel
from budgetjax.online import importance
from budgetjax.online.algorithm import Algorithm, init_fields
from budgetjax.online.maintenance import Maintenance, init_maintenance
from budgetjax.online.state import record_state
from budgetjax.online.support_set import Candidate, Edits, Expansion


@record_state
class State(NamedTuple):
    """The state of a Perceptron.

    Attributes:
      expansion: the support set; coefficients are `y`, or +1 and -1 in two columns.
      margin: the beta of the Margin Perceptron.
      num_updates: rounds that changed the model; if unbudgeted, also refused examples.
    """

    algorithm: Name
    kernel: Kernel
    expansion: Expansion
    maintenance: Maintenance
    margin: Scalar
    num_seen: Counter
    num_mistakes: Counter
    num_updates: Counter


@names_errors("perceptron.init")
def init(
    kernel: Kernel,
    *,
    num_features: int,
    budget: ArrayLike,
    num_classes: int = 2,
    maintenance: Maintenance | None = None,
    margin: ArrayLike = 0.0,
    average: bool | int = False,
    seed: ArrayLike = 0,
    capacity: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> State:
    r"""The kernel Perceptron on a budget, with any maintenance.

    With the score :math:`f_t(x) = \sum_j a_j k(x_j, x)`, round t predicts
    :math:`f_t(x_t)`, and if the margin :math:`y_t f_t(x_t) \le \beta` (``margin``) it
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

    Cost: O(B (d + C)) per example; a mistake adds the cost of the maintenance.

    Args:
      margin: beta, at least 0; 0 updates on mistakes only.
      average: as in every `init`; this is then the averaged Perceptron, for which a
        mistake bound becomes a bound on the risk.

    Example:
      >>> state = bj.perceptron.init(
      ...     bj.RBF(gamma=1.0), num_features=2, budget=10,
      ...     maintenance=bj.RemoveOldest())
      >>> state = bj.perceptron.step(state, jnp.array([1.0, 2.0]), -1)
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
    sizes = num_features, budget, num_classes, capacity, dtype
    shared = init_fields("perceptron", kernel, *sizes, average=average)
    return State(
        **shared,
        maintenance=init_maintenance(maintenance, shared, seed),
        margin=_checks.as_leaf("margin", margin, dtype, _checks.non_negative),
    )


def violates(state: State, score: Score, y: Label) -> Flag:
    """True if the margin is at most beta."""
    return losses.margin(score, y) <= state.margin


def update(
    state: State, score: Score, y: Label, candidate: Candidate
) -> tuple[State, Edits]:
    """The example enters; the strategy makes room for it."""
    direction = losses.margin_subgradient(score, y)
    gain = jnp.sum(direction**2) * candidate.kernel_self
    missing = state.margin - losses.margin(score, y)
    steps = importance.repeats(candidate.weight, missing, gain)
    candidate = candidate._replace(coefficients=steps * direction)
    maintenance, edits = state.maintenance.insert(
        state.kernel, state.expansion, candidate
    )
    return state._replace(maintenance=maintenance), edits


perceptron = Algorithm(
    "perceptron",
    init,
    violates,
    update,
    no_update_above=lambda state: math.nextafter(float(state.margin), math.inf),
)

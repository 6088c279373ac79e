"""The self-tuned Forgetron; see `init`."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from budgetjax import _pytree, losses
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._pytree import Counter, Name
from budgetjax._shapes import Flag, Label, Scalar, Score
from budgetjax.kernels import Kernel
from budgetjax.online import support_set
from budgetjax.online.algorithm import Algorithm, init_fields
from budgetjax.online.support_set import Candidate, Edits, Expansion


class State(NamedTuple):
    """The state of a Forgetron.

    Attributes:
      expansion: the support set; coefficients are `sigma_i y_i`.
      slack: `15/32 M - Q`, the damage that later removals may do. The difference is
        kept, not `M` and `Q`, since float32 cannot count beyond 2^24 mistakes.
    """

    algorithm: Name
    kernel: Kernel
    expansion: Expansion
    slack: Scalar
    num_seen: Counter
    num_mistakes: Counter
    num_updates: Counter

    __repr__ = _pytree.record_repr


@names_errors("forgetron.init")
def init(
    kernel: Kernel,
    *,
    num_features: int,
    budget: ArrayLike,
    num_classes: int = 2,
    capacity: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> State:
    r"""The self-tuned Forgetron, a Perceptron on a budget with a bound on its mistakes.

    On a mistake, :math:`y_t f_t(x_t) \le 0`:

    1. :math:`M \leftarrow M + 1`, and :math:`x_t` enters with :math:`\sigma_t = 1`.
    2. If there are now B + 1 vectors, let r be the oldest, :math:`\mu = y_r f'(x_r)`
       its margin with :math:`x_t` in the model, and

       .. math:: \Psi(\phi) = (\sigma_r \phi)^2 + 2 \sigma_r \phi (1 - \phi \mu).

       The largest :math:`\phi \in (0, 1]` with
       :math:`\Psi(\phi) + Q \le \frac{15}{32} M` multiplies every :math:`\sigma`, and
       :math:`Q \leftarrow Q + \Psi(\phi)`.
    3. r leaves.

    The model is :math:`f(x) = \sum_i \sigma_i y_i k(x_i, x)`. ``state.slack`` is
    :math:`\frac{15}{32} M - Q`, at least 0 in every round. If :math:`k(x, x) \le 1`
    and B >= 83, then for every g with
    :math:`\|g\| \le \frac14 \sqrt{(B + 1) / \log(B + 1)}`

    .. math:: M \le 2 \|g\|^2 + 4 \sum_t \max(0, 1 - y_t g(x_t)),

    which `budgetjax.bounds.forgetron` computes.

    An example of weight w enters with :math:`\sigma_t = w`, and
    :math:`M \leftarrow M + w`. The bound holds for equal weights only: a heavy example
    leaves after B light ones, and may then be misclassified again.

    Cost: O(B d) per example; a mistake adds a second kernel row, O(B d).

    Args:
      kernel: any kernel; the bound needs :math:`k(x, x) \le 1`, as with `Normalized` of
        any kernel.
      num_classes: 2, labels -1 and +1.

    Example:
      >>> kernel = bj.Normalized(bj.Polynomial(degree=5))
      >>> state = bj.forgetron.init(kernel, num_features=2, budget=1)
      >>> state = bj.forgetron.step(state, jnp.array([1.0, 0.0]), 1)
      >>> state = bj.forgetron.step(state, jnp.array([0.0, 1.0]), -1)
      >>> int(state.num_mistakes), bool(state.slack >= 0)
      (2, True)

    References:
      Dekel, Shalev-Shwartz and Singer (2005), "The Forgetron: a kernel-based Perceptron
      on a fixed budget", Fig. 1 and Theorem 2.
      https://papers.nips.cc/paper/2806-the-forgetron-a-kernel-based-perceptron-on-a-fixed-budget

    Differences from the paper: none. The largest :math:`\phi` of step 2 is computed in
    closed form.
    """
    if num_classes != 2:
        raise ArgumentError(
            "num_classes", "be 2, all that a Forgetron learns", f"{num_classes!r}"
        )
    sizes = num_features, budget, num_classes, capacity, dtype
    shared = init_fields("forgetron", kernel, *sizes)
    return State(**shared, slack=jnp.zeros((), dtype))


def violates(state: State, score: Score, y: Label) -> Flag:
    """True on a mistake."""
    return losses.margin(score, y) <= 0


def update(
    state: State, score: Score, y: Label, candidate: Candidate
) -> tuple[State, Edits]:
    """Steps (1), (2) and (3) of Fig. 1."""
    expansion = state.expansion
    full = expansion.full
    oldest = support_set.oldest(expansion)
    vector, square = expansion.vectors[oldest], expansion.squares[oldest]
    kernel_row = support_set.kernel_row(state.kernel, expansion, vector, square)
    coefficient = expansion.scale * expansion.coefficients[oldest, 0]
    sigma, label = jnp.abs(coefficient), jnp.sign(coefficient)
    response = support_set.scores(expansion, kernel_row[None])[0, 0]
    own = candidate.weight * losses.margin_subgradient(score, y)
    mu = label * (response + own[0] * candidate.kernel_row[oldest])

    # Fig. 1, step (2): the largest phi with Psi(phi) + Q <= 15/32 M. Psi is
    # a phi^2 + b phi, and c > 0 since the constraint held the round before.
    a, b = sigma * sigma - 2 * sigma * mu, 2 * sigma
    c = jnp.maximum(state.slack, 0) + 15 / 32 * candidate.weight
    fits = a + b <= c
    root = jnp.sqrt(jnp.where(fits, 1, b * b + 4 * a * c))
    phi = jnp.where(fits | ~full, 1, 2 * c / (b + root))
    damage = jnp.where(full, a * phi * phi + b * phi, 0)

    # Every sigma shrinks by phi, the new one too, since it enters before.
    candidate = candidate._replace(coefficients=own / expansion.scale)
    slot = jnp.where(full, oldest, expansion.num_active)
    row = support_set.row(expansion, candidate, slot)
    edits, _ = support_set.with_rescale(expansion, Edits((row,), shrink=phi))
    return state._replace(slack=c - damage), edits


forgetron = Algorithm(
    "forgetron",
    init,
    violates,
    update,
    memory=("slack",),
    no_update_above=lambda state: math.nextafter(0, 1),
)

"""The Forgetron, self-tuned or with another rule of shrinking."""

import math
from typing import NamedTuple

import jax.numpy as jnp

from budgetjax import _checks, _record, losses
from budgetjax._errors import ArgumentError
from budgetjax._record import leaf, static
from budgetjax._shapes import Number, Scalar
from budgetjax.online import importance, support_set
from budgetjax.online.ball import squared_norm_of
from budgetjax.online.edits import Edits, entering_row, with_rescale
from budgetjax.online.learner import Learner

RULES = ("self-tuned", "basic", "fixed")


@_record.record
class ForgetronMemory(NamedTuple):
    """What a Forgetron remembers.

    Attributes:
      slack: `15/32 M - Q`, the damage that later removals may do. The difference is
        kept, not `M` and `Q`, since float32 cannot count beyond 2^24 mistakes.
      squared_norm: `||f||^2`, for the basic rule, otherwise None.
    """

    slack: Scalar
    squared_norm: Scalar | None


class Forgetron(Learner):
    r"""The Forgetron, a Perceptron on a budget with a bound on its mistakes.

    On a mistake, :math:`y_t f_t(x_t) \le 0`:

    1. :math:`M \leftarrow M + 1`, and :math:`x_t` enters with :math:`\sigma_t = 1`.
    2. If there are now B + 1 vectors, let r be the oldest, :math:`\mu = y_r f'(x_r)`
       its margin with :math:`x_t` in the model, and

       .. math:: \Psi(\phi) = (\sigma_r \phi)^2 + 2 \sigma_r \phi (1 - \phi \mu).

       The largest :math:`\phi \in (0, 1]` with
       :math:`\Psi(\phi) + Q \le \frac{15}{32} M` multiplies every :math:`\sigma`, and
       :math:`Q \leftarrow Q + \Psi(\phi)`.
    3. r leaves.

    The model is :math:`f(x) = \sum_i \sigma_i y_i k(x_i, x)`. ``state.memory.slack`` is
    :math:`\frac{15}{32} M - Q`, at least 0 in every round. If :math:`k(x, x) \le 1`
    and B >= 83, then for every g with
    :math:`\|g\| \le \frac14 \sqrt{(B + 1) / \log(B + 1)}`

    .. math:: M \le 2 \|g\|^2 + 4 \sum_t \max(0, 1 - y_t g(x_t)),

    which `budgetjax.bounds.forgetron` computes. The :math:`\phi` of a mistake is the
    weight with which :math:`x_t` entered, and ``state.memory.slack`` changes by
    :math:`\frac{15}{32} - \Psi`.

    ``rule="basic"`` chooses :math:`\phi` without looking at the vector that leaves,
    on every mistake, also before the budget is full, and has the same bound:
    :math:`\phi = \min((B + 1)^{-1 / (2 B + 2)}, U / \|f'\|)` with
    :math:`U = \frac14 \sqrt{(B + 1) / \log(B + 1)}`. A smaller U keeps the model
    smaller, and has the bound for :math:`\|g\| \le U`; a larger one has none.
    ``rule="fixed"`` has the same ``phi`` always, without a bound; 1
    removes the oldest and shrinks nothing.
    The slack is that of Lemma 2 for all rules, and may be negative for a fixed
    :math:`\phi` or a larger U.

    An example of weight w is w equal ones at once: it enters with the number m of their
    mistakes, at most w, as :math:`\sigma_t`, and :math:`M \leftarrow M + m`. The bound
    holds for equal weights only: a heavy example leaves after B light ones, and may
    then be misclassified again.

    It learns labels -1 and +1 with any kernel; the bound needs :math:`k(x, x) \le 1`,
    as with `Normalized` of any kernel.

    Cost: O(B d) per example; a mistake adds a second kernel row, O(B d).

    Args:
      rule: "self-tuned", "basic" or "fixed".
      phi: of the fixed rule, above 0 and at most 1; otherwise None.
      radius: U of the basic rule, above 0; None for that above, which is
        `budgetjax.bounds.forgetron_norm`.

    Example:
      >>> kernel = bj.Normalized(bj.Polynomial(degree=5))
      >>> state = bj.Forgetron().init(kernel, num_features=2, budget=1)
      >>> state = bj.step(state, jnp.array([1.0, 0.0]), 1)
      >>> state = bj.step(state, jnp.array([0.0, 1.0]), -1)
      >>> int(state.num_mistakes), bool(state.memory.slack >= 0)
      (2, True)

    References:
      Dekel, Shalev-Shwartz and Singer (2005), "The Forgetron: a kernel-based Perceptron
      on a fixed budget", Fig. 1 and Theorem 2.
      https://papers.nips.cc/paper/2806-the-forgetron-a-kernel-based-perceptron-on-a-fixed-budget
      Dekel, Shalev-Shwartz and Singer (2008), "The Forgetron: a kernel-based Perceptron
      on a budget", for the basic rule. https://doi.org/10.1137/060666998

    Differences from the paper: none. The largest :math:`\phi` of step 2 is computed in
    closed form.
    """

    takes = ()
    rule: str = static(default=RULES[0], check=_checks.one_of(*RULES))
    phi: Number = leaf(_checks.up_to_1, default=None)
    radius: Number = leaf(_checks.positive, default=None)

    def check(self):
        if self.radius is not None and self.rule != "basic":
            wanted = f"be None with rule={self.rule!r}, as only 'basic' has a radius"
            raise ArgumentError("radius", wanted, self.radius)
        if (self.phi is None) == (self.rule == "fixed"):
            wanted = f"be {'a number' if self.phi is None else 'None'}"
            wanted += f" with rule={self.rule!r}, as only 'fixed' has one"
            raise ArgumentError("phi", wanted, self.phi)

    def bind(self, expansion, num_classes):
        bound = super().bind(expansion, num_classes)
        if bound.radius is None and self.rule == "basic":
            size = (expansion.budget + 1).astype(expansion.vectors.dtype)
            bound = bound._replace(radius=jnp.sqrt(size / jnp.log(size)) / 4)
        return bound

    def default_maintenance(self, kernel):
        return None

    def start(self, state, seed, vectors):
        zero = jnp.zeros((), state.dtype)
        squared_norm = jnp.zeros((), state.dtype) if self.rule == "basic" else None
        return state._replace(memory=ForgetronMemory(zero, squared_norm))

    def violates(self, state, score, y):
        """True on a mistake."""
        return losses.margin(score, y) <= 0

    def update(self, state, score, y, candidate):
        """Steps (1), (2) and (3) of Fig. 1."""
        expansion = state.expansion
        full = expansion.full
        oldest = support_set.oldest(expansion)
        vector, square = expansion.vectors[oldest], expansion.squares[oldest]
        kernel_row = support_set.kernel_row(state.kernel, expansion, vector, square)
        coefficient = expansion.scale * expansion.coefficients[oldest, 0]
        sigma, label = jnp.abs(coefficient), jnp.sign(coefficient)
        products = jnp.matmul(
            kernel_row[None], expansion.coefficients, precision="highest"
        )
        response = (expansion.scale * products)[0, 0]
        missing = -losses.margin(score, y)
        steps = importance.repeats(candidate.weight, missing, candidate.kernel_self)
        own = steps * losses.margin_subgradient(score, y)
        mu = label * (response + own[0] * candidate.kernel_row[oldest])

        # Psi is a phi^2 + b phi, and c > 0 if the constraint held the round before.
        a, b = sigma * sigma - 2 * sigma * mu, 2 * sigma
        gain, memory = 15 / 32 * steps, state.memory
        c, squared_norm = memory.slack + gain, memory.squared_norm
        if self.rule == "fixed":
            phi = self.phi
        elif self.rule == "basic":
            squared_norm = squared_norm + own[0] * (
                2 * score[0] + own[0] * candidate.kernel_self
            )
            phi = self._basic_shrink(state, squared_norm)
            gone = jnp.where(full, sigma * phi, 0)
            oldest_self = state.kernel.diag(vector[None], square[None])[0]
            squared_norm = phi * phi * squared_norm + gone * (
                gone * oldest_self - 2 * phi * mu
            )
        else:
            c = jnp.maximum(memory.slack, 0) + gain
            phi = jnp.where(full, _largest_shrink(a, b, c), 1)
        damage = jnp.where(full, a * phi * phi + b * phi, 0)

        # Every sigma shrinks by phi, the new one too, since it enters before.
        candidate = candidate._replace(coefficients=own / expansion.scale)
        slot = jnp.where(full, oldest, expansion.num_active)
        row = entering_row(expansion, candidate, slot)
        edits, _ = with_rescale(expansion, Edits((row,), shrink=phi))
        return state._replace(memory=ForgetronMemory(c - damage, squared_norm)), edits

    def _basic_shrink(self, state, squared_norm):
        """The phi of the basic rule, which does not look at the vector that leaves."""
        size = (state.expansion.budget + 1).astype(state.dtype)
        most = jnp.exp(-jnp.log(size) / (2 * size))
        norm = jnp.sqrt(jnp.maximum(squared_norm, jnp.finfo(state.dtype).tiny))
        return jnp.minimum(most, self.radius / norm)

    def refresh(self, state):
        """The norm of the current coefficients."""
        memory = state.memory
        if memory.squared_norm is None:
            return state
        unscaled = squared_norm_of(state.kernel, state.expansion)
        squared_norm = state.expansion.scale**2 * unscaled
        return state._replace(memory=memory._replace(squared_norm=squared_norm))

    def no_update_above(self, state):
        return math.nextafter(0, 1)


def _largest_shrink(a: Scalar, b: Scalar, c: Scalar) -> Scalar:
    """Fig. 1, step (2): the largest phi up to 1 with `a phi^2 + b phi <= c`."""
    fits = a + b <= c
    root = jnp.sqrt(jnp.where(fits, 1, b * b + 4 * a * c))
    return jnp.where(fits, 1, 2 * c / (b + root))

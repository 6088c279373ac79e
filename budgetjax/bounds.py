"""Bounds on the mistakes of online learners, to compare with measured mistakes.

Each bound holds for every stream with `k(x, x) <= 1` and every function g of the
kernel's space, even one chosen in hindsight. It depends on the norm of g and its summed
hinge loss, `sum_t max(0, 1 - y_t g(x_t))`.
"""

import math

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors

# The smallest budget of the Forgetron's theorem.
LEAST_BUDGET = 83


@names_errors("bounds.perceptron")
def perceptron(norm: float, loss: float) -> float:
    r"""A bound on the mistakes of a Perceptron without a budget.

    :math:`M \le \|g\|^2 + 2 \sum_t \max(0, 1 - y_t g(x_t))`.

    Args:
      norm: the norm of g in the kernel's space, at least 0.
      loss: the hinge loss of g, summed over the stream, at least 0.

    Example:
      >>> bj.bounds.perceptron(norm=2.0, loss=3.0)
      10.0

    References:
      Dekel, Shalev-Shwartz and Singer (2005), "The Forgetron: a kernel-based Perceptron
      on a fixed budget", Theorem 1.
      https://papers.nips.cc/paper/2806-the-forgetron-a-kernel-based-perceptron-on-a-fixed-budget
    """
    _checks.non_negative("norm", norm)
    _checks.non_negative("loss", loss)
    return norm**2 + 2 * loss


@names_errors("bounds.forgetron")
def forgetron(norm: float, loss: float, *, budget: int) -> float:
    r"""A bound on the mistakes of a Forgetron.

    :math:`M \le 2 \|g\|^2 + 4 \sum_t \max(0, 1 - y_t g(x_t))` for every g with a norm
    of at most `forgetron_norm(budget)`.

    Args:
      norm: the norm of g in the kernel's space, at least 0.
      loss: the hinge loss of g, summed over the stream, at least 0.
      budget: B, at least 83.

    Example:
      >>> bj.bounds.forgetron(norm=1.0, loss=3.0, budget=100)
      14.0

    References:
      Dekel, Shalev-Shwartz and Singer (2005), Theorem 2; see `perceptron`.
    """
    _checks.non_negative("norm", norm)
    _checks.non_negative("loss", loss)
    _checks.size("budget", budget, at_least=LEAST_BUDGET)
    largest = forgetron_norm(budget)
    if norm > largest:
        raise ArgumentError(
            "norm", f"be at most {largest:.4g}, that of forgetron_norm({budget})", norm
        )
    return 2 * norm**2 + 4 * loss


@names_errors("bounds.forgetron_norm")
def forgetron_norm(budget: int) -> float:
    r"""The largest norm of the functions that a Forgetron competes with.

    :math:`U = \frac14 \sqrt{(B + 1) / \log(B + 1)}`. No learner with B support vectors
    can compete with all functions of norm :math:`\sqrt{B + 1}`.

    Args:
      budget: B, at least 1; the theorem needs 83.

    Example:
      >>> round(bj.bounds.forgetron_norm(100), 3)
      1.17

    References:
      Dekel, Shalev-Shwartz and Singer (2005), Theorem 2; see `perceptron`.
    """
    size = _checks.size("budget", budget)
    return math.sqrt((size + 1) / math.log(size + 1)) / 4

"""Bounds on the mistakes and updates of learners, to compare with measured ones.

Those on mistakes hold for every stream with `k(x, x) <= 1`, or with the radius that
they take, and every function g of the kernel's space, even one chosen in hindsight.
They depend on the norm of g and its summed hinge loss,
`sum_t max(0, 1 - y_t g(x_t))`. Those of `MPU` are on its updates.
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


@names_errors("bounds.perceptron_root")
def perceptron_root(norm: float, loss: float, *, radius: float = 1.0) -> float:
    r"""Another bound on the mistakes of a Perceptron without a budget.

    :math:`M \le L + r \|g\| \sqrt L + r^2 \|g\|^2` with :math:`L = \sum_t \max(0, 1 -
    y_t g(x_t))`. It is below that of `perceptron` if :math:`L > \|g\|^2`.

    Args:
      norm: the norm of g in the kernel's space, at least 0.
      loss: the hinge loss of g, summed over the stream or only over the rounds with a
        mistake, at least 0.
      radius: r, above 0; :math:`k(x, x) \le r^2` for every x of the stream.

    Example:
      >>> bj.bounds.perceptron_root(norm=2.0, loss=9.0)
      19.0

    References:
      Cotter, Shalev-Shwartz and Srebro (2012), "The kernelized Stochastic Batch
      Perceptron", equation (D.7), of Shalev-Shwartz (2007), "Online learning: theory,
      algorithms, and applications", Corollary 5. https://arxiv.org/abs/1204.0566
    """
    _checks.non_negative("norm", norm)
    _checks.non_negative("loss", loss)
    _checks.positive("radius", radius)
    length = radius * norm
    return loss + length * math.sqrt(loss) + length**2


@names_errors("bounds.pegasos")
def pegasos(
    objective: float,
    *,
    regularization: float,
    num_examples: int,
    gradient_error: float = 0.0,
) -> float:
    r"""A bound on the mistakes of Pegasos on a budget, within its ball.

    .. math:: M \le \sum_t P_t(g) + \frac{G^2 (1 + \log N)}{2 \lambda} +
        \frac{2}{\sqrt\lambda} \sum_t \|E_t\|, \qquad
        P_t(g) = \frac{\lambda}{2} \|g\|^2 + \ell_t(g), \qquad
        G = \sqrt\lambda + 2 \sqrt 2,

    for every g with :math:`\|g\| \le 1 / \sqrt\lambda`, as the optimum has. The sum of
    the learner's own :math:`P_t(f_t)` has the same bound (Theorem 1), also with several
    classes. The learner is `budgetjax.Pegasos` with `project_to_ball=True`.

    Args:
      objective: :math:`P_t(g)`, summed over the stream, at least 0. For the optimum of
        an SVM on these rows it is N times its objective.
      regularization: lambda, above 0.
      num_examples: N, at least 1.
      gradient_error: :math:`\sum_t \|E_t\|` that maintenance causes, at least 0, as
        `budgetjax.Measured` sums it; 0 without a budget.

    Example:
      >>> bound = bj.bounds.pegasos(
      ...     200.0, regularization=0.01, num_examples=1000, gradient_error=5.0)
      >>> round(bound, 1)
      3690.7

    References:
      Wang, Crammer and Vucetic (2010), "Multi-class Pegasos on a budget", Theorem 1,
      equation (8), and Corollary 1. https://icml.cc/Conferences/2010/papers/331.pdf
    """
    _checks.non_negative("objective", objective)
    _checks.positive("regularization", regularization)
    size = _checks.size("num_examples", num_examples)
    _checks.non_negative("gradient_error", gradient_error)
    gradient = math.sqrt(regularization) + 2 * math.sqrt(2)
    regret = gradient**2 * (1 + math.log(size)) / (2 * regularization)
    return objective + regret + 2 * gradient_error / math.sqrt(regularization)


@names_errors("bounds.forgetron")
def forgetron(norm: float, loss: float, *, budget: int) -> float:
    r"""A bound on the mistakes of a Forgetron.

    :math:`M \le 2 \|g\|^2 + 4 \sum_t \max(0, 1 - y_t g(x_t))` for every g with a norm
    of at most `forgetron_norm(budget)`, and at most the `radius` of the learner if it
    has one.

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


@names_errors("bounds.mpu_hard_margin")
def mpu_hard_margin(
    margin: float, *, radius: float, threshold: float, gap: float
) -> float:
    r"""A bound on the updates until `MPU` with a hard margin converges.

    .. math:: t \le \frac{R^2 + 2 b}{d^2} \Big(1 + \frac{R^2 + 2 b}{4 (\Delta b -
        R^2)}\Big)

    It also bounds how often vectors enter and leave a `budgetjax.Perceptron` of margin
    b with `budgetjax.RemoveLargestMargin` (Remark 3).

    Args:
      margin: d, the largest margin of all directions through the origin, above 0; of a
        smaller one the bound is larger, and holds.
      radius: R, the largest norm of a pattern, its bias feature included, above 0.
      threshold: b, above 0.
      gap: :math:`\Delta b`, above :math:`R^2`; infinite if nothing is unlearned.

    Example:
      >>> bj.bounds.mpu_hard_margin(0.5, radius=1.0, threshold=2.0, gap=3.0)
      32.5

    References:
      Panagiotakopoulos and Tsampouka (2010), "The margin perceptron with unlearning",
      Theorem 1, equation (10). https://icml.cc/Conferences/2010/papers/339.pdf
    """
    net = mpu_net_updates(margin, radius=radius, threshold=threshold)
    rest = _above_square(gap, radius)
    return net * (1 + (radius**2 + 2 * threshold) / (4 * rest))


@names_errors("bounds.mpu_net_updates")
def mpu_net_updates(margin: float, *, radius: float, threshold: float) -> float:
    r"""A bound on the learned less the unlearned updates of `MPU`, at any time.

    :math:`t_+ - t_- \le (R^2 + 2 b) / d^2`, with a hard margin. This is the sum of the
    counts, and the number of vectors of a `budgetjax.Perceptron` of margin b from which
    `budgetjax.RemoveLargestMargin` removes.

    Args:
      margin, radius, threshold: as in `mpu_hard_margin`.

    Example:
      >>> bj.bounds.mpu_net_updates(0.5, radius=1.0, threshold=2.0)
      20.0

    References:
      Panagiotakopoulos and Tsampouka (2010), equation (17); see `mpu_hard_margin`.
    """
    _checks.positive("margin", margin)
    _checks.positive("radius", radius)
    _checks.positive("threshold", threshold)
    return (radius**2 + 2 * threshold) / margin**2


@names_errors("bounds.mpu_soft_margin")
def mpu_soft_margin(
    num_examples: int, *, max_count: float, radius: float, threshold: float, gap: float
) -> float:
    r"""A bound on the updates until `MPU` with a soft margin converges.

    :math:`t \le N I_{max} (2 b + \Delta b) / (\Delta b - R^2)`, separable or not.

    Args:
      num_examples: N, at least 1.
      max_count: :math:`I_{max}`, the number of updates that an example may hold, at
        least 1; the state's `max_count`.
      radius, threshold, gap: as in `mpu_hard_margin`.

    Example:
      >>> bj.bounds.mpu_soft_margin(
      ...     10, max_count=5.0, radius=1.0, threshold=2.0, gap=3.0)
      175.0

    References:
      Panagiotakopoulos and Tsampouka (2010), Theorem 2, equation (22); see
      `mpu_hard_margin`.
    """
    size = _checks.size("num_examples", num_examples)
    _checks.positive("max_count", max_count)
    if max_count < 1:
        raise ArgumentError("max_count", "be at least 1", max_count)
    _checks.positive("radius", radius)
    _checks.positive("threshold", threshold)
    rest = _above_square(gap, radius)
    return size * max_count * (1 + (radius**2 + 2 * threshold) / rest)


def _above_square(gap: float, radius: float) -> float:
    """By how much the gap is above the square of the radius."""
    if not gap > radius**2:
        raise ArgumentError("gap", f"be above radius**2, {radius**2:.4g}", gap)
    return gap - radius**2

"""What to do with a newcomer when the model is full.

A strategy is a function (kernel, active, newcomer) -> the new active list, called
when `active` already has as many members as the budget allows; the new list is as
long as the old. The newcomer takes the position of the one that leaves and
everyone else stays. If the newcomer itself is the one that leaves, the list is
unchanged. All ties go to the smallest age.

Strategies see unscaled coefficients. A common positive scale changes none of
their choices, and every result is linear in the coefficients.

`remove_oldest`, `remove_smallest` and `refuse` are strategies themselves;
`remove_random(draw)`, `remove_largest_margin()` and `merge(same_sign)` return one.
"""

import numpy as np

from .support import (
    Gram,
    SupportVector,
    margin_and_rival,
    stack_coefficients,
    stack_vectors,
)


def insert(kernel, active, newcomer, budget, maintenance):
    """The active list after the newcomer came, by `maintenance` if it was full."""
    if len(active) < budget:
        return active + [newcomer]
    return maintenance(kernel, active, newcomer)


def first_by_value_then_age(values, candidates, everyone):
    """The candidate (an index) of least value; among equal values the oldest."""
    return min(candidates, key=lambda i: (values[i], everyone[i].age))


def replace(active, position, newcomer):
    """`newcomer` in `position`; position len(active) is the newcomer's own."""
    if position == len(active):
        return active
    return active[:position] + [newcomer] + active[position + 1 :]


def norms(kernel, everyone):
    """||a_i||^2 k(x_i, x_i), the squared norm of every support vector's term."""
    Z = stack_vectors(everyone)
    return (stack_coefficients(everyone) ** 2).sum(axis=1) * kernel(Z, Z)


# Removal


def refuse(kernel, active, newcomer):
    """Unbudgeted learners: a full model drops the newcomer (the run counts it)."""
    return active


def remove_oldest(kernel, active, newcomer):
    """Dekel, Shalev-Shwartz, Singer, NIPS 2005, section 3: r_t = min I_t."""
    ages = [s.age for s in active]
    return replace(active, ages.index(min(ages)), newcomer)


def remove_random(draw):
    """Cesa-Bianchi, Gentile 2006: a random one of the old active ones leaves.

    `draw(t, count)` gives the leaving position, 0 <= position < count, in round t.
    """

    def strategy(kernel, active, newcomer):
        return replace(active, draw(newcomer.age, len(active)), newcomer)

    return strategy


def remove_smallest(kernel, active, newcomer):
    """Wang, Crammer, Vucetic, ICML 2010, section 4.1: least ||a_i||^2 k(x_i, x_i)."""
    everyone = active + [newcomer]
    leaving = first_by_value_then_age(
        norms(kernel, everyone), range(len(everyone)), everyone
    )
    return replace(active, leaving, newcomer)


def remove_largest_margin():
    """CKS (Crammer, Kandola, Singer 2003): largest margin after its own removal."""
    gram = Gram()

    def strategy(kernel, active, newcomer):
        everyone = active + [newcomer]
        K = gram(kernel, [s.vector for s in everyone])
        a = stack_coefficients(everyone)
        C = a.shape[1]
        # Row i is f(x_i) - a_i k(x_i, x_i), where f includes the newcomer.
        f = np.stack([(K * a[:, c]).sum(axis=1) for c in range(C)], axis=1)
        g = f - a * np.diag(K)[:, None]
        margins = []
        for g_i, a_i in zip(g, a, strict=True):
            y_i = np.sign(a_i[0]) if C == 1 else int(np.argmax(a_i))
            margin, _ = margin_and_rival(g_i, y_i)
            margins.append(margin)
        leaving = first_by_value_then_age(
            -np.array(margins), range(len(everyone)), everyone
        )
        return replace(active, leaving, newcomer)

    return strategy


# Merging (Wang, Crammer, Vucetic, ICML 2010, section 4.3), Gaussian kernels only:
# k(x_m, z) = kappa^((1-h)^2) and k(x_n, z) = kappa^(h^2) for z = h x_m + (1-h) x_n.


def merged_coefficients(a_m, a_n, kappa, h):
    """a_z = a_m kappa^((1-h)^2) + a_n kappa^(h^2): the solution of eq. (22)."""
    return a_m * np.power(kappa, (1 - h) ** 2) + a_n * np.power(kappa, h**2)


def merge_slope(mm, nn, mn, kappa, h):
    """The derivative of ||a_z||^2 in h, divided by the positive -4 log(kappa).

    With u = kappa^((1-h)^2), v = kappa^(h^2), and mm, nn, mn the inner products of
    a_m and a_n: ||a_z||^2 = mm u^2 + 2 mn u v + nn v^2, and
    u' = -2 log(kappa) (1-h) u, v' = 2 log(kappa) h v.
    """
    u = np.power(kappa, (1 - h) ** 2)
    v = np.power(kappa, h**2)
    return mm * (1 - h) * u**2 + mn * (1 - 2 * h) * u * v - nn * h * v**2


def merge_line_search(a_m, A_n, kappas, points=101, steps=54):
    """For every partner n, the h in [0, 1] that maximises ||a_z||^2 of eq. (21).

    a_m is one row (C,) of coefficients, A_n one row a partner (P, C), kappas (P,).
    a_m must be no longer than any row of A_n: m is the smallest support vector.

    Only h <= 1/2 is searched. With g(h) = ||a_z||^2,
        g(h) - g(1-h) = (||a_n||^2 - ||a_m||^2) (kappa^(2 h^2) - kappa^(2 (1-h)^2)),
    which for h <= 1/2 is never negative, so a global maximum lies there; if the
    two are equally long, h and 1-h are equally good, and the one nearer to x_n is
    the one wanted.

    The sign of the slope on a grid brackets every local maximum, bisection finds
    it, and the best of them is taken. (The values of g on a grid would not do:
    for kappa near 1 they differ by less than their rounding errors.)
    """
    mm = (a_m**2).sum()
    nn = (A_n**2).sum(axis=1)
    mn = (A_n * a_m).sum(axis=1)
    if (mm > nn * (1 + 1e-12)).any():
        raise ValueError("a_m must be the shortest row of coefficients")
    nn = np.maximum(nn, mm)  # equal lengths whose sums were rounded differently

    grid = np.linspace(0.0, 0.5, points)
    slope = merge_slope(mm, nn[:, None], mn[:, None], kappas[:, None], grid)

    # Local maxima inside: the slope goes from positive to not positive.
    partner, cell = np.nonzero((slope[:, :-1] > 0) & (slope[:, 1:] <= 0))
    low, high = grid[cell], grid[cell + 1]
    nn, mn, kappa = nn[partner], mn[partner], kappas[partner]
    for _ in range(steps):
        middle = (low + high) / 2
        rising = merge_slope(mm, nn, mn, kappa, middle) > 0
        low = np.where(rising, middle, low)
        high = np.where(rising, high, middle)
    root = (low + high) / 2
    a_z = merged_coefficients(a_m, A_n[partner], kappa[:, None], root[:, None])
    value = (a_z**2).sum(axis=1)

    # A local maximum at the end h = 0: the slope there is not positive. (At
    # h = 1/2 it never is positive, so every partner has at least one maximum.)
    a_z = merged_coefficients(a_m, A_n, kappas[:, None], 0.0)
    best_value = np.where(slope[:, 0] <= 0, (a_z**2).sum(axis=1), -np.inf)
    best_h = np.zeros(len(kappas))
    for p, h, g in zip(partner, root, value, strict=True):
        if g > best_value[p]:
            best_h[p], best_value[p] = h, g
    return best_h


def merge_degradation(a_m, A_n, kappas, h):
    """||a_m||^2 + ||a_n||^2 + 2 <a_m, a_n> kappa - ||a_z||^2 for every partner.

    Summed with u = kappa^((1-h)^2), v = kappa^(h^2) as
        ||a_m||^2 (1 - u^2) + ||a_n||^2 (1 - v^2) + 2 <a_m, a_n> (kappa - u v):
    the degradation is at most ||a_m||^2, and would drown in the rounding errors of
    ||a_n||^2 where a_n is longer by 1e8 and more.
    """
    log = np.log(kappas)
    return (
        -(a_m**2).sum() * np.expm1(2 * (1 - h) ** 2 * log)
        - (A_n**2).sum(axis=1) * np.expm1(2 * h**2 * log)
        - 2 * (A_n * a_m).sum(axis=1) * kappas * np.expm1(-2 * h * (1 - h) * log)
    )


def merge_grid(a_m, a_n, kappa, points=10001):
    """Brute force: the greatest ||a_z||^2 over a grid of h in [0, 1], and its h."""
    a_m, a_n = np.atleast_1d(a_m), np.atleast_1d(a_n)
    h = np.linspace(0.0, 1.0, points)
    a_z = merged_coefficients(a_m, a_n, kappa, h[:, None])
    objective = (a_z**2).sum(axis=1)
    best = int(np.argmax(objective))
    return objective[best], h[best]


def merge(same_sign=True):
    """Merge the smallest, m, with the partner n of least degradation.

    The merged vector has n's age. It stands in n's position, and the newcomer in
    m's; unless the newcomer is one of the two: then the merged vector stands in
    the position of the other one. With `same_sign`, and one column, the partners
    are those with the sign of a_m, or everyone if there are none.
    """

    def strategy(kernel, active, newcomer):
        everyone = active + [newcomer]
        last = len(active)  # the newcomer's index
        m = first_by_value_then_age(
            norms(kernel, everyone), range(len(everyone)), everyone
        )
        x_m, a_m = everyone[m].vector, everyone[m].coefficients

        partners = [i for i in range(len(everyone)) if i != m]
        if same_sign and len(a_m) == 1:
            alike = [
                i
                for i in partners
                if np.sign(everyone[i].coefficients[0]) == np.sign(a_m[0])
            ]
            partners = alike or partners

        others = [everyone[i] for i in partners]
        A_n = stack_coefficients(others)
        kappas = kernel(x_m, stack_vectors(others))
        h = merge_line_search(a_m, A_n, kappas)
        degradation = merge_degradation(a_m, A_n, kappas, h)
        best = first_by_value_then_age(degradation, range(len(others)), others)

        n, h, kappa = partners[best], h[best], kappas[best]
        x_n, a_n = everyone[n].vector, everyone[n].coefficients
        z = SupportVector(
            vector=h * x_m + (1 - h) * x_n,  # eq. (20)
            coefficients=merged_coefficients(a_m, a_n, kappa, h),
            age=everyone[n].age,
        )
        if n == last:
            return replace(active, m, z)
        active = replace(active, n, z)
        return replace(active, m, newcomer)  # unchanged if m is the newcomer

    return strategy

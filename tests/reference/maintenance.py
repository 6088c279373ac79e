"""What to do with a candidate when the model is full.

A strategy is a function (kernel, active, candidate) -> the new active list, called
when `active` already has as many members as the budget allows; the new list is as
long as the old. The candidate takes the position of the one that leaves and
everyone else stays where it is. If the candidate itself is the one that leaves, no
position changes. Only `multi_merge` and `delayed_project` leave free slots. All
ties go to the smallest age.

Strategies see unscaled coefficients. A common positive scale changes none of
their choices, and every result is linear in the coefficients: the sums of averaged
coefficients, where there are such, go through the same map.

`remove_oldest`, `remove_smallest` and `refuse` are strategies themselves; all others
are functions that return one.
"""

import numpy as np

from .support import (
    Gram,
    SupportVector,
    margin_and_rival,
    occupied,
    stack_coefficients,
    stack_vectors,
    with_ridge,
)


def insert(kernel, active, candidate, budget, maintenance):
    """The active list after the candidate came, by `maintenance` if it was full.

    A strategy that acts before, too, has an attribute `early`: whether it does now.
    """
    early = getattr(maintenance, "early", lambda *given: False)
    acts = early(kernel, active, candidate)
    if len(occupied(active)) < budget and not acts:
        free = [p for p, s in enumerate(active) if s is None] + [len(active)]
        return active[: free[0]] + [candidate] + active[free[0] + 1 :]
    return maintenance(kernel, active, candidate)


def first_by_value_then_age(values, candidates, everyone):
    """The candidate (an index) of least value; among equal values the oldest."""
    return min(candidates, key=lambda i: (values[i], everyone[i].age))


def replace(active, position, candidate):
    """`candidate` in `position`; position len(active) is the candidate's own."""
    if position == len(active):
        return active
    return active[:position] + [candidate] + active[position + 1 :]


def norms(kernel, everyone):
    """||a_i||^2 k(x_i, x_i), the squared norm of every support vector's term."""
    Z = stack_vectors(everyone)
    return (stack_coefficients(everyone) ** 2).sum(axis=1) * kernel(Z, Z)


# Removal


def refuse(kernel, active, candidate):
    """Unbudgeted learners: a full model drops the candidate (the run counts it)."""
    return active


def remove_oldest(kernel, active, candidate):
    """Dekel, Shalev-Shwartz, Singer, NIPS 2005, section 3: r_t = min I_t."""
    ages = [s.age for s in active]
    return replace(active, ages.index(min(ages)), candidate)


def remove_random(draw):
    """Cesa-Bianchi, Gentile 2006: a random one of the old active ones leaves.

    `draw(t, count)` gives the leaving position, 0 <= position < count, in round t.
    """

    def strategy(kernel, active, candidate):
        return replace(active, draw(candidate.age, len(active)), candidate)

    return strategy


def remove_smallest(kernel, active, candidate):
    """Wang, Crammer, Vucetic, ICML 2010, section 4.1: least ||a_i||^2 k(x_i, x_i)."""
    everyone = active + [candidate]
    leaving = first_by_value_then_age(
        norms(kernel, everyone), range(len(everyone)), everyone
    )
    return replace(active, leaving, candidate)


def remove_largest_margin(above=np.inf):
    """CKS (Crammer, Kandola, Singer 2003): largest margin after its own removal.

    One with a margin of at least `above` also leaves where there is room:
    Panagiotakopoulos, Tsampouka 2010, Remark 3.
    """
    gram = Gram()

    def margins_without(kernel, everyone):
        K = gram(kernel, [s.vector for s in everyone])
        a = stack_coefficients(everyone)
        C = a.shape[1]
        # Row i is f(x_i) - a_i k(x_i, x_i), where f includes the candidate.
        f = np.stack([(K * a[:, c]).sum(axis=1) for c in range(C)], axis=1)
        g = f - a * np.diag(K)[:, None]
        margins = []
        for g_i, a_i in zip(g, a, strict=True):
            y_i = np.sign(a_i[0]) if C == 1 else int(np.argmax(a_i))
            margin, _ = margin_and_rival(g_i, y_i)
            margins.append(margin)
        return np.array(margins)

    def strategy(kernel, active, candidate):
        everyone = active + [candidate]
        leaving = first_by_value_then_age(
            -margins_without(kernel, everyone), range(len(everyone)), everyone
        )
        return replace(active, leaving, candidate)

    if above < np.inf:
        strategy.early = lambda kernel, active, candidate: (
            margins_without(kernel, active + [candidate]).max() >= above
        )
    return strategy


def remove_fewest_errors(size):
    """Weston, Bordes, Bottou 2005: fewest errors, after its removal, of the last ones.

    Those are the last `size` candidates, this one among them.
    """
    seen = []

    def note(kernel, active, candidate):
        """Remembers it; the strategy does not act before the model is full."""
        seen.append(candidate)
        del seen[:-size]
        return False

    def strategy(kernel, active, candidate):
        everyone = active + [candidate]
        Z = stack_vectors(everyone)
        K = np.stack([kernel(s.vector, Z) for s in seen])
        a = stack_coefficients(everyone)
        f = K @ a
        errors = np.zeros(len(everyone))
        for s, f_s, k_s in zip(seen, f, K, strict=True):
            own = s.coefficients
            y = np.sign(own[0]) if len(own) == 1 else int(np.argmax(own))
            for j in range(len(everyone)):
                margin, _ = margin_and_rival(f_s - k_s[j] * a[j], y)
                errors[j] += margin <= 0
        leaving = first_by_value_then_age(errors, range(len(everyone)), everyone)
        return replace(active, leaving, candidate)

    strategy.early = note
    return strategy


# Projection


def redistribute(everyone, leaving, receivers, factors):
    """Everyone after a_j += factor_j a_leaving, for every receiver j; none removed."""
    given = everyone[leaving]
    everyone = list(everyone)
    for j, factor in zip(receivers, factors, strict=True):
        s = everyone[j]
        everyone[j] = SupportVector(
            vector=s.vector,
            coefficients=s.coefficients + factor * given.coefficients,
            age=s.age,
            sums=None if s.sums is None else s.sums + factor * given.sums,
        )
    return everyone


def project(best=False, ridge=0.0):
    """Wang, Crammer, Vucetic, ICML 2010, section 4.2: p leaves, projected on the rest.

    The others get a_j += delta_j a_p with delta = (K + ridge diag(K))^-1 k_p. p is
    the smallest, or with `best` the one whose projection loses least,
    ||a_p||^2 (k_pp (1 + ridge) - k_p^T (K + ridge diag(K))^-1 k_p), which for ridge 0
    is the squared distance of its term to the span of the others.
    """
    gram = Gram()

    def strategy(kernel, active, candidate):
        everyone = active + [candidate]
        indices = range(len(everyone))
        K = gram(kernel, [s.vector for s in everyone])
        a = stack_coefficients(everyone)

        def solution(p):
            others = [j for j in indices if j != p]
            A = with_ridge(K[np.ix_(others, others)], ridge)
            return others, np.linalg.solve(A, K[others, p])

        values = norms(kernel, everyone)
        if best:
            for p in indices:
                others, delta = solution(p)
                distance = K[p, p] * (1 + ridge) - (K[others, p] * delta).sum()
                values[p] = (a[p] ** 2).sum() * distance
        p = first_by_value_then_age(values, indices, everyone)
        others, delta = solution(p)
        everyone = redistribute(everyone, p, others, delta)
        return replace(everyone[:-1], p, everyone[-1])

    return strategy


def delayed_project(share=1 / 8, ridge=0.0):
    """The smallest leave at once; all others take up their terms, by a dense solve.

    As many as the share of the budget, but at least one, and not all of several. The
    candidate takes the first position that is free then.
    """
    gram = Gram()

    def strategy(kernel, active, candidate):
        sizes = norms(kernel, active)
        order = sorted(range(len(active)), key=lambda i: (sizes[i], active[i].age))
        small = order[: max(1, min(round(share * len(active)), len(active) - 1))]
        stay = [i for i in range(len(active)) if i not in small]
        K = with_ridge(gram(kernel, [s.vector for s in active]), ridge)
        shares = np.linalg.solve(K[np.ix_(stay, stay)], K[np.ix_(stay, small)])
        new = active
        for i, share_of_i in zip(small, shares.T, strict=True):
            new = redistribute(new, i, stay, share_of_i)
        for i in small:
            new = replace(new, i, None)
        return replace(new, new.index(None), candidate)

    return strategy


def project_onto(basis, ridge):
    """One of the old leaves, projected on the span of a few of the others.

    `basis(K, everyone)` has a row of the indices V of the few for every r but the
    candidate. Of those the one leaves whose term is nearest to that span: least
    ||a_r||^2 (k_rr - k_r^T (K_VV + ridge diag(K_VV))^-1 k_r).
    """
    gram = Gram()

    def strategy(kernel, active, candidate):
        everyone = active + [candidate]
        K = gram(kernel, [s.vector for s in everyone])
        a = stack_coefficients(everyone)
        # All r at once: V has a row of indices for each.
        r = np.arange(len(active))
        V = basis(K, everyone)
        K_V = K[V[:, :, None], V[:, None, :]]
        K_V = K_V + ridge * K_V * np.eye(V.shape[1])
        k_r = K[V, r[:, None]]
        beta = np.linalg.solve(K_V, k_r[:, :, None])[:, :, 0]
        distances = K[r, r] - (k_r * beta).sum(axis=1)
        values = (a[r] ** 2).sum(axis=1) * distances
        r = first_by_value_then_age(values, range(len(active)), everyone)
        everyone = redistribute(everyone, r, V[r], beta[r])
        return replace(everyone[:-1], r, everyone[-1])

    return strategy


def candidate_alone(K, everyone):
    last = len(everyone) - 1
    return np.full((last, 1), last)


def candidate_and_nearest(K, everyone):
    """The candidate, and of the old others the one whose phi is nearest to r's."""
    last = len(everyone) - 1
    if last == 1:
        return candidate_alone(K, everyone)
    distances = np.diag(K) - 2 * K
    np.fill_diagonal(distances, np.inf)
    by_age = np.argsort([s.age for s in everyone[:last]])  # argmin: the first of equals
    nearest = by_age[np.argmin(distances[:last, by_age], axis=1)]
    return np.stack([np.full(last, last), nearest], axis=1)


def project_onto_candidate():
    """BPA-S of Wang, Vucetic, AISTATS 2010: the candidate makes good the removal."""
    return project_onto(candidate_alone, 0.0)


def project_onto_nearest(ridge=0.0):
    """BPA-NN: the candidate and the nearest neighbour of the removed make it good."""
    return project_onto(candidate_and_nearest, ridge)


# Merging (Wang, Crammer, Vucetic, ICML 2010, section 4.3), Gaussian kernels only:
# k(x_m, z) = kappa^((1-h)^2) and k(x_n, z) = kappa^(h^2) for z = h x_m + (1-h) x_n.


def merged_coefficients(a_m, a_n, kappa, h):
    """a_z = a_m kappa^((1-h)^2) + a_n kappa^(h^2): the solution of eq. (22)."""
    return a_m * np.power(kappa, (1 - h) ** 2) + a_n * np.power(kappa, h**2)


def merge_slope(mm, nn, mn, log_kappa, h):
    """The derivative of ||a_z||^2 in h, divided by -4 log(kappa) v^2, all positive.

    With u = kappa^((1-h)^2), v = kappa^(h^2), and mm, nn, mn the inner products of
    a_m and a_n: ||a_z||^2 = mm u^2 + 2 mn u v + nn v^2, and
    u' = -2 log(kappa) (1-h) u, v' = 2 log(kappa) h v. Only u / v = kappa^(1-2h) is
    left.
    """
    ratio = np.exp((1 - 2 * h) * log_kappa)
    return mm * (1 - h) * ratio**2 + mn * (1 - 2 * h) * ratio - nn * h


def merge_line_search(a_m, A_n, kappas, points=101, steps=54):
    """For every partner n, the h in [0, 1] that maximises ||a_z||^2 of eq. (21).

    A_n has one row of coefficients a partner (P, C), and kappas is (P,). a_m is one
    row (C,), or one a partner (P, C), and must be no longer than the partner's: m is
    the smallest support vector.

    Only h <= 1/2 is searched. With g(h) = ||a_z||^2,
        g(h) - g(1-h) = (||a_n||^2 - ||a_m||^2) (kappa^(2 h^2) - kappa^(2 (1-h)^2)),
    which for h <= 1/2 is never negative, so a global maximum lies there; if the
    two are equally long, h and 1-h are equally good, and the one nearer to x_n is
    the one wanted.

    The sign of the slope on a grid brackets every local maximum, bisection finds
    it, and the best of them is taken. (The values of g on a grid would not do:
    for kappa near 1 they differ by less than their rounding errors.)
    """
    A_m = np.broadcast_to(a_m, A_n.shape)
    nn = (A_n**2).sum(axis=1)
    mm = np.broadcast_to((a_m**2).sum(axis=-1), nn.shape)
    mn = (A_n * a_m).sum(axis=1)
    if (mm > nn * (1 + 1e-12)).any():
        raise ValueError("a_m must be the shorter row of coefficients")
    nn = np.maximum(nn, mm)  # equal lengths whose sums were rounded differently

    grid = np.linspace(0.0, 0.5, points)
    logs = np.log(np.maximum(kappas, 1e-300))
    slope = merge_slope(mm[:, None], nn[:, None], mn[:, None], logs[:, None], grid)

    # Local maxima inside: the slope goes from positive to not positive.
    partner, cell = np.nonzero((slope[:, :-1] > 0) & (slope[:, 1:] <= 0))
    low, high = grid[cell], grid[cell + 1]
    mm, nn, mn = mm[partner], nn[partner], mn[partner]
    kappa, log = kappas[partner], logs[partner]
    for _ in range(steps):
        middle = (low + high) / 2
        rising = merge_slope(mm, nn, mn, log, middle) > 0
        low = np.where(rising, middle, low)
        high = np.where(rising, high, middle)
    root = (low + high) / 2
    a_z = merged_coefficients(A_m[partner], A_n[partner], kappa[:, None], root[:, None])
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
        -(a_m**2).sum(axis=-1) * np.expm1(2 * (1 - h) ** 2 * log)
        - (A_n**2).sum(axis=1) * np.expm1(2 * h**2 * log)
        - 2 * (A_n * a_m).sum(axis=1) * kappas * np.expm1(-2 * h * (1 - h) * log)
    )


def merge_ranks(a_m, A_n, kappas):
    """About the least degradation of every partner: the lesser at two values of h.

    In x = 1 - 2 h and rho = kappa^x, with r = ||a_n||^2 / ||a_m||^2 and
    c = <a_m, a_n> / ||a_m||^2, or 0 if that is less, the best h is where
        F(x) = x (r + 2 c rho + rho^2) - (r - rho^2) = 0.
    One is a step of Newton's method for F / (r + 2 c rho + rho^2) from x = 1, kept in
    [0, 1]. The other is h = 0, the partner itself.
    """
    A_m = np.broadcast_to(a_m, A_n.shape)
    mm = np.maximum((A_m**2).sum(axis=1), 1e-300)
    r = np.clip((A_n**2).sum(axis=1) / mm, 1, 1e100)
    c = np.maximum((A_n * A_m).sum(axis=1) / mm, 0)
    rho = np.maximum(kappas, 1e-300)
    slope_of_rho = rho * np.log(rho)
    part = r + 2 * c * rho + rho**2
    value = 1 - (r - rho**2) / part
    slope = 1 + slope_of_rho * (
        2 * rho / part + (r - rho**2) * (2 * c + 2 * rho) / part**2
    )
    h = np.clip(value / slope, 0, 1) / 2
    there = merge_degradation(A_m, A_n, kappas, h)
    return np.minimum(there, merge_degradation(A_m, A_n, kappas, 0 * h))


def merge_grid(a_m, a_n, kappa, points=10001):
    """Brute force: the greatest ||a_z||^2 over a grid of h in [0, 1], and its h."""
    a_m, a_n = np.atleast_1d(a_m), np.atleast_1d(a_n)
    h = np.linspace(0.0, 1.0, points)
    a_z = merged_coefficients(a_m, a_n, kappa, h[:, None])
    objective = (a_z**2).sum(axis=1)
    best = int(np.argmax(objective))
    return objective[best], h[best]


def merged(m, n, kappa, h):
    """The support vector z of m and n, with n's age."""
    sums = None
    if m.sums is not None:
        sums = merged_coefficients(m.sums, n.sums, kappa, h)
    return SupportVector(
        vector=h * m.vector + (1 - h) * n.vector,  # eq. (20)
        coefficients=merged_coefficients(m.coefficients, n.coefficients, kappa, h),
        age=n.age,
        sums=sums,
    )


def place_merged(active, candidate, m, n, z):
    """z in n's position and the candidate in m's.

    If the candidate is one of the two, z stands in the position of the other one.
    """
    if n == len(active):
        return replace(active, m, z)
    active = replace(active, n, z)
    return replace(active, m, candidate)  # unchanged if m is the candidate


def same_signs(s, other):
    """Whether two single coefficients have one sign."""
    return np.sign(s.coefficients[0]) == np.sign(other.coefficients[0])


def merge(same_sign=True):
    """Merge the smallest, m, with the partner n of about the least degradation.

    The merged vector has n's age. It stands in n's position, and the candidate in
    m's; unless the candidate is one of the two: then the merged vector stands in
    the position of the other one. With `same_sign`, and one column, the partners
    are those with the sign of a_m, or everyone if there are none.
    """

    def strategy(kernel, active, candidate):
        everyone = active + [candidate]
        m = first_by_value_then_age(
            norms(kernel, everyone), range(len(everyone)), everyone
        )
        x_m, a_m = everyone[m].vector, everyone[m].coefficients

        partners = [i for i in range(len(everyone)) if i != m]
        if same_sign and len(a_m) == 1:
            alike = [i for i in partners if same_signs(everyone[i], everyone[m])]
            partners = alike or partners

        others = [everyone[i] for i in partners]
        A_n = stack_coefficients(others)
        kappas = kernel(x_m, stack_vectors(others))
        ranks = merge_ranks(a_m, A_n, kappas)
        best = first_by_value_then_age(ranks, range(len(others)), others)
        h = merge_line_search(a_m, A_n[[best]], kappas[[best]])[0]

        n = partners[best]
        z = merged(everyone[m], everyone[n], kappas[best], h)
        return place_merged(active, candidate, m, n, z)

    return strategy


def multi_merge(count=3, same_sign=True):
    """Merge `count` at once, as a cascade of merges of two.

    After Qaadan, Glasmachers 2018, but for the partners: the first, n_1, is the one of
    least degradation with the smallest, m; each further one, n_2 and so on, that of
    least degradation with what has been merged so far, z. With `same_sign`, and one
    column, partners with the sign of z come before all others. z has n_1's age. In
    every merge the shorter row is the one that must be shorter; of equally long ones z.

    z stands in n_1's position, the candidate in m's, and the positions of n_2, ...
    become free. If the candidate is m, it needs no position; if it is n_1, z stands
    in m's position; if it is one of n_2, ..., m's position becomes free.
    """

    def strategy(kernel, active, candidate):
        everyone = active + [candidate]
        last = len(active)  # the candidate's index
        m = first_by_value_then_age(
            norms(kernel, everyone), range(len(everyone)), everyone
        )
        z = everyone[m]
        others = [i for i in range(len(everyone)) if i != m]
        taken = []
        while others and len(taken) < count - 1:
            # The shorter of z and every other comes first.
            rest = [everyone[i] for i in others]
            lengths = (stack_coefficients(rest) ** 2).sum(axis=1)
            turned = (z.coefficients**2).sum() > lengths
            short = [s if turn else z for s, turn in zip(rest, turned, strict=True)]
            long = [z if turn else s for s, turn in zip(rest, turned, strict=True)]
            kappa = kernel(stack_vectors(short), stack_vectors(long))
            a_m, A_n = stack_coefficients(short), stack_coefficients(long)
            loss = merge_ranks(a_m, A_n, kappa)
            unlike = np.zeros(len(rest))
            if same_sign and len(z.coefficients) == 1:
                unlike = [not same_signs(s, z) for s in rest]
            j = min(range(len(rest)), key=lambda j: (unlike[j], loss[j], rest[j].age))
            best = others[j]
            h = merge_line_search(a_m[[j]], A_n[[j]], kappa[[j]])[0]
            z = merged(short[j], long[j], kappa[j], h)
            others.remove(best)
            taken.append(best)
        first, *more = taken
        z.age = everyone[first].age

        active = list(active)
        for i in more:
            if i != last:
                active[i] = None
        if first == last:
            active[m] = z
        else:
            active[first] = z
            if m != last:
                active[m] = None if last in more else candidate
        return active

    return strategy


def merge_best_pair(same_sign=True):
    """Merge the two of least degradation of all pairs.

    The shorter row of a pair is its m, of equally long ones the older is; ages and
    positions as in `merge`. With `same_sign`, and one column, the pairs are those of
    one sign, or all if there is none. Of equal degradations that with the oldest m,
    and then the oldest n; equal ones are unlikely, and were they equal in exact
    arithmetic only, rounding would decide.
    """
    gram = Gram()

    def strategy(kernel, active, candidate):
        everyone = active + [candidate]
        K = gram(kernel, [s.vector for s in everyone])
        a = stack_coefficients(everyone)
        lengths = (a**2).sum(axis=1)
        order = [(lengths[i], s.age) for i, s in enumerate(everyone)]

        indices = range(len(everyone))
        pairs = [(m, n) for m in indices for n in indices if order[m] < order[n]]
        if same_sign and a.shape[1] == 1:
            alike = [(m, n) for m, n in pairs if same_signs(everyone[m], everyone[n])]
            pairs = alike or pairs

        m, n = np.array(pairs).T
        ranks = merge_ranks(a[m], a[n], K[m, n])
        best = min(
            range(len(pairs)),
            key=lambda i: (ranks[i], everyone[m[i]].age, everyone[n[i]].age),
        )
        m, n = pairs[best]
        h = merge_line_search(a[[m]], a[[n]], K[[m], [n]])[0]
        z = merged(everyone[m], everyone[n], K[m, n], h)
        return place_merged(active, candidate, m, n, z)

    return strategy

"""The Forgetron: Dekel, Shalev-Shwartz, Singer, NIPS 2005, Fig. 1.

Self-tuned as there, with a fixed phi, or by the basic rule of the long version, SIAM
Journal on Computing 37(5), 2008.
"""

import math

import numpy as np

from . import support
from .importance import repeats
from .maintenance import replace
from .passes import Pass


def run(
    kernel, X, y, *, budget, weights=None, rule="self-tuned", phi=None, radius=None
):
    """One pass over binary data; a coefficient is sigma_i y_i.

    `phi` is that of the fixed rule, and `radius` is U of the basic one.

    A row of weight w is w equal rows at once, and enters with sigma, the number of its
    mistakes, up to w. M is the sum of these numbers.
    """
    learner = Pass(kernel, X, y, budget=budget, weights=weights)
    sigma, labels = {}, {}  # by age: sigma_i and y_i of who was inserted in round i
    Q, M = 0.0, 0
    slack = []

    for x, label, weight, f in learner.rounds():
        margin, _ = learner.margin_and_rival(f, label)
        if margin <= 0:
            t = learner.t
            steps = repeats(weight, -margin, kernel(x, x))
            M = M + steps

            # Step (1): insert with weight 1.
            sigma[t], labels[t] = steps, label
            candidate = support.SupportVector(x, np.array([steps * label]), t)
            everyone = learner.active + [candidate]

            full = len(everyone) > budget
            # The oldest, and its margin with the candidate, before the shrinking.
            ages = [i.age for i in everyone]
            position = ages.index(min(ages))
            r = everyone[position]
            f_r = support.unscaled_scores(kernel, everyone, r.vector, 1)[0]
            s, mu = sigma[r.age], labels[r.age] * f_r

            # Step (2): shrink, all of them, the candidate too.
            if rule == "basic":
                a = np.array([i.coefficients[0] for i in everyone])
                K = support.kernel_matrix(kernel, [i.vector for i in everyone])
                U = radius or math.sqrt((budget + 1) / math.log(budget + 1)) / 4
                phi = (budget + 1) ** (-1 / (2 * (budget + 1)))
                phi = min(phi, U / math.sqrt(a @ K @ a))
            elif rule == "self-tuned":
                phi = largest_shrink(s, mu, 15 / 32 * M - Q) if full else 1.0
            for i in everyone:
                sigma[i.age] = phi * sigma[i.age]
                i.coefficients = np.array([sigma[i.age] * labels[i.age]])

            # Step (3): the oldest leaves.
            if full:
                Q = Q + psi(s, phi, mu)
                learner.active = replace(learner.active, position, candidate)
                del sigma[r.age]
            else:
                learner.active = everyone

        slack.append(15 / 32 * M - Q)
    return learner.record(updates=list(learner.mistakes), slack=slack)


def psi(s, phi, mu):
    """Psi(sigma, phi, mu) of section 3: what the removal costs the bound."""
    return (s * phi) ** 2 + 2 * s * phi * (1 - phi * mu)


def largest_shrink(s, mu, c):
    """The largest phi in (0, 1] with Psi(s, phi, mu) <= c, where c > 0.

    Psi = a phi^2 + b phi with a = s^2 - 2 s mu and b = 2 s > 0: zero at phi = 0.
    If it exceeds c at phi = 1, it crosses c once in between, at the root below,
    whatever the sign of a.
    """
    a = s**2 - 2 * s * mu
    b = 2 * s
    if a + b <= c:
        return 1.0
    return 2 * c / (b + math.sqrt(b**2 + 4 * a * c))

"""The self-tuned Forgetron: Dekel, Shalev-Shwartz, Singer, NIPS 2005, Fig. 1."""

import math

import numpy as np

from . import support
from .maintenance import replace


def run(kernel, X, y, *, budget, weights=None):
    """One pass over binary data; a coefficient is sigma_i y_i.

    An example of weight w enters with sigma = w, and M is the sum of the weights of
    the mistakes.
    """
    X = np.asarray(X, dtype=np.float64)
    weights = support.weight_array(weights, len(X))
    active = []
    t = 0
    sigma = {}  # by age: sigma_i of the example inserted in round i
    labels = {}  # by age as well
    Q, M = 0.0, 0
    scores, mistakes, slack = [], [], []

    for example in range(len(X)):
        x, label, weight = X[example], int(y[example]), weights[example]

        f = support.unscaled_scores(kernel, active, x, 1)
        scores.append(f)
        if weight == 0:
            continue
        t = t + 1

        if label * f[0] <= 0:
            mistakes.append(t)
            M = M + weight

            # Step (1): insert with weight 1.
            sigma[t], labels[t] = weight, label
            candidate = support.SupportVector(x, np.array([weight * label]), t)
            everyone = active + [candidate]

            if len(everyone) <= budget:
                active = everyone
            else:
                # Step (2): shrink, all of them, the candidate too.
                ages = [i.age for i in everyone]
                position = ages.index(min(ages))
                r = everyone[position]
                s = sigma[r.age]
                y_r = labels[r.age]
                f_r = support.unscaled_scores(kernel, everyone, r.vector, 1)[0]
                mu = y_r * f_r  # with the candidate, before the shrinking
                phi = largest_shrink(s, mu, 15 / 32 * M - Q)
                for i in everyone:
                    sigma[i.age] = phi * sigma[i.age]
                    i.coefficients = np.array([sigma[i.age] * labels[i.age]])
                Q = Q + psi(s, phi, mu)

                # Step (3): the oldest leaves.
                active = replace(active, position, candidate)
                del sigma[r.age]

        slack.append(15 / 32 * M - Q)
        assert len(active) <= budget

    vectors, coefficients, ages = support.final_arrays(active, X.shape[1], 1)
    return support.Record(
        scores=support.score_array(scores),
        mistakes=mistakes,
        updates=list(mistakes),
        vectors=vectors,
        coefficients=coefficients,
        ages=ages,
        slack=slack,
        slots=support.occupied_slots(active),
    )


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

"""Methods to find the best partner of a merge: time and accuracy.

    python benchmarks/merging.py

Every method ranks all partners of a vector of the same sign and returns the one with
the least loss and its `h`, inside a compiled loop, as maintenance does:

  two points  the lesser loss at two values of `h` for all, nine guarded Newton steps
              for the winner: ours
  newton      nine guarded Newton steps for all
  golden      golden section search, 20 steps for all
  table       a 400 x 400 table of the loss, bilinear, as in Glasmachers and Qaadan
              (2018), and nine guarded Newton steps for the winner

Accuracy is measured against grids of 10,001 points in float64: the worst relative error
of the merged length over all pairs, and the excess of the chosen partner's loss over
the least possible loss, mean and worst, over random sets of partners.

The next rows give the same for the 60 smallest vectors of a model with 100 vectors and
several classes, as a part of `||a_m||^2`.

The last row is the mean loss of random pairs with three classes by our choice, the
largest merged length, and by equations (18) to (21) of the paper on Pegasos on a
budget, which weigh all classes equally.
"""

import argparse
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import measure
import numpy as np

import budgetjax as bj
from budgetjax import datasets
from budgetjax.online.maintenance import merge_position
from budgetjax.online.slots import sortable_integers

BUDGETS = (100, 500)
SETS = 2000
TABLE = 400


def least(losses):
    """As maintenance does it: an `argmin` would not be vectorised."""
    order = sortable_integers(losses)
    found = order == jnp.min(order)
    return jnp.max(jnp.where(found, jnp.arange(losses.shape[0]), 0))


def loss(m, n, product, decay, h):
    """The loss at `h`."""
    return merge_position.loss(m, n, product, jnp.exp(-decay), decay, h)


def two_points(m, n, product, decay):
    """As `Merge` does."""
    kappa = jnp.exp(-decay)
    best = least(merge_position.least_loss(m, n, product, kappa, decay))
    return best, merge_position.position(m, n[best], product[best], decay[best])


def newton(m, n, product, decay):
    """Newton's method to the last digit for all partners."""
    h = merge_position.position(m, n, product, decay)
    best = least(loss(m, n, product, decay, h))
    return best, h[best]


def golden(m, n, product, decay):
    """Golden section search for the least loss on [0, 1/2]."""
    ratio = (np.sqrt(5) - 1) / 2
    low, high = jnp.zeros_like(n), jnp.full_like(n, 0.5)

    def step(_, bracket):
        low, high = bracket
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        better = loss(m, n, product, decay, left) < loss(m, n, product, decay, right)
        return jnp.where(better, low, left), jnp.where(better, right, high)

    low, high = jax.lax.fori_loop(0, 20, step, (low, high))
    h = (low + high) / 2
    best = least(loss(m, n, product, decay, h))
    return best, h[best]


def make_table():
    """The least loss of a pair with `a_m + a_n = 1`, by `a_m` and kappa in [0, 1]."""
    a_m, kappa = np.meshgrid(*2 * [np.linspace(0, 1, TABLE)], indexing="ij")
    a_n = 1 - a_m
    best = np.zeros_like(a_m)
    for h in np.linspace(0, 1, 1001):
        best = np.maximum(best, a_m * kappa ** ((1 - h) ** 2) + a_n * kappa ** (h**2))
    loss = a_m**2 + a_n**2 + 2 * a_m * a_n * kappa - best**2
    return jnp.asarray(loss, jnp.float32)


LOSSES = make_table()


def table(m, n, product, decay):
    """Bilinear interpolation for the ranking, Newton's method for the winner."""
    a_m, a_n = jnp.sqrt(m), jnp.sqrt(n)
    row = a_m / (a_m + a_n) * (TABLE - 1)
    column = jnp.exp(-decay) * (TABLE - 1)
    i = jnp.clip(row.astype(jnp.int32), 0, TABLE - 2)
    j = jnp.clip(column.astype(jnp.int32), 0, TABLE - 2)
    u, v = row - i, column - j
    flat, at = LOSSES.ravel(), i * TABLE + j
    lost = (1 - u) * ((1 - v) * flat[at] + v * flat[at + 1]) + u * (
        (1 - v) * flat[at + TABLE] + v * flat[at + TABLE + 1]
    )
    best = least(lost * (a_m + a_n) ** 2)
    return best, merge_position.position(m, n[best], product[best], decay[best])


WAYS = {"two points": two_points, "newton": newton, "golden": golden, "table": table}


def problems(budget):
    """Sets of partners: lengths over six orders, distances from near to far."""
    random = np.random.default_rng(0)
    n = 10 ** random.uniform(0, 3, (SETS, budget)) * (random.random((SETS, 1)) < 0.7)
    n = np.maximum(n, 1).astype(np.float32)
    spread = 10 ** random.uniform(-2, 1, (SETS, 1))
    decay = random.gamma(3, size=(SETS, budget)) * spread
    return jnp.asarray(n), jnp.asarray(np.clip(decay, 1e-6, 80), jnp.float32)


def least_loss(n, decay):
    """The loss at the best of 10,001 points, in float64; one row per partner."""
    n, decay = np.float64(n), np.float64(decay)
    h = np.linspace(0, 1, 10_001)
    g = (np.exp(-decay * (1 - h) ** 2) + np.sqrt(n) * np.exp(-decay * h**2)) ** 2
    return 1 + n + 2 * np.sqrt(n) * np.exp(-decay) - g.max(), g.max()


def length_error(way):
    """The worst relative error of the merged length, one partner at a time."""
    random = np.random.default_rng(1)
    worst = 0.0
    for _ in range(400):
        n = np.float32(10 ** random.choice([0, 1e-6, 1e-2, random.uniform(0, 6)]))
        decay = np.float32(
            random.choice([2, random.uniform(1.5, 2.5), random.gamma(2)])
        )
        given = (jnp.float32(1), *(jnp.full(1, v) for v in (n, np.sqrt(n), decay)))
        h = np.float64(way(*given)[1])
        g = (
            np.exp(-float(decay) * (1 - h) ** 2)
            + np.sqrt(float(n)) * np.exp(-float(decay) * h**2)
        ) ** 2
        best = least_loss(n, decay)[1]
        worst = max(worst, (best - g) / best)
    return worst


def excess(chosen, n, decay):
    """Excess of the chosen partner's least loss, relative to the least of all."""
    found = []
    for i in range(0, SETS, 20):
        losses = np.array(
            [least_loss(*pair)[0] for pair in zip(n[i], decay[i], strict=True)]
        )
        # The loss of a pair is known to 1e-12 of its length; less is a tie.
        least = max(losses.min(), 1e-9)
        found.append((losses[chosen[i]] - losses.min()) / least)
    return np.mean(found), np.max(found)


def of_data(name):
    """Excess loss of ranking at two points, for vectors of a model."""
    data = datasets.load(name)
    X, y = data.X_train[:6000], data.y_train[:6000]
    gamma = bj.default_gamma(X)
    state = bj.Pegasos(regularization=1e-4).init(
        bj.RBF(gamma),
        num_features=X.shape[1],
        budget=BUDGETS[0],
        num_classes=int(y.max()) + 1,
    )
    support = bj.support(bj.run(state, X, y)[0])
    a = np.float64(support.coefficients)
    a /= np.abs(a).max()
    lengths = np.sum(a**2, axis=1)
    h = np.linspace(0, 0.5, 2001)[:, None]
    more, others = [], []
    for m in np.argsort(lengths)[:60]:
        n = np.flatnonzero((lengths >= lengths[m]) & (np.arange(len(a)) != m))
        product = a[n] @ a[m]
        apart = np.float64(support.vectors[n]) - np.float64(support.vectors[m])
        decay = gamma * np.sum(apart**2, axis=1)
        p, q = np.exp(-decay * (1 - h) ** 2), np.exp(-decay * h**2)
        z = lengths[m] * p**2 + 2 * product * p * q + lengths[n] * q**2
        whole = lengths[m] + lengths[n] + 2 * product * np.exp(-decay)
        loss = whole - np.max(z, axis=0)
        given = (np.float32(part) for part in (lengths[m], lengths[n], product, decay))
        best, _ = two_points(*map(jnp.asarray, given))
        more.append((loss[best] - loss.min()) / lengths[m])
        others.append(best != np.argmin(loss))
    return {
        "way": f"two points, {name}",
        "excess loss, mean": f"{np.mean(more):.1e}",
        "excess loss, worst": f"{np.max(more):.1e}",
        "another partner %": 100 * np.mean(others),
    }


def of_three_classes() -> dict[str, float]:
    """The mean loss of 2,000 random pairs, by two choices of h, on a grid."""
    random = np.random.default_rng(0)
    h = np.linspace(0, 1, 1001)
    lost = {"ours": [], "the paper's": []}
    for _ in range(SETS):
        m, n = random.normal(size=(2, 3))
        kappa = random.uniform(0.05, 1)
        at_m, at_n = kappa ** ((1 - h) ** 2), kappa ** (h**2)
        merged = np.sum((m[:, None] * at_m + n[:, None] * at_n) ** 2, axis=0)
        loss = m @ m + n @ n + 2 * (m @ n) * kappa - merged
        share = (m / (m + n))[:, None]
        equal = np.sum(share * at_m + (1 - share) * at_n, axis=0)
        lost["ours"].append(loss[np.argmax(merged)])
        lost["the paper's"].append(loss[np.argmax(equal)])
    return {name: float(np.mean(losses)) for name, losses in lost.items()}


def main():
    parser = argparse.ArgumentParser(description="Methods to find the best partner")
    results = Path(__file__).parent / "results" / "merging.json"
    parser.add_argument("--output", type=Path, default=results)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    rows = []
    for budget in BUDGETS:
        n, decay = problems(budget)
        for name, way in WAYS.items():

            @jax.jit
            def loop(n, decay, way=way):
                def body(carry, given):
                    n, decay = given
                    # The carry makes every merge wait for the previous one.
                    best, h = way(jnp.ones((), n.dtype), n, jnp.sqrt(n), decay + carry)
                    return 0 * h, best.astype(jnp.int32)

                return jax.lax.scan(body, jnp.zeros((), n.dtype), (n, decay))[1]

            mean, worst = excess(np.asarray(loop(n, decay)), n, decay)
            seconds = measure.median(
                functools.partial(loop, n, decay), arguments.repeats
            )
            rows.append(
                {
                    "way": name,
                    "B": budget,
                    "us a merge": seconds / SETS * 1e6,
                    "worst length error": f"{length_error(jax.jit(way)):.1e}",
                    "excess loss, mean": f"{mean:.1e}",
                    "excess loss, worst": f"{worst:.1e}",
                }
            )
    rows += [of_data(name) for name in ("letter", "usps", "pendigits")]
    losses = of_three_classes()
    rows.append({"way": "three classes, mean loss", **losses})
    measure.report(rows, arguments.output)


if __name__ == "__main__":
    main()

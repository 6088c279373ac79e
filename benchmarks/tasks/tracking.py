"""Streams of real targets: errors, densities and intervals beside river's models.

Every row is predicted and then learned. Columns and targets are in deviations of the
first 500 rows, and columns within 8 of them. `RMSE` is over the last four fifths of the
rows, as are `density`, the mean negative logarithm of the density of the target, and
`covered` and `width`, of intervals of 90 percent. Each stream has its own order and
another: a permutation, or for generated ones another seed. "tuned" is the best of 8
widths and 3 rates on the same rows, in hindsight, and so is "best expert" of the 16 of
the mixture. Kernel ridge regression is fitted once, to the first 2,000 rows, and is the
best of 16 in hindsight. BUDGETJAX_DATA names a folder with cpusmall and electricity.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import timing
from data import all_rows
from models import empty, rms
from river import datasets, forest, linear_model, neighbors
from river.datasets import synth
from runner import Case, Row, product

import budgetjax as bj
from budgetjax.online import mixture

KEEPS_PROGRAMS = True
ROWS, BUDGET, FIRST, FIT = 6000, 100, 500, 2000
LEVEL, DEVIATIONS = 0.9, 1.6448536
WIDTHS, RATES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2), (0.1, 0.3, 0.8)
FEW_WIDTHS = (1 / 64, 1 / 8, 1 / 2, 2)
MIXED = tuple(itertools.product(FEW_WIDTHS, RATES))
Both = tuple[np.ndarray, np.ndarray]


# Streams.


def lags(series: np.ndarray, number: int) -> Both:
    """The last values of a series, and the next one."""
    windows = np.lib.stride_tricks.sliding_window_view(series, number + 1)
    return windows[:, :-1], windows[:, -1]


def lorenz(seed: int) -> Both:
    """The first coordinate, from its last five values, by steps of 0.02."""

    def slope(s: np.ndarray) -> np.ndarray:
        x, y, z = s
        return np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    state = 1 + np.random.default_rng(seed).normal(0, 0.5, 3)
    found = np.empty(ROWS + 505)
    for i in range(len(found)):
        a = slope(state)
        b = slope(state + 0.01 * a)
        c = slope(state + 0.01 * b)
        d = slope(state + 0.02 * c)
        state = state + 0.02 / 6 * (a + 2 * b + 2 * c + d)
        found[i] = state[0]
    return lags(found[500:], 5)


def mackey_glass(seed: int) -> Both:
    """The delay equation with a delay of 30, noise of 0.02, from eight values."""
    random, delay = np.random.default_rng(seed), 300
    found = np.empty(delay + 10 * (ROWS + 308))
    found[:delay] = 1.2 + 0.1 * random.normal(size=delay)
    for t in range(delay, len(found)):
        past = found[t - delay]
        found[t] = found[t - 1] + 0.02 * past / (1 + past**10) - 0.01 * found[t - 1]
    series = found[delay::10][300:]
    return lags(series + 0.02 * random.normal(size=len(series)), 8)


def channel(seed: int) -> Both:
    """Van Vaerenbergh et al. (2012), figure 3: a filter and tanh, every 1,500 switched.

    20 dB of noise.
    """
    random = np.random.default_rng(seed)
    first = [1, -0.3817, -0.1411, 0.5789, 0.191]
    taps = np.array([first, [1, -0.0870, 0.9852, -0.2826, -0.1711]])
    X = lags(random.normal(size=ROWS + 5), 5)[0][:, ::-1]
    clean = np.tanh(np.sum(X * taps[np.arange(len(X)) // 1500 % 2], axis=1))
    return X, clean + np.sqrt(0.01 * clean.var()) * random.normal(size=len(X))


def friedman(seed: int) -> Both:
    """Friedman's function of ten columns, which change places every 2,500 rows."""
    random = np.random.default_rng(seed)
    X, places = random.random((ROWS, 10)), np.arange(ROWS) // 2500
    orders = np.array([random.permutation(10) for _ in range(places[-1] + 1)])
    x = np.take_along_axis(X, orders[places], axis=1).T
    y = 10 * np.sin(np.pi * x[0] * x[1]) + 20 * (x[2] - 0.5) ** 2
    return X, y + 10 * x[3] + 5 * x[4] + random.normal(size=ROWS)


def demand(seed: int) -> Both:
    """The electricity demand of the next half hour, of yesterday's and last week's."""
    X, _ = all_rows("electricity")
    value, period, day = X[:, 4], X[:, 2], X[:, 1]
    t = np.arange(336, len(value))
    past = [value[t - k] for k in (1, 2, 3, 48, 49, 336)]
    turn = 2 * np.pi * period[t]
    return np.stack([*past, np.sin(turn), np.cos(turn), day[t] / 7], 1), value[t]


def of_river(stream: Any) -> Both:
    """The rows of a stream of river."""
    rows = list(itertools.islice(stream, ROWS))
    X, y = [list(x.values()) for x, _ in rows], [y for _, y in rows]
    return np.array(X, float), np.array(y, float)


def water(seed: int) -> Both:
    """The flow of the next hour, of eight hours and the same hour yesterday."""
    value = np.array([y for _, y in datasets.WaterFlow()], float)
    return lags(value, 24)[0][:, [0, *range(16, 24)]], lags(value, 24)[1]


GENERATED: dict[str, Callable[[int], Both]] = {
    "Lorenz": lorenz,
    "Mackey-Glass": mackey_glass,
    "channel": channel,
    "Friedman, places change": friedman,
    "Friedman drift": lambda seed: of_river(
        synth.FriedmanDrift("gra", (2000, 4000), seed=seed)
    ),
    "Friedman": lambda seed: of_river(synth.Friedman(seed=seed)),
    "planes": lambda seed: of_river(synth.Planes2D(seed=seed)),
}
STORED: dict[str, Callable[[int], Both]] = {
    "demand": demand,
    "cpusmall": lambda seed: all_rows("cpusmall"),
    "Trump approval": lambda seed: of_river(datasets.TrumpApproval()),
    "chicks": lambda seed: of_river(datasets.ChickWeights()),
    "water flow": water,
}


@functools.lru_cache(1)
def stream_of(name: str, order: int) -> Both:
    """Rows and targets, in deviations of the first ones."""
    X, y = (GENERATED | STORED)[name](order)
    if order and name in STORED:
        at = np.random.default_rng(order).permutation(len(y))
        X, y = X[at], y[at]
    X, y = np.asarray(X[:ROWS], float), np.asarray(y[:ROWS], float)
    deviation = X[:FIRST].std(axis=0)
    deviation[deviation < 1e-9] = 1
    X = np.clip((X - X[:FIRST].mean(axis=0)) / deviation, -8, 8)
    y = (y - y[:FIRST].mean()) / y[:FIRST].std()
    return X.astype(np.float32), y.astype(np.float32)


# Figures.


def figures(y: np.ndarray, mean: np.ndarray, variance: Any, half: Any) -> Row:
    """Of predictions before each row; `half` is that of the intervals."""
    late = slice(len(y) // 5, None)
    error = np.asarray(y - mean, float)
    row: Row = {"rows": len(y), "RMSE": rms(error[late])}
    if variance is not None:
        v = np.asarray(variance, float)
        density = (np.log(2 * np.pi * v) + error**2 / v) / 2
        inside = np.abs(error) <= half
        row["density"] = float(np.mean(density[late]))
        row["covered"] = 100 * float(np.mean(inside[late]))
        row["width"] = float(np.mean(2 * half[late]))
    return row


@jax.jit
def prequential(state: Any, X: Any, y: Any) -> tuple[Any, Any, Any]:
    """Scores, variances and half-widths of intervals, each before its row."""

    def step(state: Any, row: Any) -> Any:
        x, y = row
        low, high = bj.predict_interval(state, x[None], level=LEVEL)[0]
        said = (low + high) / 2, bj.variance(state, x[None])[0], (high - low) / 2
        return bj.step(state, x, y), said

    return jax.lax.scan(step, state, (X, y))[1]


def of_state(state: Any, X: np.ndarray, y: np.ndarray) -> Row:
    """The figures of a state that knows its variance."""
    return figures(y, *map(np.asarray, prequential(state, X, y)))


def start(learner: bj.Learner, X: np.ndarray, gamma: Any) -> Any:
    """An empty model of this width over the number of columns."""
    return empty(learner, X, BUDGET, gamma / X.shape[1], num_classes=None)


def sgd(X: np.ndarray, gamma: Any, rate: Any) -> Any:
    return start(bj.SGD(learning_rate=rate), X, gamma)


def best_of(states: Any, X: np.ndarray, y: np.ndarray) -> Row:
    """The best of several states in hindsight."""
    found = [figures(y, np.asarray(bj.run(one, X, y)[1]), None, None) for one in states]
    return min(found, key=lambda row: row["RMSE"])


def experts(X: np.ndarray, y: np.ndarray) -> Row:
    pairs = itertools.product(mixture.GAMMAS, mixture.PAIRS)
    return best_of((tracker(X, g, *pair) for g, pair in pairs), X, y)


def tracker(X: np.ndarray, gamma: float, noise: float, forgetting: float) -> Any:
    return start(bj.KRLST(noise=noise, forgetting=forgetting), X, gamma)


def mixed(X: np.ndarray, y: np.ndarray, **given: Any) -> Row:
    state = bj.Mixture().init(num_features=X.shape[1], budget=BUDGET, **given)
    return of_state(state, X, y)


def mixed_sgd(X: np.ndarray, y: np.ndarray) -> Row:
    gammas, rates = (jnp.array(column) for column in zip(*MIXED, strict=True))
    states = jax.vmap(functools.partial(sgd, X))(gammas, rates)
    return of_state(bj.Mixture().of(states), X, y)


def ridge(X: np.ndarray, y: np.ndarray) -> Row:
    """Kernel ridge regression of the first rows; later rows are not learned."""
    rows, found = min(FIT, len(y) // 2), []
    for gamma, noise in itertools.product(FEW_WIDTHS, (1, 0.1, 0.01, 1e-4)):
        kernel = bj.RBF(gamma / X.shape[1])
        inner = np.asarray(kernel.gram(X[:rows], X[:rows]), float)
        inner += noise * np.eye(rows)
        weights = np.linalg.solve(inner, y[:rows])
        mean = np.asarray(kernel.gram(X, X[:rows]), float) @ weights
        found.append(rms((y - mean)[rows:]))
    return {"rows": len(y), "RMSE": min(found)}


def of_river_model(make: Callable[[], Any], X: np.ndarray, y: np.ndarray) -> Row:
    """The figures of a model of river, with densities if it says any."""
    means, deviations, model = [], [], make()
    for x, target in zip(X.tolist(), y.tolist(), strict=True):
        row: Any = dict(enumerate(x))
        if isinstance(model, BAYES):
            said: Any = model.predict_one(row, with_dist=True)
            means.append(said.mu)
            deviations.append(said.sigma)
        else:
            means.append(model.predict_one(row) or 0.0)
        model.learn_one(row, target)
    half = DEVIATIONS * np.array(deviations)
    variance = np.square(deviations) if deviations else None
    return figures(y, np.array(means), variance, half)


METHODS: dict[str, Callable[[np.ndarray, np.ndarray], Row]] = {
    "mixture": mixed,
    "mixture, fast": functools.partial(mixed, fast=True),
    "best expert": experts,
    "KRLST": lambda X, y: of_state(tracker(X, 1, 0.01, 0.0), X, y),
    "SGD": lambda X, y: best_of([sgd(X, 1.0, None)], X, y),
    "SGD, tuned": lambda X, y: best_of(
        (sgd(X, *pair) for pair in itertools.product(WIDTHS, RATES)), X, y
    ),
    "mixture of SGD": mixed_sgd,
    "kernel ridge, 2,000 rows": ridge,
}
BAYES = linear_model.BayesianLinearRegression
RIVER: dict[str, Callable[[], Any]] = {
    "Bayesian linear": BAYES,
    "Bayesian linear, 0.99": lambda: BAYES(smoothing=0.99),
    "nearest neighbours": neighbors.KNNRegressor,
    "adaptive random forest": lambda: forest.ARFRegressor(seed=0),
}
METHODS |= {
    name: functools.partial(of_river_model, make) for name, make in RIVER.items()
}

AGAIN = (
    *("mixture", "SGD", "kernel ridge, 2,000 rows", "Bayesian linear"),
    *("Bayesian linear, 0.99", "nearest neighbours"),
)


def measured(stream: str, order: int, method: str) -> Row:
    """The figures of a method, and its time per row with compilation."""
    X, y = stream_of(stream, order)
    row, seconds = timing.spent(lambda: METHODS[method](X, y))
    return row | {"us per row": 1e6 * seconds / len(y)}


def cases() -> Iterator[Case]:
    """All streams in their own order, and few methods in another."""
    streams = GENERATED | STORED
    for order, methods in ((0, METHODS), (1, AGAIN)):
        yield from product(measured, stream=streams, order=(order,), method=methods)

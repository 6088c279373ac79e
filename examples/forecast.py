"""Forecasts of electricity demand half an hour ahead, with their 90 percent bands.

    python examples/forecast.py
    python examples/forecast.py --data electricity --output examples/forecast.png

Every half hour the demand of the next one is forecast with its band, and then learned:
a `budgetjax.Mixture` in one `jax.lax.scan`. There is no kernel, no rate and no noise to
choose. The default demand is drawn: days, weeks, weather, a cold wave, and holidays.
`electricity` is that of New South Wales, from OpenML or from the folder that the
environment variable BUDGETJAX_DATA names.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import budgetjax as bj
from budgetjax import datasets
from budgetjax.plots import COLORS, STYLE

try:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
except ImportError as error:
    raise SystemExit(f'forecast: {error}; pip install ".[examples]"') from error

DAY, WEEK = 48, 7 * 48
# The first rows, from which the units of all columns come.
FIRST = 4 * WEEK
LEVEL = 0.9


class Forecasts(NamedTuple):
    """What was said of each half hour before it was known."""

    mean: Any
    low: Any
    high: Any


def drawn(days: int) -> np.ndarray:
    """Demand in gigawatts: days, weeks, weather, a cold wave, and holidays."""
    random, t = np.random.default_rng(0), np.arange(days * DAY)
    hour, day = t % DAY / 2, t // DAY
    peaks = np.exp(-(((hour - 8.5) / 2) ** 2)) + 1.3 * np.exp(-(((hour - 18) / 3) ** 2))
    idle = (day % 7 >= 5) | ((day > 0.6 * days) & (day < 0.6 * days + 10))
    weather = np.zeros(len(t))
    for i, shock in enumerate(random.normal(size=len(t) - 1), start=1):
        weather[i] = 0.995 * weather[i - 1] + 0.1 * shock
    cold = 1.5 * np.exp(-(((day - 0.8 * days) / 4) ** 2))
    awake = 1 / (1 + np.exp(-2 * (hour - 6.5)))
    noise = (0.03 + 0.06 * awake) * random.normal(size=len(t))
    return 6 + (2 - 0.8 * idle) * peaks + (0.3 + 0.3 * awake) * (weather + cold) + noise


def electricity() -> np.ndarray:
    """The demand of New South Wales, in parts of its range."""
    data = datasets.load("electricity", standardise=False)
    return np.concatenate([data.X_train, data.X_test])[:, 4].astype(np.float64)


def rows(demand: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Earlier demands and the time of each half hour, and its demand, after a week."""
    t = np.arange(WEEK, len(demand))
    past = [demand[t - lag] for lag in (1, 2, 3, DAY, DAY + 1, WEEK)]
    turn = 2 * np.pi * (t % DAY) / DAY
    return np.stack([*past, np.sin(turn), np.cos(turn), t // DAY % 7], 1), demand[t]


@jax.jit
def forecast(state: bj.MixtureState, X: Any, y: Any) -> Forecasts:
    """Each half hour is forecast, and then learned."""

    def one(state: bj.MixtureState, row: Any) -> Any:
        x, target = row
        low, high = bj.predict_interval(state, x[None], LEVEL)[0]
        return bj.step(state, x, target), Forecasts((low + high) / 2, low, high)

    return jax.lax.scan(one, state, (X, y))[1]


def draw(y: np.ndarray, said: Forecasts, unit: str, path: str) -> None:
    """Three days of forecasts, and how many targets lay in their bands."""
    inside = (said.low <= y) & (y <= said.high)
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 4.6), layout="constrained")
        above, below = figure.subplots(2, 1, height_ratios=(1.7, 1))
        shown = slice(len(y) - 3 * DAY, None)
        hours = np.arange(3 * DAY) / 2
        above.fill_between(
            hours,
            said.low[shown],
            said.high[shown],
            color=COLORS[4],
            alpha=0.45,
            linewidth=0,
            label=f"{LEVEL:.0%} band",
        )
        above.plot(hours, said.mean[shown], color=COLORS[0], label="forecast")
        above.plot(hours, y[shown], ".", color="0.15", markersize=2.5, label="demand")
        above.set(ylabel=unit, xlim=(0, 72), xticks=range(0, 73, 12), xlabel="hours")
        above.set_title("The last three days, forecast half an hour ahead")
        above.legend(ncols=3)
        part = np.convolve(inside, np.full(2 * WEEK, 1 / (2 * WEEK)), mode="valid")
        weeks = (np.arange(len(part)) + 2 * WEEK) / WEEK
        below.axhline(100 * LEVEL, color="0.6", linewidth=1)
        below.plot(weeks, 100 * part, color=COLORS[0])
        below.set(xlabel="weeks", xlim=(0, len(y) / WEEK), ylim=(75, 100))
        below.set_title("Half hours inside their band, of the last two weeks (%)")
        for panel in (above, below):
            panel.grid(True)
            panel.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--data", choices=("drawn", "electricity"), default="drawn")
    parser.add_argument("--days", type=int, default=180, help="days to forecast")
    parser.add_argument("--budget", type=int, default=50, help="support vectors")
    parser.add_argument("--output", default="forecast.png", help="file for the figure")
    options = parser.parse_args(arguments)
    if not Path(options.output).absolute().parent.is_dir():
        parser.error(f"--output: there is no folder {Path(options.output).parent}")
    if options.days < 30:
        parser.error("--days: must be at least 30, the first 28 give the units")
    try:
        is_drawn = options.data == "drawn"
        demand = drawn(options.days + 7) if is_drawn else electricity()
    except (ValueError, ImportError, OSError) as error:
        parser.error(f"--data: {error}")

    X, y = rows(demand[: (options.days + 7) * DAY])
    mean, deviation = X[:FIRST].mean(axis=0), X[:FIRST].std(axis=0)
    centre, unit = y[:FIRST].mean(), y[:FIRST].std()
    scaled = (X - mean) / deviation
    state = bj.Mixture(level=LEVEL).init(
        num_features=X.shape[1], budget=options.budget, fast=True
    )
    told = forecast(state, scaled, (y - centre) / unit)
    said = Forecasts(*(centre + unit * np.asarray(one, np.float64) for one in told))

    learner = bj.SGD().init(
        bj.RBF(bj.default_gamma(scaled[:FIRST])),
        num_features=X.shape[1],
        budget=options.budget,
        num_classes=None,
    )
    _, plain = bj.run(learner, scaled, (y - centre) / unit)
    plain = centre + unit * np.asarray(plain, np.float64)
    later = slice(FIRST, None)
    print(f"{len(y):,} half hours; errors and bands after the first four weeks\n")
    for name, values in {
        "the mixture": said.mean,
        "bj.SGD, default": plain,
        "the half hour before": X[:, 0],
        "the same hour last week": X[:, 5],
    }.items():
        error = np.sqrt(np.mean((values - y)[later] ** 2))
        print(f"root mean squared error of {name:<24} {error:.4f}")
    inside = ((said.low <= y) & (y <= said.high))[later]
    width = np.mean((said.high - said.low)[later])
    print(
        f"\ninside their {LEVEL:.0%} band: {inside.mean():.1%}; mean width {width:.3f}"
    )
    draw(y, said, "gigawatts" if is_drawn else "demand", options.output)
    print(f"Figure: {options.output}")


if __name__ == "__main__":
    main()

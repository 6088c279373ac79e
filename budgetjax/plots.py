"""Plots of models, streams and sweeps, with matplotlib.

Each function draws into `axes`, or into a new figure of `matplotlib.pyplot`, and
returns the axes, so the caller can set titles, limits and scales. Some functions draw
named curves; another function computes them, such as `progressive_error` for
`learning_curves`.

    with matplotlib.rc_context(bj.plots.STYLE):
        bj.plots.decision_regions(state, X, y)

`STYLE` is the style of the figures in the guide. The palette of Okabe and Ito (2008) is
safe for colour-blind readers; lines also differ in dashes, for print without colours.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Integer
from numpy.typing import ArrayLike

from budgetjax import _checks, losses
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._rows import RawRows
from budgetjax.model import KernelModel, Model, Support, model_of, predict_interval
from budgetjax.online.state import State
from budgetjax.tables import encoding
from budgetjax.tables.columns import find_column
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.labels import label_indices
from budgetjax.tables.table_model import TableModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

else:
    Axes = Any

Coordinates = Float[np.ndarray, " points"]

# For a `matplotlib.rc_context`.
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.7,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
}
COLORS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999",
    "#F0E442",
)  # fmt: skip
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (4, 1.2, 1, 1.2)))
MARKERS = "osD^vP"
FRAME = "#D55E00"
# The opacity of a class's colour in its region.
TINT = 0.4
POINTS = 300
# The maximum number of points of a curve, and the rows before its first point.
MOST_POINTS, FIRST_POINT = 1000, 20
# The maximum number of rows and of columns of a heat map with numbers in its cells.
MOST_CELLS = 14
# The ratio of values from which the colours of a heat map are logarithmic.
WIDE = 10
# The maximum number of rows and of values of a partial dependence, and of its columns.
SOME_ROWS, SOME_VALUES, SOME_COLUMNS = 300, 33, 6
# The area of the dot of the largest coefficient, in points squared.
LARGEST_DOT = 60


@names_errors("progressive_error")
def progressive_error(
    scores: ArrayLike, y: ArrayLike, *, regression: bool = False
) -> tuple[Integer[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """The learning curve of one pass, where each row is predicted before it is learned.

    Args:
      scores: the scores from `budgetjax.run`, shape `(n,)` or `(n, C)`.
      y: the labels or targets, shape `(n,)` or the shape of the scores.
      regression: whether errors are squared, not counted.

    Returns:
      Numbers of rows, at most 1,000 of them, from 20 on and denser at the beginning;
      and the error up to there: the rate of mistakes (ties count as mistakes), or the
      mean squared error.

    Example:
      >>> rows, errors = bj.plots.progressive_error([0.5] * 40, [1] * 30 + [-1] * 10)
      >>> int(rows[-1]), float(errors[-1])
      (40, 0.25)
    """
    scores, y = np.asarray(scores), np.asarray(y)
    n = len(scores)
    if len(y) != n or n == 0:
        wanted = "have the same number of rows, at least 1"
        raise ArgumentError("scores and y", wanted, f"{n} and {len(y)}")
    if regression:
        # A single target per row serves all outputs.
        wrong = np.square(scores.reshape(n, -1) - y.reshape(n, -1)).mean(axis=1)
    elif scores.ndim == 1:
        wrong = y * scores <= 0
    else:
        of_label = np.arange(n), y
        rivals = scores.copy()
        rivals[of_label] = -np.inf
        wrong = scores[of_label] <= rivals.max(axis=1)
    half, first = MOST_POINTS // 2, min(FIRST_POINT, n)
    even, dense = np.linspace(first, n, half), np.geomspace(first, n, half)
    rows = np.unique(np.round([*even, *dense]).astype(np.int64))
    return rows, np.cumsum(wrong)[rows - 1] / rows


def learning_curves(
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    regression: bool = False,
    axes: Axes | None = None,
) -> Axes:
    """Draws errors against rows read, on a logarithmic axis.

    The last value of a single curve is printed.

    Args:
      curves: by name, numbers of rows and errors up to there: from `progressive_error`,
        `(model.rows, model.errors)` of a `StreamModel`, or `(result.rounds, errors)`
        with a row of `result.errors` of a `Sweep`.
      regression: whether errors are mean squared errors; their root is drawn.
      axes: of matplotlib; None makes a figure.

    Example:
      >>> X, y = bj.datasets.checkerboard(2000, seed=0)
      >>> state = bj.Perceptron().init(bj.RBF(8.0), num_features=2, budget=50)
      >>> _, scores = bj.run(state, X, y)
      >>> axes = bj.plots.learning_curves({"": bj.plots.progressive_error(scores, y)})
      >>> axes.get_xlabel()
      'rows read'
    """
    axes = _axes(axes)
    highest = 0.0
    for i, (name, (rows, errors)) in enumerate(curves.items()):
        rows, errors = np.asarray(rows), np.asarray(errors)
        values = np.sqrt(errors) if regression else 100 * errors
        highest = max(highest, float(np.max(values)))
        style = {"marker": "o" if len(values) < 10 else "", "markersize": 4}
        axes.plot(rows, values, label=name, **style, **_line_style(i))
        if len(curves) == 1:
            last = f"{values[-1]:.4g}" if regression else f"{values[-1]:.2f}%"
            above = {"xytext": (0, 7), "textcoords": "offset points", "ha": "right"}
            axes.annotate(last, (rows[-1], values[-1]), **above)
    unit = "root mean squared error so far" if regression else "mistakes so far (%)"
    axes.set(xlabel="rows read", ylabel=unit, xscale="log")
    axes.set_ylim(0, 1.15 * highest or 1)
    from matplotlib.ticker import LogLocator

    decades = np.log10(axes.get_xlim()[1] / axes.get_xlim()[0])
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2 else (1,)))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_formatter("")
    # Errors fall, so this corner is empty.
    return _with_grid(axes, legend="lower left" if len(curves) > 1 else None)


@names_errors("decision_regions")
def decision_regions(
    model: Any,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    axes: Axes | None = None,
) -> Axes:
    """Draws the predictions of a model with two features, and its support vectors.

    Colours show the predicted class, with boundaries, or the value of a regressor. The
    area of a dot is proportional to the size of a support vector's coefficients.

    Args:
      model: as for `budgetjax.predict`, or a fitted estimator.
      X: rows to show, shape `(n, 2)`. None shows only the support vectors, or, without
        support vectors or with an encoding, the plane up to 2.5 deviations of the
        scaling or units of the encoding.
      y: their labels, shape `(n,)`, for their colours; None draws them grey.
      axes: of matplotlib; None makes a figure.

    Raises:
      ValueError: if the model does not have two features, or the range is unknown
        because there is no X and the model has no support vectors and no scaling.

    Example:
      >>> X, y = bj.datasets.checkerboard(2000, seed=0)
      >>> state = bj.Perceptron().init(bj.RBF(8.0), num_features=2, budget=50)
      >>> state, _ = bj.run(state, X, y)
      >>> bj.plots.decision_regions(state).get_xlabel()
      'feature 1'
    """
    model = model_of(model)
    features = model.num_features
    if features != 2:
        raise ArgumentError("model", "have 2 features", features)
    vectors, coefficients = _support_vectors(model)
    sizes = np.abs(coefficients).sum(axis=1)
    rows = np.zeros((0, 2)) if X is None else np.asarray(X)
    shown = np.concatenate([vectors, rows])
    whole = TableModel.of(model)
    if not len(shown):
        if whole.scaling is None:
            wanted = "say where to draw for a model without support vectors"
            raise ArgumentError("X", wanted, "None")
        shown = whole.scaling.undone(np.array([[-2.5, -2.5], [2.5, 2.5]]))
    axes = _axes(axes)
    low, high = shown.min(axis=0), shown.max(axis=0)
    margin = np.where(high > low, 0.08 * (high - low), 1.0)
    first, second = np.linspace(low - margin, high + margin, POINTS).T
    classes = model.class_labels
    if classes is None:
        values = _on_grid(model.predict, first, second)
        image = axes.contourf(first, second, values, levels=12, cmap="cividis")
        axes.figure.colorbar(image, ax=axes, label="predicted")
    else:
        _draw_regions(axes, model, first, second, classes.tolist())
    if len(rows):
        colors = "0.55"
        if classes is not None and y is not None:
            codes = label_indices(classes, np.asarray(y))
            colors = [_color(code) for code in codes.tolist()]
        axes.scatter(*rows.T, s=5, c=colors, linewidths=0, alpha=0.7, zorder=2)
    largest = sizes.max(initial=1e-30)
    areas = 4 + LARGEST_DOT * sizes / largest
    rim = {"edgecolors": "white", "linewidths": 0.5}
    axes.scatter(*vectors.T, s=areas, color="black", zorder=3, **rim)
    names = whole.feature_names or ("feature 1", "feature 2")
    axes.set(xlabel=names[0], ylabel=names[1])
    return axes


@names_errors("band")
def band(
    model: Any,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    level: float = 0.9,
    axes: Axes | None = None,
) -> Axes:
    """Draws the predictions of a regressor of one feature, and where targets lie.

    Args:
      model: as for `budgetjax.predict_interval`, or a fitted estimator.
      X: rows that say where to draw, shape `(n, 1)`.
      y: their targets, shape `(n,)`, to draw as dots.
      level: the share of targets within the band.
      axes: of matplotlib; None makes a figure.

    Raises:
      ValueError: if the model has more than one feature or output, or does not know its
        variance.

    Example:
      >>> X = np.linspace(0, 6, 300)[:, None]
      >>> y = np.sin(X[:, 0]) + np.random.default_rng(0).normal(size=300) / 5
      >>> state = bj.KRLST().init(
      ...     bj.RBF(1.0), num_features=1, budget=20, num_classes=None)
      >>> state, _ = bj.run(state, X, y)
      >>> bj.plots.band(state, X, y).get_xlabel()
      'feature 1'
    """
    model = model_of(model)
    if model.num_features != 1 or model.target_shape:
        got = f"{model.num_features} features and {model.num_columns} outputs"
        raise ArgumentError("model", "have one feature and one output", got)
    rows = np.asarray(X)
    if rows.ndim != 2 or rows.shape[1] != 1 or not len(rows):
        raise ArgumentError("X", "have shape (n, 1), with n at least 1", rows.shape)
    places = np.linspace(rows.min(), rows.max(), POINTS)[:, None]
    low, high = np.asarray(predict_interval(model, places, level)).T
    axes, place = _axes(axes), places[:, 0]
    if y is not None:
        axes.plot(rows[:, 0], np.asarray(y), ".", color="0.75", markersize=3, zorder=0)
    name = f"{100 * level:g} % of targets"
    axes.fill_between(place, low, high, color=COLORS[0], alpha=0.25, lw=0, label=name)
    axes.plot(
        place, np.asarray(model.predict(places)), label="predicted", **_line_style(0)
    )
    names = TableModel.of(model).feature_names or ("feature 1",)
    axes.set(xlabel=names[0], ylabel="target", xlim=(place[0], place[-1]))
    return _with_grid(axes, legend="best")


@names_errors("partial_dependence")
def partial_dependence(
    model: Any, X: RawRows, column: int | str, *, label: Hashable = None
) -> tuple[Coordinates, Coordinates]:
    """The mean score over rows as one column varies and all others stay as they are.

    Args:
      model: as for `budgetjax.predict`, or a fitted estimator.
      X: raw rows, such as a sample of the training set, shape `(n, num_features)`; at
        most 300 of them count.
      column: its number, or its name if the model has names.
      label: for more than two classes, the one whose score to take; None is the last.
        For several real outputs, the number of the output.

    Returns:
      Values of the column, at most 33 of its quantiles in X, in ascending order; and
      for each the mean score, or for a regressor the mean value.

    Example:
      >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
      >>> model = bj.LinearModel(np.array([2.0, 0.0]), np.array(0.0))
      >>> values, scores = bj.plots.partial_dependence(model, X, 0)
      >>> bool(np.allclose(scores, 2 * values, atol=1e-5))
      True

    References:
      Friedman (2001), "Greedy function approximation: a gradient boosting machine",
      section 8.2, https://doi.org/10.1214/aos/1013203451.
    """
    model = model_of(model)
    features = model.num_features
    names = TableModel.of(model).feature_names
    rows = np.asarray(TableModel.of(model).raw_rows(X), np.float64)
    at = find_column("column", column, names, features)
    known = rows[~np.isnan(rows[:, at]), at]
    if not len(known):
        raise ArgumentError("X", f"have values in column {column}", "none")
    shares = np.linspace(0, 1, SOME_VALUES)
    values = np.unique(np.quantile(known, shares, method="lower"))
    some = rows[np.linspace(0, len(rows) - 1, min(len(rows), SOME_ROWS)).astype(int)]
    # All values of each row in turn.
    varied = np.repeat(some[None], len(values), axis=0)
    varied[:, :, at] = values[:, None]
    scores = np.asarray(model.evaluate(varied.reshape(-1, features), losses.IDENTITY))
    if model.is_regressor:
        scores = np.asarray(model.predict_from_scores(scores))
    if scores.ndim > 1:
        scores = scores[:, _find_output(model, label, scores.shape[1])]
    means = np.mean(scores.reshape(len(values), -1), axis=1, dtype=np.float64)
    return values, np.asarray(means)


def _find_output(model: Model, label: Hashable, columns: int) -> int:
    """The column of the scores of a label, or of a real output."""
    classes = model.class_labels
    known: list = [*range(columns)] if classes is None else classes.tolist()
    if label is None:
        return columns - 1
    if label not in known:
        expected = f"be one of {', '.join(map(repr, known[:10]))}"
        raise ArgumentError("label", expected, repr(label))
    return known.index(label)


@names_errors("features")
def features(
    model: Any,
    X: RawRows,
    columns: Sequence[int | str] | None = None,
    *,
    label: Hashable = None,
    axes: Axes | None = None,
) -> Axes:
    """Draws what a model has learned of single columns; see `partial_dependence`.

    The horizontal axis shows the values of a single column, or the ranks of those of
    several, of which 0 % is the least. For a model that encodes columns, the legend has
    the share of each in the features; see `budgetjax.encoding.importances`.

    Args:
      model: as for `budgetjax.predict`, or a fitted estimator.
      X: raw rows, such as a sample of the training set, shape `(n, num_features)`.
      columns: their numbers, or names if the model has names. None draws the six along
        which the scores vary most.
      label: as for `partial_dependence`.
      axes: of matplotlib; None makes a figure.

    Example:
      >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
      >>> model = bj.LinearModel(np.array([2.0, 0.0]), np.array(0.0))
      >>> bj.plots.features(model, X, [0]).get_xlabel()
      'feature 1'
    """
    model = model_of(model)
    whole = TableModel.of(model)
    number, encoder = model.num_features, whole.scaling
    names = whole.feature_names or tuple(f"feature {i + 1}" for i in range(number))
    chosen = range(number) if columns is None else columns
    numbers = [
        find_column("column", one, whole.feature_names, number) for one in chosen
    ]
    curves = {at: partial_dependence(model, X, at, label=label) for at in numbers}
    if columns is None:
        largest = sorted(numbers, key=lambda at: -np.ptp(curves[at][1]))
        numbers = largest[:SOME_COLUMNS]
    shares = {}
    if isinstance(encoder, Encoding):
        rows = np.asarray(whole.raw_rows(X))
        shares = dict(enumerate(encoding.importances(encoder, rows)))
    axes = _axes(axes)
    for i, at in enumerate(numbers):
        values, scores = curves[at]
        ranks = np.linspace(0, 100, len(values)) if len(numbers) > 1 else values
        name = names[at] + (f", {100 * shares[at]:.0f} %" if at in shares else "")
        # A column of few values has no function between them.
        marker = "o" if len(values) <= MOST_CELLS else ""
        style = {"marker": marker, "markersize": 4, **_line_style(i)}
        axes.plot(ranks, scores, label=name, **style)
    axes.set_ylabel("mean value" if model.is_regressor else "mean score")
    several = len(numbers) > 1
    axes.set_xlabel("rank of the value, %" if several else names[numbers[0]])
    return _with_grid(axes, legend="best" if several or shares else None)


@names_errors("sweep")
def sweep(
    table: Mapping[str, Sequence[float]],
    x: str,
    y: str | None = None,
    *,
    value: str,
    axes: Axes | None = None,
) -> Axes:
    """Draws a column of a table against one or two others; frames the least value.

    If rows share x and y, because more hyperparameters were swept, the least is shown.

    Args:
      table: numbers by the name of their column, as from `Grid.table`.
      x: the column along the horizontal axis, such as "gamma".
      y: the column along the vertical axis; None draws a line, not a heat map.
      value: the column to show, such as "error".
      axes: of matplotlib; None makes a figure.

    Example:
      >>> grid = bj.grid(gamma=[0.1, 1.0], budget=[20, 50, 100])
      >>> table = grid.table(error=[0.3, 0.2, 0.15, 0.25, 0.1, 0.12])
      >>> bj.plots.sweep(table, "gamma", "budget", value="error").get_ylabel()
      'budget'
    """
    for name in (x, value) if y is None else (x, y, value):
        if name not in table:
            raise ArgumentError("table", f"have a column {name!r}", ", ".join(table))
    axes = _axes(axes)
    across, right = np.unique(table[x], return_inverse=True)
    upwards, up = np.unique(table[y or x], return_inverse=True)
    up = np.zeros_like(right) if y is None else up
    least = np.full((1 if y is None else len(upwards), len(across)), np.nan)
    np.fmin.at(least, (up, right), np.asarray(table[value], float))
    least[np.isinf(least)] = np.nan
    axes.set_xlabel(x)
    i, j = np.unravel_index(int(np.nanargmin(least)), least.shape)
    if y is None:
        axes.plot(across, least[0], "o-", color=COLORS[0], markersize=4)
        ring: dict[str, Any] = {"markersize": 9, "fillstyle": "none", "color": FRAME}
        axes.plot(across[j], least[0, j], "o", **ring)
        axes.set_ylabel(value)
        return _with_grid(_with_ticks(axes, across.tolist()))
    _draw_heat_map(axes, least, value)
    axes.set_xticks(range(len(across)), [f"{tick:g}" for tick in across])
    axes.set_yticks(range(len(upwards)), [f"{tick:g}" for tick in upwards])
    axes.set_ylabel(y)
    from matplotlib.patches import Rectangle

    corner = float(j) - 0.5, float(i) - 0.5
    frame = {"fill": False, "edgecolor": FRAME, "linewidth": 2.5, "clip_on": False}
    axes.add_patch(Rectangle(corner, 1, 1, zorder=5, **frame))
    axes.tick_params(length=0)
    return axes


def accuracy_by_budget(
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    reference: Mapping[str, float] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draws accuracies against budgets, on a logarithmic axis.

    Args:
      curves: by name, budgets, shape `(k,)`, and accuracies as fractions, shape `(k,)`
        or `(repeats, k)`. With repeats, the line is their mean, and the band extends
        from the least to the largest.
      reference: by name, accuracies of models without a budget, drawn as horizontal
        lines.
      axes: of matplotlib; None makes a figure.

    Example:
      >>> axes = bj.plots.accuracy_by_budget(
      ...     {"Pegasos": ([20, 50, 100], [[0.71, 0.83, 0.88], [0.75, 0.84, 0.87]])},
      ...     reference={"SVM": 0.93})
      >>> [text.get_text() for text in axes.get_legend().get_texts()]
      ['Pegasos', 'SVM']
    """
    axes = _axes(axes)
    budgets: set[int] = set()
    for i, (name, (sizes, accuracies)) in enumerate(curves.items()):
        sizes, percent = np.asarray(sizes), 100 * np.atleast_2d(accuracies)
        budgets |= set(sizes.tolist())
        color, marker = _color(i), MARKERS[i % len(MARKERS)]
        style = {"color": color, "marker": marker, "markersize": 4}
        axes.plot(sizes, percent.mean(axis=0), label=name, **style)
        if len(percent) > 1:
            band = {"color": color, "alpha": 0.2, "linewidth": 0}
            axes.fill_between(sizes, percent.min(axis=0), percent.max(axis=0), **band)
    for i, (name, accuracy) in enumerate((reference or {}).items()):
        dashes = DASHES[1 + i % (len(DASHES) - 1)]
        axes.axhline(100 * accuracy, color="0.4", linestyle=dashes, label=name)
    axes.set(xlabel="budget (support vectors)", ylabel="test accuracy (%)")
    return _with_grid(_with_ticks(axes, sorted(budgets)), legend="best")


@names_errors("reliability_curve")
def reliability_curve(
    probabilities: ArrayLike, y: ArrayLike, classes: ArrayLike, bins: int = 10
) -> tuple[Float[np.ndarray, " bins"], Float[np.ndarray, " bins"]]:
    """The accuracy of predictions as a function of their probability.

    Args:
      probabilities: from `budgetjax.probabilities`, or `predict_proba` of any
        classifier, shape `(n, C)`.
      y: the labels, shape `(n,)`.
      classes: the labels in the order of the columns, such as `model.classes_`.
      bins: the number of bins, with equal numbers of rows.

    Returns:
      Per bin the mean probability of the predicted class, and the accuracy as a
      fraction.

    Example:
      >>> bj.plots.reliability_curve([[1.0, 0.0], [0.5, 0.5]], [0, 1], [0, 1], bins=1)
      (array([0.75]), array([0.5]))
    """
    chances, y, classes = map(np.asarray, (probabilities, y, classes))
    if chances.shape != (len(y), len(classes)) or not 0 < bins <= len(y):
        wanted = (
            f"have shape {(len(y), len(classes))}, one row per label and one column "
            f"per class, and at least {bins} rows, one per bin"
        )
        raise ArgumentError("probabilities", wanted, chances.shape)
    largest = chances.max(axis=1)
    right = classes[chances.argmax(axis=1)] == y
    parts = np.array_split(np.argsort(largest, kind="stable"), bins)
    means = [[of[rows].mean() for rows in parts] for of in (largest, right)]
    confidence, share = np.asarray(means, np.float64)
    return confidence, share


def reliability(
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]], *, axes: Axes | None = None
) -> Axes:
    """Draws curves of `reliability_curve`; calibrated ones are on the diagonal.

    Args:
      curves: by name, mean probabilities and accuracies.
      axes: of matplotlib; None makes a figure.

    Example:
      >>> chances = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.45, 0.55]])
      >>> curve = bj.plots.reliability_curve(chances, [0, 1, 1, 1], [0, 1], bins=2)
      >>> bj.plots.reliability({"model": curve}).get_xlabel()
      'probability of the predicted class'
    """
    axes = _axes(axes)
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1, zorder=0)
    for i, (name, curve) in enumerate(curves.items()):
        axes.plot(*curve, marker="o", markersize=3, label=name, **_line_style(i))
    lowest = min(float(np.asarray(curve).min()) for curve in curves.values())
    axes.set(xlim=(lowest - 0.03, 1.01), ylim=(lowest - 0.03, 1.01))
    axes.set(aspect="equal", xlabel="probability of the predicted class")
    axes.set_ylabel("share of right predictions")
    return _with_grid(axes, legend="best" if len(curves) > 1 else None)


@names_errors("support_images")
def support_images(
    model: Any, shape: tuple[int, int], *, axes: Axes | None = None
) -> Axes:
    """Draws the support vectors as images, grouped by class.

    A support vector belongs to the class of its largest coefficient. The images of a
    class are sorted by this coefficient, the largest first.

    Args:
      model: a classifier as for `budgetjax.support`, or a fitted estimator.
      shape: the height and width of an image, whose pixels are stored row by row.
      axes: of matplotlib; None makes a figure.

    Raises:
      ValueError: if the model has no support vectors, or does not have one feature per
        pixel.

    Example:
      >>> data = bj.datasets.load("digits")
      >>> state = bj.Perceptron().init(
      ...     bj.RBF(0.05), num_features=64, num_classes=10, budget=50)
      >>> state, _ = bj.run(state, data.X_train, data.y_train)
      >>> axes = bj.plots.support_images(state, (8, 8))
      >>> [text.get_text() for text in axes.get_yticklabels()][:3]
      ['0', '1', '2']
    """
    model = model_of(model)
    classes = model.class_labels
    if classes is None:
        raise ArgumentError("model", "be a classifier", "a regressor")
    height, width = shape
    features = model.num_features
    if height * width != features:
        wanted = f"have one pixel per feature, {features} of them"
        raise ArgumentError("shape", wanted, f"{height} x {width}")
    vectors, coefficients = _active_rows(model.support())
    if vectors.shape[1] != features:
        got = f"vectors of {vectors.shape[1]} encoded features"
        raise ArgumentError("model", "have rows as support vectors", got)
    if coefficients.shape[1] == 1:
        coefficients = np.concatenate([-coefficients, coefficients], axis=1)
    codes, sizes = coefficients.argmax(axis=1), coefficients.max(axis=1)
    # The mosaic is about twice as wide as high.
    columns = math.ceil(math.sqrt(2 * max(len(vectors), 1)))
    lines, places = [], []
    for code in range(len(classes)):
        members = np.flatnonzero(codes == code)
        members = members[np.argsort(-sizes[members], kind="stable")]
        places.append(len(lines))
        starts = range(0, max(len(members), 1), columns)
        lines += [members[start : start + columns] for start in starts]
    # One empty pixel between two images; NaN is white.
    tile = (height + 1, width + 1)
    mosaic = np.full((len(lines) * tile[0], columns * tile[1]), np.nan)
    for i, line in enumerate(lines):
        for j, image in enumerate(vectors[line].reshape(-1, height, width)):
            top, left = i * tile[0], j * tile[1]
            mosaic[top : top + height, left : left + width] = image
    axes = _axes(axes)
    # A few extreme pixels, for example of merged vectors, must not make all others
    # pale.
    low, high = np.percentile(vectors, [0.5, 99.5]) if len(vectors) else (0, 1)
    axes.imshow(mosaic, cmap="gray_r", vmin=low, vmax=high, interpolation="nearest")
    ticks = [place * tile[0] + height / 2 for place in places]
    axes.set_yticks(ticks, [str(one) for one in classes.tolist()])
    axes.set(xticks=[], ylabel="class")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return axes


@names_errors("plots")
def _axes(axes: Axes | None) -> Axes:
    if axes is not None:
        return axes
    return _checks.import_optional("matplotlib.pyplot").subplots()[1]


def _with_grid(
    axes: Axes, *, legend: Literal["best", "lower left"] | None = None
) -> Axes:
    axes.grid(True)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if legend is not None:
        axes.legend(loc=legend)
    return axes


def _with_ticks(axes: Axes, values: Sequence[int | float]) -> Axes:
    """Ticks at these values, on a logarithmic axis if they are positive."""
    if values and values[0] > 0:
        axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.xaxis.set_minor_formatter("")
    return axes


def _color(i: int) -> str:
    return COLORS[i % len(COLORS)]


def _line_style(i: int) -> dict[str, Any]:
    return {"color": _color(i), "linestyle": DASHES[i % len(DASHES)]}


def _support_vectors(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """The support vectors and their coefficients; empty for models without any.

    They are also empty for a tuple of models, since each has its own, and for a model
    that encodes rows, whose vectors are not rows.
    """
    one = TableModel.of(model).model
    encodes = isinstance(TableModel.of(model).scaling, Encoding)
    kernel_based = isinstance(one, KernelModel | State)
    if encodes or not kernel_based or not one.kernel.of_examples:
        return np.zeros((0, 2)), np.zeros((0, 1))
    return _active_rows(model.support())


def _active_rows(support: Support) -> tuple[np.ndarray, np.ndarray]:
    """Vectors, shape `(m, d)`, and coefficients, `(m, columns)`, of active slots."""
    mask = np.asarray(support.mask)
    return np.asarray(support.vectors)[mask], np.asarray(support.coefficients)[mask]


def _draw_regions(
    axes: Axes,
    model: Any,
    first: Coordinates,
    second: Coordinates,
    classes: list,
) -> None:
    """Draws the predicted class at each point."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Patch

    values = _on_grid(model.decision_function, first, second)
    if values.ndim == 2:
        values = np.stack([-values, values], axis=2)
    patches = []
    for i, name in enumerate(classes):
        rest = np.max(np.delete(values, i, axis=2), axis=2)
        ahead = values[:, :, i] - rest
        # With more classes than colours, the colours repeat in a paler tint.
        tint = TINT / (1 + i // len(COLORS))
        fill = tuple(1 - tint * (1 - np.array(to_rgb(_color(i)))))
        if ahead.max() > 0:
            axes.contourf(first, second, ahead, levels=[0, np.inf], colors=[fill])
        if ahead.min() < 0 < ahead.max():
            line = {"levels": [0], "colors": "#555555", "linewidths": 0.8}
            axes.contour(first, second, ahead, **line)
        patches.append(Patch(facecolor=fill, edgecolor="#555555", label=str(name)))
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "frameon": False}
    columns = {"ncols": min(len(patches), 5), "columnspacing": 1.2}
    axes.legend(handles=patches, **below, **columns)


def _on_grid(
    function: Callable[[np.ndarray], ArrayLike],
    first: Float[np.ndarray, " x"],
    second: Float[np.ndarray, " y"],
) -> Float[np.ndarray, "y x ..."]:
    """The values of a function of rows, on a grid."""
    grid = np.stack(np.meshgrid(first, second), axis=2)
    # Columns go by position, whatever their names.
    values = np.asarray(function(grid.reshape(-1, 2).astype(np.float32)))
    return values.reshape(len(second), len(first), *values.shape[1:])


def _draw_heat_map(axes: Axes, values: Float[np.ndarray, "y x"], label: str) -> None:
    """Draws values as colours, and as numbers if there is room."""
    known = values[~np.isnan(values)]
    # Keeps small values distinguishable if others are much larger.
    wide = known.min() > 0 and known.max() > WIDE * known.min()
    style: dict[str, Any] = {"cmap": "cividis_r", "aspect": "auto", "origin": "lower"}
    image = axes.imshow(values, norm="log" if wide else None, **style)
    axes.figure.colorbar(image, ax=axes, label=label)
    if max(values.shape) > MOST_CELLS:
        return
    for (i, j), value in np.ndenumerate(values):
        if not math.isnan(value):
            red, green, blue, _ = image.cmap(image.norm(value))
            bright = 0.3 * red + 0.59 * green + 0.11 * blue > 0.45
            color = "black" if bright else "white"
            axes.text(j, i, f"{value:.3g}", ha="center", va="center", color=color)

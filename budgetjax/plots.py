"""Pictures of models and sweeps: each function draws into axes of matplotlib.

The palette of Okabe and Ito (2008) is safe for colour-blind readers.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Integer

# For a `matplotlib.rc_context`.
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
}
COLORS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442",
    "#999999",
)  # fmt: skip
# Opacity of a class's colour in its region.
TINT = 0.4
POINTS = 300
# Maximum number of rows, and of columns, of a heat map with numbers in its cells.
MOST_CELLS = 14


def learning_curve(
    axes: Any,
    rows: Integer[np.ndarray, " points"],
    errors: Float[np.ndarray, " points"],
    *,
    regression: bool = False,
) -> None:
    """The progressive error against the rows read.

    Args:
      axes: where to draw.
      rows: number of rows read at each point.
      errors: share of mistakes, or mean squared error, up to there.
      regression: whether errors are squared.
    """
    values = np.sqrt(errors) if regression else 100 * np.asarray(errors)
    few = len(rows) < 10
    axes.plot(rows, values, "o-" if few else "-", color=COLORS[0], markersize=4)
    last = f"{values[-1]:.4g}" if regression else f"{values[-1]:.2f}%"
    axes.annotate(
        last,
        (rows[-1], values[-1]),
        xytext=(0, 7),
        textcoords="offset points",
        ha="right",
    )
    axes.set_title("Error of rows before they were learned")
    axes.set_xlabel("rows read")
    unit = "root mean squared error so far" if regression else "mistakes so far (%)"
    axes.set_ylabel(unit)
    axes.set_ylim(0, 1.15 * float(np.max(values)) or 1)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.locator_params(axis="x", nbins=5)
    axes.grid(True)
    axes.spines[["top", "right"]].set_visible(False)


def plane(
    vectors: Float[np.ndarray, "n 2"],
) -> tuple[Float[np.ndarray, " x"], Float[np.ndarray, " y"]]:
    """Coordinates of a grid around these points, with a margin."""
    low, high = vectors.min(axis=0), vectors.max(axis=0)
    margin = np.where(high > low, 0.08 * (high - low), 1.0)
    first, second = np.linspace(low - margin, high + margin, POINTS).T
    return first, second


def regions(
    axes: Any,
    scores: Callable[[Float[np.ndarray, "n 2"]], Float[np.ndarray, "n ..."]],
    vectors: Float[np.ndarray, "n 2"],
    classes: Sequence[str],
    names: Sequence[str],
) -> None:
    """The class that a classifier of two features predicts at each point.

    Args:
      axes: where to draw.
      scores: function of rows that returns shape `(n,)`, or `(n, C)`.
      vectors: support vectors, in the units of the rows.
      classes: names of the classes.
      names: names of the two features.
    """
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Patch

    first, second = plane(vectors)
    found = _on(scores, first, second)
    if found.ndim == 2:
        found = np.stack([-found, found], axis=2)
    patches = []
    for i, name in enumerate(classes):
        rest = np.max(np.delete(found, i, axis=2), axis=2)
        ahead = found[:, :, i] - rest
        # More classes than colours: the same colours again, paler.
        tint = TINT / (1 + i // len(COLORS))
        fill = tuple(1 - tint * (1 - np.array(to_rgb(COLORS[i % len(COLORS)]))))
        if ahead.max() > 0:
            axes.contourf(first, second, ahead, levels=[0, np.inf], colors=[fill])
        if ahead.min() < 0 < ahead.max():
            axes.contour(
                first, second, ahead, levels=[0], colors="#555555", linewidths=0.8
            )
        patches.append(Patch(facecolor=fill, edgecolor="#555555", label=name))
    _dots(axes, vectors)
    _label_plane(axes, names)
    axes.set_title("Predicted class, and support vectors")
    axes.legend(
        handles=patches,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.17),
        ncols=min(len(classes), 5),
        frameon=False,
        columnspacing=1.2,
    )


def surface(
    axes: Any,
    values: Callable[[Float[np.ndarray, "n 2"]], Float[np.ndarray, " n"]],
    vectors: Float[np.ndarray, "n 2"],
    names: Sequence[str],
    target: str,
) -> None:
    """The number that a regressor of two features predicts at each point.

    Args:
      axes: where to draw.
      values: function of rows that returns shape `(n,)`.
      vectors: support vectors, in the units of the rows.
      names: names of the two features.
      target: name of what is predicted.
    """
    first, second = plane(vectors)
    found = _on(values, first, second)
    shown = axes.contourf(first, second, found, levels=12, cmap="cividis")
    _dots(axes, vectors)
    axes.figure.colorbar(shown, ax=axes, label=f"predicted {target}")
    _label_plane(axes, names)
    axes.set_title("Prediction, and support vectors")


def heat_map(
    axes: Any,
    rows: Sequence[float | int],
    columns: Sequence[float | int],
    values: Float[np.ndarray, "rows columns"],
    names: tuple[str, str],
    label: str,
) -> None:
    """Values by two hyperparameters, of which the least is framed.

    Args:
      axes: where to draw.
      rows: values of the first hyperparameter.
      columns: values of the second.
      values: a value per cell; NaN where there is none.
      names: names of the two hyperparameters.
      label: name of the values, with their unit.
    """
    from matplotlib.patches import Rectangle

    shown = axes.imshow(values, cmap="cividis_r", aspect="auto", origin="lower")
    axes.figure.colorbar(shown, ax=axes, label=label)
    axes.set_xticks(range(len(columns)), [f"{value:g}" for value in columns])
    axes.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
    axes.set_ylabel(names[0])
    axes.set_xlabel(names[1])
    if max(values.shape) <= MOST_CELLS:
        for (i, j), value in np.ndenumerate(values):
            if not math.isnan(value):
                red, green, blue, _ = shown.cmap(shown.norm(value))
                bright = 0.3 * red + 0.59 * green + 0.11 * blue > 0.45
                color = "black" if bright else "white"
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=color)
    i, j = np.unravel_index(int(np.nanargmin(values)), values.shape)
    corner = (float(j) - 0.5, float(i) - 0.5)
    axes.add_patch(
        Rectangle(corner, 1, 1, fill=False, edgecolor="#D55E00", linewidth=2.5)
    )
    axes.tick_params(length=0)


def _on(
    function: Callable[[Any], Any],
    first: Float[np.ndarray, " x"],
    second: Float[np.ndarray, " y"],
) -> Float[np.ndarray, "y x ..."]:
    """A function of rows on a grid."""
    grid = np.stack(np.meshgrid(first, second), axis=2)
    found = np.asarray(function(grid.reshape(-1, 2).astype(np.float32)))
    return found.reshape(len(second), len(first), *found.shape[1:])


def _dots(axes: Any, vectors: Float[np.ndarray, "n 2"]) -> None:
    axes.scatter(
        *vectors.T, s=12, color="black", edgecolors="white", linewidths=0.5, zorder=3
    )


def _label_plane(axes: Any, names: Sequence[str]) -> None:
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])

"""The first reading of a source: all rows if they are few, and a sample otherwise."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from budgetjax._errors import ArgumentError, names_errors
from budgetjax._rows import SparseMatrix
from budgetjax.online.examples import check_weights
from budgetjax.scoring import format_labels
from budgetjax.stream import batches as source
from budgetjax.stream.reservoir import Reservoir, default_size, is_sparse
from budgetjax.tables import categories
from budgetjax.tables.categories import Categories
from budgetjax.tables.columns import (
    TableRows,
    check_finite,
    column_names,
    join_rows,
    take_rows,
    unpack,
)
from budgetjax.tables.labels import encode_labels

# More distinct numbers are probably targets of a regression.
MANY_CLASSES = 100


class Sample(NamedTuple):
    """Rows of a source, in its order if they are all, and in random order otherwise.

    Attributes:
      X: an array or a CSR matrix.
      y: labels or real targets.
      weights: one per row, above 0.
      names: the names of the columns, if they have any.
      categories: the names in columns of names, whose positions X has.
      classes: the labels of all rows, or those that were given; None for real targets.
      num_rows: the number of rows of the source, without those of weight 0.
      changes: the number of rows whose label is not that of the row before.
    """

    X: Any
    y: Shaped[np.ndarray, "n ..."]
    weights: Float[np.ndarray, " n"]
    names: tuple[str, ...] | None
    categories: Categories
    classes: Shaped[np.ndarray, " classes"] | None
    num_rows: int
    changes: int

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows."""
        return len(self.y) == self.num_rows


class Part(NamedTuple):
    """Rows of a batch with weights above 0, after checks, and the number of its first.

    X is an array, a CSR matrix or a table of Arrow.
    """

    X: Any
    y: np.ndarray
    weight: np.ndarray
    first: int


@dataclasses.dataclass
class _Targets:
    """The targets of a source, or those of its first rows."""

    classes: np.ndarray | None
    regression: bool
    found: set[Any] = dataclasses.field(default_factory=set)
    changes: int = 0
    last: Any = None
    text: bool | None = None
    shape: tuple[int, ...] | None = None

    def add(self, y: np.ndarray, row: int) -> None:
        """Counts targets, after checks."""
        if self.shape not in (None, y.shape[1:]):
            wanted = f"have shape {('n', *self.shape)}, as in the rows before"
            raise ArgumentError("y", wanted.replace("'", ""), y.shape)
        self.shape = y.shape[1:]
        if y.ndim > 1 and not self.regression:
            raise ArgumentError(
                "y", "have shape (n,), one label per row", y.shape
            ).advised("regression=True predicts several numbers")
        if self.regression:
            good = np.isfinite(y) if y.dtype.kind in "biuf" else np.zeros(y.shape, bool)
            if not np.all(good):
                bad = int(np.argmin(good.reshape(len(y), -1).all(axis=1)))
                got = f"{y.tolist()[bad]!r} in row {row + bad}"
                raise ArgumentError("y", "be finite numbers", got)
            return
        if self.classes is not None:
            encode_labels(self.classes, y, row)
        elif y.dtype.kind == "f" and np.any(np.isnan(y)):
            bad = row + int(np.argmax(np.isnan(y)))
            raise ArgumentError("y", "be a label", f"nan in row {bad}")
        else:
            self.text = source.check_kind(y, row, self.text)
            self.found.update(y.tolist())
            if len(self.found) > source.MAX_CLASSES:
                # Before they fill the memory.
                find_classes(self.found, row + len(y))
                wanted = f"hold at most {source.MAX_CLASSES:,} labels"
                raise ArgumentError("y", wanted, "more")
        if len(y):
            self.changes += int(np.count_nonzero(y[1:] != y[:-1]))
            self.changes += int(self.last is not None and self.last != y[0])
            self.last = y[-1]

    def labels(self, rows: int) -> np.ndarray | None:
        """The classes, or None of numbers."""
        if self.regression or self.classes is not None:
            return self.classes
        return find_classes(self.found, rows)


def find_classes(labels: Iterable[Any], rows: int) -> np.ndarray:
    """The sorted labels of rows, after a check that they are classes."""
    classes = np.array(sorted(labels))
    if len(classes) < 2:
        got = f"{format_labels(classes)} in all {rows:,} rows"
        raise ArgumentError("y", "have at least 2 classes", got)
    if classes.dtype.kind in "if" and len(classes) > MANY_CLASSES:
        got = f"{len(classes):,} numbers from {classes[0]:g} to {classes[-1]:g}"
        raise ArgumentError("y", "be classes", got).advised(
            "regression=True predicts numbers (or classes= names this many classes)"
        )
    return classes


def read_sample(
    batches: Iterable[object],
    *,
    classes: np.ndarray | None,
    regression: bool,
    takes_missing: bool,
    seed: int,
    keeps_all: bool = False,
) -> Sample:
    """All rows of a source, or a uniform sample of many; one pass over it.

    They are many if they are more than `reservoir.default_size`, unless it keeps all.
    """
    targets = _Targets(classes, regression)
    kept: list[Part] | None = []
    reservoir, names, rows, table = None, None, 0, None
    with names_errors(source.source_name(batches)):
        check = functools.partial(_check_numbers, takes_missing)
        for part in read_parts(batches, check):
            targets.add(part.y, part.first)
            rows += len(part.y)
            names = column_names(part.X) or getattr(batches, "feature_names", None)
            if kept is not None:
                kept.append(part)
                if keeps_all or rows <= default_size(_width(part.X)):
                    continue
                reservoir = _make_reservoir(kept[0], regression, seed)
            for one in kept or [part]:
                X = TableRows(one.X) if column_names(one.X) else one.X
                table = X if isinstance(X, TableRows) else None
                y = one.y if regression else one.y.astype(object)
                assert reservoir is not None, "rows are many"
                reservoir = reservoir.updated(X, y, one.weight)
            kept = None
        if not rows:
            raise ArgumentError("batches", "have rows", "none")
        labels = targets.labels(rows)
        if kept is not None:
            X, y, weights = _join(kept)
        else:
            assert reservoir is not None, "many rows have one"
            packed, y, weights, _ = reservoir.rows()
            X = unpack(packed) if table is None else table.with_rows(packed)
            y = y if regression else np.array(y.tolist())
        found, X = categories.find(X)
        if found and not takes_missing:
            got = f"texts in {next(iter(found))!r}"
            wanted = "have numbers alone where columns are not encoded"
            raise ArgumentError("X", wanted, got).advised("encode='auto' reads texts")
        numbers = categories.read_rows(X, None, {}) if column_names(X) else X
    return Sample(numbers, y, weights, names, found, labels, rows, targets.changes)


def read_parts(
    batches: Iterable[object],
    check: Callable[[Any, int, tuple[str, ...] | None], None] | None = None,
) -> Iterator[Part]:
    """The rows of weight above 0 of all batches, after checks of shapes and weights.

    `check` sees all rows of a batch, the number of the first, and the names of columns.
    """
    row, width = 0, None
    for i, batch in enumerate(batches):
        X, y, weight = source.check_batch(i, batch, row, width, None)
        width, first, row = _width(X), row, row + len(y)
        names = column_names(X) or getattr(batches, "feature_names", None)
        if check is not None:
            check(X, first, names)
        check_weights(weight, np.dtype(np.float32), first)
        present = np.flatnonzero(weight > 0)
        if len(present) < len(y):
            X, y, weight = take_rows(X, present), y[present], weight[present]
        if len(present):
            yield Part(X, y, weight, first)


def _width(X: Any) -> int:
    return len(names) if (names := column_names(X)) else X.shape[1]


def _check_numbers(
    takes_missing: bool, X: Any, row: int, names: tuple[str, ...] | None
) -> None:
    """Raises for numbers that are infinite, or missing, or beyond float32."""
    if isinstance(X, SparseMatrix) or column_names(X):
        # The first are checked by their values, and the second when they are numbers.
        return
    check_finite(np.where(np.isnan(X), 0, X) if takes_missing else X, row, names)
    source.cast_numbers("X", X, np.float32, row, names)


def _make_reservoir(first: Part, regression: bool, seed: int) -> Reservoir:
    """An empty reservoir for rows such as these."""
    X, width = first.X, _width(first.X)
    named = column_names(X) is not None
    sparse = isinstance(X, SparseMatrix)
    return Reservoir.empty(
        width,
        np.dtype(object) if named else np.dtype(np.float64),
        first.y.dtype if regression else np.dtype(object),
        first.y.shape[1:],
        size=default_size(width),
        seed=seed,
        sparse=sparse or (isinstance(X, np.ndarray) and is_sparse(X)),
    )


def _join(parts: list[Part]) -> tuple[Any, np.ndarray, np.ndarray]:
    """The rows of some parts, one after the other."""
    X = [part.X for part in parts]
    y, weights = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    dense = isinstance(X[0], np.ndarray)
    if isinstance(X[0], SparseMatrix) or (dense and is_sparse(X[0])):
        import scipy.sparse  # takes a tenth of a second

        return scipy.sparse.vstack(X, format="csr"), y, weights
    return join_rows(X), y, weights

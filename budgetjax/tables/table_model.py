"""Models of raw rows: what scales or encodes rows, and knows the labels of the data."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Shaped

from budgetjax import _checks, _rows, _sharding, losses, scoring
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import static
from budgetjax._rows import RawRows, SparseMatrix, as_matrix
from budgetjax.kernels import Mapped
from budgetjax.model import (
    LinearModel,
    Model,
    Scores,
    Support,
    Wrapper,
    model_of,
)
from budgetjax.tables.categories import Categories, as_pairs, read_rows
from budgetjax.tables.columns import to_dense
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.labels import encode_labels
from budgetjax.tables.scaling import Scaling
from budgetjax.tables.spread import Spread

# A number, or one per output.
PerOutput = float | np.floating | Float[np.ndarray, " outputs"]


class TableModel(Wrapper):
    """A model that takes raw rows, scales them, and returns the labels of the data.

    Attributes:
      model: a model of scaled rows, or a tuple of binary models, one per class.
      scaling: the mean and variance of the features, or an `encoding.Encoding` of
        columns as features; None if rows are taken as they are.
      classes: the labels, in the order of the scores, shape `(C,)`; None for the labels
        of the learner, and for regressors.
      feature_names: names of the columns, if known.
      intercept: a number added to all scores, or shape `(num_outputs,)`.
      calibration: of a classifier, the factor of the scores in the sigmoid or softmax
        that gives probabilities; of a regressor, a `Spread`, which says how far targets
        lie from the scores; None before `calibrate`, or `refit` with `calibrate=True`.
      unit: a factor of all scores, applied before the intercept, or shape
        `(num_outputs,)`.
    """

    scaling: Scaling | Encoding | None = None
    classes: Shaped[np.ndarray, " classes"] | None = None
    feature_names: tuple[str, ...] | None = static(default=None)
    intercept: PerOutput = 0.0
    calibration: float | Spread | None = None
    unit: PerOutput = 1.0

    @classmethod
    def find(cls, model: Any) -> "TableModel | None":
        """The table model in a model or a fitted estimator, if there is one."""
        inside = model_of(model)
        while isinstance(inside, Wrapper) and not isinstance(inside, cls):
            inside = inside.model
        return inside if isinstance(inside, cls) else None

    @classmethod
    def of(cls, model: Any) -> "TableModel":
        """The table model in a model or a fitted estimator, or a new one around it."""
        return cls.find(model) or cls(model_of(model).inner)

    def put_in(self, model: Any) -> Any:
        """What holds a table model, such as a `StreamModel`, with this one in it."""
        holds = isinstance(model, Wrapper) and isinstance(model.model, TableModel)
        holds = holds and not isinstance(model, TableModel)
        return model._replace(model=self) if holds else self

    @property
    def is_several(self) -> bool:
        """Whether it has a model per class."""
        return type(self.model) is tuple

    @property
    def parts(self) -> tuple[Any, ...]:
        """The model, or those of the classes; none where labels are all that counts."""
        if self.is_several:
            return self.model
        return () if self.model is None else (self.model,)

    def with_parts(self, parts: tuple[Any, ...]) -> "TableModel":
        """The model with other parts, in the order of `parts`."""
        return self._replace(model=parts if self.is_several else parts[0])

    @property
    def num_features(self) -> int:
        """The number of raw columns."""
        if self.scaling is not None:
            return self.scaling.num_columns
        return self.parts[0].num_features

    @property
    def num_columns(self) -> int:
        return len(self.parts) if self.is_several else self.model.num_columns

    @property
    def dtype(self) -> np.dtype:
        return self.parts[0].dtype

    @property
    def link(self) -> str:
        return self.parts[0].link if self.parts else losses.LABELS

    @property
    def class_labels(self) -> np.ndarray | None:
        if self.classes is not None or self.is_regressor:
            return self.classes
        return self.parts[0].class_labels

    @property
    def inner(self) -> Any:
        return self.parts[0].inner if self.parts else self

    def with_inner(self, new: Model) -> Any:
        return self._replace(model=self.model.with_inner(new))

    def check_single(self) -> None:
        for part in self.parts:
            part.check_single()

    def predict_from_scores(self, scores: Scores) -> Any:
        return scoring.apply_link(self.link, scores, self.classes)

    def evaluate(self, X: RawRows, link: str, first_row: int = 0) -> Any:
        if _checks.is_traced((self, X)):
            rows = _checks.array("X", X)
            return scoring.apply_link(link, self._score_traced(rows), self.classes)
        # Inside `jax.jit`, a model and rows that are closed over have values.
        with jax.ensure_compile_time_eval():
            scores = _score_in_blocks(self, X, first_row)
        return scoring.apply_link(link, scores, self.classes)

    def scores(self, X):
        found = self._score_traced(X)
        return found[:, None] if found.ndim == 1 else found

    @property
    def spread(self) -> Spread | None:
        """How far targets lie from the scores, if it was measured."""
        return self.calibration if isinstance(self.calibration, Spread) else None

    @property
    def knows_variance(self) -> bool:
        if self.spread is not None:
            return True
        # Those of classes say nothing about targets.
        is_one = bool(self.parts) and not self.is_several
        return is_one and self.model.knows_variance

    def variance(self, X):
        rows = X if self.scaling is None else self.scaling.transform(X)
        return self._in_square_units(_measure_part(self._measurable(), rows)[1])

    def interval_width(self, level):
        if self.spread is None:
            return self.model.interval_width(level)
        return scoring.squeeze_columns(self.spread.width(level))

    def measure(self, X: RawRows) -> tuple[Any, Any]:
        part, root = self._measurable(), None
        if _checks.is_traced((self, X)):
            rows = _checks.array("X", X)
            return self._score_traced(rows), self.variance(rows)

        def say(rows: Array, first: int) -> tuple[Array, Array]:
            return _measure_part(part, rows, root)

        with jax.ensure_compile_time_eval():
            if self.spread is not None:
                root = _span_root(self.model)
            scores, variances = _in_blocks(self, X, 0, say)
        return _in_units(self, scores), self._in_square_units(variances)

    def scores_and_beyond(
        self, X: RawRows
    ) -> tuple[Float[np.ndarray, "n columns"], Float[np.ndarray, " n"]]:
        """The scores of the model inside, and what `beyond` says of each row."""
        root = _span_root(self.model)

        def say(rows: Array, first: int) -> tuple[Array, Array]:
            return _score_with_beyond(self.model, rows, root)

        scores, beyond = _in_blocks(self, X, 0, say)
        return scores, beyond

    def _measurable(self) -> tuple[Any, Spread | None]:
        """The model inside, which knows its variance, or has one that was measured."""
        self.check_knows_variance()
        return self.model, self.spread

    def _in_square_units(self, variances: Scores) -> Any:
        """Variances of targets, of those of the model inside."""
        if isinstance(variances, np.ndarray):
            return variances.astype(np.float64) * np.square(self.unit)
        return variances * jnp.asarray(self.unit, variances.dtype) ** 2

    def _score_traced(self, rows: Any) -> Array:
        """The scores inside `jax.jit`, where rows or the model are traced."""
        rows = rows if self.scaling is None else self.scaling.transform(rows)
        scores = [part.evaluate(rows, losses.IDENTITY) for part in self.parts]
        joined = jnp.stack(scores, axis=1) if self.is_several else scores[0]
        unit, shift = (
            jnp.broadcast_to(jnp.asarray(one, joined.dtype), joined.shape[1:])[None]
            for one in (self.unit, self.intercept)
        )
        return unit * joined + shift

    @names_errors("support")
    def support(self) -> Support:
        if self.is_several:
            got = f"{len(self.parts)} models with their own"
            raise ArgumentError("model", "have support vectors", got)
        inside = self.model.support()
        if np.any(self.unit != 1):
            raw = np.asarray(inside.coefficients) * self.unit
            inside = inside._replace(coefficients=raw)
        if not isinstance(self.scaling, Scaling):
            return inside
        return inside._replace(vectors=self.scaling.undone(np.asarray(inside.vectors)))

    @property
    def takes_missing(self) -> bool:
        """Whether a NaN in a row is a missing value, as where columns have codes."""
        return isinstance(self.scaling, Encoding)

    @property
    def shifts_scores(self) -> bool:
        """Whether scores have a unit or an intercept."""
        return bool(np.any(self.intercept) or np.any(self.unit != 1))

    @property
    def unit_of_targets(self) -> PerOutput:
        """The unit of the targets that the model inside sees."""
        return np.exp(self.intercept) if self.link == losses.EXP else self.unit

    def add_intercept(self, more: PerOutput) -> "TableModel":
        """The model with `more` added to the scores of the model inside."""
        return self._replace(intercept=self.intercept + self.unit * more)

    def encode_targets(self, y: ArrayLike, first_row: int = 0) -> np.ndarray:
        """Targets in the form of the model inside; messages count from `first_row`."""
        _checks.check_unmasked("y", y)
        y = np.asarray(y)
        if self.classes is None:
            if not self.shifts_scores:
                return y
            y = y[:, None] if np.ndim(self.intercept) > 0 and y.ndim == 1 else y
            logarithms = self.link == losses.EXP
            away = y if logarithms else y - np.asarray(self.intercept)
            return away / self.unit_of_targets
        codes = encode_labels(self.classes, y, first_row)
        return 2 * codes - 1 if len(self.classes) == 2 else codes

    @property
    def encoding(self) -> Encoding | None:
        """The encoding of the columns, if they have one."""
        return self.scaling if isinstance(self.scaling, Encoding) else None

    def training_rows(self, X: RawRows, width: int = 0) -> np.ndarray:
        """Raw rows in the form that the model inside takes.

        With a width, they are the numbers of the columns, and zeros up to it, of which
        an `encoding.Coder` makes codes.
        """
        rows, codes = self.raw_rows(X), self.encoding
        if codes is not None and width:
            rows = rows.toarray() if isinstance(rows, SparseMatrix) else rows
            return codes.numbers(rows, self.dtype, width)
        return self._densify(rows)

    @property
    def categories(self) -> dict[str, tuple[str, ...]]:
        """The names in columns of names, whose rows in an array have their numbers."""
        codes = self.scaling
        return dict(codes.categories) if isinstance(codes, Encoding) else {}

    def with_categories(self, found: Categories) -> "TableModel":
        """The model whose encoding reads these columns of names."""
        if not found or not isinstance(self.scaling, Encoding):
            return self
        scaling = self.scaling._replace(categories=as_pairs(found))
        return self._replace(scaling=scaling)

    def raw_rows(self, X: Any) -> Any:
        """Raw rows as an array or a CSR matrix, of a checked shape."""
        X = read_rows(X, self.feature_names, self.categories)
        X = as_matrix(X, self.num_features)
        return X if isinstance(X, SparseMatrix) else np.asarray(X)

    def _densify(
        self, X: np.ndarray | SparseMatrix, first_row: int = 0
    ) -> Float[np.ndarray, "n features"]:
        """Scaled or encoded dense rows."""
        scaling = self.scaling
        if isinstance(X, SparseMatrix):
            X = to_dense(X, X.dtype if scaling else self.dtype)
        if scaling is None:
            return X
        return scaling.apply(X, self.dtype, first_row=first_row)


@jax.jit
def _span_root(model: Model) -> Array | None:
    return model.span_root()


@jax.jit
def _measure_part(
    part: tuple[Any, Spread | None],
    rows: Float[Array, "n features"],
    root: Array | None = None,
) -> tuple[Array, Array]:
    """The scores and variances of a model inside, and of a spread where it has one."""
    model, spread = part
    scores = model.scores(rows)
    if spread is None:
        return scoring.squeeze_columns(scores), model.variance(rows)
    variances = spread.variance(scores, model.beyond(rows, root))
    return scoring.squeeze_columns(scores), scoring.squeeze_columns(variances)


@jax.jit
def _score_with_beyond(
    model: Model, rows: Float[Array, "n features"], root: Array | None
) -> tuple[Array, Array]:
    return model.scores(rows), model.beyond(rows, root)


def _score_in_blocks(model: TableModel, X: RawRows, first_row: int) -> np.ndarray:
    """The scores of raw rows."""

    def say(rows: Any, first: int) -> list[Array]:
        return [part.evaluate(rows, losses.IDENTITY, first) for part in model.parts]

    scores = _in_blocks(model, X, first_row, say)
    joined = np.stack(scores, axis=1) if model.is_several else scores[0]
    return _in_units(model, joined)


def _in_units(model: TableModel, scores: np.ndarray) -> np.ndarray:
    """The scores of a model of raw rows, of those of the model inside."""
    if not model.shifts_scores:
        return scores
    return model.unit * scores.astype(np.float64) + np.asarray(model.intercept)[None]


@_sharding.without_context_mesh
def _in_blocks(
    model: TableModel,
    X: RawRows,
    first_row: int,
    say: Callable[[Any, int], Sequence[Array]],
) -> list[np.ndarray]:
    """What `say` gives of raw rows, which are scaled and made dense in blocks."""
    shards = _sharding.Shards.of_rows(X)
    if shards.mesh is not None:
        X = shards.local_rows(X, X)  # pyright: ignore[reportArgumentType]
    matrix, parts, dtype = model.raw_rows(X), model.parts, model.dtype
    n, features = matrix.shape
    # Every device gets a block.
    devices, widest = shards.local_number, max(features, parts[0].num_features)
    size = devices * _rows.block_size(n // devices, widest)
    linear = isinstance(parts[0], LinearModel) and model.scaling is None
    blocks = []
    for start in range(0, max(1, n), size):
        rows, first = matrix[start : start + size], first_row + start
        length = rows.shape[0]
        if not linear:
            # The block goes to the device once, for all models.
            dense = _rows.pad_rows(model._densify(rows, first), size)
            rows = _checks.to_device(shards.place(dense.astype(dtype)), dtype)
        blocks.append([shards.local(one)[:length] for one in say(rows, first)])
    return [np.concatenate(each) for each in zip(*blocks, strict=True)]


def fold_map(model: Any) -> Any:
    """The model with the map of its kernel as that of its encoding; O(B d r + d r^2).

    After a metric M was learned on codes, the kernel is `k(x M, z M)`. The folded model
    has the kernel `k`, `z M` as its vectors and `M` in its encoding: it predicts the
    same, holds r numbers per support vector and not one per code, and can be pruned,
    compressed and trained further as a model of r features.

    Args:
      model: a `TableModel` with an `encoding.Encoding`, or what holds one. Any other,
        and one whose kernel has no matrix, comes back as it is.

    Example:
      >>> X = np.arange(8.0)[:, None]
      >>> codes = bj.encoding.fit(X, num_bins=4)
      >>> kernel = bj.Mapped(bj.RBF(1.0), np.ones((4, 1), np.float32))
      >>> state = bj.Perceptron().init(kernel, num_features=4, budget=3)
      >>> state = bj.step(state, codes.apply(X)[3], 1)
      >>> model = bj.TableModel(state, codes)
      >>> folded = fold_map(model)
      >>> bj.support(folded).vectors.shape, folded.scaling.num_features
      ((3, 1), 1)
      >>> bool(np.allclose(folded.decision_function(X), model.decision_function(X)))
      True
    """
    whole = TableModel.of(model)
    codes, kernel = whole.scaling, getattr(whole.inner, "kernel", None)
    if not isinstance(codes, Encoding) or whole.is_several:
        return model
    if not isinstance(kernel, Mapped) or np.ndim(kernel.matrix) != 2:
        return model
    matrix = np.asarray(kernel.matrix, np.float64)
    folds = matrix if codes.map is None else np.asarray(codes.map) @ matrix

    def images(vectors: Array) -> Array:
        rows = np.asarray(vectors, np.float64)
        rows = rows if kernel.mapped_vectors else rows @ matrix
        return _checks.to_device(rows, vectors.dtype)

    folds = folds.astype(np.asarray(kernel.matrix).dtype)
    inner: Any = whole.inner
    whole = whole.with_inner(inner.with_images(images, kernel.kernel))
    return whole._replace(scaling=codes._replace(map=folds)).put_in(model)

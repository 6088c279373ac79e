"""A kernel classifier and a kernel regressor on a budget of support vectors."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias, cast

import jax
import numpy as np
import threadpoolctl
from jaxtyping import Array, Float, Int, Shaped
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.metaestimators import available_if

from budgetjax import (
    _checks,
    _progress,
    _pytree,
    encoding,
    kernels,
    losses,
    models,
    scaling,
)
from budgetjax._errors import ArgumentError, names_class
from budgetjax._pytree import Counter
from budgetjax.encoding import Encoding
from budgetjax.estimators import categories, inputs
from budgetjax.estimators.base import Classifier, Estimator, SetByFit
from budgetjax.estimators.categories import Categories
from budgetjax.estimators.inputs import (
    ClassWeight,
    EncodedRows,
    Features,
    RandomState,
    Rows,
    Sample,
    Table,
    Weights,
)
from budgetjax.kernels import Kernel, Mapped
from budgetjax.models import Labelled
from budgetjax.online import choices, driver, registry
from budgetjax.online.algorithm import average_iterates, clear
from budgetjax.online.choices import Choice, Family, Loss
from budgetjax.online.maintenance import Maintenance
from budgetjax.online.state import OnlineState
from budgetjax.raw_rows import pad_rows
from budgetjax.refitting import calibration, held_out, metric, training_data
from budgetjax.refitting.refit import EPOCHS, Draft, check_metric, start_refit
from budgetjax.stream.batches import Batches
from budgetjax.stream.reservoir import Reservoir, default_size

# The minimum number of rows that the refit pads to.
FEWEST_TO_REFIT = 256
# A refit stops when a step would gain less than this fraction of the objective. Smaller
# values took twice as long, and changed no accuracy by more than 0.1 points.
TOLERANCE = 1e-3
# Factors of the default gamma to choose from if there are few rows.
FACTORS = (1.0, 0.25)
# The penalty if there are many rows.
PENALTY = 10.0
# In a stream, the maximum slope of a loss that does not depend on the error alone.
STEEPEST = 5.0
# What to try on a table: bins per column, the factor of the default gamma, and how many
# values of a column may have an edge each. No bins are standardised columns whose
# outliers are clipped. Edges at values took a tenth to two thirds of the errors on five
# of 45 tables, where numbers name states, hours or airports, and none on the others.
TRIED_FOR_LABELS = ((0, 1.0, 0), (5, 4.0, 0), (16, 4.0, 128))
TRIED_FOR_NUMBERS = ((0, 4.0, 0), (5, 1.0, 0), (16, 1.0, 128))
# The finest bins, and the number of codes from which on fewer values have an edge, and
# bins are fewer.
FINE = 16, 512
# Those from this number of rows on: 64 bins took 2 to 13 percent of the errors on five
# large tables, but added 1 percent on small ones. Of labels, 128 bins took another 1 to
# 6 percent on three tables; for numbers they were worse by half on one, and on 500,000
# rows of labels they took twice the time for nothing.
MANY_TO_BIN, FINER, FINEST_FOR_LABELS = 30_000, (64, 512), (128, 1024)
# The form of one pass, which tries none. Of standardised columns and those of 0, 5 and
# 16 bins, the last had the fewest errors on 16 of 22 tables, up to half as many as the
# first; edges at values took another three quarters on one.
FORM_OF_STREAM = (FINE[0], 1.0, 128)
# With fewer first rows than a table has, a stream of unlike columns is standardised, as
# long as there are so many.
FEWEST_TO_SCALE = 100
# Passes of steps before the choice among these, fewer over many rows, and all of them
# over few: that took 4 percent of the errors on ten small tables. On seventeen sets,
# choices after three were 0.07 points worse than after five.
TRIAL_EPOCHS, FEWER_EPOCHS, MANY_ROWS = 5, 3, 50_000
# Passes for what is chosen: those over few rows; the fewest and the most over more; and
# the steps in all, if these are between. Twenty tables had 5 percent fewer errors with
# 20 to 60 passes than with 20; electricity had 9, and letter and covtype 15 percent
# fewer.
LONG_EPOCHS, EPOCHS_OVER_MANY, STEPS = 60, (27, 80), 8000
# The maximum number of rows that choose the form. Fewer find too few bins: with 40,960
# of 100,000 rows of covtype, the model was 1.5 points worse.
TRIAL_ROWS = 200_000
# The maximum number of rows to stream before it is known that there is no metric, which
# comes with the vectors of a fold. Fewer rows may have rivals, which stream them all.
FIRST_ROWS = held_out.FEW
# `fit` streams up to this many rows as a refit does its folds, by a program that is
# compiled more quickly. Longer blocks save at most 5 microseconds per row.
FEW_TO_STREAM = 50_000
# A table has at most this number of columns, and at least this number of rows.
MOST_COLUMNS, FEWEST_ROWS = 128, 1000
# Columns whose deviations differ by up to this factor are learned as they are, too.
ALIKE = 10.0
# Forms with one number of features run the same programs. Codes of bins have a multiple
# of the first number, or from few rows, whose programs take longer to compile than to
# run, of the second; columns as single numbers have a multiple of the last.
WIDTHS, FEW_WIDTHS, RAW_WIDTHS, FEW_ROWS = 64, 256, 16, 10_000


# One number, or one per column of targets.
PerColumn: TypeAlias = float | Float[np.ndarray, "..."]


@_pytree.record
class SeenTargets(NamedTuple):
    """Statistics of a regressor's targets so far.

    Attributes:
      mean: their mean, one number per column, or its initial value.
      total: their total weight.
      most: the distance from the mean at which they are clipped.
      unit: the deviation of the first ones, one number per column.
    """

    mean: PerColumn
    total: float
    most: PerColumn
    unit: PerColumn


class Examples(NamedTuple):
    """Rows to learn.

    Attributes:
      X: an array or a CSR matrix.
      origin: the origin to subtract from them.
      targets: targets in the form that the state takes.
      weights: one per row.
    """

    X: Features
    origin: Float[np.ndarray, " features"]
    targets: Shaped[np.ndarray, "n ..."]
    weights: Float[np.ndarray, " n"]

    def take(self, rows: Int[np.ndarray, " rows"]) -> "Examples":
        """These rows."""
        X, origin, targets, weights = self
        return Examples(X[rows], origin, targets[rows], weights[rows])

    def data(self, dtype: np.dtype) -> dict[str, Any]:
        """Arguments of `refit`: few rows are padded, many sparse ones are batched.

        Rows to be encoded stay raw, as the refit encodes them.
        """
        X, origin, targets, weights = self
        n, features = X.shape
        raw = X.X if isinstance(X, EncodedRows) and X.encoding is not None else None
        if raw is None and n > training_data.BLOCK and not isinstance(X, np.ndarray):

            def read() -> Iterator[tuple[np.ndarray, ...]]:
                for start in range(0, n, training_data.BLOCK):
                    part = slice(start, start + training_data.BLOCK)
                    rows = inputs.dense(X[part], dtype, origin)
                    yield rows, targets[part], weights[part]

            return {"X": Batches("X", features, read)}
        few = max(FEWEST_TO_REFIT, 1 << (n - 1).bit_length())
        size = n if n > training_data.BLOCK else few
        return {
            "X": pad_rows(inputs.dense(X, dtype, origin) if raw is None else raw, size),
            "y": pad_rows(targets, size, 1),
            "weight": pad_rows(weights, size),
        }


class Form(NamedTuple):
    """A form of the rows, in which a model may learn them.

    Attributes:
      encoding: what encodes them; None for the rows as they are.
      num_bins: the maximum number of bins per column; codes need a metric.
      factor: the factor of the default gamma.
      width: the number of features to which rows are padded with zeros.
      padding: how many of these are not counted in the rates of a metric.
    """

    encoding: Encoding | None = None
    num_bins: int = 0
    factor: float = 1.0
    width: int = 0
    padding: int = 0


class Streamed(NamedTuple):
    """Models that learn the same stream.

    Attributes:
      form: the form of the rows.
      model: the model.
      examples: what it learns.
      rivals: the states of other models, of other kernel widths.
      is_partial: whether they have learned only a part of it so far.
    """

    form: Form
    model: Labelled
    examples: Examples
    rivals: list[OnlineState]
    is_partial: bool = False

    def learn(
        self,
        orders: Sequence[Int[np.ndarray, " n"]],
        report: Callable[[str, int], object],
    ) -> "Streamed":
        """The models after the examples in these orders, one after the other."""
        states = [self.model.model, *self.rivals]
        few = sum(map(len, orders)) <= FEW_TO_STREAM
        sizes = held_out.AT_ONCE, held_out.BLOCK_SIZE if few else None
        for order in orders:
            states = [
                learn(state, self.examples, order, *sizes, report=report)
                for state in states
            ]
        model = self.model._replace(model=states[0])
        return self._replace(model=model, rivals=states[1:])


class OnlineEstimator(Estimator):
    """How all online estimators learn; subclasses declare the parameters.

    `fit` streams all rows in random order, and `partial_fit` some more of them in their
    order. The refit follows in `fit` itself, and after `partial_fit` before the next
    prediction, on a sample of the stream.
    """

    budget: int
    kernel: str | Kernel
    gamma: float | str
    maintenance: str | Maintenance | None
    epochs: int
    shuffle: bool
    capacity: int | None
    random_state: RandomState
    progress: bool

    # A sample of the rows of `partial_fit`, if there is a refit.
    _reservoir: Reservoir | None = None
    # The model after the refit on that sample, from the first prediction on.
    _solved: Labelled | None = None
    # The importances of features in the metric that the last refit has learned, if any.
    _importances: Float[np.ndarray, " features"] | None = None

    def _check_refit(self, num_features: int) -> bool:
        """Whether to refit, after a check of its parameters before a stream is read."""
        raise NotImplementedError

    def _choose(self, labels: Labelled, seed: int, *, refits: bool) -> Choice:
        """The algorithm and the arguments of its `init`."""
        raise NotImplementedError

    def _forms(self, X: Rows) -> list[Form]:
        """The forms of the rows to choose from."""
        return [Form()]

    def _form_of_stream(self, X: Rows) -> Form:
        """The form of a stream that begins with these rows."""
        return Form()

    def _gammas(self, sample: Sample, form: Form) -> list[float | str]:
        """The values of gamma to choose from, the default first."""
        return [self.gamma]

    def _streams_first(self, examples: Examples) -> bool:
        """Whether a part of the rows is streamed, as a metric may be learned."""
        return False

    def _refit(
        self,
        streamed: list[Streamed],
        seed: int,
        orders: Sequence[Int[np.ndarray, " n"]] = (),
        *,
        of_stream: bool = False,
    ) -> Labelled:
        """The best model of the same rows, or of its rivals, with new coefficients.

        Models that have learned only a part learn all in these orders, if the refit
        needs it. `of_stream` is True for the sample of a stream, before a prediction.
        """
        raise NotImplementedError

    def _set_loss(self, state: OnlineState, labels: Labelled) -> OnlineState:
        """The state with the loss for targets in the units of these labels."""
        return state

    @property
    def state_(self) -> OnlineState:
        """The model that predicts, as a state of the algorithm."""
        return self._predicting_model().model

    @names_class
    def _predicting_model(self) -> Labelled:
        """The model that predicts, after the refit on the sample of a stream."""
        if self._reservoir is None:
            return self._model
        if self._solved is None:
            self._solved = self._replay(self._model, self._reservoir)
        return self._solved

    @property
    def model_(self) -> Labelled:
        """The model that predicts from raw rows, for all functions of budgetjax."""
        model = self._predicting_model()
        averages = model.model.expansion.average is not None
        return model._replace(
            model=average_iterates(model.model) if averages else model.model
        )

    @property
    def n_support_(self) -> int:
        """The number of support vectors."""
        return int(self.state_.expansion.num_active)

    def _fit_stream(
        self,
        X: Rows,
        y: Shaped[np.ndarray, "n ..."],
        weights: Float[np.ndarray, " n"],
        labels: Labelled,
    ) -> None:
        """Fits a new model; see `fit`. `labels` has the classes or the intercept."""
        name, n = type(self).__name__, X.shape[0]
        shuffle = bool(_checks.flag("shuffle", self.shuffle))
        epochs = _checks.size("epochs", self.epochs)
        refits = self._check_refit(X.shape[1])
        seed, random = self._draw_seed()
        forms = self._forms(X) if refits else [self._form_of_stream(X)]
        starts = [self._start(form, X, y, weights, labels, seed) for form in forms]
        if forms == [Form()]:
            inputs.warn_unscaled(name, X, starts[0].examples.origin)
        orders = [
            random.permutation(n) if shuffle else np.arange(n) for _ in range(epochs)
        ]
        is_partial = refits and self._streams_first(starts[0].examples)
        first = [spread_rows(orders[0], weights, FIRST_ROWS)] if is_partial else orders
        streamed = [
            start._replace(is_partial=is_partial)
            for start in self._learn(starts, first)
        ]
        model = self._refit(streamed, seed, orders) if refits else streamed[0].model
        self._model, self._reservoir, self._solved = model, None, None
        self.n_iter_ = epochs

    def _learn(
        self, starts: list[Streamed], orders: Sequence[Int[np.ndarray, " n"]]
    ) -> list[Streamed]:
        """The models after the examples in these orders, with a progress bar."""
        name, total = type(self).__name__, sum(map(len, orders)) * len(starts)
        with _progress.progress_bar(name, self.progress, "rows", total) as report:
            return [start.learn(orders, report) for start in starts]

    def _start(
        self,
        form: Form,
        X: Rows,
        y: Shaped[np.ndarray, "n ..."],
        weights: Float[np.ndarray, " n"],
        labels: Labelled,
        seed: int,
    ) -> Streamed:
        """Empty models of rows in this form."""
        rows = inputs.encode_rows(X, form.encoding, form.width)
        sample, refits = Sample(rows), self._check_refit(X.shape[1])
        model, *rivals = (
            self._init(sample, form.encoding, labels, gamma, seed, refits=refits)
            for gamma in self._gammas(sample, form)
        )
        targets = models.encode_targets(model, y)
        examples = Examples(rows, inputs.origin(model), targets, weights)
        return Streamed(form, model, examples, [rival.model for rival in rivals])

    def _continue_stream(
        self,
        X: Rows,
        y: Shaped[np.ndarray, "n ..."],
        targets: Shaped[np.ndarray, "n ..."],
        weights: Float[np.ndarray, " n"],
        labels: Labelled,
    ) -> None:
        """Learns a part of a stream; see `partial_fit`.

        A refit takes `y`, the learner's labels or real targets. The stream takes
        `targets`, the same minus the mean so far for real targets. `labels` has the
        classes, or the intercept after this part.
        """
        first = not self.__sklearn_is_fitted__()
        if first:
            refits, (seed, _) = self._check_refit(X.shape[1]), self._draw_seed()
            form = self._form_of_stream(X)
            rows = inputs.encode_rows(X, form.encoding)
            sample = Sample(rows)
            gamma, *_ = self._gammas(sample, form)
            model = self._init(
                *(sample, form.encoding, labels, gamma, seed),
                refits=refits,
                more_to_come=True,
            )
            if form.encoding is None:
                inputs.warn_unscaled(type(self).__name__, X, inputs.origin(model))
            reservoir = empty_reservoir(rows, y, seed) if refits else None
        else:
            model, reservoir = self._model, self._reservoir
            rows = inputs.encode_rows(X, model.scaling)
        examples = Examples(rows, inputs.origin(model), targets, weights)
        state = learn(model.model, examples, np.arange(len(y)))
        if reservoir is not None:
            given = inputs.dense(rows, models.dtype_of(model), examples.origin)
            reservoir = reservoir.updated(given, y, weights)
        self._model = model._replace(model=state, intercept=labels.intercept)
        self._reservoir, self._solved = reservoir, None
        if first:
            self.n_iter_ = 1

    def _draw_seed(self) -> tuple[int, np.random.RandomState]:
        """A seed for the algorithm, and a generator of orders."""
        random = check_random_state(self.random_state)
        return int(random.randint(2**31 - 1)), random

    def _init(
        self,
        sample: Sample,
        codes: Encoding | None,
        labels: Labelled,
        gamma: float | str,
        seed: int,
        *,
        refits: bool,
        more_to_come: bool = False,
    ) -> Labelled:
        """A model with an empty state."""
        algorithm, arguments, _ = self._choose(labels, seed, refits=refits)
        kernel = inputs.kernel_of(self.kernel, gamma, sample, more_to_come=more_to_come)
        origin = inputs.origin_of(None if codes else kernel, sample)
        if arguments.get("landmarks") is not None:
            arguments["landmarks"] = arguments["landmarks"] - origin[None]
        state = algorithm.init(
            kernel,
            num_features=sample.rows.shape[1],
            budget=self.budget,
            capacity=self.capacity,
            dtype=inputs.dtype_of(sample.rows),
            **arguments,
        )
        return labels._replace(
            model=self._set_loss(state, labels),
            # All classes are equally probable until a refit calibrates the scores.
            calibration=0.0 if refits and labels.classes is not None else None,
            scaling=codes or inputs.translation(origin),
            feature_names=inputs.names_of(self),
        )

    def _replay(self, model: Labelled, sample: Reservoir) -> Labelled:
        """The model after a replay of the sample, in random order, and the refit."""
        X, y, weights, _ = sample.rows()
        if not len(y):
            return model
        # Labels are kept in the form that the learner takes.
        y = models.encode_targets(model, y) if model.classes is None else y
        algorithm = registry.of_state(model.model)
        state = held_out.replay(algorithm, model.model, X, y, weights)
        examples = Examples(X, np.zeros(X.shape[1]), y, weights)
        streamed = Streamed(Form(), model._replace(model=state), examples, [])
        return self._refit([streamed], sample.seed, of_stream=True)


def learn(
    state: OnlineState,
    examples: Examples,
    order: Int[np.ndarray, " n"],
    size: int | None = None,
    block_size: int | None = None,
    *,
    report: Callable[[str, int], object] = lambda text, count: None,
) -> OnlineState:
    """The state after the examples in this order, in parts of this size."""
    X, origin, targets, weights = examples
    algorithm = registry.of_state(state)
    dtype = np.dtype(state.expansion.vectors.dtype)
    for numbers, rows in inputs.blocks(X, dtype, origin, order, size):
        y = pad_rows(targets[numbers], len(rows), 1)
        counts = pad_rows(weights[numbers], len(rows))
        state, _ = driver.run(
            algorithm, state, rows, y, weight=counts, block_size=block_size
        )
        report(f"{int(state.expansion.num_active)} vectors", len(numbers))
    return state


def empty_reservoir(
    X: Features, y: Shaped[np.ndarray, "n ..."], seed: int
) -> Reservoir:
    """A reservoir for a stream of such rows."""
    width, dtype = X.shape[1], inputs.dtype_of(X)
    return Reservoir.empty(
        *(width, dtype, y.dtype, y.shape[1:]), size=default_size(width), seed=seed
    )


@dataclasses.dataclass(eq=False, repr=False)
class Supervised(OnlineEstimator):
    """The parameters of the classifier and the regressor."""

    budget: int = choices.BUDGET
    _: dataclasses.KW_ONLY
    algorithm: str | None = None
    kernel: str | Kernel = "rbf"
    gamma: float | str = "auto"
    maintenance: str | Maintenance | None = None
    regularization: float | None = None
    loss: str | Callable[..., Array] | None = None
    options: dict | None = None
    refit: bool = True
    penalty: float | Sequence[float] | np.ndarray | str = "auto"
    move_vectors: bool = False
    learn_metric: bool | str | int = "auto"
    encode: bool | str | int = "auto"
    epochs: int = 1
    shuffle: bool = True
    capacity: int | None = None
    random_state: RandomState = None
    progress: bool = False

    # Without an annotation, which would make a parameter of it.
    categories_ = cast(Categories, SetByFit())
    # The losses and algorithms to choose from, and the forms of a table to try.
    _family: ClassVar[Family]
    _tried: ClassVar[tuple[tuple[int, float, int], ...]]
    _finest: ClassVar[tuple[int, int]]

    def _loss_setting(self) -> str | Callable[..., Array] | None:
        """The loss, by its name or as a function."""
        return self.loss

    def _losses(self) -> Loss:
        """The loss of the stream, and that of the refit."""
        return self._family.loss(self._loss_setting())

    @property
    def feature_importances_(self) -> Float[np.ndarray, " features"]:
        """The importance of features in a metric or codes, shape `(n_features_in_,)`.

        It is the share of the feature in the variance of mapped rows, so in their mean
        squared distance; see `budgetjax.encoding.importances`.
        """
        importances = self._model and self._importances
        if importances is None:
            raise AttributeError(
                f"{type(self).__name__} has no feature_importances_: fit has learned "
                f"no metric, with learn_metric={self.learn_metric!r}"
            )
        return importances

    @property
    def _nominal(self) -> list[int]:
        """The columns of names."""
        return list(map((inputs.names_of(self) or ()).index, self._names))

    @property
    def _names(self) -> Categories:
        """The names in the columns of the data frame of `fit`, if it was one."""
        return vars(self).get("categories_", {})

    def _check_refit(self, num_features: int) -> bool:
        refits = bool(_checks.flag("refit", self.refit))
        moves = _checks.flag("move_vectors", self.move_vectors)
        check_metric(self.learn_metric, num_features)
        for penalty in self._penalties(1):
            _checks.positive("penalty", penalty)
        if refits:
            return True
        asked = {
            "move_vectors": bool(moves),
            "learn_metric": self.learn_metric not in ("auto", False),
            "penalty": not is_auto(self.penalty),
        }
        for name in [name for name, is_set in asked.items() if is_set]:
            raise ArgumentError(
                name,
                "be its default where there is no refit",
                f"{getattr(self, name)!r}",
            )
        return False

    def _penalties(self, rows: int) -> Shaped[np.ndarray, " penalties"]:
        """The penalties to choose from for this number of rows."""
        penalties = self.penalty
        if isinstance(penalties, str) and penalties == "auto":
            few = rows <= held_out.FEW_TO_PENALISE
            penalties = held_out.PENALTIES if few else PENALTY
        return np.atleast_1d(np.asarray(penalties, object))

    def _forms(self, X: Rows) -> list[Form]:
        if not self._tries_forms(X):
            return [self._form_of_stream(X)]
        few = X.shape[0] < FEWEST_ROWS
        finest, most_codes = self._finest if X.shape[0] <= TRIAL_ROWS else FINER
        if X.shape[0] < MANY_TO_BIN:
            finest, most_codes = FINE
        forms = [
            fit_form(
                *(X, self._nominal, finest if values else bins, factor, values),
                most_codes=most_codes,
            )
            for bins, factor, values in (((0, 1.0, 0),) if few else self._tried)
        ]
        width = max(form.width for form in forms)
        if not width:
            # All rows are equal.
            return [Form()]
        raw_forms = [] if self._nominal else fit_raw_form(X)
        if few or self.algorithm is not None or self.maintenance is not None:
            # Other learners may keep more per feature than vectors, so nothing is
            # padded.
            return forms if few else [*raw_forms, *forms]
        raw_forms = [form._replace(width=X.shape[1]) for form in raw_forms]
        numbers = [form for form in forms if not form.num_bins]
        codes = [form for form in forms if form.num_bins]
        step = WIDTHS if X.shape[0] > FEW_ROWS else FEW_WIDTHS
        # All codes have the rates of the most of them.
        codes = [form._replace(width=round_up(width, WIDTHS)) for form in codes]
        return pad_forms([*raw_forms, *numbers], RAW_WIDTHS) + pad_forms(codes, step)

    def _tries_forms(self, X: Rows) -> bool:
        """Whether a refit chooses the form of the rows."""
        return self.refit and self._is_free_table(X)

    def _is_free_table(self, X: Rows) -> bool:
        """Whether rows are a table, and what depends on their form is free."""
        free = self.kernel == "rbf" and is_auto(self.gamma) and is_auto(self.encode)
        free = free and not self.move_vectors and self.learn_metric in ("auto", True)
        algorithm = registry.by_name().get(self.algorithm or self._family.before_refit)
        has_vectors = algorithm is not None and algorithm.with_vectors is not None
        is_table = isinstance(X, np.ndarray) and X.shape[1] <= MOST_COLUMNS
        return free and has_vectors and is_table

    def _form_of_stream(self, X: Rows) -> Form:
        is_table = self._is_free_table(X)
        if is_table and X.shape[0] >= FEWEST_ROWS:
            return fit_form(X, self._nominal, *FORM_OF_STREAM, more_to_come=True)
        is_unlike = is_table and X.shape[0] >= FEWEST_TO_SCALE and not fit_raw_form(X)
        if is_unlike or (self._nominal and is_auto(self.encode)):
            return fit_form(X, self._nominal, 0, more_to_come=True)
        if self.encode is False or is_auto(self.encode):
            try:
                assert_all_finite(inputs.values(X), input_name="X")
            except ValueError as error:
                error.add_note("encode=0 takes missing values.")
                raise
            return Form()
        num_bins, wanted = self.encode, "be False, 'auto' or a number of bins"
        if not isinstance(num_bins, int | np.integer) or isinstance(num_bins, bool):
            raise ArgumentError("encode", wanted, f"{num_bins!r}")
        if not isinstance(X, np.ndarray):
            wanted = "be False or 'auto' for sparse rows"
            raise ArgumentError("encode", wanted, num_bins)
        num_bins = _checks.size("encode", num_bins, at_least=0)
        return fit_form(X, self._nominal, num_bins, more_to_come=True)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.encode is not False
        return tags

    def _validate(self, *, reset: bool = True, **arguments: Any) -> Any:
        """Rows as for all estimators.

        Where rows are encoded, values may be missing, and columns may hold names.
        """
        X, encodes = arguments["X"], self.encode is not False
        if reset:
            self.categories_ = categories.find(X) if encodes else {}
        else:
            encodes = isinstance(self._model.scaling, Encoding)
        arguments["X"] = categories.to_numbers(X, self._names)
        finite = "allow-nan" if encodes else True
        return super()._validate(reset=reset, ensure_all_finite=finite, **arguments)

    def _gammas(self, sample: Sample, form: Form) -> list[float | str]:
        if not is_auto(self.gamma):
            return [self.gamma]
        named = isinstance(self.kernel, str) and self.kernel in kernels.GAMMA_KERNELS
        usual = form.factor * sample.gamma if named else 0.0
        # Moving vectors work best under a narrower kernel than fixed ones.
        chooses = self.refit and not self.move_vectors and not form.num_bins
        if not usual or sample.num_rows > held_out.FEW or not chooses:
            return [usual or "scale"]
        return [usual * factor for factor in FACTORS]

    def _choose(self, labels: Labelled, seed: int, *, refits: bool) -> Choice:
        options = {} if self.options is None else self.options
        settings = {
            "regularization": self.regularization,
            "maintenance": self.maintenance,
            "loss": self._loss_setting(),
        }
        if not isinstance(options, dict) or options.keys() & settings:
            raise ArgumentError(
                "options",
                "be a dict of arguments that are no parameters of the estimator",
                f"{options!r}",
            )
        return choices.choose(
            *(self.algorithm, settings | options),
            num_classes=None if labels.classes is None else len(labels.classes),
            num_outputs=np.size(labels.intercept),
            seed=seed,
            refits=refits,
        )

    def _streams_first(self, examples: Examples) -> bool:
        algorithm = registry.by_name()[self.algorithm or self._family.before_refit]
        has_vectors = (
            algorithm.with_vectors is not None and algorithm.memory is not None
        )
        many = np.count_nonzero(examples.weights) > FIRST_ROWS
        return has_vectors and self.learn_metric is not False and bool(many)

    def _refit(
        self,
        streamed: list[Streamed],
        seed: int,
        orders: Sequence[Int[np.ndarray, " n"]] = (),
        *,
        of_stream: bool = False,
    ) -> Labelled:
        # Waiting threads make small factorisations ten times slower on a busy machine;
        # XLA computes the large products.
        threads = threadpoolctl.threadpool_limits(1, user_api="blas")
        bar = _progress.progress_bar("refit", self.progress, "passes")
        with threads, bar as report:
            start = functools.partial(
                self._start_refit, seed=seed, report=report, of_stream=of_stream
            )
            best, draft, tried = streamed[0], None, None
            weights = best.examples.weights
            count = int(np.count_nonzero(weights))
            if len(streamed) > 1:
                if count > TRIAL_ROWS:
                    tried = spread_rows(orders[0], weights, TRIAL_ROWS)
                epochs = EPOCHS if count <= FEW_ROWS else TRIAL_EPOCHS
                epochs = FEWER_EPOCHS if count > MANY_ROWS else epochs
                trial = functools.partial(start, epochs=epochs, compares=True)
                drafts = [trial(each, tried=tried) for each in streamed]
                number = find_best(drafts)
                best, draft = streamed[number], drafts[number]
                del drafts
            if draft is None or tried is not None:
                # What a trial prefers is not compared again on all rows.
                learns = draft is not None and draft.metric is not None
                epochs = EPOCHS if count <= held_out.MANY else count_passes(count)
                draft = start(best, learns=learns, epochs=epochs)
            else:
                draft = learn_longer(draft, count)
            if best.is_partial:
                best, draft = self._complete(best, draft, orders, start)
            return self._finish(best, draft)

    def _complete(
        self,
        streamed: Streamed,
        draft: Draft | None,
        orders: Sequence[Int[np.ndarray, " n"]],
        start: Callable[[Streamed], Draft | None],
    ) -> tuple[Streamed, Draft | None]:
        """A refit as if all examples had been streamed, not only a part.

        They are, unless there is a metric, which comes with the vectors of a fold.
        """
        model, weights = streamed.model, streamed.examples.weights
        if draft is not None and draft.metric is not None:
            seen = len(orders) * int(np.count_nonzero(weights))
            state = draft.state._replace(num_seen=Counter.of(seen))
            return streamed, draft._replace(state=state)
        state = clear(registry.of_state(model.model), model.model)
        empty = streamed._replace(model=model._replace(model=state), is_partial=False)
        (streamed,) = self._learn([empty], orders)
        if draft is None:
            return streamed, start(streamed)
        return streamed, draft._replace(state=streamed.model.model)

    def _start_refit(
        self,
        streamed: Streamed,
        *,
        of_stream: bool,
        learns: bool = False,
        tried: Int[np.ndarray, " tried"] | None = None,
        **settings: Any,
    ) -> Draft | None:
        """A refit of these examples; None if no example has changed the model.

        With `learns`, a metric is learned without a comparison; `tried` are the rows
        that count, or None for all.
        """
        form, model, examples, rivals, _ = streamed
        examples = examples if tried is None else examples.take(tried)
        state, learn_metric = model.model, self.learn_metric
        if not int(state.expansion.num_active):
            return None
        loss = self._losses().refit
        if callable(loss):
            loss = _loss_in_units(loss, model)
        if is_auto(learn_metric):
            # A prediction should not wait for a trial of a metric.
            learn_metric = not of_stream and (form.num_bins > 0 or learns or "auto")
        return start_refit(
            # Rows are shifted and targets centred already, so the model must not do it
            # again.
            Labelled(state, form.encoding),
            **examples.data(models.dtype_of(model)),
            loss=loss,
            penalty=self._penalties(int(np.count_nonzero(examples.weights))),
            move_vectors=self.move_vectors,
            learn_metric=learn_metric,
            tolerance=TOLERANCE,
            calibrate=model.classes is not None,
            rivals=rivals,
            padding=form.padding,
            **settings,
        )

    def _finish(self, streamed: Streamed, draft: Draft | None) -> Labelled:
        form, model, examples, *_ = streamed
        # Without a draft, the zero model stays.
        if draft is not None:
            refitted = draft.finish()
            model = models.add_intercept(model, refitted.intercept)
            is_encoded = form.encoding is not None
            model = model._replace(
                model=refitted.model,
                calibration=refitted.calibration,
                scaling=refitted.scaling if is_encoded else model.scaling,
            )
            model = models.fold_map(model)
        model = strip_padding(model, examples.X)
        if draft is not None:
            self._importances = measure_importances(model, examples.X)
        return model


def spread_rows(
    order: Int[np.ndarray, " n"], weights: Float[np.ndarray, " n"], count: int
) -> Int[np.ndarray, " count"]:
    """As many rows with a weight as `count`, spread evenly over the order."""
    rows = order[weights[order] > 0]
    return rows[np.linspace(0, len(rows) - 1, count).astype(np.intp)]


def fit_form(
    X: Rows,
    nominal: Sequence[int],
    num_bins: int,
    factor: float = 1.0,
    max_values: int = 0,
    *,
    most_codes: int = FINE[1],
    more_to_come: bool = False,
) -> Form:
    """The form of rows with so many bins per column, fitted to a part of them."""
    rows = inputs.to_array(X[:: -(-X.shape[0] // inputs.SAMPLED_ROWS)])
    fit = functools.partial(
        encoding.fit, rows, nominal=nominal, more_to_come=more_to_come
    )
    codes = fit(num_bins, max_values=max_values)
    fewest, _ = FINE
    while max_values > fewest and codes.num_codes > most_codes:
        max_values, num_bins = max_values // 2, max(fewest, num_bins // 2)
        codes = fit(num_bins, max_values=max_values)
    return Form(codes, num_bins, factor, codes.num_features)


def fit_raw_form(X: Rows) -> list[Form]:
    """The rows as they are, if their columns have one scale and no value is missing."""
    deviations = np.sqrt(Sample(X).variances)
    deviations = deviations[deviations > 0]
    if np.any(np.isnan(inputs.values(X))) or not len(deviations):
        return []
    is_alike = np.max(deviations) <= ALIKE * np.quantile(deviations, 0.25)
    return [Form()] if is_alike else []


def strip_padding(model: Labelled, X: Features) -> Labelled:
    """A model of padded rows, for rows as they are."""
    codes = model.scaling
    is_encoded = isinstance(codes, Encoding)
    if is_encoded and codes.map is not None:
        matrix = codes.map[: codes.num_codes]
        return model._replace(scaling=codes._replace(map=matrix))
    if not isinstance(X, EncodedRows):
        return model
    count = codes.num_codes if is_encoded else X.X.shape[1]
    kernel, expansion = model.model.kernel, model.model.expansion
    if isinstance(kernel, Mapped):
        # Of a matrix, columns beyond the number of features are zeros, too.
        matrix = np.asarray(kernel.matrix)
        matrix = matrix[(slice(count),) * matrix.ndim]
        kernel = Mapped(kernel.kernel, jax.device_put(matrix))
    vectors = np.asarray(expansion.vectors)[:, :count]
    expansion = expansion._replace(vectors=jax.device_put(vectors))
    if isinstance(codes, scaling.Scaling):
        codes = inputs.translation(codes.mean[:count])
    state = model.model._replace(kernel=kernel, expansion=expansion)
    return model._replace(model=state, scaling=codes)


def measure_importances(
    model: Labelled, X: Features
) -> Float[np.ndarray, " features"] | None:
    """The importance of each feature in a metric, or None without one."""
    kernel, codes = model.model.kernel, model.scaling
    rows = X.X if isinstance(X, EncodedRows) else X
    if isinstance(codes, Encoding):
        rows = inputs.to_array(rows[scaling.sample_rows(rows.shape[0])])
        # The rows of a stream are encoded already.
        of = encoding.importances if isinstance(X, EncodedRows) else encoding.shares
        return of(codes, rows)
    if not isinstance(kernel, Mapped):
        return None
    matrix = np.asarray(kernel.matrix, np.float64)
    lengths = np.sum(matrix.reshape(len(matrix), -1) ** 2, axis=1)
    parts = Sample(rows).variances * lengths
    return parts / max(np.sum(parts), np.finfo(np.float64).tiny)


def find_best(drafts: Sequence[Draft | None]) -> int:
    """The number of the draft with the least error on held-out rows."""
    errors = [[] if draft is None else draft.errors() for draft in drafts]
    folds = min(map(len, errors))
    return int(np.argmin([sum(map(np.sum, each[:folds])) for each in errors]))


def learn_longer(draft: Draft, count: int) -> Draft:
    """The choices of a trial with a metric of more passes over `count` rows.

    Fewer passes that ended stay, if they predict held-out rows better.
    """
    longer = draft.learn_metric(count_passes(count))
    if draft.problem.epochs < EPOCHS:
        return longer
    return (draft, longer)[find_best([draft, longer])]


def count_passes(count: int) -> int:
    """The number of passes of a metric over this number of rows."""
    if count <= held_out.MANY:
        return LONG_EPOCHS
    fewest, most = EPOCHS_OVER_MANY
    return max(fewest, min(most, STEPS * metric.BATCH // count))


def pad_forms(forms: list[Form], step: int) -> list[Form]:
    """The forms with one number of features, a multiple of this one."""
    width = round_up(max(form.width for form in forms), step)
    return [form._replace(width=width, padding=width - form.width) for form in forms]


def round_up(number: int, step: int) -> int:
    """The least multiple of the step that is not below the number."""
    return -(-number // step) * step


def is_auto(parameter: object) -> bool:
    """Whether a parameter leaves the choice to `fit`."""
    return isinstance(parameter, str) and parameter == "auto"


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class BudgetedKernelClassifier(Classifier, Supervised):
    """A kernel classifier with a bounded number of support vectors.

    `fit` streams the rows once; `budgetjax.refit` then recomputes the coefficients of
    the support vectors that the stream chose. With a learned metric, vectors start as
    those of a stream of at most 8,192 rows, and steps on all rows move them.
    `partial_fit` streams too, and refits on a sample of the rows so far before the next
    prediction. The budget bounds memory and time per row. `fit` brings the columns of a
    table to one scale, and from 1,000 rows on writes them as codes of their quantiles
    where that predicts held-out rows better; `partial_fit` takes the quantiles of the
    first rows that it gets, so 1,000 or more of them serve it best. With fewer than
    100, standardise columns with different units first.

    It computes in float32, or in float64 if X is float64 and JAX enables it. Compiled
    programs are kept in the user's cache folder, so a later process starts faster; see
    `budgetjax.cache_compiled_programs`. The environment variable BUDGETJAX_CACHE names
    another folder, or is `off`.

    Args:
      budget: the maximum number of support vectors.
      algorithm: the name of an online algorithm of budgetjax, or of
        `budgetjax.register`, such as "sgd"; "forgetron" is for two classes only. None
        is "pegasos" with a refit, after which it is as good as "arow", and without one
        "arow", which is good after one pass but slow for large budgets.
      kernel: "rbf", "laplacian", "poly" (of degree 3, with `coef0=0`), "sigmoid" or
        "linear", as in scikit-learn, or a kernel, such as
        `budgetjax.Polynomial(3)`.
      gamma: the parameter of all kernels but "linear". "scale" is two divided by the
        mean squared distance of the first rows, `budgetjax.default_gamma`. "auto" is
        "scale", except in `fit` with at most 2,000 rows and a refit that does not move
        vectors: it is then "scale" or a quarter of it, whichever predicts held-out rows
        better.
      maintenance: the strategy for a full budget, or its name, such as "merge",
        "project" or "remove_oldest". None merges with a Gaussian kernel and projects
        with any other. Removal does harm after a refit, whose coefficients are large
        and balance each other.
      regularization: lambda of the algorithm; None is 0.0001 for "pegasos" and "norma",
        and 0 for "sgd". The others have none.
      loss: "hinge" (None), or "logistic", for algorithms with a choice, such as "sgd",
        and for the refit, which squares the hinge.
      options: further arguments of the algorithm's `init`, a dict such as
        `{"confidence": 0.1}` for "arow", or, without a refit, `{"average": True}` for
        "sgd": the average of the iterates then predicts.
      refit: whether to refit the coefficients.
      penalty: C of the refit, or a list of several to choose from on held-out rows.
        "auto" chooses from 0.01, 0.1, 1 and 10 for at most 5,000 rows, which may be
        noisy, and is 10 for more.
      move_vectors: whether the refit moves the support vectors too. This is slower, and
        helps most for small budgets.
      learn_metric: True, False, "diagonal" or a rank, as for `budgetjax.refit`; "auto"
        tries a matrix in `fit`, from 1,000 rows on.
      encode: how columns are written before they are learned; see `budgetjax.encoding`.
        False for rows as they are; a number of bins per column, where 0 is a number in
        units of the column's quartiles with outliers clipped. "auto" tries 0, 5 and 16
        bins in `fit`, from 30,000 rows on 0, 5 and 128 (64 in a regressor, or from
        200,000), with a learned metric, by fits judged on held-out rows, short ones
        from 10,000 rows on, of 200,000 rows at most; a column of few values has a bin
        between any two. It is 16 bins without a refit and in `partial_fit`, whose first
        rows fit them. With fewer than 1,000 rows it is 0, and False for fewer than 100
        in `partial_fit` or where columns have one scale there; and False for sparse
        rows, for more than 128 columns, such as images, and where `kernel`, `gamma`,
        `move_vectors` or `learn_metric` are not their defaults. Encoded rows may have
        missing values, NaN, and those of a data frame names: columns of texts, or of
        pandas' categories, have a code per name, except for names beyond the 128 most
        frequent.
      epochs: passes of `fit` over the rows.
      shuffle: whether each pass of `fit` has a new random order.
      capacity: slots to allocate, at least the budget; None for the budget. Programs
        are compiled per capacity: with a common one, a search over budgets compiles
        once, and each budget takes the time of the largest.
      random_state: the seed of the orders and of random draws.
      progress: whether to show a progress bar.
      class_weight: weights by label, as a dict, or "balanced": inversely proportional
        to the frequencies of the classes. They multiply the weights of the rows.

    Attributes:
      state_: the state of the algorithm, for all functions of budgetjax, for rows minus
        `origin_`, or for encoded ones: `model_.scaling.apply(X)`.
      model_: the same for raw rows, with the labels.
      origin_: the origin that is subtracted from rows before float32 rounds them, shape
        `(n_features_in_,)`: the median of the first rows if they lie far from 0 and the
        kernel is stationary, otherwise zeros, and for encoded rows.
      support_vectors_: shape `(n_support_, n_features_in_)`, or for encoded rows
        `(n_support_, model_.scaling.num_features)`, in the space of the features.
      dual_coef_: their coefficients, shape `(1, n_support_)`, or one row per class.
      n_support_: the number of support vectors.
      feature_importances_: the importance of each feature, if `fit` has learned a
        metric or encoded columns.
      categories_: the names in each column of names, by column; `model_` takes their
        positions here for names, and the next number for any other.
      classes_: the labels, in order.
      n_iter_: passes over the rows.
      n_features_in_: the number of features.
      feature_names_in_: their names, if X was a data frame.

    Example:
      >>> from budgetjax.estimators import BudgetedKernelClassifier
      >>> from sklearn.datasets import make_moons
      >>> X, y = make_moons(500, noise=0.1, random_state=0)
      >>> model = BudgetedKernelClassifier(budget=20, random_state=0).fit(X, y)
      >>> model.n_support_, bool(model.score(X, y) > 0.95)
      (20, True)
    """

    class_weight: ClassWeight = None

    _family = choices.CLASSIFIER
    _tried, _finest = TRIED_FOR_LABELS, FINEST_FOR_LABELS

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        assert tags.classifier_tags is not None, "this is a classifier"
        tags.classifier_tags.multi_class = self.algorithm != "forgetron"
        return tags

    @names_class
    def fit(
        self, X: Table, y: ArrayLike, sample_weight: Weights = None
    ) -> "BudgetedKernelClassifier":
        """Fits a new model: passes over the rows, then the refit.

        Args:
          X: shape `(n, features)`, an array, a data frame or a sparse matrix, which
            becomes dense block by block.
          y: labels of any type, at least two classes, shape `(n,)`.
          sample_weight: factors of the losses of the rows, at least 0, shape `(n,)`.

        Returns:
          The estimator.

        Warns:
          UserWarning: if features look unscaled, or the refit has not converged.
        """
        rows, y, weights = self._examples(X, y, sample_weight, first=True)
        classes = inputs.classes_of(y)
        weights = weights * inputs.class_weights(self.class_weight, classes, y, y)
        self._fit_stream(rows, y, weights, Labelled(None, classes=classes))
        return self

    @names_class
    def partial_fit(
        self,
        X: Table,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: Weights = None,
    ) -> "BudgetedKernelClassifier":
        """Continues to learn: one pass over these rows in their order.

        With `refit=True`, a uniform sample of all rows so far is kept, up to 8,192 rows
        and about 4 million numbers. The model that predicts has learned the sample
        again, in another order, and is refitted to it, so sorted streams are learned
        about as well as shuffled ones. The first prediction after a part takes the time
        for that, and the model does not follow drift. With `refit=False` and a number
        as `gamma`, any division of the same rows gives the model of `fit` with
        `shuffle=False` and one epoch.

        After `fit` it continues from that model, in one pass without a refit.

        Args:
          X: as for `fit`; programs are compiled for only a few numbers of rows.
          y: labels.
          classes: all labels that will occur, required in the first call.
          sample_weight: as for `fit`.

        Returns:
          The estimator.

        Raises:
          ValueError: if an argument is invalid; the model does not change.
        """
        first = not self.__sklearn_is_fitted__()
        classes = self._check_classes(classes)
        if isinstance(self.class_weight, str):
            raise ArgumentError(
                "class_weight",
                "be a dict or None in partial_fit, as not all labels are known",
                f"{self.class_weight!r}",
            )
        rows, y, weights = self._examples(X, y, sample_weight, first=first)
        weights = weights * inputs.class_weights(self.class_weight, classes, classes, y)
        labels = Labelled(None, classes=classes)
        y = models.encode_targets(labels, y)
        self._continue_stream(rows, y, y, weights, labels)
        return self

    def _check_classes(
        self, classes: ArrayLike | None
    ) -> Shaped[np.ndarray, " classes"]:
        """The classes of a stream, after a check of those of `partial_fit`."""
        fitted = self.__sklearn_is_fitted__()
        if classes is None:
            if fitted:
                return self.classes_
            raise ArgumentError(
                "classes", "be given in the first call of partial_fit", "None"
            )
        classes = inputs.classes_of(np.asarray(classes))
        if fitted and not np.array_equal(classes, self.classes_):
            raise ArgumentError(
                "classes",
                f"be those of the first call, {self.classes_.tolist()}",
                classes.tolist(),
            )
        return classes

    @available_if(lambda estimator: estimator.refit or estimator.loss == "logistic")
    def predict_proba(self, X: Table) -> Float[np.ndarray, "n classes"]:
        """The probability of each class, after a refit or with `loss="logistic"`.

        It is the softmax, for two classes the sigmoid, of the scores times a factor, so
        the most probable class is the predicted one. The refit fits the factor on rows
        that it holds out as for several penalties; without a refit it is 1. Weights of
        rows and classes count: probabilities refer to data in which a row of weight 2
        occurs twice, so with `class_weight="balanced"` to data with equally many rows
        per class.

        `partial_fit` after `fit` keeps the factor of `fit`.

        Args:
          X: shape `(n, n_features_in_)`.

        Returns:
          Shape `(n, classes)`, in the order of `classes_`.

        Raises:
          AttributeError: with `refit=False` and another loss.
        """
        return np.asarray(calibration.probabilities(self.model_, self._rows(X)))

    @available_if(lambda estimator: estimator.refit or estimator.loss == "logistic")
    def predict_log_proba(self, X: Table) -> Float[np.ndarray, "n classes"]:
        """The logarithms of `predict_proba`, always finite, shape `(n, classes)`."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class BudgetedKernelRegressor(RegressorMixin, Supervised):
    """Kernel regression with a bounded number of support vectors.

    It learns as `BudgetedKernelClassifier`, and has the same parameters and attributes
    except for these. Targets may have any unit, each output its own: the mean so far is
    subtracted, and they are divided by the deviation of the first ones. Several
    outputs, or quantiles, share the support vectors.

    Args:
      algorithm: the name of an algorithm with a choice of the loss; None is "sgd". See
        its `init`, such as `budgetjax.sgd.init`.
      loss: "squared" (None); "huber", squared up to 1.35 robust deviations of the
        errors and linear beyond, as in `HuberRegressor`; "absolute"; "poisson", for
        counts and other targets of at least 0, or "gamma", for targets above 0, whose
        scores are logarithms; or a function as for `budgetjax.sgd.init`, such as
        `budgetjax.losses.epsilon_insensitive(0.1)`. The stream and the refit both use
        it. Learning rates refer to targets with deviation 1, or for "poisson" and
        "gamma" with mean 1; so do penalties for these and for losses with kinks, such
        as "absolute". A function of more than the error gets unscaled targets.
      quantile: a level above 0 and below 1, such as 0.9, to predict that quantile of
        the targets instead of their mean; or several, such as `[0.1, 0.5, 0.9]`, with
        one column of predictions each. The predictions of each row are sorted, so they
        never cross. `loss` must be None.

    Attributes:
      unit_: the factor of the scores of `state_`, the deviation of the first targets:
        one number, or one per output or quantile.
      intercept_: the term added afterwards, the mean of the targets plus a correction
        by the refit, with the same shape. For "poisson" and "gamma", predictions are
        the exponential of the result.

    Example:
      >>> from budgetjax.estimators import BudgetedKernelRegressor
      >>> X = np.linspace(-3, 3, 500)[:, None]
      >>> y = 1000 + np.sin(2 * X[:, 0])
      >>> model = BudgetedKernelRegressor(budget=20, random_state=0).fit(X, y)
      >>> bool(model.score(X, y) > 0.99)
      True
      >>> y = y + np.random.default_rng(0).normal(size=500)
      >>> several = BudgetedKernelRegressor(20, quantile=[0.1, 0.9], random_state=0)
      >>> several.fit(X, y).predict(X).shape
      (500, 2)

    References:
      Chernozhukov, Fernandez-Val and Galichon (2010), "Quantile and probability curves
      without crossing", for the sorting. https://doi.org/10.3982/ECTA7880
    """

    quantile: float | Sequence[float] | np.ndarray | None = None

    _family = choices.REGRESSOR
    _tried, _finest = TRIED_FOR_NUMBERS, FINER

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.quantile is None
        return tags

    def _loss_setting(self) -> str | Callable[..., Array] | None:
        return self.loss if self.quantile is None else losses.quantile(self._levels())

    def _levels(self) -> float | Float[np.ndarray, " quantiles"]:
        """The level, or the levels, shape `(quantiles,)`."""
        levels = np.asarray(self.quantile)
        _checks.open_unit_interval("quantile", levels)
        if levels.ndim > 1 or not levels.size:
            raise ArgumentError(
                "quantile", "be a number or a list of them", f"{self.quantile!r}"
            )
        if self.loss is not None:
            raise ArgumentError("loss", "be None with a quantile", f"{self.loss!r}")
        return levels if levels.size > 1 else float(levels.reshape(()))

    @property
    def intercept_(self) -> float | Float[np.ndarray, " outputs"]:
        """The term added to the scores of the state times `unit_`."""
        return self._predicting_model().intercept

    @property
    def unit_(self) -> float | Float[np.ndarray, " outputs"]:
        """The factor of the scores of the state."""
        return self._model.unit

    @names_class
    def fit(
        self, X: Table, y: ArrayLike, sample_weight: Weights = None
    ) -> "BudgetedKernelRegressor":
        """Fits a new model; see `BudgetedKernelClassifier.fit`.

        Targets are real numbers, shape `(n,)` or `(n, outputs)`.
        """
        rows, y, weights = self._examples(X, y, sample_weight, first=True)
        _, labels, seen = self._encode(y, weights, None)
        self._fit_stream(rows, y, weights, labels)
        self._seen = seen
        return self

    @names_class
    def partial_fit(
        self, X: Table, y: ArrayLike, sample_weight: Weights = None
    ) -> "BudgetedKernelRegressor":
        """Continues to learn; see `BudgetedKernelClassifier.partial_fit`.

        The mean of the targets so far is subtracted, so the model differs from that of
        `fit`, which subtracts the mean of all targets.
        """
        first = not self.__sklearn_is_fitted__()
        rows, y, weights = self._examples(X, y, sample_weight, first=first)
        if not first and y.shape[1:] != np.shape(self._model.intercept):
            raise ArgumentError(
                "y",
                f"have {np.size(self._model.intercept)} columns, as in the "
                "first call of partial_fit",
                f"shape {y.shape}",
            )
        targets, labels, seen = self._encode(y, weights, None if first else self._seen)
        self._continue_stream(rows, y, targets, weights, labels)
        self._seen = seen
        return self

    def _encode(
        self,
        y: Float[np.ndarray, "n ..."],
        weights: Float[np.ndarray, " n"],
        before: SeenTargets | None,
    ) -> tuple[Float[np.ndarray, "n ..."], Labelled, SeenTargets]:
        """The targets of the state, the labels, and statistics for later targets."""
        loss = self._losses().stream
        if before is None:
            before = _first_seen(y[weights > 0], loss)
        targets, seen = _centre(y, weights, before)
        intercept = seen.mean
        if losses.traits(loss).link == losses.EXP:
            # In the space of scores. If all targets are 0, any value serves.
            mean = np.where(seen.mean > 0, seen.mean, 1.0)[()]
            targets, intercept = y / mean, np.log(mean)
        return targets, Labelled(None, intercept=intercept, unit=seen.unit), seen

    def _set_loss(self, state: Any, labels: Labelled) -> OnlineState:
        before = state.loss
        loss, shape = _loss_in_units(before, labels), np.shape(labels.unit)
        if loss is before and not losses.is_shift_invariant(loss, shape):
            loss = losses.limit_slope(loss, STEEPEST)
        dtype, outputs = state.expansion.vectors.dtype, np.size(labels.unit)
        loss = losses.as_leaves(loss, None, dtype, outputs)
        return state._replace(loss=loss)

    @names_class
    def predict(self, X: Table) -> Float[np.ndarray, "n ..."]:
        """The predicted target of each row; O(n budget features).

        Args:
          X: shape `(n, n_features_in_)`.

        Returns:
          float64, shape `(n,)`, `(n, outputs)`, or `(n, quantiles)` in the order of
          `quantile`, never decreasing with the level.
        """
        predicted = models.predict(self.model_, self._rows(X)).astype(np.float64)
        if self.quantile is not None and predicted.ndim > 1:
            predicted[:, np.argsort(self._levels())] = np.sort(predicted, axis=1)
        return predicted

    @names_class
    def score(self, X: Table, y: ArrayLike, sample_weight: Weights = None) -> float:
        """R^2, averaged over outputs; for some losses the mean of their D^2.

        D^2 is the fraction of the best constant's loss that the model saves: of the
        pinball loss for quantiles, `sklearn.metrics.d2_pinball_score`, or of the
        deviance of the Poisson or gamma distribution, `d2_tweedie_score`.

        `y` and `sample_weight` are as for `fit`. The best value is 1.
        """
        loss = losses.unwrap(self._losses().stream)
        powers = {losses.poisson: 1, losses.gamma: 2}
        if self.quantile is None and loss not in powers:
            return super().score(X, y, sample_weight)
        # It takes longer to import than all of this package.
        from sklearn.metrics import d2_pinball_score, d2_tweedie_score

        targets = np.asarray(y)
        predicted = self.predict(X).reshape(len(targets), -1)
        if self.quantile is None:
            d2 = functools.partial(d2_tweedie_score, power=powers[loss])
            scores_of = [d2] * predicted.shape[1]
            predicted = np.maximum(predicted, np.finfo(np.float32).tiny)
        else:
            scores_of = [
                functools.partial(d2_pinball_score, alpha=level)
                for level in np.atleast_1d(self._levels())
            ]
        columns = np.broadcast_to(targets.reshape(len(targets), -1), predicted.shape)
        scores = [
            score_of(column, prediction, sample_weight=sample_weight)
            for score_of, column, prediction in zip(
                scores_of, columns.T, predicted.T, strict=True
            )
        ]
        return float(np.mean(scores))

    def _examples(
        self,
        X: Table,
        y: ArrayLike,
        sample_weight: Weights,
        *,
        first: bool,
        **options: bool,
    ) -> tuple[Rows, Float[np.ndarray, "n ..."], Float[np.ndarray, " n"]]:
        """Rows, targets in float64, repeated per quantile, and weights."""
        options |= {"y_numeric": True, "multi_output": self.quantile is None}
        rows, y, weights = super()._examples(
            X, y, sample_weight, first=first, **options
        )
        y = y.astype(np.float64)
        y = y[:, 0] if y.shape[1:] == (1,) else y
        if self.quantile is not None and np.ndim(self._levels()):
            y = np.repeat(y[:, None], np.size(self._levels()), axis=1)
        return rows, y, weights


def _loss_in_units(
    loss: Callable[..., Array], labels: Labelled
) -> Callable[..., Array]:
    """The loss for targets, with its kinks, in the units of the labels."""
    if np.all(labels.unit == 1):
        return loss
    return losses.with_unit(loss, labels.unit, 1 if losses.has_kinks(loss) else 2)


def _first_seen(
    y: Float[np.ndarray, "n ..."], loss: Callable[..., Array]
) -> SeenTargets:
    """The statistics of targets before the first is learned, from a sample of them."""
    shape = y.shape[1:]
    if not losses.is_shift_invariant(loss, shape):
        most = np.inf if losses.traits(loss).link == losses.EXP else 0.0
        return SeenTargets(np.zeros(shape), 0.0, most, np.ones(shape)[()])
    robust = losses.traits(loss).robust
    centre, deviation = scaling.centre_and_deviation(y, robust=robust)
    most = training_data.NEAR * deviation if robust and np.all(deviation) else np.inf
    return SeenTargets(centre, 0.0, most, np.where(deviation > 0, deviation, 1.0)[()])


def _centre(
    y: Float[np.ndarray, "n ..."], weights: Float[np.ndarray, " n"], before: SeenTargets
) -> tuple[Float[np.ndarray, "n ..."], SeenTargets]:
    """Targets minus their running mean, which includes each, in their unit.

    The second result holds the statistics after them.
    """
    totals = before.total + np.cumsum(weights)
    # One weight per row, shared by its outputs.
    shape = (-1, *[1] * (y.ndim - 1))
    weights, sums = weights.reshape(shape), totals.reshape(shape)
    # The mean moves by a fraction of the distance, so a large offset costs no digits.
    distance = np.clip(y - before.mean, -before.most, before.most)
    shifts = np.cumsum(weights * distance, axis=0) / np.where(sums > 0, sums, 1)
    means = before.mean + shifts
    last = means[-1] if y.ndim > 1 else float(means[-1])
    after = before._replace(mean=last, total=float(totals[-1]))
    return (y - means) / before.unit, after

"""What the kernel classifier and regressor share: their parameters and refits."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import threadpoolctl
from jaxtyping import Array, Float, Int, Shaped
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import assert_all_finite

from budgetjax import _checks, _counters, _progress, kernels, losses
from budgetjax._errors import ArgumentError
from budgetjax.estimators import categories, forms, inputs, online
from budgetjax.estimators.base import SetByFit
from budgetjax.estimators.categories import Categories
from budgetjax.estimators.forms import Form, fit_form, has_one_scale, strip_padding
from budgetjax.estimators.inputs import (
    EncodedRows,
    Features,
    RandomState,
    Rows,
    Sample,
    Table,
    Weights,
)
from budgetjax.estimators.online import (
    Examples,
    OnlineEstimator,
    Prepared,
    Streamed,
    spread_rows,
)
from budgetjax.kernels import Kernel, Mapped
from budgetjax.online import defaults
from budgetjax.online.defaults import Choice, Family, Loss
from budgetjax.online.importance import SeenWeights
from budgetjax.online.learner import Learner
from budgetjax.online.maintenance import Maintenance
from budgetjax.refitting import held_out
from budgetjax.refitting.adam import EPOCHS
from budgetjax.refitting.refit import Draft, check_metric, start_refit
from budgetjax.tables import encoding, scaling
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.scaling import Scaling
from budgetjax.tables.table_model import TableModel, fold_map

# A refit stops when a step would gain less than this fraction of the objective. Smaller
# values took twice as long, and changed no accuracy by more than 0.1 points.
TOLERANCE = 1e-3
# Factors of the default gamma to choose from if there are few rows.
FACTORS = (1.0, 0.25)
# Passes of steps before the choice among these, fewer over many rows, and all of them
# over few: that took 4 percent of the errors on ten small tables. On seventeen sets,
# choices after three were 0.07 points worse than after five.
TRIAL_EPOCHS, FEWER_EPOCHS, MANY_ROWS = 5, 3, 50_000
# Among few rows, those held out say little: without a metric, and so without codes, a
# form is preferred whose error is larger by at most so many standard deviations.
LEEWAY = 2.0
# Passes over few rows, if they predict held-out rows better than fewer passes. Twenty
# tables had 5 percent fewer errors, usps 5 and mnist 8.
LONG_EPOCHS = 60


@dataclasses.dataclass(eq=False, repr=False)
class Supervised(OnlineEstimator):
    """The parameters of the classifier and the regressor."""

    budget: int = defaults.BUDGET
    _: dataclasses.KW_ONLY
    learner: Learner | str = "auto"
    kernel: str | Kernel = "rbf"
    gamma: float | str = "auto"
    maintenance: str | Maintenance | None = None
    average: bool | int = False
    vectors: ArrayLike | None = None
    loss: str | Callable[..., Array] | None = None
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
    # The losses and learners to choose from, and the forms of a table to try.
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
        """The importance of features in a learned metric, shape `(n_features_in_,)`.

        It is the share of the feature in the variance of mapped rows, so in their mean
        squared distance; see `budgetjax.encoding.importances`.
        """
        self._predicting_model()
        if self._importances is None:
            raise AttributeError(
                f"{type(self).__name__} has no feature_importances_: the last fit has "
                f"learned no metric, with learn_metric={self.learn_metric!r}"
            )
        return self._importances

    @property
    def _nominal(self) -> list[int]:
        """The columns of names."""
        return list(map((inputs.names_of(self) or ()).index, self.categories_))

    def _check_refit(self, num_features: int) -> bool:
        refits = _checks.flag("refit", self.refit)
        moves = _checks.flag("move_vectors", self.move_vectors)
        check_metric(self.learn_metric, num_features)
        for penalty in self._penalties(1):
            _checks.positive("penalty", penalty)
        asked = {
            "move_vectors": moves,
            "learn_metric": self.learn_metric not in ("auto", False),
            "penalty": not is_auto(self.penalty),
        }
        for name, is_asked in asked.items():
            if is_asked and not refits:
                wanted = "be its default where there is no refit"
                raise ArgumentError(name, wanted, f"{getattr(self, name)!r}")
        return refits

    def _count_penalties(self, rows: int) -> int:
        return len(self._penalties(rows))

    def _penalties(self, rows: int) -> Shaped[np.ndarray, " penalties"]:
        """The penalties to choose from for this number of rows."""
        automatic = is_auto(self.penalty)
        penalties = held_out.default_penalties(rows) if automatic else self.penalty
        return np.atleast_1d(np.asarray(penalties, object))

    def _forms(self, X: Rows) -> list[Form]:
        if not self._is_free_table(X):
            return [self._form_of_stream(X)]
        # Other learners may keep more per feature than vectors.
        pads = is_auto(self.learner) and self.maintenance is None
        return forms.list_forms(X, self._nominal, self._tried, self._finest, pads=pads)

    def _is_free_table(self, X: Rows) -> bool:
        """Whether rows are a table, and what depends on their form is free."""
        return self._is_free() and isinstance(X, np.ndarray)

    def _is_free(self) -> bool:
        """Whether parameters leave the form of a table to the data."""
        free = isinstance(self.kernel, str) and self.kernel == "rbf"
        free = free and is_auto(self.gamma) and is_auto(self.encode)
        free = free and self.vectors is None
        free = free and not self.move_vectors and self.learn_metric in ("auto", True)
        learner = self.learner
        has_vectors = isinstance(learner, Learner) and learner.has_vectors
        return free and (is_auto(learner) or has_vectors)

    @property
    def _learner(self) -> Learner:
        """The learner that a refit follows."""
        classes = None if self._family.real_targets else 2
        return defaults.learner_of(self.learner, classes, refits=True)

    def _form_of_stream(self, X: Rows) -> Form:
        is_table, (rows, columns) = self._is_free_table(X), X.shape
        is_narrow = columns <= forms.MOST_COLUMNS
        if is_table and is_narrow and rows >= forms.FEWEST_TO_BIN:
            values = min(forms.FEW_VALUES, rows // forms.ROWS_PER_VALUE_OF_STREAM)
            form = *forms.FORM_OF_STREAM, values
            return fit_form(X, self._nominal, *form, more_to_come=True)
        is_unlike = is_table and not has_one_scale(X)
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
        # Columns become codes, or numbers in units of their quartiles.
        tags.input_tags.allow_nan = self._is_free() or not (
            is_auto(self.encode) or self.encode is False
        )
        return tags

    def _validate(self, *, reset: bool = True, **arguments: Any) -> Any:
        """Rows as for all estimators.

        Where rows are encoded, values may be missing, and columns may hold names.
        """
        X, encodes = arguments["X"], self.encode is not False
        if reset:
            found = categories.find(categories.spread_lists(X)) if encodes else {}
            self.categories_ = found
        else:
            waits = self._waiting is not None and encodes
            encodes = waits or isinstance(self._model.scaling, Encoding)
        arguments["X"] = self._without_names(X) if encodes else X
        finite = "allow-nan" if encodes else True
        try:
            return super()._validate(reset=reset, ensure_all_finite=finite, **arguments)
        except ValueError as error:
            if not encodes and "NaN" in str(error):
                error.add_note("encode=0 takes missing values.")
            raise

    def _without_names(self, X: Any) -> Any:
        """Rows with the numbers of their names, as `model_` takes them."""
        return categories.to_numbers(categories.spread_lists(X), self.categories_)

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

    def _choose(self, labels: TableModel, seed: int, *, refits: bool) -> Choice:
        return defaults.choose(
            self.learner,
            loss=self._loss_setting(),
            maintenance=self.maintenance,
            average=self.average,
            vectors=self.vectors,
            num_classes=None if labels.classes is None else len(labels.classes),
            num_outputs=np.size(labels.intercept),
            seed=seed,
            refits=refits,
        )

    def _streams_first(self, examples: Examples) -> bool:
        learner = self._learner
        has_vectors = learner.has_vectors and learner.chooses_vectors
        many = np.count_nonzero(examples.weights) > online.FIRST_ROWS
        return has_vectors and self.learn_metric is not False and bool(many)

    def choose_encoding(
        self, X: Table, y: ArrayLike, sample_weight: Weights = None
    ) -> tuple[Encoding | Scaling | None, Kernel]:
        """The encoding and the kernel that `fit` chooses, without the rest of it.

        On a sample of a stream, they are for `budgetjax.fit_stream` and a refit.

        Args:
          X, y, sample_weight: as for `fit`.

        Returns:
          The encoding of the columns; or None for rows as they are, or what subtracts
          an origin far from 0. And the kernel.
        """
        # What this one has learned stays.
        new: Any = clone(self)
        streamed, seed, orders = new._stream_forms(new._prepare(X, y, sample_weight))
        with new._refitting(seed) as start:
            best, draft, _ = new._try_forms(streamed, orders, start)
            if draft is None and best.rivals:
                draft = start(best)
        state = best.model.model if draft is None else draft.state
        return best.model.scaling, state.kernel

    def _prepare(self, X: Table, y: ArrayLike, sample_weight: Weights) -> Prepared:
        """What `fit` learns, after checks."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _refitting(
        self, seed: int, *, of_stream: bool = False
    ) -> Iterator[Callable[..., Draft | None]]:
        """A function that starts a refit, with a progress bar."""
        # Waiting threads make small factorisations ten times slower on a busy machine;
        # XLA computes the large products.
        threads = threadpoolctl.threadpool_limits(1, user_api="blas")
        bar = _progress.progress_bar("refit", self.progress, "passes")
        with threads, bar as report:
            yield functools.partial(
                self._start_refit, seed=seed, report=report, of_stream=of_stream
            )

    def _try_forms(
        self,
        streamed: list[Streamed],
        orders: Sequence[Int[np.ndarray, " n"]],
        start: Callable[..., Draft | None],
    ) -> tuple[Streamed, Draft | None, bool]:
        """The best of several forms, its trial, and whether only some rows were tried.

        There is no trial of a single form.
        """
        best = streamed[0]
        if len(streamed) == 1:
            return best, None, False
        weights, tried = best.examples.weights, None
        count = int(np.count_nonzero(weights))
        if count > forms.TRIAL_ROWS:
            tried = spread_rows(orders[0], weights, forms.TRIAL_ROWS)
        epochs = EPOCHS if count <= held_out.MANY else TRIAL_EPOCHS
        epochs = FEWER_EPOCHS if count > MANY_ROWS else epochs
        trial = functools.partial(start, epochs=epochs, compares=True)
        drafts = [trial(each, tried=tried) for each in streamed]
        number = find_best(drafts, LEEWAY if count < forms.FEW_TO_DOUBT else 0.0)
        return streamed[number], drafts[number], tried is not None

    def _refit(
        self,
        streamed: list[Streamed],
        seed: int,
        orders: Sequence[Int[np.ndarray, " n"]] = (),
        *,
        of_stream: bool = False,
    ) -> TableModel:
        with self._refitting(seed, of_stream=of_stream) as start:
            best, draft, is_sampled = self._try_forms(streamed, orders, start)
            if draft is None or is_sampled:
                # What a trial prefers is not compared again on all rows.
                learns = draft is not None and draft.metric is not None
                draft = start(best, learns=learns)
            elif draft.rows > held_out.MANY:
                # The trial was a short one.
                draft = draft.learn_metric(None)
            if draft is not None and draft.rows <= held_out.MANY and not of_stream:
                draft = try_longer(draft)
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
            counts = draft.state.counts._replace(seen=_counters.of(seen))
            state = draft.state._replace(counts=counts)
            return streamed, draft._replace(state=state)
        state = held_out.clear(model.model)
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
        if not int(state.num_active):
            return None
        # The penalties to choose from are for a typical weight of 1, as is the prior of
        # a metric; a given one is C for the weights as they are.
        weights = examples.weights
        typical = SeenWeights().relative(weights)[1].typical
        examples = examples._replace(weights=weights / typical)
        penalties = self._penalties(int(np.count_nonzero(weights)))
        penalties = penalties if is_auto(self.penalty) else penalties * typical
        loss = self._losses().refit
        if callable(loss):
            loss = scale_loss(loss, model)
        if is_auto(learn_metric):
            # A prediction should not wait for a trial of a metric.
            learn_metric = not of_stream and (form.num_bins > 0 or learns or "auto")
        return start_refit(
            # Rows are shifted and targets centred already, so the model must not do it
            # again.
            TableModel(state, form.encoding),
            **examples.data(model.dtype),
            loss=loss,
            penalty=penalties,
            move_vectors=self.move_vectors,
            learn_metric=learn_metric,
            tolerance=TOLERANCE,
            calibrate=model.classes is not None,
            rivals=rivals,
            padding=form.padding,
            **settings,
        )

    def _finish(self, streamed: Streamed, draft: Draft | None) -> TableModel:
        form, model, examples, *_ = streamed
        # Without a draft, the zero model stays.
        if draft is not None:
            refitted = draft.finish()
            model = model.add_intercept(refitted.intercept)
            is_encoded = form.encoding is not None
            model = model._replace(
                model=refitted.model,
                calibration=refitted.calibration,
                scaling=refitted.scaling if is_encoded else model.scaling,
            )
            model = fold_map(model)
        model = strip_padding(model, examples.X)
        self._importances = measure_importances(model, examples.X)
        return model


def find_best(drafts: Sequence[Draft | None], leeway: float = 0.0) -> int:
    """The number of the draft with the least error on held-out rows.

    A draft without a metric is preferred if its error exceeds the least by at most this
    number of standard deviations.
    """
    errors = [[] if draft is None else draft.errors() for draft in drafts]
    folds = min(map(len, errors))
    if not folds:
        return 0
    each = [np.concatenate(parts[:folds]) for parts in errors]
    totals = [float(np.sum(one)) for one in each]
    best = int(np.argmin(totals))
    if not leeway:
        return best
    plain = [
        i for i, draft in enumerate(drafts) if draft is None or draft.metric is None
    ]
    other = min(plain, key=totals.__getitem__, default=best)
    chance = np.sqrt(np.sum((each[other] - each[best]) ** 2))
    return other if totals[other] - totals[best] <= leeway * chance else best


def try_longer(draft: Draft) -> Draft:
    """The same choices, or those of more passes of a metric, if it has fewer errors."""
    if not (draft.compares or draft.problem.learns):
        return draft
    longer = draft.learn_metric(LONG_EPOCHS)
    return (draft, longer)[find_best([draft, longer])]


def measure_importances(
    model: TableModel, X: Features
) -> Float[np.ndarray, " features"] | None:
    """The importance of each feature in a metric, or None without one."""
    kernel, codes = model.model.kernel, model.scaling
    rows = X.X if isinstance(X, EncodedRows) else X
    if isinstance(codes, Encoding):
        if codes.map is None:
            # All columns have quantiles: those of the codes are equal by construction.
            return None
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


def is_auto(parameter: object) -> bool:
    """Whether a parameter leaves the choice to `fit`."""
    return isinstance(parameter, str) and parameter == "auto"


def scale_loss(loss: Callable[..., Array], labels: TableModel) -> Callable[..., Array]:
    """The loss for targets, with its kinks, in the units of the labels."""
    if np.all(labels.unit == 1):
        return loss
    return losses.with_unit(loss, labels.unit, 1 if losses.has_kinks(loss) else 2)

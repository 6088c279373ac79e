"""What the kernel classifier and regressor share: their parameters and refits."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, cast

import jax
import numpy as np
import threadpoolctl
from jaxtyping import Array, Float, Shaped
from numpy.typing import ArrayLike
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted

from budgetjax import _checks, _counters, _progress, kernels, losses
from budgetjax._errors import ArgumentError
from budgetjax.estimators import inputs, online
from budgetjax.estimators.base import SetByFit
from budgetjax.estimators.inputs import RandomState, Rows, Sample
from budgetjax.estimators.online import Candidate, Examples, OnlineEstimator
from budgetjax.kernels import Kernel
from budgetjax.online import defaults
from budgetjax.online.defaults import Choice, Family, Loss
from budgetjax.online.importance import SeenWeights
from budgetjax.online.learner import Learner
from budgetjax.online.maintenance import Maintenance
from budgetjax.refitting import held_out
from budgetjax.refitting.refit import Draft, check_metric, start_refit
from budgetjax.tables import categories, encoding, scaling
from budgetjax.tables.categories import Categories
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.form import fit_encoding, narrowness
from budgetjax.tables.table_model import TableModel

# A refit stops when a step would gain less than this fraction of the objective. Smaller
# values took twice as long, and changed no accuracy by more than 0.1 points.
TOLERANCE = 1e-3
# More columns than this, whose deviations differ by up to this factor, are those of
# images, which are learned as they are if the largest is in this range: float32 does
# not hold all squares beyond it.
MOST_COLUMNS, ALIKE, RAW_RANGE = 128, 10.0, (1e-15, 1e15)


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
    # The losses and learners to choose from.
    _family: ClassVar[Family]

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
        check_is_fitted(self)
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

    @property
    def model_(self) -> TableModel:
        """The model that predicts from raw rows, for all functions of budgetjax."""
        return super().model_.with_categories(self.categories_)

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

    def _encode_table(
        self, X: Rows, *, more_to_come: bool = False
    ) -> Sequence[Encoding | None]:
        num_bins, rank = self._num_bins(X), self.learn_metric
        has_parts = self._kernel_has_parts()
        if num_bins is False or (is_auto(num_bins) and has_parts):
            return _leave(X)
        budget = min(_checks.size("budget", self.budget), X.shape[0])
        # A metric tells whether it needs bins.
        chooses = is_auto(num_bins) and rank is not False and not self.move_vectors
        found = [
            fit_encoding(
                *(X, budget, self._nominal),
                num_bins=None if isinstance(bins, str) else bins,
                rank=None if isinstance(rank, bool | str) else rank,
                more_to_come=more_to_come,
            )
            for bins in ([0, num_bins] if chooses else [num_bins])
        ]
        if not found[0].num_codes:
            # All rows are equal.
            return _leave(X)
        # Factors of columns, or a kernel's own parameters of them, need columns.
        is_plain = rank == "diagonal" or has_parts
        return [codes._replace(map=None) if is_plain else codes for codes in found]

    def _num_bins(self, X: Rows) -> int | str:
        """Bins per column; "auto" for as many as fit rows and columns; False for none.

        Sparse rows, and those of images, are learned as they are.
        """
        given, is_table = self.encode, isinstance(X, np.ndarray)
        if is_auto(given):
            is_wide = is_table and X.shape[1] > MOST_COLUMNS and not self._nominal
            return given if is_table and not (is_wide and has_one_scale(X)) else False
        if given is False:
            return False
        if not isinstance(given, int | np.integer) or given is True:
            wanted = "be False, 'auto' or a number of bins"
            raise ArgumentError("encode", wanted, f"{given!r}")
        if not is_table:
            raise ArgumentError("encode", "be False or 'auto' for sparse rows", given)
        return _checks.size("encode", given, at_least=0)

    def _kernel_has_parts(self) -> bool:
        """Whether a kernel has parameters that refer to single columns."""
        leaves = jax.tree.leaves(self.kernel)
        return isinstance(self.kernel, Kernel) and any(map(np.ndim, leaves))

    @property
    def _learner(self) -> Learner:
        """The learner that a refit follows."""
        classes = None if self._family.real_targets else 2
        return defaults.learner_of(self.learner, classes, refits=True)

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
            found = categories.find(categories.spread_lists(X)) if encodes else {}
            self.categories_ = found
        else:
            waits = self._waiting is not None and encodes
            encodes = waits or isinstance(self._model.scaling, Encoding)
        if encodes:
            X = categories.spread_lists(X)
            arguments["X"] = categories.to_numbers(X, self.categories_)
        finite = "allow-nan" if encodes else True
        try:
            return super()._validate(reset=reset, ensure_all_finite=finite, **arguments)
        except ValueError as error:
            if not encodes and "NaN" in str(error):
                error.add_note("encode='auto' takes missing values.")
            raise

    def _check_names(self, X: Any) -> None:
        """Raises for rows that have no room for names, where columns have some."""
        categories.check_names(X, self.categories_)

    def _gamma(self, sample: Sample, codes: Encoding | None) -> float | str:
        if not is_auto(self.gamma):
            return self.gamma
        named = isinstance(self.kernel, str) and self.kernel in kernels.GAMMA_KERNELS
        usual = sample.gamma if named else 0.0
        if not usual:
            return "scale"
        if codes is None:
            return usual
        # No model has more vectors than rows.
        return usual * narrowness(min(self.budget, sample.num_rows))

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

    @contextlib.contextmanager
    def _refitting(self) -> Iterator[Callable[[str], object]]:
        """A progress bar of a refit."""
        # Waiting threads make small factorisations ten times slower on a busy machine;
        # XLA computes the large products.
        threads = threadpoolctl.threadpool_limits(1, user_api="blas")
        bar = _progress.progress_bar("refit", self.progress, "passes")
        with threads, bar as report:
            yield report

    def _find_best(self, candidates: Sequence[Candidate], seed: int) -> int:
        with self._refitting() as report:
            return find_best(
                [self._start_refit(one, seed, report) for one in candidates]
            )

    def _refit(self, candidates: Sequence[Candidate], seed: int) -> TableModel:
        with self._refitting() as report:
            drafts = [self._start_refit(one, seed, report) for one in candidates]
            best = find_best(drafts)
            (model, examples, stream_all), draft = candidates[best], drafts[best]
            if stream_all is not None:
                # All rows count, unless there is a metric, which comes with the vectors
                # of a fold.
                if draft is None or draft.metric is None:
                    model = stream_all()
                if draft is None:
                    again = Candidate(model, examples)
                    draft = self._start_refit(again, seed, report)
                elif draft.metric is None:
                    draft = draft._replace(state=model.model)
                else:
                    seen = int(np.count_nonzero(examples.weights)) * self.epochs
                    counts = draft.state.counts._replace(seen=_counters.of(seen))
                    draft = draft._replace(state=draft.state._replace(counts=counts))
            if draft is None:
                # No row has changed the zero model.
                return model
            refitted, learns = draft.finish(), draft.metric is not None
        model = model.add_intercept(refitted.intercept)._replace(
            model=refitted.model,
            calibration=refitted.calibration,
            scaling=refitted.scaling if examples.codes is not None else model.scaling,
        )
        if learns:
            self._importances = measure_importances(model, examples.X)
        return model

    def _start_refit(
        self, candidate: Candidate, seed: int, report: Callable[[str], object]
    ) -> Draft | None:
        """A refit of these examples; None if no example has changed the model."""
        model, examples, _ = candidate
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
        loss, codes = self._losses().refit, examples.codes
        if callable(loss):
            loss = scale_loss(loss, model)
        if codes is not None and codes.map is not None:
            # The encoding has the rank of the metric.
            is_rank = not isinstance(learn_metric, bool | str)
            learn_metric = True if is_rank else learn_metric
        return start_refit(
            # Rows are shifted and targets centred already, so the model must not do it
            # again.
            TableModel(state, codes),
            **examples.data(model.dtype),
            loss=loss,
            penalty=penalties,
            move_vectors=self.move_vectors,
            learn_metric=learn_metric,
            tolerance=TOLERANCE,
            calibrate=model.classes is not None,
            seed=seed,
            report=report,
        )


def _leave(X: Rows) -> tuple[None]:
    """The form of rows as they are, which may miss nothing."""
    try:
        assert_all_finite(inputs.values(X), input_name="X")
    except ValueError as error:
        error.add_note("encode='auto' takes missing values.")
        raise
    return (None,)


def find_best(drafts: Sequence[Draft | None]) -> int:
    """The number of the draft that predicts held-out rows best, if there are any.

    A later one must be better by more than chance, as a metric must; see
    `held_out.DOUBT`.
    """
    if len(drafts) == 1:
        return 0
    errors = [[] if draft is None else draft.errors() for draft in drafts]
    folds = min(map(len, errors))
    each = [np.concatenate([np.zeros(1), *parts[:folds]]) for parts in errors]
    best = 0
    for i, one in enumerate(each):
        gain = each[best] - one
        if np.sum(gain) > held_out.DOUBT * np.sqrt(np.sum(gain**2)):
            best = i
    return best


def measure_importances(
    model: TableModel, X: Rows
) -> Float[np.ndarray, " features"] | None:
    """The importance of each feature in a metric."""
    kernel, codes = model.model.kernel, model.encoding
    if codes is not None:
        return encoding.importances(
            codes, inputs.to_array(X[scaling.sample_rows(X.shape[0])])
        )
    matrix = np.asarray(kernel.matrix, np.float64)
    lengths = np.sum(matrix.reshape(len(matrix), -1) ** 2, axis=1)
    parts = Sample(X).variances * lengths
    return parts / max(np.sum(parts), np.finfo(np.float64).tiny)


def has_one_scale(X: Rows) -> bool:
    """Whether all columns have one scale, and no value is missing."""
    deviations = np.sqrt(Sample(X).variances)
    deviations = deviations[deviations > 0]
    if np.any(np.isnan(inputs.values(X))) or not len(deviations):
        return False
    (least, most), largest = RAW_RANGE, np.max(deviations)
    is_alike = largest <= ALIKE * np.quantile(deviations, 0.25)
    return bool(is_alike and least <= largest <= most)


def is_auto(parameter: object) -> bool:
    """Whether a parameter leaves the choice to `fit`."""
    return isinstance(parameter, str) and parameter == "auto"


def scale_loss(loss: Callable[..., Array], labels: TableModel) -> Callable[..., Array]:
    """The loss for targets, with its kinks, in the units of the labels."""
    if np.all(labels.unit == 1):
        return loss
    return losses.with_unit(loss, labels.unit, 1 if losses.has_kinks(loss) else 2)

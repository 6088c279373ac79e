"""What the online estimators share: a state, what moves it on, and what it predicts."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, cast

import numpy as np
import scipy.sparse
import threadpoolctl
from jaxtyping import Float, Int, Shaped
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from budgetjax import checks, models, progress_bar, support_set
from budgetjax.estimators import inputs, packing, parameters
from budgetjax.models import Labelled, padded
from budgetjax.online import engine
from budgetjax.refitting import passes
from budgetjax.refitting.refit import refit
from budgetjax.stream.batches import Batches
from budgetjax.stream.reservoir import Reservoir, usual_size

# Rows that the refit pads to, at least.
FEWEST_TO_REFIT = 256
# A refit stops when a step would gain less than this part of the objective. Smaller
# ones take twice as long, and no accuracy changed by more than 0.1 points.
TOLERANCE = 1e-3
# Attributes that hold a state.
STATES = ("_streamed", "_solved")
# What gamma="auto" chooses from, the usual one first, and the rows that it looks at.
FACTORS = (1.0, 0.5, 2.0, 0.25, 4.0)
LEARNED, HELD_OUT = 4096, 1024
# Rows of a reservoir that are replayed at once: one program, however many there are.
REPLAYED = 256


class Learner(BaseEstimator):
    """An estimator with the state of an online algorithm."""

    _family: ClassVar[parameters.Family]

    random_state: Any

    # The state that the stream has left, and what solves it anew: a sample of the
    # stream, if it is kept, and the state after that, unless rows have come since.
    _streamed: Any
    _reservoir: Reservoir | None
    _solved: Any
    origin_: Float[np.ndarray, " features"]
    n_iter_: int
    _name: str

    @property
    def state_(self) -> Any:
        """The model that predicts, as a state of the algorithm."""
        streamed = self._streamed
        if self._reservoir is None:
            return streamed
        if self._solved is None:
            self._solved = self._replayed(streamed, self._reservoir)
        return self._solved

    @property
    def support_vectors_(self) -> Float[np.ndarray, "vectors features"]:
        """The support vectors, shape `(n_support_, n_features_in_)`."""
        support = models.support(self.model_)
        return np.asarray(support.vectors)[np.asarray(support.mask)]

    @property
    def dual_coef_(self) -> Float[np.ndarray, "columns vectors"]:
        """Their coefficients, shape `(1, n_support_)`, or a row for each class."""
        support = models.support(self.model_)
        return np.asarray(support.coefficients)[np.asarray(support.mask)].T

    @property
    def n_support_(self) -> int:
        """The number of support vectors."""
        return int(self.state_.expansion.num_active)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_streamed")

    def __getstate__(self):
        state = {**cast(dict[str, Any], super().__getstate__())}
        for name in STATES:
            if name in state:
                state[name] = packing.packed(state[name])
        return state

    def __setstate__(self, state):
        state = {**state}
        for name in STATES:
            if name in state:
                state[name] = packing.unpacked(state[name])
        super().__setstate__(state)

    @property
    def _where(self) -> str:
        return type(self).__name__

    @property
    def _dtype(self) -> np.dtype:
        return np.dtype(self._streamed.expansion.vectors.dtype)

    def _validated(self, X: Any, y: Any, *, first: bool, **more: Any) -> Any:
        """X and y as arrays, or X as a CSR matrix."""
        X, y = validate_data(
            self,
            X,
            y,
            reset=first,
            accept_sparse="csr",
            dtype=inputs.FLOATS,
            **more,
        )
        dtype = inputs.dtype_of(X) if first else self._dtype
        inputs.check_range(self._where, X, dtype)
        return X, y

    def _weights(self, X: Any, sample_weight: Any) -> Float[np.ndarray, " n"]:
        weights = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
        if not np.any(weights > 0):
            raise ValueError(
                f"{self._where}: sample_weight must not be zero for all rows, got zeros"
            )
        return weights

    def _seeds(self) -> tuple[int, np.random.RandomState]:
        """A seed for the algorithm, and what draws the orders."""
        random = check_random_state(self.random_state)
        return int(random.randint(2**31 - 1)), random

    def _refits(self) -> bool:
        """Whether to refit; its parameters are checked before a stream is read."""
        where, given = self._where, self.get_params(deep=False)
        refits = bool(checks.flag(where, "refit", given["refit"]))
        if refits:
            checks.flag(where, "move_vectors", given["move_vectors"])
            for penalty in np.atleast_1d(np.asarray(given["penalty"], object)):
                checks.positive(where, "penalty", penalty)
        return refits

    def _algorithm(self, refits: bool) -> str:
        """The algorithm's name, that the user gives or that is usual."""
        given = self.get_params(deep=False)["algorithm"]
        name = self._family.usual[not refits] if given is None else given
        # A name that is none is told of before what the data are.
        parameters.algorithm(self._where, self._family, name)
        return name

    def _gamma(self, X: Any, y: Any, sample_weight: Any) -> Any:
        """The parameter; for "auto" what predicts best where it has not learned.

        All fits are of the same shapes, so that one compilation serves them.
        """
        given = self.get_params(deep=False)
        usual = given["gamma"]
        if not isinstance(usual, str) or usual != "auto":
            return usual
        if not isinstance(given["kernel"], str) or given["kernel"] == "linear":
            # A kernel without gamma, whose message is the right one.
            return usual
        usual = inputs.scale(X) or 1.0
        seed, random = self._seeds()
        rows = random.permutation(X.shape[0])[: LEARNED + HELD_OUT]
        learned, held = np.split(rows, [len(rows) * LEARNED // (LEARNED + HELD_OUT)])
        if len(np.unique(y[learned])) < 2 or not len(held):
            return usual
        weights = None if sample_weight is None else np.asarray(sample_weight)
        parts = [None if weights is None else weights[i] for i in (learned, held)]
        found = []
        with warnings.catch_warnings():
            # What there is to say of all rows is said of these too.
            warnings.simplefilter("ignore")
            for factor in FACTORS:
                model = cast(Any, clone(self)).set_params(
                    gamma=factor * usual, random_state=seed, progress=False
                )
                model.fit(X[learned], y[learned], parts[0])
                found.append(model.score(X[held], y[held], parts[1]))
        return FACTORS[int(np.argmax(found))] * usual

    def _start(
        self,
        name: str,
        X: Any,
        num_classes: int | None,
        seed: int,
        gamma: Any,
        *,
        refits: bool,
        more_to_come: bool = False,
    ) -> tuple[Any, Float[np.ndarray, " features"]]:
        """An empty state, and the origin of the rows that it will see."""
        where, given = self._where, self.get_params(deep=False)
        kernel = inputs.kernel_of(
            where, given["kernel"], gamma, X, more_to_come=more_to_come
        )
        origin = inputs.origin_of(kernel, X)
        state = parameters.start(
            where,
            self._family,
            name,
            given,
            kernel,
            origin,
            dtype=inputs.dtype_of(X),
            num_classes=num_classes,
            seed=seed,
            refits=refits,
        )
        inputs.warn_unscaled(where, X, origin, stacklevel=6)
        return state, origin

    def _passed(
        self,
        X: Any,
        num_classes: int | None,
        gamma: Any,
        examples: Callable[[Int[np.ndarray, " n"] | None], tuple[Any, Any]],
    ) -> tuple[str, Any, Float[np.ndarray, " features"], bool, int]:
        """The algorithm, its state after all passes, the origin, `refit`, and a seed.

        `examples` gives the targets and weights of the rows in an order.
        """
        where, given = self._where, self.get_params(deep=False)
        refits = self._refits()
        shuffle = bool(checks.flag(where, "shuffle", given["shuffle"]))
        epochs = checks.size(where, "epochs", given["epochs"])
        seed, random = self._seeds()
        name = self._algorithm(refits)
        state, origin = self._start(name, X, num_classes, seed, gamma, refits=refits)
        n = X.shape[0]
        with progress_bar.reporting(
            where, given["progress"], "rows", n * epochs
        ) as report:
            for _ in range(epochs):
                order = random.permutation(n) if shuffle else None
                state = self._run(
                    *(name, state, X, origin, *examples(order)), order, report
                )
        return name, state, origin, refits, seed

    def _run(
        self,
        name: str,
        state: Any,
        X: Any,
        origin: Float[np.ndarray, " features"],
        targets: Shaped[np.ndarray, " n"],
        weights: Float[np.ndarray, " n"],
        order: Int[np.ndarray, " n"] | None = None,
        report: Callable[..., object] = lambda text, count: None,
        size: int | None = None,
    ) -> Any:
        """The state after the rows in this order, in which targets and weights are."""
        algorithm = parameters.algorithm(self._where, self._family, name)
        dtype = np.dtype(state.expansion.vectors.dtype)
        for start, stop, rows in inputs.blocks(X, dtype, origin, order, size):
            labels = padded(targets[start:stop], len(rows), 1)
            counts = padded(weights[start:stop], len(rows))
            state, _ = engine.run(algorithm, state, rows, labels, weight=counts)
            report(f"{int(state.expansion.num_active)} vectors", stop - start)
        return state

    def _began(
        self, X: Any, num_classes: int | None, y_dtype: np.dtype
    ) -> tuple[str, Any, Float[np.ndarray, " features"], Reservoir | None]:
        """What a stream that comes in parts begins with."""
        refits, (seed, _) = self._refits(), self._seeds()
        name = self._algorithm(refits)
        state, origin = self._start(
            *(name, X, num_classes, seed, self.get_params(deep=False)["gamma"]),
            refits=refits,
            more_to_come=True,
        )
        kept = None
        if refits:
            width = X.shape[1]
            kept = Reservoir.empty(
                width, inputs.dtype_of(X), y_dtype, size=usual_size(width), seed=seed
            )
        return name, state, origin, kept

    def _went_on(
        self,
        name: str,
        state: Any,
        origin: Float[np.ndarray, " features"],
        kept: Reservoir | None,
        X: Any,
        targets: Shaped[np.ndarray, " n"],
        y: Shaped[np.ndarray, " n"],
        weights: Float[np.ndarray, " n"],
    ) -> None:
        """Learns a part of a stream; `y` is kept, of which `targets` are learned."""
        state = self._run(name, state, X, origin, targets, weights)
        if kept is not None:
            dtype = np.dtype(state.expansion.vectors.dtype)
            kept = kept.updated(inputs.dense(X, dtype, origin), y, weights)
        self._streamed, self._reservoir, self._solved = state, kept, None
        self._name, self.origin_ = name, origin

    def _targets(self, y: Shaped[np.ndarray, " n"]) -> Shaped[np.ndarray, " n"]:
        """What is learned of labels or targets that were kept."""
        return y

    def _replayed(self, state: Any, kept: Reservoir) -> Any:
        """The state after the rows that were kept, in random order, and the refit.

        However the stream was sorted, these are all parts of it.
        """
        rows, nowhere = kept.rows(), np.zeros(kept.kept.X.shape[1])
        if not len(rows.y):
            return state
        targets = self._targets(rows.y)
        state = self._run(
            *(self._name, state, rows.X, nowhere, targets, rows.weights), size=REPLAYED
        )
        return self._refitted(state, rows.X, nowhere, targets, rows.weights, kept.seed)

    def _refitted(
        self,
        state: Any,
        X: Any,
        origin: Float[np.ndarray, " features"],
        targets: Shaped[np.ndarray, " n"],
        weights: Float[np.ndarray, " n"],
        seed: int,
    ) -> Any:
        """The state with the coefficients that are best for these rows."""
        if not int(state.expansion.num_active):
            # No example has asked for a change: the model of zeros is right.
            return state
        given = self.get_params(deep=False)
        dtype = np.dtype(state.expansion.vectors.dtype)
        # Threads that wait for each other make small factorisations ten times slower on
        # a busy machine; the large products are XLA's.
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            return refit(
                state,
                **_data(X, origin, targets, weights, dtype),
                loss=parameters.loss(self._where, self._family, given["loss"]).refit,
                penalty=given["penalty"],
                move_vectors=given["move_vectors"],
                tolerance=TOLERANCE,
                seed=seed,
                progress=given["progress"],
            )

    @property
    def model_(self) -> Labelled:
        """What predicts: the state, or the average of its iterates, of raw rows."""
        averages = self.state_.expansion.average is not None
        return Labelled(
            support_set.averaged(self.state_) if averages else self.state_,
            inputs.moved(self.origin_),
            getattr(self, "classes_", None),
            inputs.names_of(self),
            getattr(self, "intercept_", 0.0),
        )

    def _scores(self, X: Any) -> Float[np.ndarray, "n ..."]:
        check_is_fitted(self)
        X = validate_data(
            self, X, reset=False, accept_sparse="csr", dtype=inputs.FLOATS
        )
        inputs.check_range(self._where, X, self._dtype)
        return models.decision_function(self.model_, X)


def _data(
    X: Any,
    origin: Float[np.ndarray, " features"],
    targets: Shaped[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    dtype: np.dtype,
) -> dict[str, Any]:
    """What `refit` is given: of few rows, few sizes."""
    n, features = X.shape
    if n > passes.BLOCK and scipy.sparse.issparse(X):

        def read() -> Iterator[tuple[np.ndarray, ...]]:
            for start in range(0, n, passes.BLOCK):
                part = slice(start, start + passes.BLOCK)
                rows = inputs.dense(X[part], dtype, origin)
                yield rows, targets[part], weights[part]

        return {"X": Batches("X", features, read)}
    if n > passes.BLOCK:
        rows = inputs.dense(X, dtype, origin)
        return {"X": rows, "y": targets, "weight": weights}
    size = max(FEWEST_TO_REFIT, 1 << (n - 1).bit_length())
    return {
        "X": padded(inputs.dense(X, dtype, origin), size),
        "y": padded(targets, size, 1),
        "weight": padded(weights, size),
    }

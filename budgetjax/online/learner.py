"""The base of all learners: a description, which `init` binds to a state."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Integer

from budgetjax import _checks, _counters, kernels, losses
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import Record
from budgetjax._shapes import (
    Basis,
    Examples,
    Flag,
    Label,
    PerExample,
    Score,
    Scores,
    Targets,
    Weights,
)
from budgetjax.kernels import Kernel
from budgetjax.online import engine, support_set
from budgetjax.online.averages import Average
from budgetjax.online.edits import Edits
from budgetjax.online.maintenance import Maintenance, Merge, Project
from budgetjax.online.state import Counts, Online, State
from budgetjax.online.support_set import Candidate, Expansion

Own = TypeVar("Own", bound="Learner")

# The optional arguments of `Learner.init`, which a learner names if it takes them.
OPTIONAL = ("num_classes", "num_outputs", "maintenance", "vectors", "average")


class OnlineLearner(Record, abstract=True):
    """A description of a model that learns online, which `init` makes.

    `Learner` is that of one kernel expansion, `budgetjax.Mixture` that of several. A
    recipe, and so an estimator or the command line, takes both.

    Attributes:
      takes: those of the optional arguments of `init` that it takes; "num_outputs"
        stands for real targets too.
      loss: a function of scores and target; one that does not take labels makes the
        targets real numbers. None is for both.
      has_vectors: whether its vectors are examples, and not random features.
      chooses_vectors: whether labels decide which examples become support vectors; if
        not, they may be chosen from held-out rows too.
      chooses_kernel: whether it has kernels of its own, in units of the one that it is
        given. It then cannot be refitted.
    """

    takes: ClassVar[tuple[str, ...]] = ("num_classes", "maintenance", "average")
    loss: ClassVar[Any] = None
    has_vectors: ClassVar[bool] = True
    chooses_vectors: ClassVar[bool] = True
    chooses_kernel: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if unknown := {*cls.takes} - {*OPTIONAL}:
            got, wanted = ", ".join(sorted(unknown)), f"be among {', '.join(OPTIONAL)}"
            raise ArgumentError(f"what {cls.__name__} takes", wanted, got)

    @classmethod
    def learns(cls, num_classes: int | None) -> bool:
        """Whether it learns so many classes, or real targets if that is None."""
        if num_classes is None:
            return "num_outputs" in cls.takes
        loss: Any = cls.loss
        if loss is not None and not losses.takes_labels(loss):
            return False
        return num_classes == 2 or "num_classes" in cls.takes

    def init(self, *arguments: Any, **named: Any) -> Online:
        """A model that has learned nothing, with arguments as those of `Learner`."""
        raise NotImplementedError

    def _check_taken(
        self,
        num_classes: int | None,
        num_outputs: int,
        maintenance: Maintenance | None,
        vectors: ArrayLike | None,
        average: bool | int,
    ) -> None:
        """Raises if an argument is given that this learner does not take."""
        given = {
            "maintenance": (maintenance is not None, "None", maintenance),
            "vectors": (vectors is not None, "None", "some"),
            "average": (average is not False, "False", average),
            "num_outputs": (num_outputs != 1, "1", num_outputs),
        }
        own = type(self).__name__
        for name, (is_given, default, got) in given.items():
            if is_given and name not in self.takes:
                wanted = f"be {default}, as {own} takes none"
                raise ArgumentError(name, wanted, f"{got!r}")
        if num_classes is None and not self.learns(None):
            raise ArgumentError(
                "num_classes", f"be a number, as {own} learns labels", None
            )
        if num_classes is not None and not self.learns(2):
            wanted = f"be None, as {own} learns real targets"
            raise ArgumentError("num_classes", wanted, f"{num_classes!r}")
        if num_classes not in (2, None) and "num_classes" not in self.takes:
            wanted = f"be 2, all that {own} learns"
            raise ArgumentError("num_classes", wanted, f"{num_classes!r}")
        if vectors is not None and maintenance is not None:
            wanted = "be None with vectors, which stay"
            raise ArgumentError("maintenance", wanted, f"{maintenance!r}")
        if maintenance is not None and not isinstance(maintenance, Maintenance):
            wanted = "be a strategy such as RemoveOldest()"
            raise ArgumentError("maintenance", wanted, f"{maintenance!r}")


class Learner(OnlineLearner, abstract=True):
    """An online learner: a value with its hyperparameters as fields.

    `init` makes a state, in which the learner is bound: its numbers are arrays, so that
    new values never recompile, and `jax.vmap` over `init` sweeps them. A round never
    changes the learner. What it remembers is `state.memory`.

    A learner of your own is a subclass with its fields, `violates` and `update`; it
    works with every verb of this package, in estimators, and, after
    `budgetjax.register`, in files and on the command line::

        class Fading(bj.Learner):
            rate: float = 0.5

            def violates(self, state, score, y):
                return bj.losses.margin(score, y) < 1

            def update(self, state, score, y, candidate):
                step = self.rate * bj.losses.margin_subgradient(score, y)
                return self.insert(state, step, candidate)

    What it remembers, `start` puts into `state.memory`, and `update` changes, in the
    rounds that violate::

            def start(self, state, seed, vectors):
                return state._replace(memory=jnp.zeros((), state.dtype))

            def update(self, state, score, y, candidate):
                state = state._replace(memory=state.memory + 1)
                ...

    A learner that changes its model in every round defines `block` instead of these
    two. Where a class is defined
    again, as in a notebook, states keep their old learner, and
    `budgetjax.with_learner` gives them the new one.
    """

    loss: ClassVar[Any] = staticmethod(losses.hinge)

    def init(
        self,
        kernel: Kernel,
        *,
        num_features: int,
        budget: ArrayLike,
        num_classes: int | None = 2,
        num_outputs: int = 1,
        maintenance: Maintenance | None = None,
        vectors: ArrayLike | None = None,
        average: bool | int = False,
        seed: ArrayLike = 0,
        capacity: int | None = None,
        dtype: DTypeLike = jnp.float32,
    ) -> State:
        """An empty model, which scores 0 everywhere; memory O(B (d + C)) at least.

        Args:
          kernel: a kernel, whose parameters may be traced.
          num_features: d, the length of an example.
          budget: B, the maximum number of support vectors; may be traced if `capacity`
            is given.
          num_classes: 2 for labels -1 and +1, with one column of coefficients; C for
            labels `0 .. C-1`, with one column per class; None for real targets.
          num_outputs: real targets per example, with one column each; all columns share
            the support vectors, and the loss is summed over the columns.
          maintenance: the strategy that makes room in a full budget, such as
            `budgetjax.RemoveOldest()`. None merges with a Gaussian kernel and projects
            with any other.
          vectors: fixed support vectors, shape `(m, num_features)` with m at most B,
            such as the centres of scikit-learn's `MiniBatchKMeans`.
          average: True to keep the average of all iterates as well as the last one, or
            the round at which averaging starts; see `budgetjax.average_iterates`.
          seed: an integer, or a key of `jax.random`, for random draws.
          capacity: slots to allocate, at least the budget; None for the budget. Budgets
            that share a capacity can be swept by `jax.vmap`.
          dtype: the float type of vectors, coefficients and kernel parameters.

        Raises:
          ValueError: if an argument is invalid, is none that the learner takes, or the
            arrays would not fit into the memory that is free.
        """
        with names_errors(f"{type(self).__name__}.init"):
            self._check_taken(num_classes, num_outputs, maintenance, vectors, average)
            sizes = {
                "num_features": num_features,
                "num_classes": num_classes,
                "num_outputs": num_outputs,
                "budget": budget,
                "capacity": capacity,
            }
            make = functools.partial(
                *(self._init, kernel, sizes, maintenance, vectors, average, seed),
                dtype,
            )
            _check_memory(sizes, make)
            return make()

    def _init(
        self,
        kernel: Kernel,
        sizes: dict[str, Any],
        maintenance: Maintenance | None,
        vectors: ArrayLike | None,
        average: bool | int,
        seed: ArrayLike,
        dtype: DTypeLike,
    ) -> State:
        kind = _checks.float_dtype(dtype)
        num_classes, num_outputs = sizes["num_classes"], sizes["num_outputs"]
        expansion = support_set.empty(
            num_features=sizes["num_features"],
            num_columns=_num_columns(num_classes, num_outputs),
            budget=sizes["budget"],
            capacity=sizes["capacity"],
            dtype=kind,
            average=_averaging(average, kind),
        )
        kernel = kernels.as_leaves(kernel, expansion.vectors.shape[1], kind)
        self.check_kernel(kernel)
        seed = _checks.seed(seed)
        if maintenance is None and vectors is None:
            maintenance = self.default_maintenance(kernel)
        state = State(
            learner=self.bind(expansion, num_classes),
            kernel=kernel,
            expansion=expansion,
            maintenance=maintenance,
            memory=None,
            counts=Counts.of(0, 0, 0),
        )
        state = state.learner.start(state, seed, vectors)
        if not isinstance(state, State):
            raise ArgumentError("start", "return the state", type(state).__name__)
        if maintenance is not None:
            maintenance = maintenance.start(state.kernel, state.expansion, seed)
        return state._replace(maintenance=maintenance)

    def bind(self: Own, expansion: Expansion, num_classes: int | None) -> Own:
        """The learner for a state: numbers as arrays, and defaults for these sizes.

        Binding a bound learner changes nothing. A subclass replaces fields that are no
        numbers, and checks what depends on sizes.

        Args:
          expansion: the empty support set.
          num_classes: as for `init`.
        """
        return self._replace(**_checks.numbers_as_leaves(self, expansion.vectors.dtype))

    def check_kernel(self, kernel: Kernel) -> None:
        """Raises if the learner cannot have this kernel."""

    def default_maintenance(self, kernel: Kernel) -> Maintenance | None:
        """The strategy where none is given; None for a learner without one."""
        return Merge() if kernel.gaussian else Project()

    def start(self, state: State, seed: ArrayLike, vectors: ArrayLike | None) -> State:
        """The state before its first example, with what the learner remembers.

        Args:
          state: of this learner, with an empty support set and a strategy that is not
            started.
          seed: an integer.
          vectors: fixed support vectors, if it takes some.
        """
        return state

    def restart(self, state: State) -> State:
        """The state with nothing learned; `refresh` follows.

        The default empties support set and counters, and starts again with the seed 0
        and no vectors. A learner that takes either defines its own.
        """
        return self.start(state.empty(), 0, None)

    def violates(self, state: State, score: Score, y: Label) -> Flag:
        """Whether this round must change the model, from the score of the example.

        It must be cheap. By default it is whether the hinge loss is positive.
        """
        return losses.margin(score, y) < 1

    def update(
        self, state: State, score: Score, y: Label, candidate: Candidate
    ) -> tuple[State, Edits]:
        """The change of the model in a round that violates.

        Args:
          state: before the round, with its decay already; its support set is read, and
            changed by the edits alone.
          score: of the example, shape `(columns,)`.
          y: its label or target.
          candidate: the example with its kernel row.

        Returns:
          The state, with its support set as it was, and the edits.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `update`")

    @staticmethod
    def insert(
        state: State, coefficients: Score, candidate: Candidate
    ) -> tuple[State, Edits]:
        """The example enters with unscaled coefficients; the strategy makes room."""
        assert state.maintenance is not None, "a learner with a strategy"
        maintenance, edits = state.maintenance.insert(
            *(state.kernel, state.expansion),
            candidate._replace(coefficients=coefficients),
        )
        return state._replace(maintenance=maintenance), edits

    def decay(
        self, state: State, rounds_ahead: Integer[Array, " n"]
    ) -> Float[Array, " n"]:
        """The logarithms of the factors by which idle rounds shrink all coefficients.

        `rounds_ahead` counts these rounds, shape `(n,)`, ascending. The default is 0.
        """
        return jnp.zeros(rounds_ahead.shape, state.expansion.scale.dtype)

    def block(
        self,
        state: State,
        X: Examples,
        y: Targets,
        weights: PerExample,
        axis: str | None = None,
    ) -> tuple[State, Scores]:
        """The state after examples in order, and the score of each by then."""
        return engine.block(state, X, y, weights, axis)

    def block_with_variances(
        self,
        state: State,
        X: Examples,
        y: Targets,
        weights: PerExample,
        axis: str | None = None,
    ) -> tuple[State, Scores, Float[Array, "*n_columns"]]:
        """The result of `block`, and the variance of each score by then.

        One that computes the variance in every round defines its own.
        """

        def body(state: State, example: Any) -> tuple[State, tuple[Array, Array]]:
            one = jax.tree.map(lambda value: value[None], example)
            variance = self.variance(state, one[0])
            state, scores = self.block(state, one[0], one[1], one[2], axis)
            return state, (scores[0], variance[0])

        state, told = jax.lax.scan(body, state, (X, y, weights))
        return state, *told

    def no_update_above(self, state: State) -> float | None:
        """A margin from which on an example does not violate, of a known state.

        A caller then needs no compiled program to tell. None if more decides.
        """
        return None

    @property
    def knows_variance(self) -> bool:
        """Whether it has a `variance` of its own."""
        return type(self).variance is not Learner.variance

    def variance(
        self, state: State, X: Float[Array, "n features"]
    ) -> Float[Array, "*n_columns"]:
        """The variance of the score of each example, a difference from the origin.

        It is one for all columns, shape `(n,)`, or one for each.
        """
        wanted = "be one that knows the variance of its scores, as budgetjax.KRLST does"
        raise ArgumentError("the learner", wanted, type(self).__name__)

    def precision(self, state: State) -> Float[np.ndarray, "vectors vectors"] | None:
        """What examples add to the precision of the scores at the support vectors.

        It is for `budgetjax.merge_models`; None if the learner knows none.
        """
        return None

    def basis(self, state: State) -> Basis:
        """An orthonormal basis of the span of the support vectors, for a refit.

        It is `V diag(w)^(-1/2)` of `K = V diag(w) V^T`, without rounding errors in `w`.
        A refit solves for weights of the features `basis^T k(x)`.
        """
        w, V = jnp.linalg.eigh(support_set.gram(state.kernel, state.expansion))
        keep = w > support_set.SMALLEST_EIGENVALUE * w[-1]
        return V * jnp.where(keep, 1 / jnp.sqrt(jnp.where(keep, w, 1)), 0)[None]

    def with_weights(self, state: State, root: Basis, weights: Weights) -> State:
        """The state with the coefficients `root weights^T`; `refresh` follows.

        The sums of an average start again.
        """
        return _with_coefficients(
            state, jnp.matmul(root, weights.T, precision="highest")
        )

    def with_vectors(self, state: State, vectors: Float[Array, "rows d"]) -> State:
        """The state with other vectors, slot by slot; `refresh` follows."""
        expansion = support_set.with_vectors(state.expansion, vectors)
        return state._replace(expansion=expansion)

    def refresh(self, state: State) -> State:
        """The state after its support set was changed from outside.

        What depends on coefficients and kernel values is computed anew. The default
        restarts the strategy.
        """
        strategy = state.maintenance
        if strategy is None:
            return state
        strategy = strategy.restart(state.kernel, state.expansion)
        return state._replace(maintenance=strategy)


def _with_coefficients(state: State, coefficients: Array) -> State:
    expansion = state.expansion
    terms = jnp.where(expansion.mask[:, None], coefficients / expansion.scale, 0)
    if expansion.average is not None:
        terms = jnp.concatenate([terms, jnp.zeros_like(terms)], axis=1)
    return state._replace(expansion=expansion._replace(coefficients_and_sums=terms))


def _check_memory(sizes: dict[str, Any], make: Callable[[], State]) -> None:
    """Counts the bytes of a large state before any is allocated."""
    known = {
        key: int(one) for key, one in sizes.items() if isinstance(one, int | np.integer)
    }
    rows = known.pop("capacity", 0) or known.get("budget", 0)
    # A learner may hold a few numbers per pair of support vectors. Small states skip
    # the slow tracing.
    if 8 * rows * (rows + sum(known.values())) <= _checks.CHECK_FROM_BYTES:
        return
    # One that needs the values of its arrays cannot be counted.
    with contextlib.suppress(jax.errors.JAXTypeError):
        _checks.check_arrays(known | {"budget": rows}, jax.eval_shape(make))


def _num_columns(num_classes: int | None, num_outputs: int) -> int:
    """Columns of coefficients: one for two classes, and one per real output."""
    outputs = _checks.size("num_outputs", num_outputs)
    if num_classes is None:
        return outputs
    if outputs > 1:
        raise ArgumentError(
            "num_outputs",
            "be 1 unless num_classes is None, for real targets",
            f"{outputs} with num_classes={num_classes!r}",
        )
    classes = _checks.size("num_classes", num_classes, at_least=2)
    return 1 if classes == 2 else classes


def _averaging(average: bool | int, dtype: np.dtype) -> Average | None:
    """Parses `average=` of an `init`: False, True, or the first averaged round."""
    if isinstance(average, bool) and not average:
        return None
    first = 1 if isinstance(average, bool) else average
    _checks.positive_integer("average", first)
    _checks.scalar_integer("average", first)
    zero = jnp.zeros((), dtype)
    return Average(_counters.of(int(first)), zero, jnp.zeros((), dtype))

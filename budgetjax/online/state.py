"""What is learned online: the state of a learner, and what verbs ask of it."""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Shaped

from budgetjax import (
    _checks,
    _counters,
    _forks,
    _record,
    _sharding,
    kernels,
    losses,
    scoring,
)
from budgetjax._counters import UNIT, Words
from budgetjax._errors import ArgumentError, Named, names_errors
from budgetjax._rows import RawRows
from budgetjax.kernels import Kernel
from budgetjax.model import KernelModel, Model, Support, of_support, required
from budgetjax.online import support_set
from budgetjax.online.slots import FREE
from budgetjax.online.support_set import Expansion
from budgetjax.scoring import KernelSum, Output

# A verb returns the kind of object that it takes.
Kind = TypeVar("Kind", bound="Online")
Own = TypeVar("Own", bound="State")


class BudgetError(Named, OverflowError):
    """Examples that found no room in an unbudgeted model."""


@_record.record
class Counts(NamedTuple):
    """What a model counts.

    Attributes:
      seen: rounds so far.
      mistakes: rounds with a margin of at most 0, or a number of the wrong sign.
      updates: rounds that changed the model.
    """

    seen: Words
    mistakes: Words
    updates: Words

    @classmethod
    def of(cls, *values: int) -> "Counts":
        """The counters of Python integers."""
        return cls(*map(_counters.of, values))

    def after(self, *more: Integer[Array, "*models"] | Bool[Array, "*models"] | int):
        """The counters with more rounds, mistakes and updates; not normalized."""
        known = (
            words if isinstance(new, int) and not new else _counters.after(words, new)
            for words, new in zip(self, (*more, 0, 0, 0), strict=False)
        )
        return Counts(*known)


def _show_counts(counts: Counts) -> str:
    """The counters as numbers, if they are known."""
    words = [word for one in counts for word in one]
    arrays = all(isinstance(word, jax.Array | np.ndarray) for word in words)
    if not arrays or _checks.is_traced(counts):
        return _record.record_repr(counts)
    numbers = (_record.value_repr(_counters.number(one)) for one in counts)
    pairs = zip(counts._fields, numbers, strict=True)
    return f"Counts({', '.join(f'{name}={number}' for name, number in pairs)})"


Counts.__repr__ = _show_counts  # pyright: ignore[reportAttributeAccessIssue]


class Round(NamedTuple):
    """What a model said of examples, each before it learned from it.

    Attributes:
      score: shape `(size, columns)`.
      variance: shape `(size,)` if all columns have one, else `(size, columns)`; None
        unless it was asked for.
    """

    score: Float[Array, "size columns"]
    variance: Float[Array, "*n_columns"] | None = None


class Online(Model, abstract=True):
    """A model that learns online, as far as the verbs of this package ask of it.

    `budgetjax.State` is one kernel expansion. A model of another kind, such as a
    mixture of several, is a subclass with these methods and `num_features`,
    `num_columns`, `dtype`, `loss` and `scores`; it works with `step`, `run`, `sweep`,
    `predict`, `fit_stream` and `save`.

    Attributes:
      counts: see `num_seen`, `num_mistakes` and `num_updates`.
      loss: what it minimises, or the loss of the labels; it says what scores mean.
    """

    counts: Counts

    def learn(
        self: Kind,
        X: Float[Array, "size features"],
        y: Shaped[Array, "size ..."],
        weights: Float[Array, " size"],
        *,
        axis: str | None = None,
        variance: bool = False,
    ) -> tuple[Kind, Round]:
        """The model after a block of examples in order, and what it said of each.

        Args:
          X, y, weights: as for `budgetjax.run`, checked and cast.
          axis: the name of a `jax.vmap` over models, or None.
          variance: whether to say the variance of each score, too.
        """
        raise NotImplementedError

    loss = required()

    @property
    def link(self) -> str:
        return losses.traits(self.loss).link

    def choose_origin(
        self: Kind, X: Float[Array, "n features"], weights: Float[Array, " n"]
    ) -> Kind:
        """The model with the origin from which it learns a stream of these rows."""
        return self

    def restart(self: Kind) -> Kind:
        """The model with nothing learned."""
        raise NotImplementedError

    @property
    def shifts(self) -> bool:
        """Whether rows are taken as differences from an origin of its own."""
        return False

    @property
    def num_active(self) -> Integer[Array, "*models"]:
        """The number of support vectors."""
        raise NotImplementedError

    @property
    def averages(self) -> bool:
        """Whether it has an average of iterates; see `budgetjax.average_iterates`."""
        return False

    def refreshed(self: Kind) -> Kind:
        """The model after its coefficients were changed from outside."""
        raise NotImplementedError

    def check_room(self) -> None:
        """Raises if examples found no room."""

    def check_value(self) -> Float[Array, ""]:
        """0, or NaN if a number of the model is not finite."""
        raise NotImplementedError

    @property
    def num_seen(self) -> Any:
        """Rounds so far. A NumPy int64, or a traced int32, which ends at 2^31 - 1."""
        return _counters.number(self.counts.seen)

    @property
    def num_mistakes(self) -> Any:
        """Rounds with a margin of at most 0, or a number of the wrong sign."""
        return _counters.number(self.counts.mistakes)

    @property
    def num_updates(self) -> Any:
        """Rounds that changed the model; if unbudgeted, also refused examples."""
        return _counters.number(self.counts.updates)


class State(Online):
    """The state of a learner: one kernel expansion, and all that its rounds need.

    It is complete: hyperparameters, kernel, support set, random keys and counters are
    leaves of one pytree, so that `jax.vmap` over `init` sweeps them, and a checkpoint
    of the state is one of everything.

    Attributes:
      learner: with its numbers as arrays; a round never changes it.
      kernel: with parameters of the state's dtype.
      expansion: the support set.
      maintenance: the strategy that makes room in a full budget, with its memory, or
        None.
      memory: what the learner remembers beside the support set, or None.
    """

    learner: Any
    kernel: Kernel
    expansion: Expansion
    maintenance: Any
    memory: Any

    @property
    def num_features(self) -> int:
        return self.expansion.vectors.shape[-1]

    @property
    def num_columns(self) -> int:
        return self.expansion.num_columns

    @property
    def dtype(self) -> np.dtype:
        return self.expansion.vectors.dtype

    @property
    def loss(self) -> Any:
        return self.learner.loss

    @property
    def link(self) -> str:
        return losses.traits(self.learner.loss).link

    @property
    def shifts(self) -> bool:
        return self.kernel.shifts

    @property
    def num_active(self) -> Integer[Array, "*models"]:
        """The number of support vectors."""
        return self.expansion.num_active

    @property
    def capacity(self) -> int:
        """The number of slots for support vectors."""
        return self.expansion.ages.shape[-1] - 1

    @property
    def averages(self) -> bool:
        return self.expansion.average is not None

    def _replace(self: Own, **changes: Any) -> Own:
        for name, other in ("kernel", "with_kernel"), ("learner", "with_learner"):
            if changes.get(name, vars(self)[name]) is not vars(self)[name]:
                raise ArgumentError(
                    name,
                    f"be replaced by budgetjax.{other}(state, {name}), which renews "
                    "what the old one computed",
                    f"another {name}",
                    "state._replace",
                )
        return self._exchange(**changes)

    def _exchange(self: Own, **parts: Any) -> Own:
        """The state with other parts; the caller renews what the old ones computed."""
        return super()._replace(**parts)

    def learn(self, X, y, weights, *, axis=None, variance=False):
        X = X - self.expansion.origin[None]
        # Rows of weight 0 may be padding of any kind. NaN times 0 would be NaN, also in
        # a derivative, so nothing sees it; its score is NaN. All losses take a target
        # of 1.
        absent = weights <= 0
        padding = (absent & ~jnp.isfinite(kernels.squared_norms(X)))[:, None]
        X = jnp.where(padding, 0, X)
        y = jnp.where(absent.reshape(-1, *(1,) * (y.ndim - 1)), 1, y)
        given = _sharding.vary(self, X, y, weights)
        learner = self.learner
        block = learner.block_with_variances if variance else learner.block
        state, *told = block(*given, axis)
        told = [
            jnp.where(padding if one.ndim > 1 else padding[:, 0], jnp.nan, one)
            for one in told
        ]
        # Afterwards, as it then joins the writes of the last edits.
        return state._rebase_clock(), Round(*told)

    def scores(self, X):
        own = self.expansion
        X = X - own.origin[None]
        rows = support_set.kernel_rows(self.kernel, own, X, kernels.squared_norms(X))
        return own.scale * jnp.matmul(rows, own.coefficients, precision="highest")

    def evaluate(self, X: RawRows, link: str, first_row: int = 0) -> Any:
        own = self.expansion
        model = KernelSum(
            self.kernel,
            own.vectors,
            own.squares,
            own.coefficients_and_sums,
            own.scale,
            origin=own.origin,
        )
        both = own.coefficients_and_sums.shape[-1]
        output = Output(both if own.average is None else both // 2, link)
        return scoring.score_rows(model, own.vectors.shape[-1], X, output, first_row)

    @names_errors("support")
    def support(self) -> Support:
        _forks.check()
        if not self.kernel.of_examples:
            got = _checks.kind_name(self)
            raise ArgumentError("model", "have support vectors", got)
        own = self.expansion
        coefficients = own.scale[..., None, None] * own.coefficients
        return Support(
            own.examples[..., :-1, :], coefficients[..., :-1, :], own.mask[..., :-1]
        )

    def check_single(self) -> None:
        scoring.check_single(self.expansion.vectors)

    def to_kernel_model(self) -> KernelModel:
        return of_support(self.kernel, self.support(), self.link)

    def with_images(self, vectors: Any, kernel: Kernel) -> "State":
        """The same scores by `vectors(z)` of the support vectors, under a kernel."""
        # Kernel values stay the same, and so does what a learner has computed of them.
        old = self.expansion
        new = vectors(old.vectors)
        expansion = old._replace(
            vectors=new,
            squares=jnp.sum(new * new, axis=1),
            origin=vectors(old.origin),
        )
        return self._exchange(kernel=kernel, expansion=expansion)

    @property
    def knows_variance(self) -> bool:
        return self.learner.knows_variance

    def variance(self, X):
        return self.learner.variance(self, X - self.expansion.origin[None])

    def span_root(self) -> Array | None:
        own = self.expansion
        if not self.kernel.of_examples:
            return None
        return scoring.span_root(self.kernel, own.vectors, own.mask)

    def beyond(self, X, root=None):
        own, root = self.expansion, self.span_root() if root is None else root
        if root is None:
            return super().beyond(X)
        X = X - own.origin[None]
        return scoring.share_beyond(self.kernel, own.vectors, own.mask, root, X)

    def choose_origin(self, X, weights):
        return self._replace(
            expansion=support_set.with_origin(
                self.kernel, self.expansion, X, weights > 0
            )
        )

    def restart(self):
        return self.learner.restart(self).refreshed()

    def refreshed(self):
        return self.learner.refresh(self)

    def check_room(self):
        strategy = self.maintenance
        refused = _checks.concrete(0 if strategy is None else strategy.count_refused())
        if refused is not None and np.any(refused):
            budget = np.asarray(self.expansion.budget)
            raise BudgetError(
                f"a budget of {budget} support vectors was full, and {refused} "
                "examples could not enter; give init a larger budget, or a maintenance="
            )

    def check_value(self):
        terms, scale = self.expansion.coefficients_and_sums[:-1], self.expansion.scale
        return jnp.sum(terms * 0) + scale * 0

    def empty(self: Own) -> Own:
        """The state with an empty support set and counters of 0, and all else."""
        old = self.expansion
        empty = jax.tree.map(jnp.zeros_like, old)
        average = old.average and empty.average._replace(start=old.average.start)
        return self._replace(
            expansion=empty._replace(
                ages=jnp.full_like(old.ages, FREE),
                scale=jnp.ones_like(old.scale),
                budget=old.budget,
                average=average,
            ),
            counts=jax.tree.map(jnp.zeros_like, self.counts),
        )

    def forget(self: Own) -> Own:
        """The state with its support vectors, coefficients of 0, and all else empty."""
        old, empty = self.expansion, self.empty()
        expansion = empty.expansion._replace(
            vectors=old.vectors,
            squares=old.squares,
            ages=old.ages,
            num_active=old.num_active,
            origin=old.origin,
        )
        return empty._replace(expansion=expansion)

    def rounds(self, dtype: Any) -> Float[Array, "*models"]:
        """`num_seen` as a float, for schedules; exact to rounding beyond 2^31."""
        return _counters.real(self.counts.seen, dtype)

    def updates(self, dtype: Any) -> Float[Array, "*models"]:
        """`num_updates` as a float."""
        return _counters.real(self.counts.updates, dtype)

    def after(
        self: Own,
        seen: Integer[Array, ""] | int = 0,
        mistakes: Integer[Array, ""] | int = 0,
        updates: Integer[Array, ""] | int = 0,
    ) -> Own:
        """The state with more rounds counted; not normalized."""
        return self._replace(counts=self.counts.after(seen, mistakes, updates))

    @property
    def age(self) -> Integer[Array, ""]:
        """The age of a support vector that enters in this round."""
        return self.counts.seen.low + 1

    def _rebase_clock(self: Own) -> Own:
        """The state with room for 2^30 more rounds in its counters and ages.

        Ages count from the higher word of `num_seen`. Two units later they reach their
        minimum, and the order of such old support vectors is forgotten.
        """
        expansion = self.expansion
        counts = Counts(*map(_counters.normalized, self.counts))
        passed = self.counts.seen.low - counts.seen.low
        older = jnp.maximum(expansion.ages, -UNIT) - passed
        ages = jnp.where(expansion.mask, older, FREE)
        return self._replace(expansion=expansion._replace(ages=ages), counts=counts)

"""The arguments and data that the phases of a refit share."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from budgetjax import losses
from budgetjax.refitting.newton import Basis
from budgetjax.refitting.training_data import Block, Units
from budgetjax.tables.encoding import Coder


class Problem(NamedTuple):
    """The checked arguments of a refit, and its examples.

    Attributes:
      model: the whole model, with an online state inside.
      loss: a function of a score and a target, both scalars, in these units.
      blocks: reads all examples; `again` is True if it can be called twice.
      units: the units of the targets.
      near: converts the targets of a block to those of the initial least squares.
      negligible: as for `newton.minimise`.
      constant: the feature of a bias, or None.
      coder: what makes features of the examples; None if they are features.
      of_codes: whether features are codes, with or without a coder.
      streams: whether folds choose their own vectors.
      compares: whether several states compete.
      padding: the number of last features that are 0 in every example.
      penalties, moves, form, calibrates, tolerance, epochs, seed: as in `refit`.
      report: called with a message after every pass.
    """

    model: Any
    loss: Callable[[Array, Array], Array]
    blocks: Callable[[], Iterator[Block]]
    again: bool
    units: Units
    near: Callable[[Block], Block]
    negligible: float
    constant: Float[Array, ""] | None
    coder: Coder | None
    of_codes: bool
    streams: bool
    padding: int
    penalties: list[float]
    moves: bool
    form: bool | str | int
    calibrates: bool
    compares: bool
    tolerance: float
    epochs: int | None
    seed: int
    report: Callable[[str], object]

    @property
    def learns(self) -> bool:
        """Whether a metric is learned in any case."""
        return self.form not in (False, "auto")

    @property
    def chooses(self) -> bool:
        """Whether held-out examples are scored before the last solution."""
        scores = self.calibrates and not (self.learns or self.moves)
        return self.compares or len(self.penalties) > 1 or scores

    @property
    def judges(self) -> bool:
        """Whether examples may be held out, or read by steps of Adam."""
        steps = self.moves or bool(self.form)
        return steps or self.calibrates or self.compares or len(self.penalties) > 1

    @property
    def rereads(self) -> bool:
        """Whether the examples are read more often than one pass needs."""
        return self.judges or losses.has_kinks(self.loss) or self.of_logarithms

    @property
    def of_logarithms(self) -> bool:
        """Whether scores are logarithms of values."""
        return self.model.link == losses.EXP

    @property
    def is_bare(self) -> bool:
        """Whether the caller gave a state or `KernelModel` alone."""
        return self.model.inner is self.model

    def basis(self, state: Any) -> Basis:
        """The features of the support vectors of a state."""
        root = basis_of(state)
        return Basis(state.kernel, state.expansion, root, self.constant, self.coder)

    def features(
        self, X: Float[np.ndarray, "n columns"]
    ) -> Float[np.ndarray, "n features"]:
        """The features of a few examples."""
        return X if self.coder is None else self.coder.write(X)

    def with_vectors(self, state: Any, vectors: Float[Array, "rows d"]) -> Any:
        """The state with other support vectors."""
        return _with_vectors(state, vectors)


@jax.jit
def basis_of(state: Any) -> Array:
    """The features of a state, for which a refit solves."""
    return state.learner.basis(state)


@jax.jit
def _with_vectors(state: Any, vectors: Array) -> Any:
    return state.learner.with_vectors(state, vectors)

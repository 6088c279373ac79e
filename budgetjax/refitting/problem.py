"""The arguments and data that the phases of a refit share."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from budgetjax import losses
from budgetjax.refitting.newton import Basis
from budgetjax.refitting.training_data import Block, Units
from budgetjax.tables.encoding import Coder, Encoding


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
      coder: what makes codes of the examples; None if they are codes or features.
      encoding: the encoding whose map makes features of codes; None if there is none.
      map: this map, with zeros for codes up to those of the coder.
      streams: whether folds choose their own vectors.
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
    encoding: Encoding | None
    map: Float[np.ndarray, "codes features"] | None
    streams: bool
    penalties: list[float]
    moves: bool
    form: bool | str | int
    calibrates: bool
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
        return len(self.penalties) > 1 or scores

    @property
    def judges(self) -> bool:
        """Whether examples may be held out, or read by steps of Adam."""
        steps = self.moves or bool(self.form)
        return steps or self.calibrates or len(self.penalties) > 1

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
        given = state.kernel, state.expansion, root, self.constant
        return Basis(*given, self.coder, self.map)

    def features(
        self, X: Float[np.ndarray, "n columns"]
    ) -> Float[np.ndarray, "n features"]:
        """The features of a few examples."""
        codes = X if self.coder is None else self.coder.write(X)
        return codes if self.map is None else codes @ self.map

    def beyond(self, state: Any, X: Float[np.ndarray, "n columns"]) -> Array:
        """What `budgetjax.Model.beyond` of a state says of examples."""
        return _beyond(state, self.features(X))

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


@jax.jit
def _beyond(state: Any, rows: Array) -> Array:
    return state.beyond(rows)

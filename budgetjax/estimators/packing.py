"""States that can be pickled: the closure of an optimiser cannot."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from budgetjax.online import features


class _DefaultOptimizer(NamedTuple):
    """Stands for the update of `features.OPTIMIZER`."""


def packed(state: Any) -> Any:
    """The state with something in place of what cannot be pickled."""
    return jax.tree.map(
        lambda leaf: _DefaultOptimizer() if _default(leaf) else np.asarray(leaf),
        state,
        is_leaf=_default,
    )


def unpacked(state: Any) -> Any:
    """The state as it was."""

    def unpack(leaf):
        packed = isinstance(leaf, _DefaultOptimizer)
        return Partial(features.OPTIMIZER.update) if packed else jnp.asarray(leaf)

    return jax.tree.map(
        unpack, state, is_leaf=lambda leaf: isinstance(leaf, _DefaultOptimizer)
    )


def _default(leaf: Any) -> bool:
    return isinstance(leaf, Partial) and leaf.func is features.OPTIMIZER.update

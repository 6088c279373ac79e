"""States that can be pickled: an optimiser's closure and a typed key cannot."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from budgetjax import features


class _DefaultOptimizer(NamedTuple):
    """Stands for the update of `features.OPTIMIZER`."""


class _Key(NamedTuple):
    """Stands for a random key."""

    data: np.ndarray
    implementation: str


def packed(state: Any) -> Any:
    """The state with something in place of what cannot be pickled."""

    def pack(leaf):
        if _default(leaf):
            return _DefaultOptimizer()
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            name = str(jax.random.key_impl(leaf))
            return _Key(np.asarray(jax.random.key_data(leaf)), name)
        return np.asarray(leaf)

    return jax.tree.map(pack, state, is_leaf=_default)


def unpacked(state: Any) -> Any:
    """The state as it was."""

    def unpack(leaf):
        if isinstance(leaf, _DefaultOptimizer):
            return Partial(features.OPTIMIZER.update)
        if isinstance(leaf, _Key):
            return jax.random.wrap_key_data(
                jnp.asarray(leaf.data), impl=leaf.implementation
            )
        return jnp.asarray(leaf)

    return jax.tree.map(
        unpack, state, is_leaf=lambda leaf: isinstance(leaf, _DefaultOptimizer | _Key)
    )


def _default(leaf: Any) -> bool:
    return isinstance(leaf, Partial) and leaf.func is features.OPTIMIZER.update

"""Forked processes, in which JAX would wait for ever.

A process that is forked has none of the threads of its parent. If JAX has computed
there, its first program in the child waits for them, and no error tells.
"""

import os

from jax._src import xla_bridge

ADVICE = (
    "JAX cannot compute in a process that is forked after JAX has run in its parent. "
    "Start processes by multiprocessing.get_context('spawn') or 'forkserver', or load "
    "the model in each process, and use JAX only there; budgetjax.river predicts "
    "without JAX"
)
# Whether JAX had run in the parent of this process.
is_broken = False


def check() -> None:
    """Raises if JAX would wait for ever in this process."""
    if is_broken:
        raise RuntimeError(f"budgetjax: this process is forked: {ADVICE}")


def _after_fork() -> None:
    global is_broken
    # JAX has no public name for whether it has started.
    is_broken = is_broken or bool(getattr(xla_bridge, "_backends", False))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

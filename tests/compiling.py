"""How tests compile. Without `budgetjax`, which `conftest.py` must not import."""

import contextlib

import jax


@contextlib.contextmanager
def quick_to_compile(quick=True):
    """Machine code as the compiler first has it, in half the time; or as users get it.

    For what computes little. What is compiled already stays as it is.
    """
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", quick)
    yield
    jax.config.update("jax_disable_most_optimizations", before)

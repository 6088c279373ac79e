"""How tests compile. Without `budgetjax`, which `conftest.py` must not import."""

import contextlib

import jax
import jaxlib.version
import pytest

# XLA's older way to lower fusions takes a third of the time, and tests use it while it
# is there: an option that XLA does not know is fatal. It fuses less and copies as much.
OLDER_FUSIONS = jaxlib.version.__version_info__ < (0, 11)
# For `jax.jit`, and for those who read what is compiled: what users have.
AS_USERS_COMPILE = {"xla_cpu_use_fusion_emitters": True} if OLDER_FUSIONS else {}


def need_large_loops(form):
    """Skips a test of loops over whole dense rows where only a flag makes them one."""
    if OLDER_FUSIONS and form != "sparse":
        pytest.skip("JAX 0.10 compiles only small loops to one kernel")


@contextlib.contextmanager
def programs():
    """A list of what is compiled inside."""
    compiled = []

    def listen(event, duration, **more):
        if event.endswith("/backend_compile_duration"):
            compiled.append(more)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield compiled
    jax.monitoring.unregister_event_duration_listener(listen)


@contextlib.contextmanager
def quick_to_compile(quick=True):
    """Machine code as the compiler first has it, in half the time; or as users get it.

    For what computes little. What is compiled already stays as it is.
    """
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", quick)
    yield
    jax.config.update("jax_disable_most_optimizations", before)

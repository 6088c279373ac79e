"""Strict arithmetic for every test, and a fixture that switches 64-bit types."""

import jax
import pytest

# Two devices, so that sharding is tested.
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(params=[False, True], ids=["x32", "x64"])
def x64(request):
    """Runs a test with 64-bit types off and on; the value says which."""
    jax.config.update("jax_enable_x64", request.param)
    yield request.param
    jax.config.update("jax_enable_x64", False)


@pytest.fixture
def double():
    """64-bit types for one test."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


# Every compiled program takes memory maps, of which a process may have some 65,000.
TESTS_TO_A_CLEARING = 120
counted = iter(range(1, 10**9))


@pytest.fixture(autouse=True)
def room_for_programs():
    """Drops compiled programs now and then, before the process runs out of maps."""
    yield
    if next(counted) % TESTS_TO_A_CLEARING == 0:
        jax.clear_caches()

"""Strict arithmetic for every test, fixtures, and how long a quick test may take."""

import functools
import gc
import os
import re

# Before NumPy is loaded. Tests run side by side, and threads of small products wait for
# each other in busy loops: some references take a twentieth of the time with one.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

import compiling
import jax
import jaxtyping
import pytest

# Compilation is most of the time of the tests, and the cores are busy anyway: a program
# that is compiled as one piece, not as 32 side by side, takes a fifth less of it.
FLAGS = ["--xla_cpu_parallel_codegen_split_count=1"]
if compiling.OLDER_FUSIONS:
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")
# Once, though processes of pytest-xdist start with those of their parent: the flags are
# a part of the name under which a program is kept.
GIVEN = os.environ.get("XLA_FLAGS", "").split()
os.environ["XLA_FLAGS"] = " ".join(dict.fromkeys([*GIVEN, *FLAGS]))

# Nothing is written to the cache of the user who runs the tests.
os.environ["BUDGETJAX_CACHE"] = "off"


def pytest_configure(config):
    """Programs are kept for the next run: what changed is compiled.

    In this checkout, or where JAX_COMPILATION_CACHE_DIR says, which checkouts share.
    """
    if not jax.config.jax_compilation_cache_dir:
        folder = config.rootpath / ".pytest_cache" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


# Two devices, so that sharding is tested.
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
# Machine code as the compiler first has it, in half the time: most tests compile much
# and compute little. `quick_to_compile(False)` is for those that do compute, and for
# the machine code that users get.
jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(
    params=[
        pytest.param(False, id="x32"),
        pytest.param(True, id="x64", marks=pytest.mark.slow),
    ]
)
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


@pytest.fixture(scope="module")
def plain_loops():
    """Runs in blocks of one example, where none are asked for: a loop of `step`.

    For files whose tests need a model and not the loop that has learned it. The loop of
    steps compiles in half the time of the one over blocks, which `test_blocks.py` holds
    to it for all learners, and `test_stream.py` in streams.
    """
    from budgetjax.online import driver

    length = driver.block_length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "block_length", lambda size: length(size or 1))
        yield


@pytest.fixture(scope="module")
def few_passes():
    """A metric is learned in a tenth of the passes, which are most of a fit's time.

    For files whose tests need a model with a metric, and not the best one. The passes
    that users have, and what they reach, are tested in `test_metric.py`.
    """
    from budgetjax.refitting import metric
    from budgetjax.training import fit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metric, "PASSES", (8, 8))
        patch.setattr(fit, "PASSES_TO_COMPARE", 8)
        yield


@pytest.fixture
def as_installed():
    """The package without the checker that tests run under: what a user meets."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="session")
def quick_process():
    """The environment of a process of its own: it finds what another has compiled."""
    return {
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }


def pytest_collection_finish():
    """Garbage is looked for a thirtieth as often, and not in what was imported.

    Traces make many objects, few of them garbage: the search was a fifteenth of the
    time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


# The seconds of `--most-seconds` are those of a machine that adds ten million numbers
# in this time, with programs that an earlier run has compiled.
UNIT = 0.25


def pytest_addoption(parser):
    parser.addoption(
        "--most-seconds",
        type=float,
        help="fail tests that are not marked slow and take more processor time",
    )


def used():
    """The processor time of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@functools.cache
def slowness():
    """How many seconds of this machine one of those seconds is."""
    begin, total = used(), 0
    for number in range(10_000_000):
        total += number
    return (used() - begin) / UNIT


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    most = item.config.getoption("most_seconds")
    if most is None or item.get_closest_marker("slow"):
        return (yield)
    unit, begin = slowness(), used()
    result = yield
    if (seconds := (used() - begin) / unit) > most:
        pytest.fail(
            f"{seconds:.1f} s of processor time: make it cheaper, or mark it slow"
        )
    return result


# Every compiled program takes memory maps, mostly 15 and at most some 20, of which a
# process may have some 65,000. They are counted after so many programs: it takes a
# while.
PROGRAMS_TO_A_COUNT = 500
MOST_MAPS = 30_000
compiled = []


def count_program(event, duration, **more):
    if event.endswith("/backend_compile_duration"):
        compiled.append(event)


jax.monitoring.register_event_duration_secs_listener(count_program)


def num_maps():
    """How many memory maps this process has; none are counted but on Linux."""
    try:
        with open("/proc/self/maps", "rb") as file:
            return file.read().count(b"\n")
    except OSError:
        return 0


# Files whose tests all share what is compiled.
TOGETHER = re.compile(r".*test_(checkpoints|linear_mpu|linear_rivals|stream)\.py")


def group(nodeid):
    """What follows an @ in the name of a test; without one, the name, or the file."""
    together = TOGETHER.match(nodeid)
    return together[0] if together else nodeid.rpartition("@")[2].rstrip("]")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Drops compiled programs now and then, before the process runs out of maps.

    Not between tests that share them.
    """
    last = nextitem is None or group(item.nodeid) != group(nextitem.nodeid)
    if last and len(compiled) >= PROGRAMS_TO_A_COUNT:
        compiled.clear()
        if num_maps() >= MOST_MAPS:
            jax.clear_caches()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `--dist loadgroup`, tests of a group follow each other in one process.

    Groups are read from the names of tests: pytest-xdist 3.8 appends its own groups to
    attributes that pytest 9.2 no longer reads.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group(nodeid)

    return GroupScheduling(config, log)

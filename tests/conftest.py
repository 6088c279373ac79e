"""Strict arithmetic for every test, fixtures, and which tests are slow."""

import collections
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
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *FLAGS])

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


# Files whose tests need a model and not the loop that has learned it: the plain scan of
# `step` compiles in half the time of the loop over blocks, which `test_blocks.py` holds
# to it for all learners, and `test_stream.py` in streams.
PLAIN_LOOPS = re.compile(
    "test_(additions|additions_formats|bad_data|categories|cli|columns|compress"
    "|encoded_estimators|encoded_models|errors|estimators|export|learners|memory"
    "|merge_models|metric|model_files|models|one_class|own_learner|persist|plots|probabilities"
    "|refit|river|states|targets)"
)


@pytest.fixture(scope="module", autouse=True)
def plain_loops(request):
    """Runs in blocks of one example, where none are asked for."""
    if not PLAIN_LOOPS.fullmatch(request.path.stem):
        yield
        return
    from budgetjax.online import driver

    length = driver.block_length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "block_length", lambda size: length(size or 1))
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


# Processes, and programs that are compiled for other machines too.
SLOW_FIXTURES = {"quick_process", "programs"}
# Pages and docstrings that are executed, and what others check of all their estimators.
GUIDES = {"test_examples_in_docstrings_run", "test_python_blocks_run"}
# Accuracy by defaults, which the README's examples show too.
ACCURACIES = {
    "test_only_a_budget_is_needed",
    "test_a_table_is_encoded_and_a_metric_learned",
}
WHOLE_CHECKS = {"test_scikit_learns_checks", "test_river_checks"}
QUICKLY_CHECKED = re.compile(
    "@estimator-one-class|_classif.*@estimator-classifier|_regress|@perceptron"
)
# Files of tables, whose cases compile little: wrong arguments, damaged files, formats.
TABLES = re.compile("errors|bad_data|readers|files|persist|export|cli|reference")
# Tests whose cases are held to what others compute, each to another.
COMPARED = re.compile("reference|numpy|scikit_learn|row_twice")
SOLVERS = {"smo", "sdca", "sbp", "kernel_pegasos", "ball_sgd"}


def subjects(item, values):
    """What a case shows that no other case of its test need show; for most, nothing."""
    import registry

    rows = {value.name for value in values.values() if isinstance(value, registry.Row)}
    if rows:
        return rows & {row.name for row in registry.FAMILIES}
    says = TABLES.search(item.path.stem) or COMPARED.search(item.originalname)
    if says or "raises" in item.function.__code__.co_names:
        return {(name, str(value)) for name, value in values.items()}
    if item.path.stem != "test_batch":
        return set()
    return SOLVERS & set(map(str, values.values()))


def is_slow(item, seen):
    """Whether a test shows in more time what a quick one shows.

    `seen` has the subjects of earlier cases of the same test.
    """
    test = item.originalname
    values = item.callspec.params if hasattr(item, "callspec") else {}
    if item.path.name == "test_examples.py" or SLOW_FIXTURES & {*item.fixturenames}:
        return True
    if test in ACCURACIES:
        return True
    if test in GUIDES:
        return "[README.md" not in item.name
    if test in WHOLE_CHECKS:
        # One of those that differ in the kind of array, or in its type.
        shows = re.sub(r"-\d+@|_(array|matrix)\b", "@", item.name)
        repeats = shows in seen
        seen.add(shows)
        return repeats or not QUICKLY_CHECKED.search(item.name)
    if values.get("x64"):
        return True
    shows = {test} | subjects(item, values)
    repeats = bool(values) and shows <= seen
    seen |= shows
    return repeats


def pytest_collection_modifyitems(items):
    seen = collections.defaultdict(set)
    for item in items:
        if is_slow(item, seen[item.path, item.originalname]):
            item.add_marker(pytest.mark.slow)


# Every compiled program takes memory maps, some 20 as one piece, of which a process may
# have some 65,000: enough for 3,000 programs.
PROGRAMS_TO_A_CLEARING = 1500
compiled = []


def count_program(event, duration, **more):
    if event.endswith("/backend_compile_duration"):
        compiled.append(event)


jax.monitoring.register_event_duration_secs_listener(count_program)


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
    if last and len(compiled) >= PROGRAMS_TO_A_CLEARING:
        compiled.clear()
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

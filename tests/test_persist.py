"""Models in files: all comes back bit for bit, and learns on as if never gone."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
import registry
from registry import N

import budgetjax as bj
from budgetjax import _record, losses
from budgetjax import registry as lists
from budgetjax.online import averages, driver
from budgetjax.saving import model_files, names, trees

pytestmark = pytest.mark.usefixtures("plain_loops")

D = 3


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def bits(leaf):
    """The bytes of a leaf; the names of all else."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return str(jax.random.key_impl(leaf)), bits(jax.random.key_data(leaf))
    if isinstance(leaf, jax.Array | np.ndarray | np.generic):
        array = np.asarray(leaf)
        data = array.tolist() if array.dtype.kind in "OU" else array.tobytes()
        return array.dtype, array.shape, data
    return repr(leaf)


def assert_identical(actual, expected):
    """Structure, types of leaves, dtypes, shapes, and every bit."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    ours, theirs = jax.tree.leaves(actual), jax.tree.leaves(expected)
    for one, other in zip(ours, theirs, strict=True):
        assert type(one) is type(other)
        assert bits(one) == bits(other)


def returned(path, model, like=None):
    """The model, out of a file."""
    model_files.save(path, model)
    return model_files.load(path, like=like)


def scrambled(tree, seed=0):
    """The same tree with any bits in its arrays; floats may be no numbers at all."""
    random = np.random.default_rng(seed)

    def scramble(leaf):
        if not isinstance(leaf, jax.Array):
            return leaf
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(scramble(jax.random.key_data(leaf)))
        if leaf.dtype == bool:
            return jnp.array(random.integers(0, 2, leaf.shape).astype(bool))
        data = random.bytes(leaf.nbytes)
        return jnp.array(np.frombuffer(data, leaf.dtype).reshape(leaf.shape))

    return jax.tree.map(scramble, tree)


def own(row):
    """Whether a learner has functions that only its caller knows."""
    given = row.learner.get_params(deep=False)
    functions = given.get("learning_rate"), given.get("optimizer")
    return any(callable(each) or isinstance(each, tuple) for each in functions)


# Every online learner.


@registry.some
def test_learning_goes_on_as_if_it_had_never_stopped(row, path):
    X, y = row.stream(2 * N)
    empty = row.roomy()
    state, _ = bj.run(empty, X[:N], y[:N])
    loaded = returned(path, state, like=empty if own(row) else None)
    assert_identical(loaded, state)
    expected = bj.run(state, X[N:], y[N:])
    programs = driver.run_checked._cache_size()
    actual = bj.run(loaded, X[N:], y[N:])
    assert driver.run_checked._cache_size() == programs
    assert_identical(actual, expected)


@registry.some
def test_any_bits_come_back(row, path):
    empty = row.init()
    state = scrambled(empty)
    assert_identical(returned(path, state, like=empty), state)
    if not own(row):
        assert_identical(model_files.load(path), state)


@registry.only("perceptron-random")
def test_stacked_states(row, path):
    def init(gamma, budget):
        return row.roomy(kernel=row.kernel_of(gamma), budget=budget)

    states = jax.vmap(init)(jnp.array([0.1, 1.0, 2.0]), jnp.array([3, 10, 20]))
    assert_identical(returned(path, scrambled(states), like=states), scrambled(states))


@registry.only("pegasos-merge-average-multiclass")
def test_averaged_and_refitted(row, path):
    X, y = row.stream()
    state, _ = bj.run(row.roomy(), X, y)
    mean = bj.average_iterates(state)
    assert_identical(returned(path, mean), mean)
    refitted = bj.refit(state, X, y)
    assert_identical(returned(path, refitted, like=state), refitted)


@registry.only("perceptron-random")
def test_sweeps_and_grids(row, path):
    grid = bj.grid(gamma=[0.5, 1.0], budget=[4, 10])
    states = grid.init(
        lambda gamma, budget: row.roomy(kernel=bj.RBF(gamma), budget=budget)
    )
    found = bj.Sweep(states, jnp.arange(3, dtype=jnp.int32), jnp.ones((4, 3)) / 7)
    loaded = returned(path, (found, grid))
    assert_identical(loaded, (found, grid))


# Batch learners, linear learners and their models.


def examples():
    random = np.random.default_rng(0)
    X = random.normal(size=(20, D)).astype(np.float32)
    return X, np.where(X[:, 0] + random.normal(size=20) > 0, 1.0, -1.0)


KERNEL = bj.RBF(0.5)
SOLVERS = {
    "SBP": bj.SBP(KERNEL, slack=0.05),
    "KernelPegasos": bj.KernelPegasos(KERNEL),
    "BallSGD": bj.BallSGD(KERNEL, radius=3.0),
    "SDCA": bj.SDCA(KERNEL),
    "SMO": bj.SMO(KERNEL, tolerance=None),
    "BudgetSVM": bj.BudgetSVM(KERNEL, bj.norms.TwoInfinity(5)),
    "MPU": bj.MPU(),
    "MPU-kernel": bj.MPU(kernel=KERNEL),
    "DCD": bj.DCD(loss="squared_hinge"),
    "LinearPegasos": bj.LinearPegasos(),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_states_of_solvers(name, path):
    solver = SOLVERS[name]
    assert_identical(returned(path, solver), solver)
    with solver.precision():
        data = solver.read(*examples(), np.full(20, 2.0) if name == "SMO" else None)
        state = solver.init(data)
        for one in (data, state):
            assert_identical(returned(path, one), one)
            drawn = scrambled(one)
            assert_identical(returned(path, drawn, like=one), drawn)
    node, _ = trees.encode(state)
    assert node["type"] == type(state).__name__
    assert node["fields"]["solver"]["type"] == name.partition("-")[0]
    assert "budgetjax" not in str(node)
    assert "'own " not in str(node)


def test_a_solver_continues(path):
    solver = SOLVERS["SBP"]
    data = solver.read(*examples())
    step = jax.jit(lambda state: state.solver.step(state, data))
    state = step(solver.init(data))
    loaded = returned(path, state)
    assert_identical(step(loaded), step(state))


@pytest.mark.parametrize("name", ["SMO", "DCD"])
def test_a_solution_continues(name, path):
    solver, (X, y) = SOLVERS[name], examples()
    solution = bj.solve(solver, X, y, max_steps=1)
    # A linear solver computes in float64.
    with solver.precision():
        loaded = returned(path, solution)
        assert_identical(loaded, solution)
    found, expected = (
        bj.solve(solver, X, y, start=one.state, max_steps=1)
        for one in (loaded, solution)
    )
    assert_identical(found, expected)


def test_models_and_solutions(path):
    X, y = map(jnp.array, examples())
    kernels = bj.RBF(0.5) + bj.Normalized(bj.Polynomial(3)) * bj.Linear()
    model = bj.KernelModel(kernels, X, X[:, 0], jnp.array(0.5, jnp.float32))
    linear = bj.LinearModel(jnp.ones(D), jnp.array(0.5))
    solution = bj.solve(bj.SMO(bj.RBF(0.5)), X, y, max_steps=2)
    for one in (linear, solution._replace(model=linear), model):
        assert_identical(returned(path, one), one)
    np.testing.assert_array_equal(model_files.load(path).predict(X), model.predict(X))


# Everything else that a model may hold.


@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_dtypes(shape, path, double):
    random = np.random.default_rng(0)
    arrays = {}
    for name in trees.DTYPES:
        dtype = jnp.dtype(name)
        data = random.bytes(int(np.prod(shape)) * dtype.itemsize)
        if name == "bool":
            data = bytes(each % 2 for each in data)
        arrays[name] = np.frombuffer(data, dtype).reshape(shape)
    assert arrays["bfloat16"].dtype == ml_dtypes.bfloat16
    loaded = returned(path, arrays)
    assert_identical(loaded, arrays)
    assert all(array.flags.writeable for array in loaded.values())
    ours = jax.device_put(arrays)
    assert_identical(returned(path, ours), ours)
    assert all(array.dtype == name for name, array in ours.items())


def test_64_bits_need_x64(path, double):
    model_files.save(path, {"weights": jnp.zeros(3, jnp.float64)})
    jax.config.update("jax_enable_x64", False)
    message = r"load: .*: \['weights'\] must .*float64.*jax_enable_x64.*, got x64"
    with pytest.raises(ValueError, match=message):
        model_files.load(path)


NAN = float("nan")
THINGS = {
    "none": lambda: None,
    "bools": lambda: [True, False],
    "whole": lambda: (0, -1, 2**70),
    "real": lambda: [0.1, -0.0, 5e-324, 1e308, float("inf"), -float("inf"), NAN],
    "text": lambda: ["", "é", "\0", '"\\', "\ud800", "budgetjax"],
    "nested": lambda: {"a": ({"b": []}, ()), "": [[], {}, (None,)]},
    "numpy-numbers": lambda: [np.float32(0.1), np.int64(-3), np.bool(True)],
    "fortran": lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": lambda: np.arange(20)[::3],
    "words": lambda: np.array([["no", "yes"], ["é", ""]]),
    "wide-words": lambda: np.array(["spam", "not spam"])[:1],
    "no-words": lambda: np.array([], "<U3"),
    "objects": lambda: np.array(["a", "b", None, 1, 2.5, True], object),
    "key": lambda: jax.random.key(3),
    "keys": lambda: jax.random.split(jax.random.key(3, impl="rbg"), 4),
    "old-key": lambda: jax.random.PRNGKey(0),
    "quantile": lambda: losses.quantile(0.9),
    "tube": lambda: losses.epsilon_insensitive(0.1),
    "delta": lambda: jax.tree_util.Partial(optax.losses.huber_loss, delta=2.0),
    "function": lambda: optax.losses.log_cosh,
    "kernels": lambda: bj.Normalized(bj.RBF(0.1, exact=True) + bj.Sigmoid(2.0)),
    "optax": lambda: optax.adam(0.1).init(jnp.ones(2)),
    "names": lambda: {
        "__metadata__": np.ones(2),
        "a.b": np.ones(1),
        "a": {"b": np.ones(3)},
    },
}


@pytest.mark.parametrize("name", THINGS)
def test_things(name, path):
    thing = THINGS[name]()
    assert_identical(returned(path, thing), thing)
    if name != "text":
        assert_identical(model_files.load(path, like=thing), thing)


def test_the_other_byte_order_becomes_the_machines(path):
    loaded = returned(path, np.arange(3, dtype=">f4"))
    assert loaded.dtype == np.dtype("=f4")
    assert loaded.tolist() == [0, 1, 2]


def test_notes_and_header(path):
    row = registry.ROWS[0]
    notes = {"batches": 3, "digest": "ab", "list": [1.5, None]}
    model_files.write(path, row.init(), notes)
    loaded, found = model_files.read(path)
    assert_identical(loaded, row.init())
    assert found == notes
    said = model_files.header(path)
    assert said["format"] == model_files.FORMAT
    assert (said["budgetjax"], said["jax"]) == (bj.__version__, jax.__version__)
    about = {"type": "State", "learner": "Forgetron", "kernel": "Normalized"}
    assert said["about"] == about


def test_a_file_is_the_same_every_time_and_has_arrays_for_others(path):
    from safetensors.numpy import load_file

    state = scrambled(registry.ROWS[0].init())
    model_files.save(path, state)
    first = path.read_bytes()
    model_files.save(path, state)
    assert path.read_bytes() == first
    found = load_file(path)["expansion.vectors"]
    assert found.tobytes() == np.asarray(state.expansion.vectors).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", [-90, 0, 20])
def test_arrays_that_float16_holds_take_half_of_the_bytes(path, dtype, exponent):
    from safetensors.numpy import load_file

    half = np.random.default_rng(0).normal(size=(9, 8)).astype(np.float16)
    half[0, :3] = 0, -0.0, 2**-20
    array = np.ldexp(half.astype(dtype), exponent)
    assert_identical(returned(path, {"one": array}), {"one": array})
    assert load_file(path)["['one']"].dtype == np.float16
    for other in (np.nextafter(array[5, 5], dtype(9)), np.inf, np.nan):
        array[5, 5] = other
        assert_identical(returned(path, {"one": array}), {"one": array})
        assert load_file(path)["['one']"].dtype == dtype


# What only the caller knows.


def my_loss(score, y):
    return (score - y) ** 2


def my_schedule(rate, t):
    return rate / (1 + t.astype(jnp.float32))


def other_loss(score, y):
    return abs(score - y)


def sgd(loss=my_loss, learning_rate=0.5, **more):
    classes = None if loss in (my_loss, other_loss) else 2
    arguments = {"num_features": D, "budget": 5, "num_classes": classes} | more
    return bj.SGD(loss=loss, learning_rate=learning_rate).init(bj.RBF(0.5), **arguments)


class MyKernel(bj.Kernel):
    power: Any

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        return (1 + X @ Z.T) ** self.power

    def diag(self, X, squares=None):
        return (1 + jnp.sum(X * X, axis=1)) ** self.power


NEEDED = "; for one of your own give like="
OWN = {
    "loss": sgd,
    "schedule": lambda: sgd(losses.hinge, optax.exponential_decay(0.5, 20, 0.7)),
    "schedule-with-numbers": lambda: sgd(
        losses.hinge, jax.tree_util.Partial(my_schedule, 0.5)
    ),
    "optimiser": lambda: bj.Fourier(optimizer=optax.sgd(0.1, momentum=0.5)).init(
        bj.RBF(0.5), num_features=D, budget=6
    ),
    "kernel": lambda: bj.Perceptron().init(
        MyKernel(2.0), num_features=D, budget=5, maintenance=bj.RemoveOldest()
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_what_only_the_caller_knows_comes_from_like(name, path):
    state, like = OWN[name](), OWN[name]()
    drawn = scrambled(state)
    model_files.save(path, drawn)
    message = f"load: .*: .* must .*, got '[^']+'{NEEDED}, a"
    with pytest.raises(ValueError, match=message):
        model_files.load(path)
    # A schedule made again is another function, so it is the one of like that comes.
    assert_identical(
        model_files.load(path, like=like),
        jax.tree.unflatten(jax.tree.structure(like), jax.tree.leaves(drawn)),
    )


@pytest.mark.parametrize(
    "like", [lambda: sgd(other_loss), lambda: sgd(losses.hinge), OWN["kernel"], dict]
)
def test_like_must_have_the_functions_of_the_file(like, path):
    model_files.save(path, sgd())
    says = f"learner.loss must be a function .*, got 'my_loss'{NEEDED}"
    message = f"load: .*{path.name}: {says}"
    with pytest.raises(ValueError, match=message):
        model_files.load(path, like=like())


def test_two_functions_of_one_name_keep_their_places(path):
    def made(rate):
        return sgd(
            lambda score, y: (score - y) ** 2,
            lambda t: rate + 0.0 * t.astype(jnp.float32),
            num_classes=None,
        )

    model_files.save(path, made(0.5))
    loaded, like = model_files.load(path, like=made(0.25)), made(0.25)
    loaded, like = loaded.learner, like.learner
    assert loaded.loss.func.__code__ is like.loss.func.__code__
    assert loaded.learning_rate.func.__code__ is like.learning_rate.func.__code__


def test_a_state_is_enough_for_a_model_that_has_one(path):
    state = sgd()
    labelled = bj.TableModel(scrambled(state), classes=np.array(["a", "b"]))
    model = bj.StreamModel(labelled, np.arange(3), np.zeros(3))
    model_files.save(path, model)
    assert_identical(model_files.load(path, like=state), model)
    assert_identical(model_files.load(path, like=model), model)
    for like in (sgd(losses.hinge), None):
        with pytest.raises(
            ValueError, match=r"model.model.learner.loss must .* give like="
        ):
            model_files.load(path, like=like)
    about = model_files.header(path)["about"]
    assert about["labels"] == ["a", "b"]
    assert (about["learner"], about["maintenance"]) == ("SGD", "Merge")
    assert about["type"] == "StreamModel"


# Names that stay when code moves.


@registry.some
def test_names_are_those_of_the_package_and_no_module_path(row, path):
    state = row.init()
    model_files.save(path, state)
    node, _ = trees.encode(state)
    assert "budgetjax" not in str(node)
    assert own(row) or "'own " not in str(node)
    about = model_files.header(path)["about"]
    assert node["type"] == about["type"] == "State"
    kind = node["fields"]["learner"]["type"]
    assert kind == about["learner"] == type(row.learner).__name__
    assert getattr(bj, kind) is type(row.learner)
    expected = (
        "Waves" if isinstance(row.learner, bj.Fourier) else type(row.kernel).__name__
    )
    assert about["kernel"] == expected


# Fields that come and go.


def without(monkeypatch, path, model, **lacking):
    """A file of a model, without some fields of the records of some types."""

    def encode(tree, own=None):
        node, tensors = real(tree, own)
        prune(node, "", tensors)
        return node, tensors

    def prune(node, at, tensors):
        parts = node.get("fields", {})
        for name in lacking.get(node.get("type", node.get("own type")), ()):
            del parts[name]
            tensors.pop(f"{at}.{name}".lstrip("."), None)
        for name, part in parts.items():
            if isinstance(part, dict):
                prune(part, f"{at}.{name}", tensors)

    real = trees.encode
    with monkeypatch.context() as patch:
        patch.setattr(trees, "encode", encode)
        model_files.save(path, model)


def arow(drift):
    return bj.AROW(drift=drift).init(bj.RBF(0.5), num_features=D, budget=5)


def test_a_field_that_an_older_file_lacks_has_its_default(path, monkeypatch):
    """Its numbers are arrays, as `init` makes them, so that nothing compiles again."""
    lacking = {"AROW": ("drift", "moves"), "RBF": ("exact",)}
    X, y = registry.named("arow-multiclass")[0].stream(num_features=D)
    y = np.where(y > 1, 1, -1)
    usual = bj.AROW().init(bj.RBF(0.5), num_features=D, budget=5)
    usual, _ = bj.run(usual, X, y)
    without(monkeypatch, path, usual, **lacking)
    assert_identical(model_files.load(path), usual)
    # Stacked states of other values, which the file has not.
    stacked = jax.vmap(arow)(jnp.array([0.0, 0.5]))
    without(monkeypatch, path, stacked, **lacking)
    assert_identical(model_files.load(path), jax.vmap(arow)(jnp.zeros(2)))


def test_a_default_that_depends_on_the_targets_is_that_of_init(path, monkeypatch):
    for classes, rate in ((None, 0.3), (3, 1.0)):
        made = bj.SGD().init(bj.RBF(0.5), num_features=D, budget=5, num_classes=classes)
        without(monkeypatch, path, made, SGD=("learning_rate", "regularization"))
        loaded = model_files.load(path)
        assert_identical(loaded, made)
        assert float(loaded.learner.learning_rate) == np.float32(rate)


def test_named_tuples_and_records_alone_have_defaults_too(path, monkeypatch):
    expansion = arow(0.1).expansion
    without(monkeypatch, path, expansion, Expansion=("average",))
    assert_identical(model_files.load(path), expansion)
    without(
        monkeypatch, path, bj.Pegasos(regularization=0.5), Pegasos=("regularization",)
    )
    assert bj.equal(model_files.load(path), bj.Pegasos())


@pytest.mark.parametrize(
    ("model", "lacking", "says"),
    [
        (lambda: arow(0.1), {"Expansion": ("ages",)}, "expansion, a Expansion,"),
        (lambda: bj.RBF(0.5), {"RBF": ("gamma",)}, "model, a RBF,"),
        (lambda: arow(0.1), {"State": ("counts",)}, "model, a State,"),
    ],
)
def test_a_field_without_a_default_must_be_there(
    model, lacking, says, path, monkeypatch
):
    without(monkeypatch, path, model(), **lacking)
    with pytest.raises(ValueError, match=f"{says} must have the fields .*, got "):
        model_files.load(path)


def test_a_field_that_nothing_here_has_is_refused(path, monkeypatch):
    node = {"type": "Perceptron", "fields": {"margin": 1.0, "slope": 2.0}}
    with monkeypatch.context() as patch:
        patch.setattr(trees, "encode", lambda tree, own=None: (node, {}))
        model_files.save(path, bj.Perceptron())
    message = "a Perceptron, must have the fields margin, got margin, slope: the file"
    with pytest.raises(ValueError, match=message):
        model_files.load(path)


def test_a_class_of_ones_own_may_have_a_name_in_files(path, monkeypatch):
    monkeypatch.setattr(_record, "records", dict(_record.records))

    class Mine(bj.Record, name="mine"):
        width: float = bj.leaf(default=2.0)
        kind: str = bj.static(default="flat")

    class Steep(bj.Perceptron, name="my.steep"):
        slope: float = bj.leaf(default=1.0)

    class Unknown(bj.Record):
        width: float = 2.0

    for one, name in (
        (Mine(jnp.ones(3), "round"), "mine"),
        (Steep(slope=3.0), "my.steep"),
    ):
        assert trees.encode(one)[0]["type"] == name
        loaded = returned(path, one)
        assert type(loaded) is type(one)
        assert_identical(loaded, one)
    without(monkeypatch, path, Mine(3.0, "round"), mine=("width",))
    assert bj.equal(model_files.load(path), Mine(2.0, "round"))
    # A state of it needs no `like` either.
    state = Steep(slope=2.0).init(bj.RBF(0.5), num_features=D, budget=5)
    assert_identical(returned(path, state), state)
    assert model_files.header(path)["about"]["learner"] == "Steep"
    model_files.save(path, Unknown(3.0))
    with pytest.raises(ValueError, match=r"got 'test_.*Unknown'; for one of your own"):
        model_files.load(path)
    assert_identical(model_files.load(path, like=Unknown()), Unknown(3.0))
    with pytest.raises(ValueError, match="the name 'mine' must be free, got that of"):
        type("Other", (bj.Record,), {"__module__": "other"}, name="mine")


def test_records_have_the_names_of_their_classes():
    bj.RBF  # noqa: B018 The first public name imports all.
    for name, kind in _record.records.items():
        assert names.type_of(name) is kind
        assert names.has_fields(kind)
        assert kind.__name__ == name


def test_names_that_files_have_stay():
    """A name that goes, or is another class's, makes old files unreadable."""
    known = (
        "ALMA AROW AROWMemory Ahpatron Average Ball BallSGD BallState BudgetSVM "
        "BudgetSVMState Cache Counts DCD DCDState DelayedProject DenseRows Euclidean "
        "Expansion FeatureMemory Forgetron ForgetronMemory Fourier Grid HingeState "
        "History KRLST KRLSTMemory KernelMatrix KernelModel KernelPegasos KernelRows "
        "Laplacian Linear "
        "LinearModel LinearPegasos LinearPegasosState MPU MPUState Mapped Matern "
        "Measured Merge MergeBestPair Mixture MixtureMemory MixtureState Momentum "
        "MultiMerge NORMA Norm Normalized "
        "Nystrom Objective OneInfinity OneTwo Order PInfinity PassiveAggressive "
        "Patterns Pegasos Perceptron Polynomial Product Progress Project "
        "ProjectOntoCandidate ProjectOntoNearest Projectron ProjectronMemory RBF "
        "RationalQuadratic RemoveFewestErrors RemoveLargestMargin RemoveOldest "
        "RemoveRandom RemoveSmallest Reservoir Rows SBP SBPState SDCA SGD SMO Scaling "
        "Sigmoid Solution Span SparseRows State StreamModel Sum Sweep "
        "TableModel TrainingSet TwoInfinity Unbudgeted Waves "
    )
    assert [name for name in known.split() if names.type_of(name) is None] == []


def test_a_record_may_not_take_the_name_of_another(monkeypatch):
    def define(name):
        return type(name, (bj.RemoveOldest,), {"__module__": "mine"})

    with pytest.raises(ValueError, match="name 'Average' must be free, got that of a"):
        bj.register(define("Average"))
    assert names.type_of("Average") is averages.Average
    monkeypatch.setattr(_record, "records", dict(_record.records))
    bj.register(define("Again"))
    # A module that is executed again defines its classes again.
    second = bj.register(define("Again"))
    assert names.type_of("Again") is second


def test_public_learners_and_solvers_have_their_own_names():
    for kind in (*lists.LEARNERS, *lists.SOLVERS):
        assert getattr(bj, kind.__name__) is kind
        assert names.type_of(kind.__name__) is kind

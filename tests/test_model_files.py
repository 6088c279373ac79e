"""Model files: whole or refused, harmless whatever they hold, and written at once."""

import errno
import os
import pickle
import re
import resource
import stat
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import budgetjax as bj
from budgetjax._errors import InputError
from budgetjax.saving import model_files, names, trees

pytestmark = pytest.mark.usefixtures("as_installed")

MODEL = {"weights": np.arange(3, dtype=np.float32), "classes": np.array(["a", "b"])}
OTHER = {"weights": np.ones(3, np.float32), "classes": np.array(["c", "d"])}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture
def saved(path):
    model_files.save(path, MODEL)
    return path


def is_model(path, model=MODEL):
    loaded = model_files.load(path)
    return all(np.array_equal(loaded[name], model[name]) for name in model)


def refused(path, says=" must "):
    """The message with which a file is refused."""
    with pytest.raises(ValueError, match=says) as raised:
        model_files.load(path)
    # No subclass, as an error of JSON or Unicode would be.
    assert isinstance(raised.value, InputError)
    message = str(raised.value)
    assert message.startswith(f"load: {path}: ")
    assert ", got " in message
    return message


# Damage.


def damages(data):
    """Every byte changed, all lengths, and bytes that change places."""
    random = np.random.default_rng(0)
    for at, byte in enumerate(data):
        # Among them a flip that makes white space of white space.
        flip = 0x20 ^ 0x0A if byte == 0x20 else 1 << int(random.integers(8))
        yield data[:at] + bytes([byte ^ flip]) + data[at + 1 :]
    yield from (data[:length] for length in range(1, len(data)))
    yield data + b"\0"
    yield data[:-8] + data[-4:] + data[-8:-4]


def test_damage_is_noticed_wherever_it_is(saved):
    data = saved.read_bytes()
    for damaged in damages(data):
        saved.write_bytes(damaged)
        refused(saved)
    refused(saved, "truncated or altered")
    saved.write_bytes(data)
    assert is_model(saved)


# Files of others.


ALIEN = {
    "empty": b"",
    "a-few-bytes": b"abc",
    "text": b"weight,label\n" + b"1.0,2.0\n" * 40,
    "json": b'{"__metadata__": {"budgetjax": "{}"}}',
    "zeros": bytes(1000),
    "pickle": pickle.dumps({"a": np.arange(100)}),
    "numpy": b"\x93NUMPY\x01\x00v\x00" + bytes(200),
    "zip": b"PK\x03\x04" + bytes(200),
    "tensors": safetensors.numpy.save({"a": np.ones(3)}),
    "tensors-with-notes": safetensors.numpy.save({"a": np.ones(3)}, {"format": "pt"}),
    "our-name": safetensors.numpy.save({"a": np.ones(3)}, {"budgetjax": "[]"}),
    "no-digest": safetensors.numpy.save({}, {"budgetjax": '{"format": 1}'}),
    "deep": safetensors.numpy.save({}, {"budgetjax": "[" * 100_000}),
}


@pytest.mark.parametrize("name", ALIEN)
def test_files_of_others_are_refused(name, path):
    path.write_bytes(ALIEN[name])
    refused(path, r"must be a file of budgetjax.save, got")


def test_no_file_and_no_name(path):
    with pytest.raises(ValueError, match=r"must be a file of .*, got a folder"):
        model_files.load(path.parent)
    with pytest.raises(FileNotFoundError, match=r"model.safetensors"):
        model_files.load(path)


def test_a_newer_format_says_so(path, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(model_files, "FORMAT", model_files.FORMAT + 1)
        newer.setattr(bj, "__version__", "9.1")
        model_files.save(path, MODEL)
    assert "of budgetjax 9.1: install a newer one" in refused(path, "must be at most 1")
    for number in ("1", None, 1.5):
        monkeypatch.setattr(model_files, "FORMAT", number)
        model_files.save(path, MODEL)
        monkeypatch.undo()
        refused(path, "format must be at most 1")


def test_paths_of_all_kinds(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    for target in (str(path), path.parent / "[a*] b é.txt", "model"):
        model_files.save(target, MODEL)
        assert is_model(target)
    assert sorted(os.listdir()) == ["[a*] b é.txt", "model", path.name]


# Files with evil in them: the digest is right.


def forged(path, monkeypatch, node, tensors=None):
    """A file with this structure."""
    with monkeypatch.context() as patched:
        patched.setattr(trees, "encode", lambda *_: (node, tensors or {}))
        model_files.save(path, None)


# Of others, of none, and of budgetjax by other ways than the names of its types.
TYPES = """
os.system subprocess.Popen builtins.eval antigravity.fly collections.OrderedDict
jax.tree_util.Partial run Kernel Partial Online Learner Batches budgetjax. budgetjax.run
budgetjax.RBF budgetjax.online.driver.run budgetjax.losses.hinge RBF.__new__
budgetjax.kernels.RBF budgetjax.saving.model_files.os.system budgetjax.cli.main
budgetjax..kernels.RBF budgetjax/kernels.RBF budgetjaxx.kernels.RBF optax.sgd
optax._src.base.np optax.no_such_module.State __main__.Thing
"""


FUNCTION_NAMES = """
os.system builtins.eval budgetjax.run budgetjax.losses.gradient
budgetjax.losses.quantile optax.sgd optax.losses.optax system
"""


ARRAY = {"array": "NumPy array", "dtype": "float32", "shape": [3]}
KEYS = ARRAY | {"array": "random keys"}
TEXT = {"text": ["a"], "dtype": "U1", "shape": [1]}
NODES = {
    "unknown": {"pickle": "gASVKAAAA"},
    "empty": {},
    "several-kinds": {"eval": "1", "exec": "2"},
    "no-tensor": ARRAY,
    "another-dtype": ARRAY | {"dtype": "object"},
    "no-dtype": ARRAY | {"dtype": "os.system"},
    "wrong-size": ARRAY | {"dtype": "float64"},
    "wrong-shape": ARRAY | {"shape": [2]},
    "no-key": KEYS | {"impl": "threefry2x32"},
    "no-generator": KEYS | {"impl": "x"},
    "other-fields": {"type": "RBF", "fields": {"exact": False}},
    "more-fields": {"type": "RBF", "fields": {"gamma": 1.0, "exact": None, "x": 1}},
    "fields-in-a-list": {"type": "RBF", "fields": [1.0, None]},
    "wrong-shape-of-text": TEXT | {"shape": [7]},
    "no-shape": TEXT | {"shape": ["b"]},
    "no-text": TEXT | {"text": "a"},
    "no-type": TEXT | {"dtype": "os.system"},
    "no-keywords": {"partial": {"function": "hinge"}, "args": [], "keywords": 3},
}


FIELDS = {"gamma": 1.0, "exact": False}
NO_TYPE = "must be of a type of budgetjax or optax, got.* '{}'"
NO_FUNCTION = "must be a function of budgetjax.losses or optax.* '{}'"


def structures():
    """Nodes, and what is said of them."""
    for name in ["", *TYPES.split()]:
        node = {"tuple": [{"type": name, "fields": FIELDS}]}
        yield node, NO_TYPE.format(re.escape(name))
    for name in FUNCTION_NAMES.split():
        arguments = {"args": ["touch hacked"], "keywords": {}}
        for node in ({"function": name}, {"own function": name}):
            for given in (node, {"partial": node, **arguments}):
                yield given, NO_FUNCTION.format(re.escape(name))
    for name in ("Other", "__dict__"):
        node = {"estimator": name, "parameters": {}, "learned": {}}
        yield node, "must be an estimator of"
    for node in NODES.values():
        yield {"tuple": [node]}, " must "
    deep = None
    for _ in range(sys.getrecursionlimit() // 2):
        deep = [deep]
    yield deep, " must "


@pytest.mark.usefixtures("estimators")
@pytest.mark.parametrize(("node", "says"), list(structures()))
def test_other_structures(node, says, path, monkeypatch):
    jnp.array(0.0)  # with which JAX imports its compiler
    loaded = set(sys.modules)
    tensors = {} if node == {"tuple": [ARRAY]} else {"[0]": np.ones(3, np.float32)}
    forged(path, monkeypatch, node, tensors)
    refused(path, says)
    assert set(sys.modules) == loaded


def test_fields_of_another_version_are_named(path, monkeypatch):
    monkeypatch.setattr(bj, "__version__", "0.0.9")
    forged(path, monkeypatch, {"type": "RBF", "fields": {"sigma": 1.0}})
    message = refused(path, "must have the fields gamma, exact, got sigma")
    assert message.endswith("written by budgetjax 0.0.9")


# Estimators.


class Estimator:
    """As scikit-learn's are."""

    def __init__(self, budget=10, loss=None):
        self.budget = budget
        self.loss = loss

    def get_params(self, deep=True):
        return {"budget": self.budget, "loss": self.loss}

    def fit(self):
        self.classes_ = np.array(["no", "yes"])
        self._scale = 0.5
        self.state_ = (jnp.ones(3), jax.tree_util.Partial(self.loss or trees.encode))
        self.told = "not to be kept"
        return self

    @property
    def model_(self):
        return bj.TableModel(None, classes=self.classes_)


@pytest.fixture
def estimators(monkeypatch):
    """An estimator among those of the package."""
    monkeypatch.setattr(Estimator, "__module__", f"{names.ESTIMATORS}.online")
    monkeypatch.setitem(names.import_estimator, "Estimator", lambda: Estimator)


@pytest.mark.usefixtures("estimators")
def test_estimators(path):
    model_files.save(path, Estimator(7))
    loaded = model_files.load(path)
    assert type(loaded) is Estimator
    assert vars(loaded) == {"budget": 7, "loss": None}
    fitted = Estimator(7, bj.losses.hinge).fit()
    model_files.save(path, fitted)
    assert model_files.header(path)["about"]["labels"] == ["no", "yes"]
    loaded = model_files.load(path)
    assert loaded.get_params() == fitted.get_params()
    assert loaded.classes_.tolist() == ["no", "yes"]
    assert loaded._scale == 0.5
    assert loaded.state_[1].func is bj.losses.hinge
    assert not hasattr(loaded, "told")
    assert list(safetensors.numpy.load_file(path)) == ["state_[0]"]


@pytest.mark.usefixtures("estimators")
def test_an_estimator_with_a_function_of_ones_own(path):
    def loss(score, y):
        return (score - y) ** 2

    model_files.save(path, Estimator(loss=loss).fit())
    for like in (None, Estimator(loss=bj.losses.hinge)):
        with pytest.raises(ValueError, match=r"loss must be a function .* give like="):
            model_files.load(path, like=like)
    for like in (Estimator(loss=loss), Estimator(loss=loss).fit()):
        loaded = model_files.load(path, like=like)
        assert loaded.loss is loaded.state_[1].func is loss


@pytest.mark.usefixtures("estimators")
def test_estimators_learn_no_names_of_python(path, monkeypatch):
    learned = {"__class__": 1, "__dict__": 2, "get_params": 3, "budget": 4, "coef_": 5}
    node = {"estimator": "Estimator", "parameters": {"budget": 1}, "learned": learned}
    forged(path, monkeypatch, node)
    assert vars(model_files.load(path)) == {"budget": 1, "loss": None, "coef_": 5}
    forged(path, monkeypatch, node | {"parameters": {"evil": 1}})
    refused(path, "evil")


# What cannot be saved.


def donated():
    array = jnp.ones(3)
    array.delete()
    return array


BAD = {
    "object": (object, "model must be made of .*, got object"),
    "class": (lambda: np.float32, "got type"),
    "set": (lambda: {"a": {1}}, r"\['a'\] must .*, got set"),
    "bytes": (lambda: (b"a",), r"\[0\] must .*, got bytes"),
    "complex": (lambda: 1j, "got complex"),
    "keys": (lambda: {(1, 2): 3}, "dicts with text as keys, .*, got dict"),
    "random-state": (lambda: [np.random.RandomState(0)], "RandomState"),
    "generator": (lambda: np.random.default_rng(0), "got .*Generator"),
    "complex-array": (lambda: np.ones(2, complex), "got dtype complex128"),
    "times": (lambda: np.array(["2020"], "M8[D]"), "got dtype datetime64"),
    "records": (lambda: np.zeros(2, [("a", int)]), "got dtype"),
    "long-floats": (lambda: np.ones(2, np.longdouble), "got dtype"),
    "masked": (lambda: np.ma.array([1.0], mask=[True]), "got MaskedArray"),
    "objects": (lambda: np.array([object()]), "must be an array .*, got dtype object"),
    "donated": (donated, "must have a value, got an array that .* was donated"),
    "module": (lambda: os, "got module"),
    "pipeline": (
        lambda: make_pipeline(StandardScaler()),
        "got Pipeline; save the estimator of budgetjax in it, or all by joblib.dump",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_saved(name, saved):
    make, says = BAD[name]
    with pytest.raises(ValueError, match=rf"^save: .*{says}"):
        model_files.save(saved, make())
    assert os.listdir(saved.parent) == [saved.name]
    assert is_model(saved)


def test_traced_values_cannot_be_saved(path):
    @jax.jit
    def inside(x):
        model_files.save(path, {"x": x})

    with pytest.raises(
        ValueError, match=r"^save: \['x'\] must have a value, got .* traced"
    ):
        inside(1.0)
    assert not path.exists()


def test_without_safetensors(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    for name, call in (
        ("save", lambda: model_files.save(path, MODEL)),
        ("load", lambda: model_files.load(path)),
    ):
        with pytest.raises(ImportError, match=rf"^{name} needs safetensors: pip inst"):
            call()


# Writing at once.


def failing(error):
    def call(*given, **more):
        raise error

    return call


NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
STAGES = {"open": (model_files, "open"), "sync": (os, "fsync"), "name": (os, "replace")}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("before", [True, False], ids=["old", "new"])
def test_a_failure_leaves_all_as_it_was(stage, before, path, monkeypatch):
    if before:
        model_files.save(path, MODEL)
    for error in (NO_SPACE, KeyboardInterrupt()):
        with monkeypatch.context() as patched:
            patched.setattr(*STAGES[stage], failing(error), raising=False)
            with pytest.raises(type(error)) as raised:
                model_files.save(path, OTHER)
        assert os.listdir(path.parent) == [path.name] * before
        assert not before or is_model(path)
        if error is NO_SPACE:
            check_told(raised.value, path, errno.ENOSPC)
    model_files.save(path, OTHER)
    assert is_model(path, OTHER)


def check_told(error, path, number):
    assert (error.errno, error.filename) == (number, str(path))
    text = f"could not write: {os.strerror(number)}"
    assert error.strerror.startswith(text)
    assert error.strerror.endswith("what was there before is unchanged")


def test_a_write_that_the_system_ends_leaves_all_as_it_was(saved):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            model_files.save(saved, np.zeros(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    check_told(raised.value, saved, errno.EFBIG)
    assert os.listdir(saved.parent) == [saved.name]
    assert is_model(saved)


def test_what_is_on_the_disk_before_the_name_changes(saved, monkeypatch):
    order = []

    def noting(name, real):
        return lambda *given: order.append(name) or real(*given)

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noting(name, getattr(os, name)))
    model_files.save(saved, OTHER)
    assert order == ["fsync", "replace"]


@pytest.mark.parametrize("what", ["no-folder", "file-as-folder", "folder", "pipe"])
def test_places_that_take_no_file(what, tmp_path):
    place = tmp_path / "place"
    target = place / "model.safetensors"
    if what == "file-as-folder":
        place.write_text("a file")
    elif what != "no-folder":
        target = place
        place.mkdir() if what == "folder" else os.mkfifo(place)
    with pytest.raises(
        OSError, match=rf"^\[Errno \d+\] could not write: .*{target.name}'$"
    ):
        model_files.save(target, MODEL)
    assert os.listdir(tmp_path) == ["place"] * (what != "no-folder")
    if what == "pipe":
        assert stat.S_ISFIFO(place.stat().st_mode)


def test_a_file_has_the_mode_that_the_system_gives(path):
    mask = os.umask(0o027)
    try:
        model_files.save(path, MODEL)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_reader_sees_one_model_or_the_other(saved):
    done, seen = threading.Event(), []

    def reading():
        while not done.is_set():
            seen.append(model_files.load(saved)["classes"].tolist())

    reader = threading.Thread(target=reading)
    reader.start()
    for _ in range(10):
        model_files.save(saved, OTHER)
        model_files.save(saved, MODEL)
    done.set()
    reader.join()
    assert seen
    assert all(classes in (["a", "b"], ["c", "d"]) for classes in seen)

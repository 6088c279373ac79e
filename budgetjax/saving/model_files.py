"""Model files: any state or model as one safetensors file; see `save` and `load`."""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import secrets
import sys
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from budgetjax import models
from budgetjax.checks import Name
from budgetjax.saving import names, trees
from budgetjax.saving.names import is_record, own_name
from budgetjax.saving.trees import Decoder, Tensor

# Files with a larger number are refused.
FORMAT = 1
# The name of the header among the metadata of a file.
HEADER = "budgetjax"
# Of its size and the list of arrays: safetensors reads no file with more.
HEADER_LIMIT = 100_000_000
# What is said of a file of another kind.
ALIEN = "must be a file of budgetjax.save"
# In the place of the digest while it is computed.
NO_DIGEST = "0" * 64


def save(path: str | os.PathLike[str], model: Any) -> None:
    """Writes a model to a file, whole or not at all.

    The file is in the safetensors format: the arrays, and a header in JSON that holds
    the structure, the names of the algorithm, kernel and maintenance, the labels, and
    the versions of budgetjax and JAX. There is no pickle in it. A state is complete, so
    learning goes on from the file as if it had never stopped, bit for bit.

    The file appears under its name when it is complete and on the disk: at any moment,
    a loss of power included, there is the old file or the new one.

    Args:
      path: of the file, by custom `NAME.safetensors`. It is replaced if it exists.
      model: the state of any algorithm, also stacked from a sweep; a `KernelModel`,
        `LinearModel`, `Labelled`, `Solution` or `StreamModel`; an estimator of
        `budgetjax.estimators`, fitted or not; or tuples, lists and dicts of such.

    Raises:
      ValueError: if something in the model is neither an array of numbers, bools or
        text, nor a number, text, tuple, list, dict, named tuple or dataclass: a
        `RandomState`, for instance. Inside `jit` or `vmap`, where values are traced,
        nothing can be saved.
      OSError: if the file cannot be written: the disk is full, or the folder does not
        exist or is not writable. What was there before is unchanged, and nothing else
        is left behind.
      ImportError: if safetensors is not there.

    Example:
      >>> import budgetjax as bj, jax.numpy as jnp, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
      >>> state = bj.arow.init(bj.RBF(gamma=1.0), num_features=2, budget=10)
      >>> save(path, bj.arow.step(state, jnp.array([1.0, 2.0]), 1))
      >>> bj.predict(load(path), jnp.array([[1.0, 2.0]])).tolist()
      [1]
    """
    write(path, model, {}, where="save")


def load(path: str | os.PathLike[str], *, like: Any = None) -> Any:
    """Reads a model that `save` has written.

    It comes back equal, of the same types, bit for bit: arrays of JAX as arrays of JAX
    on the default device, NumPy arrays as NumPy arrays. Nothing in the file is run, so
    that a file from a stranger can do no harm: types and functions are looked up by
    name among those of budgetjax and optax, and what is not there is refused. The names
    are those of algorithms, kernels and other classes, wherever their code is.

    Args:
      path: of the file.
      like: a state made by the same `init` with the same arguments, for a model with a
        function of your own, as a loss, a learning-rate schedule or an optimiser other
        than the default, or with a kernel or a strategy of your own. The file has only
        their names; `like` gives them. If given, structure, shapes and dtypes must be
        as in `like`. For a model of a stream the state is enough; for an estimator, one
        with the same parameters. None for all other models.

    Returns:
      What was saved.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it is no model file, or is truncated or altered, by as little as a
        bit, or comes from a newer budgetjax; if it needs `like`, or is not as `like`;
        or if it holds 64-bit arrays of JAX and x64 is switched off.
      OSError: if the file cannot be read.
      ImportError: if safetensors is not there, or the file holds an estimator and
        scikit-learn is not there.

    Example:
      >>> import budgetjax as bj, jax.numpy as jnp, optax, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
      >>> def empty():
      ...     return bj.sgd.init(
      ...         bj.RBF(gamma=1.0), num_features=1, budget=10, num_classes=None,
      ...         loss=optax.losses.squared_error,
      ...         learning_rate=optax.exponential_decay(0.5, 100, 0.9))
      >>> save(path, bj.sgd.step(empty(), jnp.array([0.0]), 3.0))
      >>> state = load(path, like=empty())
      >>> bj.decision_function(state, jnp.array([[0.0]])).tolist()
      [3.0]
    """
    return read(path, like=like, where="load")[0]


def write(
    path: str | os.PathLike[str],
    model: Any,
    notes: dict[str, Any],
    *,
    where: str = "write",
) -> None:
    """As `save`, with notes beside the model: anything that JSON can hold."""
    name = _path(where, path)
    numpy_files = _safetensors(where).numpy
    node, tensors = trees.encode(where, model)
    about = {
        # First, so that these are the first 64 zeros of the file.
        "digest": NO_DIGEST,
        "format": FORMAT,
        "budgetjax": _version(),
        "jax": jax.__version__,
        "about": _about(model),
        "notes": notes,
        "structure": node,
    }
    data = numpy_files.save(tensors, {HEADER: json.dumps(about)})
    if int.from_bytes(data[:8], "little") > HEADER_LIMIT:
        raise ValueError(
            f"{where}: text and structure must be within {HEADER_LIMIT:,} bytes, all "
            f"but arrays of numbers, got {len(json.dumps(about)):,}"
        )
    at = data.index(NO_DIGEST.encode())
    before, digest, after = _pieces(data, at)
    digest = _digest(before, after).encode()
    replace(where, name, (before, digest, after))


def read(
    path: str | os.PathLike[str],
    *,
    like: Any = None,
    check: Callable[[dict[str, Any]], None] = lambda notes: None,
    where: str = "read",
) -> tuple[Any, dict[str, Any]]:
    """As `load`, and the notes that `write` was given.

    `check` sees the notes before the model is made, and may raise.
    """
    name = _path(where, path)
    safetensors = _safetensors(where)
    where = f"{where}: {name}"
    found, data = _checked(where, name)
    check(found["notes"])
    try:
        tensors = {
            tensor: Tensor(given["data"], tuple(given["shape"]))
            for tensor, given in safetensors.deserialize(data)
        }
        decoder = Decoder(where, tensors, str(found["budgetjax"]))
        like = trees.NOTHING if like is None else like
        return decoder.decode(found["structure"], like), found["notes"]
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith(where):
            raise
        # The digest is right, so this was made by hand, or by another version.
        raise ValueError(
            f"{where}: the structure of the model must be readable, got {error!r}"
        ) from error


def header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a model file says of itself, without making the model.

    Returns:
      `format`; `budgetjax` and `jax`, the versions that wrote it; `about`, a dict with
      the type and, where known, `algorithm`, `kernel`, `maintenance` and `labels`; and
      more that is not for people.

    Raises:
      FileNotFoundError: as `load`.
      ValueError: as `load`, of the file as such.
    """
    path = _path("header", path)
    return _checked(f"header: {path}", path)[0]


def _safetensors(where: str) -> Any:
    """The library."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            f"{where} needs safetensors: pip install 'budgetjax[stream]'"
        ) from error
    return safetensors


def _version() -> str:
    return sys.modules["budgetjax"].__version__


def _about(model: Any) -> dict[str, Any]:
    """What a model is, for people."""
    about: dict[str, Any] = {"type": names.name_of(model) or own_name(type(model))}
    predicts = getattr(model, "model_", model)
    state = models.innermost(predicts)
    name = getattr(state, "algorithm", None)
    if isinstance(name, Name):
        about["algorithm"] = name.value
    for name in ("kernel", "maintenance"):
        if is_record(type(part := getattr(state, name, None))):
            about[name] = type(part).__name__
    labels = getattr(models.labelled(predicts), "classes", None)
    if isinstance(labels, np.ndarray):
        about["labels"] = labels.tolist()
    return about


def _pieces(data: bytes, at: int) -> tuple[memoryview, memoryview, memoryview]:
    """A file's bytes before the digest, the digest, and those after it; no copies."""
    view, end = memoryview(data), at + len(NO_DIGEST)
    return view[:at], view[at:end], view[end:]


def _digest(before: memoryview, after: memoryview) -> str:
    """The SHA-256 of a whole file, with zeros in the place of the digest."""
    found = hashlib.sha256(before)
    found.update(NO_DIGEST.encode())
    found.update(after)
    return found.hexdigest()


def _path(where: str, path: Any) -> str:
    try:
        return os.fsdecode(path)
    except TypeError as error:
        raise ValueError(
            f"{where}: path must be the name of a file, got {path!r}"
        ) from error


def _checked(where: str, path: str) -> tuple[dict[str, Any], bytes]:
    """The header and the bytes of a file, if it is a model file, and whole."""
    try:
        data = pathlib.Path(path).read_bytes()
    except IsADirectoryError as error:
        raise _alien(where, "a folder") from error
    if not data:
        raise _alien(where, "an empty file")
    try:
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size])["__metadata__"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _alien(where, "another file, or a damaged one") from error
    try:
        found = json.loads(metadata[HEADER])
        number, digest = found["format"], found["digest"].encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _alien(where, "other tensors, or a damaged file") from error
    if not isinstance(number, int) or number > FORMAT:
        raise ValueError(
            f"{where}: the format must be at most {FORMAT}, which budgetjax "
            f"{_version()} reads, got {number!r}, of budgetjax "
            f"{found.get('budgetjax')}: install a newer one"
        )
    at = data.find(digest)
    if len(digest) != len(NO_DIGEST) or at < 0:
        raise _alien(where, "a damaged file")
    before, _, after = _pieces(data, at)
    if _digest(before, after).encode() != digest:
        raise ValueError(
            f"{where}: the file must be as it was written, with the digest "
            f"{digest.decode()[:12]}..., got another digest: it is truncated or altered"
        )
    return found, data


def _alien(where: str, got: str) -> ValueError:
    return ValueError(f"{where}: {ALIEN}, got {got}")


def replace(where: str, path: str, parts: Iterable[bytes | memoryview]) -> None:
    """Writes a file beside the one of this path, and then puts it in its place."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
    left = "what was there before is unchanged"
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise OSError(errno.EEXIST, "it is a folder or a device")
        try:
            with open(temporary, "xb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise
        left = "the new file is there, but may not survive a crash"
        _settle(folder or os.curdir)
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"{where}: could not write: {reason}; {left}"
        raise OSError(error.errno or errno.EIO, message, path) from error


def _settle(folder: str) -> None:
    """Puts the names of a folder on the disk, where the system has that."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some file systems have no such thing.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)

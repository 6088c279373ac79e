"""Model files: a state or model as one safetensors file; see `save` and `load`."""

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

from budgetjax import _checks, _forks
from budgetjax._errors import ArgumentError, InputError, names_errors, places_errors
from budgetjax.model import Model
from budgetjax.saving import names, trees
from budgetjax.saving.names import has_fields, own_name
from budgetjax.tables.table_model import TableModel

# Notes and headers of files: what JSON can hold.
Notes = dict[str, Any]
# Files with a larger number are refused.
FORMAT = 1
# The key of the header in the metadata of a file.
HEADER = "budgetjax"
# Stands for the digest while it is computed.
NO_DIGEST = b"0" * 64


class ForeignFileError(InputError):
    """A file that `save` did not write; its argument says what it is."""

    def __str__(self) -> str:
        return self.located(f"must be a file of budgetjax.save, got {self.args[0]}")


@names_errors("save")
def save(path: str | os.PathLike[str], model: Any) -> None:
    """Writes a model to a file, atomically.

    The file is in the safetensors format: the arrays, and a header in JSON that holds
    the structure, the names of the learner, kernel and maintenance, the labels, and
    the versions of budgetjax and JAX. It contains no pickle. A state is complete, so
    learning continues from the file as if it had never stopped, bit for bit. Arrays
    that float16 times a power of two holds exactly, such as a learned metric of codes,
    take two bytes per number; the header then has the exponent.

    Until it is complete and on disk, the file has another name: at any moment, even
    after a power failure, either the old file or the new one exists.

    Args:
      path: the file, usually `NAME.safetensors`, which is replaced if it exists.
      model: the state of any learner, also stacked for a sweep; a `KernelModel`,
        `LinearModel`, `TableModel`, `Solution` or `StreamModel`; or an estimator of
        `budgetjax.estimators`, fitted or not.

    Raises:
      ValueError: if a part of the model is neither an array of numbers, bools or text,
        nor a number, text, tuple, list, dict, named tuple or dataclass; for example a
        `RandomState`, or a traced value inside `jit` or `vmap`.
      OSError: if the file cannot be written: the disk is full, or the folder does not
        exist or is not writable. An existing file is unchanged, and no other file is
        left behind.

    Example:
      >>> import pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
      >>> state = bj.AROW().init(bj.RBF(gamma=1.0), num_features=2, budget=10)
      >>> save(path, bj.step(state, jnp.array([1.0, 2.0]), 1))
      >>> bj.predict(load(path), jnp.array([[1.0, 2.0]])).tolist()
      [1]
    """
    write(path, model, {})


@names_errors("load")
def load(path: str | os.PathLike[str], *, like: Any = None) -> Any:
    """Reads a model that `save` wrote.

    The model is equal bit for bit: JAX arrays return as JAX arrays on the default
    device, NumPy arrays as NumPy arrays. Nothing in the file is executed, so an
    untrusted file is safe to load: types and functions are looked up by name among
    those of budgetjax and optax, and other names are rejected. A field that the file
    lacks, as it is older, has its default; an unknown one is an error.

    Args:
      path: the file.
      like: for a model with your own loss, learning-rate schedule, kernel or strategy,
        or an optimiser other than the default: a state from the same `init` with the
        same arguments, or an estimator with the same parameters. The file has only the
        names of these objects, and `like` provides them; everything else comes from the
        file. None for all other models.

    Raises:
      ValueError: if the file is not a model file, is truncated or altered by a single
        bit, or comes from a newer budgetjax; if a name in it is neither known nor in
        `like`; or if it holds 64-bit JAX arrays and x64 is off.
      ImportError: if safetensors is not installed, or the file holds an estimator and
        scikit-learn is not installed.

    Example:
      >>> import optax, pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
      >>> def empty():
      ...     return bj.SGD(
      ...         loss=optax.losses.squared_error,
      ...         learning_rate=optax.exponential_decay(0.5, 100, 0.9)
      ...     ).init(
      ...         bj.RBF(gamma=1.0), num_features=1, budget=10, num_classes=None)
      >>> save(path, bj.step(empty(), jnp.array([0.0]), 3.0))
      >>> state = load(path, like=empty())
      >>> bj.decision_function(state, jnp.array([[0.0]])).tolist()
      [3.0]
    """
    _forks.check()
    return read(path, like=like)[0]


def write(path: str | os.PathLike[str], model: Any, notes: Notes) -> None:
    """Writes a model as `save` does, with notes: any value that JSON can hold."""
    numpy_files = _checks.import_optional("safetensors.numpy")
    node, tensors = trees.encode(model)
    about = {
        # This comes first, so that its 64 zeros are the first in the file.
        "digest": NO_DIGEST.decode(),
        "format": FORMAT,
        "budgetjax": version(),
        "jax": jax.__version__,
        "about": _about(model),
        "notes": notes,
        "structure": node,
    }
    data = numpy_files.save(tensors, {HEADER: json.dumps(about)})
    digest = hashlib.sha256(data).hexdigest().encode()
    replace(os.fspath(path), [data.replace(NO_DIGEST, digest, 1)])


def read(
    path: str | os.PathLike[str],
    *,
    like: Any = None,
    check: Callable[[Notes], None] = lambda notes: None,
) -> tuple[Any, Notes]:
    """The model in a file, as `load` returns it, and the notes of `write`.

    `check` sees the notes before the model is made, and may raise.
    """
    safetensors = _checks.import_optional("safetensors")
    found, data = _read_intact(path)
    check(found["notes"])
    own: trees.Own = {}
    with places_errors(os.fspath(path)):
        trees.encode(like, own)
        try:
            parts = safetensors.deserialize(data)
            tensors = {name: part["data"] for name, part in parts}
            decoder = trees.Decoder(tensors, str(found["budgetjax"]), own)
            return decoder.decode(found["structure"]), found["notes"]
        except (ImportError, MemoryError, trees.PartError):
            raise
        except Exception as error:
            # The digest is right, so the file was made by hand or by another version.
            part = "the structure of the model"
            raise ArgumentError(part, "be readable", repr(error)) from error


def header(path: str | os.PathLike[str]) -> Notes:
    """The header of a model file, without the model; errors are those of `load`."""
    return _read_intact(path)[0]


def version() -> str:
    """The version of this package."""
    return sys.modules["budgetjax"].__version__


def _about(model: Any) -> Notes:
    """A description of a model, for humans."""
    about: Notes = {"type": names.name_of(model) or own_name(type(model))}
    model = getattr(model, "model_", model)
    state = model.inner if isinstance(model, Model) else model
    parts = names.parts_of(state) if has_fields(type(state)) else {}
    for name in ("learner", "solver", "kernel", "maintenance"):
        if has_fields(type(part := parts.get(name))):
            about[name] = type(part).__name__
    table = TableModel.find(model) if isinstance(model, Model) else None
    if table is not None and table.classes is not None:
        about["labels"] = np.asarray(table.classes).tolist()
    return about


def _read_intact(path: str | os.PathLike[str]) -> tuple[Notes, bytes]:
    """The header and the bytes of a file, after checks that it is an intact model."""
    with places_errors(os.fspath(path)):
        try:
            data = pathlib.Path(path).read_bytes()
        except IsADirectoryError as error:
            raise ForeignFileError("a folder") from error
        return _header(data), data


def _header(data: bytes) -> Notes:
    try:
        size = int.from_bytes(data[:8], "little")
        found = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][HEADER])
        number, digest = found["format"], found["digest"].encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        got = "another file, or a damaged one" if data else "an empty file"
        raise ForeignFileError(got) from error
    if not isinstance(number, int) or number > FORMAT:
        wanted = f"be at most {FORMAT}, which budgetjax {version()} reads"
        got = f"{number!r}, of budgetjax {found.get('budgetjax')}: install a newer one"
        raise ArgumentError("the format", wanted, got)
    whole = data.replace(digest, NO_DIGEST, 1) if len(digest) == 64 else b""
    if hashlib.sha256(whole).hexdigest().encode() != digest:
        wanted = f"be as it was written, with the digest {digest.decode()[:12]}..."
        got = "another digest: it is truncated or altered"
        raise ArgumentError("the file", wanted, got)
    return found


def replace(path: str, parts: Iterable[bytes]) -> None:
    """Writes a file under another name in the same folder, and then renames it.

    A device such as /dev/null is written directly; a pipe may never have a reader.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            if not pathlib.Path(path).is_char_device():
                raise OSError(errno.EEXIST, "it is a folder or a pipe")
            with open(path, "wb") as device:
                device.writelines(parts)
            return
        try:
            with open(temporary, "xb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise
    except OSError as error:
        why = error.strerror or error
        text = f"could not write: {why}; what was there before is unchanged"
        raise OSError(error.errno or errno.EIO, text, path) from error

"""Checkpoints of a run on a stream: its position, written to and read from disk."""

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from budgetjax._errors import ArgumentError, InputError, places_errors
from budgetjax.saving import model_files, trees
from budgetjax.stream.model import CheckpointError, StreamModel

START_OVER = "delete it to start anew"
# For a file of another kind, which a new start would overwrite.
OTHER_PATH = "give another path"


class _OtherRunError(Exception):
    """The file is not of this run: what it must be, what it is, and advice."""


class Position(NamedTuple):
    """The model between two batches, and its position in the source.

    `last` holds the examples of the last batch, or their digest.
    """

    model: StreamModel
    batches: int = 0
    rows: int = 0
    last: tuple[np.ndarray, ...] | str = ""


class Checkpoint(NamedTuple):
    """A file, and the settings that a run must share to continue from it.

    `start` is the digest of the model at the start.
    """

    path: str
    start: str
    batch_rows: int


class Writer:
    """Writes positions of a run, each at most once; without a file, none."""

    def __init__(self, run: Checkpoint | None, every: int):
        self.run, self.every = run, every
        self.written = -1

    def read(self, start: StreamModel) -> Position | None:
        """The position in the file, if there is one."""
        found = None if self.run is None else read(self.run, start)
        if found is not None:
            self.written = found.batches
        return found

    def save(self, position: Position) -> None:
        """Writes a position, unless it is the last one written or read."""
        if self.run is not None and self.written < position.batches:
            write(self.run, position)
            self.written = position.batches

    def save_if_due(self, position: Position) -> None:
        """Writes a position after every `every` batches."""
        if position.batches % self.every == 0:
            self.save(position)


def write(checkpoint: Checkpoint, position: Position) -> None:
    """Replaces the position in a file atomically."""
    notes = {
        "start": checkpoint.start,
        "batch_rows": checkpoint.batch_rows,
        "batches": position.batches,
        "rows": position.rows,
        "last": digest(position.last),
    }
    try:
        model_files.write(checkpoint.path, position.model, notes)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {checkpoint.path} must be writable, got "
            f"{type(error).__name__}: {error}; .model has learned "
            f"{position.model.num_rows} rows",
            position.model,
        ) from error


def read(checkpoint: Checkpoint, start: StreamModel) -> Position | None:
    """The position in a file, or None if there is no file."""
    path = checkpoint.path
    try:
        with places_errors("checkpoint"):
            model, notes = model_files.read(
                path, like=start.state, check=lambda notes: _check(checkpoint, notes)
            )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {path} must be readable, got {type(error).__name__}: {error}",
            start,
        ) from error
    except _OtherRunError as error:
        *what, advice = error.args
        raise ArgumentError(f"checkpoint {path}", *what).advised(advice) from None
    except InputError as error:
        foreign = isinstance(error, model_files.ForeignFileError)
        before = [error.advice] if error.advice else []
        error.advised("; ".join([*before, OTHER_PATH if foreign else START_OVER]))
        raise
    return Position(model, notes["batches"], notes["rows"], notes["last"])


def _check(checkpoint: Checkpoint, notes: dict[str, Any]) -> None:
    """Raises if the file belongs to another run."""
    if "batch_rows" not in notes:
        raise _OtherRunError(
            "be of a run on a stream", "a model without a place in one", OTHER_PATH
        )
    rows = notes["batch_rows"]
    if rows != checkpoint.batch_rows:
        raise _OtherRunError(
            f"be of batches of {checkpoint.batch_rows} rows",
            f"one of {rows}",
            START_OVER,
        )
    if notes["start"] != checkpoint.start:
        raise _OtherRunError(
            "be of the same learner, hyperparameters, classes, intercept, standardise "
            "and reservoir",
            "one of others",
            START_OVER,
        )


def describe_run(path: Any, rows: int, *begin: Any) -> Checkpoint:
    """The checkpoint of a run with this file, rows per batch and initial values."""
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError("checkpoint", "be a path", f"{path!r}")
    node, tensors = trees.encode(begin)
    text = np.frombuffer(json.dumps(node).encode(), np.uint8)
    named = (tensors[name] for name in sorted(tensors))
    return Checkpoint(os.fspath(path), digest((text, *named)), rows)


def digest(arrays: Iterable[np.ndarray] | str) -> str:
    """The SHA-256 of some arrays; a digest is returned unchanged."""
    if isinstance(arrays, str):
        return arrays
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).view(np.uint8).data)
    return found.hexdigest()

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


class Position(NamedTuple):
    """The model between two batches, and its position in the source.

    `last` holds the examples of the last batch, or their digest.
    """

    model: StreamModel
    batches: int = 0
    rows: int = 0
    last: tuple[np.ndarray, ...] | str = ""


class Checkpoint:
    """Writes positions of a run to a file, each at most once; without a path, none.

    A run continues only from a file of the same `batch_rows`, and of the same `start`,
    the digest of the model at the start.
    """

    def __init__(self, path: Any, every: int, batch_rows: int, model: StreamModel):
        if not isinstance(path, str | os.PathLike | None):
            raise ArgumentError("checkpoint", "be a path", f"{path!r}")
        self.path = None if path is None else os.fspath(path)
        self.every, self.batch_rows, self.written = every, batch_rows, -1
        if self.path is not None:
            node, tensors = trees.encode(model)
            text = np.frombuffer(json.dumps(node).encode(), np.uint8)
            self.start = digest((text, *(tensors[name] for name in sorted(tensors))))

    def save_if_due(self, position: Position) -> None:
        """Writes a position after every `every` batches."""
        if position.batches % self.every == 0:
            self.save(position)

    def save(self, position: Position) -> None:
        """Replaces the position in the file atomically, if this is a later one."""
        if self.path is None or self.written >= position.batches:
            return
        notes = {
            "start": self.start,
            "batch_rows": self.batch_rows,
            "batches": position.batches,
            "rows": position.rows,
            "last": digest(position.last),
        }
        try:
            model_files.write(self.path, position.model, notes)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {self.path} must be writable, got "
                f"{type(error).__name__}: {error}; .model has learned "
                f"{position.model.num_rows} rows",
                position.model,
            ) from error
        self.written = position.batches

    def read(self, start: StreamModel) -> Position | None:
        """The position in the file, or None if there is no file."""
        if self.path is None:
            return None
        try:
            with places_errors("checkpoint"):
                model, notes = model_files.read(
                    self.path, like=start.state, check=self._check
                )
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {self.path} must be readable, got {type(error).__name__}: "
                f"{error}",
                start,
            ) from error
        except InputError as error:
            if not error.function:
                foreign = isinstance(error, model_files.ForeignFileError)
                advice = OTHER_PATH if foreign else START_OVER
                error.advised("; ".join(filter(None, (error.advice, advice))))
            raise
        self.written = notes["batches"]
        return Position(model, notes["batches"], notes["rows"], notes["last"])

    def _check(self, notes: dict[str, Any]) -> None:
        """Raises if the file belongs to another run."""
        rows, advice = notes.get("batch_rows"), START_OVER
        if rows is None:
            expected, got = "be of a run on a stream", "a model without a place in one"
            advice = OTHER_PATH
        elif rows != self.batch_rows:
            expected, got = f"be of batches of {self.batch_rows} rows", f"one of {rows}"
        elif notes["start"] != self.start:
            expected = (
                "be of the same learner, hyperparameters, classes, intercept, "
                "encoding and reservoir"
            )
            got = "one of others"
        else:
            return
        raise ArgumentError(
            f"checkpoint {self.path}", expected, got, "fit_stream"
        ).advised(advice)


def digest(arrays: Iterable[np.ndarray] | str) -> str:
    """The SHA-256 of some arrays; a digest is returned unchanged."""
    if isinstance(arrays, str):
        return arrays
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).view(np.uint8).data)
    return found.hexdigest()

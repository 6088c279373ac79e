"""Errors that carry what was wrong, and get the name of the function that met it.

A check deep inside knows an argument, what was expected and what it got. The public
function that was called adds its name, and whoever reads a file or a batch adds that
place, so no check needs to be told who asks.
"""

import contextlib
from typing import Any


class Named(Exception):
    """A base of errors to which callers add where it happened.

    Attributes:
      function: the name of the public function, or of the file that was read.
      place: the part of the input, such as a batch; empty for all of it.
    """

    function: str = ""
    place: str = ""

    def located(self, text: str) -> str:
        """A message behind the function and the place."""
        return ": ".join(filter(None, (self.function, self.place, text)))


class ArgumentError(Named, ValueError):
    """An argument that a function cannot take.

    Attributes:
      argument: its name.
      expected: what it must be, as it follows "must".
      got: what it is.
    """

    def __init__(self, argument: str, expected: str, got: Any):
        super().__init__(argument, expected, got)
        self.argument, self.expected, self.got = argument, expected, str(got)

    def __str__(self) -> str:
        return self.located(f"{self.argument} must {self.expected}, got {self.got}")


class names_errors(contextlib.ContextDecorator):
    """Gives errors the name of a function or of a file, unless they have one.

    A decorator of public functions, and a context.
    """

    def __init__(self, function: str):
        self.function = function

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Named) and not error.function:
            error.function = self.function


class places_errors(contextlib.ContextDecorator):
    """Gives errors the part of the input that they are about; outer parts go first."""

    def __init__(self, place: str):
        self.place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Named) and not error.function:
            error.place = ": ".join(filter(None, (self.place, error.place)))

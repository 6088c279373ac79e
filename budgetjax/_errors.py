"""Errors that carry what was wrong, and get the name of the function that met it.

A check deep inside knows an argument, what was expected and what it got. The public
function that was called adds its name, and a reader of a file or of a batch adds that
place, so no check needs to be told who asks.
"""

import contextlib
import functools
import inspect
import pathlib
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Kind = TypeVar("Kind", bound="Named")
# Frames of these files are no lines of a user: the package, and what wraps functions.
NO_USER = (str(pathlib.Path(__file__).parent), contextlib.__file__, "<@beartype")


class Named(Exception):
    """A base of errors to which callers add where it happened."""

    # The name of the public function, or of the file that was read.
    function: str = ""
    # The part of the input, such as a batch; empty for all of it.
    place: str = ""
    # What helps, in arguments of functions; a door with other words translates it.
    advice: str = ""

    def advised(self: Kind, advice: str) -> Kind:
        """The error, with advice."""
        self.advice = advice
        return self

    def __str__(self) -> str:
        return self.located(super().__str__())

    def located(self, text: str) -> str:
        """A message behind the function and the place, and before the advice."""
        start = ": ".join(filter(None, (self.function, self.place, text)))
        return f"{start}; {self.advice}" if self.advice else start


class InputError(Named, ValueError):
    """Input that a function cannot take, said in a sentence."""


class ArgumentError(InputError):
    """An argument that a function cannot take: what it must be, and what it is."""

    def __init__(self, argument: str, expected: str, got: Any, function: str = ""):
        super().__init__(argument, expected, got, function)
        self.argument, self.expected, self.got = argument, expected, str(got)
        self.function = function

    def __str__(self) -> str:
        return self.located(f"{self.argument} must {self.expected}, got {self.got}")


class MissingModule(Named, ImportError):
    """An optional module that is not installed."""

    def __init__(self, package: str, extra: str):
        super().__init__(package, extra)
        self.package, self.extra = package, extra

    def __str__(self) -> str:
        return (
            f"{self.function or 'budgetjax'} needs {self.package}: pip install "
            f"{self.package}, or budgetjax with the extra [{self.extra}]"
        )


class names_errors:
    """Gives errors the name of a function or of a file, unless they have one.

    A decorator of public functions, and a context.
    """

    def __init__(self, name: str):
        self.name = name

    def __call__(
        self, function: Callable[Parameters, Result]
    ) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def named(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            try:
                return function(*args, **kwargs)
            except Named as error:
                self.__exit__(None, error, None)
                raise

        return named

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Named) and not error.function:
            self.add_name(error)

    def add_name(self, error: Named) -> None:
        """Gives this error the name."""
        error.function = self.name


def names_class(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Gives errors of a method the name of the class of its object."""

    @functools.wraps(method)
    def named(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with names_errors(type(args[0]).__name__):
            return method(*args, **kwargs)

    return named


class places_errors(names_errors):
    """Gives errors the part of the input that they are about; outer parts go first."""

    def add_name(self, error: Named) -> None:
        error.place = ": ".join(filter(None, (self.name, error.place)))


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line of the user that called this package."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and (
        frame.f_code.co_filename.startswith(NO_USER)
        or "jaxtyping" in frame.f_code.co_filename
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level + 1)

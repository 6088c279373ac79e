"""The group of all commands, which reports errors, warnings and Ctrl-C."""

import errno
import warnings
from typing import Any

import click

from budgetjax import __version__
from budgetjax._errors import Named
from budgetjax.cli import INTERRUPTED, options, reading, reports
from budgetjax.cli.export import export
from budgetjax.cli.info import info
from budgetjax.cli.plot import plot
from budgetjax.cli.predict import predict
from budgetjax.cli.sweep_command import sweep
from budgetjax.cli.train import train

# Errors from bad data, models or folders, or a missing extra. Anything else is a bug,
# and shows its traceback.
EXPECTED = (ValueError, OSError, OverflowError, ImportError, MemoryError)
# JAX's error for exhausted memory, under its old and new name.
OF_JAX = ("JaxRuntimeError", "XlaRuntimeError")
# Python functions that a user of commands does not call, and messages do not name.
FUNCTIONS = ("fit_stream", "refit", "sweep", "read")
# The advice of errors about arguments, and the same for the command line.
OPTION_ADVICE = {
    "'COLUMN=' in features= makes a feature of each text of a column, and features= "
    "without it leaves it out": "--one-hot COLUMN makes a feature of each text of a "
    "column, and --ignore COLUMN leaves it out",
    "allow_missing=True reads NaN": "training with --missing mean fills it in",
    "header=False reads files without names, and a target that is one of them says "
    "that these are names": "--no-header reads files without names, and a target that "
    "is one of them says that these are names",
    "zero_based=True reads files that start at 0": "--zero-based reads files that "
    "start at 0",
    "choose columns with features=": "name it in the first line",
    "delimiter='\\t' reads it": "--delimiter tab reads it",
    "decimal=',' reads decimal commas": "--decimal , reads decimal commas",
    **{f"delimiter={one!r} reads it": f"--delimiter {one!r} reads it" for one in ",;|"},
}
EXAMPLES = """\b
Train, predict, look:
  budgetjax train train.csv --target kind --model kind.safetensors
  budgetjax predict kind.safetensors new.csv --output predicted.csv
  budgetjax plot kind.safetensors --output kind.png

Exit codes: 0 success, 1 bad data or model, 2 wrong usage, 130 Ctrl-C.

Compiled programs are kept in the user's cache folder (XDG_CACHE_HOME, or ~/.cache), so
that a command runs faster the next time. The environment variable BUDGETJAX_CACHE
names another folder; "off" keeps none.

\b
Tab completes commands, options and learners after this line in ~/.bashrc:
  eval "$(_BUDGETJAX_COMPLETE=bash_source budgetjax)"
(zsh_source in ~/.zshrc; for fish: _BUDGETJAX_COMPLETE=fish_source budgetjax | source)
"""


class Group(click.Group):
    """Commands whose errors are one line on stderr and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("always", category=UserWarning)
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as interrupt:
                # A command may say how to continue.
                how = f": {interrupt}" if str(interrupt) else ""
                click.echo(f"\nbudgetjax: interrupted{how}", err=True)
                ctx.exit(INTERRUPTED)
            except (*EXPECTED, RuntimeError) as error:
                if isinstance(error, RuntimeError) and not _is_of_jax(error):
                    raise
                # The reader of a pipe has closed it; click then exits quietly.
                if isinstance(error, OSError) and error.errno == errno.EPIPE:
                    raise
                click.echo(f"budgetjax: error: {_clean(_one_line(error))}", err=True)
                ctx.exit(1)


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    text = str(message)
    for name in FUNCTIONS:
        text = text.removeprefix(f"{name}: ")
    reports.echo(f"budgetjax: warning: {_clean(text)}", err=True)


def _clean(text: str) -> str:
    """A message without unprintable characters, and with the names of copied files."""
    shown = (one if one.isprintable() else ascii(one)[1:-1] for one in text)
    return reading.restore_names("".join(shown))


def _is_of_jax(error: BaseException) -> bool:
    return type(error).__name__ in OF_JAX


def _one_line(error: BaseException) -> str:
    """An error in one line; errors of the system start with the file name."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    exhausted = _is_of_jax(error) and "memory" in str(error).lower()
    if isinstance(error, MemoryError) or exhausted:
        return f"out of memory {str(error).partition(chr(10))[0]}".rstrip()
    if isinstance(error, ValueError):
        from budgetjax.stream.model import StreamError

        if isinstance(error, StreamError) and isinstance(error.__cause__, Named):
            # It adds the model to the error.
            error = error.__cause__
    if isinstance(error, Named):
        error.advice = OPTION_ADVICE.get(error.advice, error.advice)
        if error.function in FUNCTIONS:
            error.function = ""
    return " ".join(str(error).split("\n"))


*_others, _last = options.FORMATS.values()
_formats = f"{', '.join(_others)} or {_last}"
HELP = f"""Kernel classifiers and regressors with a fixed number of support vectors.

A model is trained on a table of numbers, one example per row, in constant memory: the
file may be larger than memory. Tables are {_formats}, unless --format names another;
text may be compressed (.gz, .bz2, .xz). FILE may be a pipe or, as -, standard input.

"budgetjax COMMAND --help" explains a command.
"""


@click.group(
    cls=Group,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 88},
    epilog=EXAMPLES,
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def budgetjax() -> None:
    """The group of all commands."""


for _command in (train, predict, sweep, info, plot, export):
    budgetjax.add_command(_command)

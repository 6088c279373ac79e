"""Options of several commands, and the types of their values."""

import contextlib
import functools
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from budgetjax import online, solvers

# The file formats that come with the package, for `--help`, which imports no reader.
FORMAT_HELP = {
    "csv": "CSV (.csv; .tsv with tabs)",
    "parquet": "Parquet (.parquet)",
    "arrow": "Arrow (.arrow, .feather)",
    "npy": ".npy",
    "libsvm": "LIBSVM text (any other name)",
}
# The arguments that click gives to the types of values.
Parameter = click.Parameter | None
Context = click.Context | None
Decorator = Callable[[Callable], Callable]
# The value that gives all classes the same weight.
BALANCED = "balanced"
# The default penalty of errors of solvers, as in `budgetjax.Solver`.
SOLVER_PENALTY = 1.0
# The name of standard input and of standard output.
STANDARD = "-"
PICTURES = (".png", ".svg", ".pdf")
# Seconds between two lines of progress.
SECONDS = 30.0
TARGET = (
    "Column to predict; LIBSVM text needs none, .npy another file. Given again, with "
    "--regression: several columns of numbers.  [repeatable]"
)


class Finite(click.FloatRange):
    """A finite float."""

    def convert(self, value: Any, param: Parameter, ctx: Context) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Name(click.Choice):
    """One of some names, which a program may add to until the value is read."""

    case_sensitive = True

    def __init__(self, names: Callable[[], Sequence[str]]):
        self.names = names

    @property
    def choices(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.names()


def format_names() -> tuple[str, ...]:
    """The names of file formats, which are known only after they are imported."""
    from budgetjax.stream.readers import formats

    return formats.names()


POSITIVE = Finite(min=0, min_open=True)
SHARE = Finite(min=0, max=1, min_open=True, max_open=True)
AT_LEAST_0, AT_LEAST_1 = click.IntRange(min=0), click.IntRange(min=1)
# Slots are 32-bit integers, and one is spare.
SLOTS = click.IntRange(min=1, max=2**31 - 2)


def word_or(one: click.ParamType, *words: str, **values: Any) -> Callable[[str], Any]:
    """One of some words, or a value of a type; `values` are what words stand for."""

    def parse(text: str) -> Any:
        if text in words:
            return text
        return values[text] if text in values else one.convert(text, None, None)

    return parse


def numbers(one: click.ParamType) -> Callable[[str], list[Any]]:
    """Numbers separated by commas, each of a given type: `0.1,1,10`."""

    def parse(text: str) -> list[Any]:
        values = [one.convert(part, None, None) for part in text.split(",")]
        if len(set(values)) < len(values):
            raise ValueError(f"{text!r} has a number twice.")
        return values

    return parse


def character(text: str) -> str:
    """One character, or the word `tab`."""
    text = "\t" if text in ("tab", "\\t") else text
    if len(text) != 1 or not text.isascii():
        raise ValueError(f"{text!r} is not one character, or tab.")
    return text


def image_shape(text: str) -> tuple[int, int]:
    """The height and width of an image, as "28x28"."""
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise ValueError(f"must be like 28x28, got {text}.")
    return int(parts[0]), int(parts[1])


def combine_options(*options: Decorator) -> Decorator:
    """Combines decorators, in the order of the help text."""
    return lambda command: functools.reduce(
        lambda function, option: option(function), reversed(options), command
    )


def settings(*, several: bool = False) -> Decorator:
    """The option for fields of the learner by name, or with several values of each."""
    what, more = ("Values of a field", ",1e-4") if several else ("A field", "")

    def parse(text: str) -> tuple[str, object]:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ValueError(f"{text!r} is not NAME=VALUE.")
        name = python_name(name)
        if not (several and "," in value):
            return name, _parse_value(value)
        values = [_parse_value(part) for part in value.split(",")]
        if not all(type(one) in (int, float) for one in values):
            raise ValueError(f"{value!r} is not a list of numbers.")
        return name, values

    def unique(
        ctx: Context, param: Parameter, values: Sequence[tuple[str, object]]
    ) -> dict[str, object]:
        names = [name for name, _ in values]
        for name in names:
            if names.count(name) > 1:
                raise click.UsageError(f"--set {name} is given twice.")
        return dict(values)

    return click.option(
        *("--set", "settings"),
        type=parse,
        metavar="NAME=VALUE[,VALUE...]" if several else "NAME=VALUE",
        multiple=True,
        callback=unique,
        help=f"{what} of the learner, such as regularization=1e-3{more}; see budgetjax "
        "learners.  [repeatable]",
    )


def _parse_value(text: str) -> bool | int | float | str:
    """A number, yes or no, otherwise the text."""
    words = {"true": True, "yes": True, "false": False, "no": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def output(*ends: str, required: bool = True, text: str) -> Decorator:
    """The option for an output file, whose name ends in one of `ends`."""

    def check(ctx: Context, param: Parameter, path: str | None) -> str | None:
        if path is None or path.lower().endswith(ends):
            return path
        raise click.UsageError(f"--output must end in {', '.join(ends)}, got {path}.")

    return click.option(
        *("--output", "-o"), required=required, metavar="OUT", callback=check, help=text
    )


def shows_progress(quiet: bool) -> bool:
    """Whether to show progress: by a bar, or in lines without a terminal."""
    if not (quiet or sys.stderr.isatty()):
        from budgetjax import _progress

        lines = _progress.print_lines(SECONDS)
        click.get_current_context().with_resource(lines)
    return not quiet


files = click.argument("file", nargs=-1, required=True, metavar="FILE...")


class Columns(NamedTuple):
    """Options for reading a file; `columns` explains them.

    None is the default of the reader.
    """

    target: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    weight: str | None = None
    format: str | None = None
    delimiter: str | None = None
    decimal: str | None = None
    header: bool = True
    zero_based: bool = False


def gather_columns(command: Callable) -> Callable:
    """Gives a command the options that are fields of `Columns` as one argument."""

    @functools.wraps(command)
    def with_columns(**given: Any) -> Any:
        own = {key: given.pop(key) for key in Columns._fields if key in given}
        return command(columns=Columns(**own), **given)

    return with_columns


columns = combine_options(
    click.option("--target", metavar="COLUMN", multiple=True, help=TARGET),
    click.option(
        "--ignore",
        metavar="COLUMN",
        multiple=True,
        help="A column to leave out, such as a row number.  [repeatable]",
    ),
    click.option(
        "--format",
        type=Name(format_names),
        metavar="NAME",
        help=f"The format, whatever the name of FILE: {', '.join(FORMAT_HELP)}.",
    ),
    click.option(
        "--delimiter",
        type=character,
        help="The delimiter of CSV: a character, or tab.  "
        "[default: a comma; a tab for .tsv]",
    ),
    click.option(
        "--decimal",
        type=character,
        help="The decimal separator of numbers in CSV.  [default: a point]",
    ),
    click.option(
        "--no-header",
        "header",
        is_flag=True,
        flag_value=False,
        default=True,
        show_default=False,
        help="The CSV file has no header: its columns are 0, 1, ...",
    ),
    click.option(
        "--zero-based", is_flag=True, help="The indices of LIBSVM text start at 0."
    ),
    gather_columns,
)

training_rows = combine_options(
    click.option(
        "--weight",
        metavar="COLUMN",
        help="Column of row weights, at least 0; for .npy another file. 2 "
        "counts a row twice.",
    ),
    click.option(
        "--class-weight",
        metavar="balanced|LABEL=W,...",
        help="Weights of the classes, which multiply row weights; balanced: all "
        "classes count the same.",
    ),
)


def online_names() -> tuple[str, ...]:
    """Online learners in the spelling of `--learner`."""
    return tuple(map(option_name, (*online.LEARNERS, *online.registered)))


def solver_names() -> tuple[str, ...]:
    """Solvers in the spelling of `--learner`."""
    ours = itertools.chain(*solvers.SOLVERS.values())
    return tuple(map(option_name, (*ours, *solvers.registered)))


def all_names() -> tuple[str, ...]:
    """All that `--learner` can be."""
    return online_names() + solver_names()


def option_name(name: str) -> str:
    """A name in the spelling of the command line."""
    return name.replace("_", "-")


def python_name(name: str) -> str:
    """A name of the command line in the spelling of Python."""
    return name.replace("-", "_")


def learner(*, solves: bool = False) -> Decorator:
    """The option for the learner: an online one, or with `solves` a solver."""
    text = f"The learner, row by row: {', '.join(online_names())}"
    if solves:
        text += f"; or, with all rows in memory: {', '.join(solver_names())}"
    usual = "[default: pegasos with a refit, else arow; regression: sgd]"
    return click.option(
        "--learner",
        type=Name(all_names if solves else online_names),
        metavar="NAME",
        help=f"{text}.  {usual}",
    )


encode = click.option(
    "--encode",
    type=word_or(AT_LEAST_0, "auto", no=False),
    metavar="[auto|no|BINS]",
    default="auto",
    help="How columns are written: as clipped numbers and codes of their quantiles, in "
    "BINS bins; auto: bins that grow with the rows; no: as they are. Texts and missing "
    "values need codes. A solver has clipped numbers by default.",
)

maintenance = click.option(
    "--maintenance",
    metavar="NAME",
    type=python_name,
    help="The strategy that makes room in a full budget, such as project; see "
    "budgetjax learners.  [default: merge]",
)

loss = click.option(
    "--loss",
    metavar="NAME",
    type=python_name,
    help="The loss: hinge or logistic; of numbers squared, huber, absolute, poisson or "
    "gamma.  [default: the first]",
)

regression = click.option(
    "--regression", is_flag=True, help="Predict numbers, not classes."
)

seed = click.option(
    "--seed", type=click.IntRange(0, 2**31 - 1), default=0, help="Seed of random draws."
)

quiet = click.option("--quiet", is_flag=True, help="No report and no progress.")

# How `train` learns; most are fields of `budgetjax.Recipe`.
train_options = combine_options(
    click.option(
        "--budget",
        type=SLOTS,
        default=online.BUDGET,
        help="Maximum number of support vectors: more are slower and often better. For "
        "budget-svm, the number of examples that count.",
    ),
    learner(solves=True),
    settings(),
    click.option(
        "--kernel",
        type=click.Choice(["rbf", "laplacian", "poly", "sigmoid", "linear"]),
        default="rbf",
        help="The kernel, as in scikit-learn.",
    ),
    click.option(
        "--gamma",
        type=word_or(POSITIVE, "auto", "scale"),
        metavar="[auto|scale|NUMBER]",
        default="auto",
        help="Gamma of the kernel, for encoded columns; scale: 2 / mean squared "
        "distance; auto: the same, or where a metric may be learned a multiple that "
        "grows with the budget.",
    ),
    encode,
    maintenance,
    loss,
    click.option("--epochs", type=AT_LEAST_1, default=1, help="Passes over the rows."),
    click.option(
        "--refit/--no-refit",
        default=True,
        help="Recompute the coefficients of the support vectors at the end.",
    ),
    click.option(
        "--penalty",
        type=word_or(POSITIVE, "auto"),
        metavar="[auto|NUMBER]",
        default="auto",
        help="Penalty of errors, in the refit or of a solver; smaller gives a smoother "
        "model. auto: 10, or the best of 0.01 to 10 for up to 5,000 rows; "
        f"{SOLVER_PENALTY:g} for a solver.",
    ),
    click.option(
        "--learn-metric",
        type=word_or(AT_LEAST_1, "auto", "diagonal", yes=True, no=False),
        metavar="[auto|yes|no|diagonal|RANK]",
        default="auto",
        help="In the refit, learn a linear map of the columns and their codes too; "
        "auto: where that predicts held-out rows better.",
    ),
    click.option(
        "--move-vectors", is_flag=True, help="Move the support vectors in the refit."
    ),
    regression,
    click.option(
        "--classes",
        metavar="LABEL,LABEL...",
        help="All classes, in order; without them, those of the file.",
    ),
    click.option(
        "--checkpoint",
        metavar="FILE",
        help="Keep the progress in FILE; the same command continues from there.",
    ),
    seed,
    quiet,
)

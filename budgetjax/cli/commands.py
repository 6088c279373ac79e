"""The commands and their options, and how errors, warnings and Ctrl-C are reported.

What a command does, if it is more than a call, is in the module of its name, which
imports JAX, so it is imported only when the command runs.
"""

import errno
import functools
import warnings
from collections.abc import Collection
from typing import Any

import click

from budgetjax import __version__
from budgetjax._errors import Named
from budgetjax.cli import INTERRUPTED, options, reports
from budgetjax.online import BUDGET

# Errors from bad data, models or folders, or a missing extra. Anything else is a bug,
# and shows its traceback.
EXPECTED = (ValueError, OSError, OverflowError, ImportError, MemoryError)
# Python functions that a user of commands does not call, and messages do not name.
FUNCTIONS = ("train", "fit_stream", "refit", "sweep", "read")
# The advice of errors about arguments, and the same for the command line.
OPTION_ADVICE = {
    "texts= names columns that hold texts": "--ignore COLUMN leaves it out",
    "encode=budgetjax.encoding.fit(X) reads texts and missing values": "--encode auto "
    "reads missing values",
    "encode='auto' reads texts": "--encode auto reads texts, and --ignore COLUMN "
    "leaves it out",
    "encode='auto' takes missing values": "--encode auto takes missing values",
    "regression=True predicts numbers (or classes= names this many classes)": (
        "--regression predicts numbers (or --classes names this many classes)"
    ),
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
            # Several passes and batches meet the same.
            warnings.showwarning = functools.partial(_show_warning, set())
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as interrupt:
                # A command may say how to continue.
                how = f": {interrupt}" if str(interrupt) else ""
                click.echo(f"\nbudgetjax: interrupted{how}", err=True)
                ctx.exit(INTERRUPTED)
            except (*EXPECTED, RuntimeError) as error:
                is_bug = isinstance(error, RuntimeError) and not _is_of_jax(error)
                # The reader of a pipe has closed it; click then exits quietly.
                is_over = isinstance(error, OSError) and error.errno == errno.EPIPE
                if is_bug or is_over:
                    raise
                command = self.commands.get(ctx.invoked_subcommand or "", self)
                known = {name for option in command.params for name in option.opts}
                text = _clean(_one_line(error, known))
                click.echo(f"budgetjax: error: {text}", err=True)
                ctx.exit(1)


def _show_warning(told: set[str], message, category, *place, **more) -> None:
    """Writes a warning that is not yet among those that are told."""
    text = str(message)
    for name in FUNCTIONS:
        text = text.removeprefix(f"{name}: ")
    what = text.partition(",")[0]
    if what not in told:
        reports.echo(f"budgetjax: warning: {_clean(text)}", err=True)
    told.add(what)


def _clean(text: str) -> str:
    """A message without unprintable characters, and with the names of copied files."""
    shown = (one if one.isprintable() else ascii(one)[1:-1] for one in text)
    return reports.restore_names("".join(shown))


def _is_of_jax(error: BaseException) -> bool:
    # JAX's error for exhausted memory, under its old and new name.
    return type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError")


def _one_line(error: BaseException, known: Collection[str]) -> str:
    """An error in one line, with advice if the options that it names are known.

    Errors of the system start with the file name.
    """
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
        option, *_ = error.advice.split(" ")
        if option.startswith("--") and option not in known:
            error.advice = ""
        if error.function in FUNCTIONS:
            error.function = ""
    return " ".join(str(error).split("\n"))


*_others, _last = options.FORMAT_HELP.values()
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
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 88,
        "show_default": True,
    },
    epilog=EXAMPLES,
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def budgetjax() -> None:
    """The group of all commands."""


TRAIN = """\b
Examples:
  budgetjax train iris.csv --target species --model iris.safetensors
  budgetjax train a9a.libsvm --model a9a.safetensors --budget 200 --test a9a.t
  budgetjax train houses.parquet --target price --regression -m houses.safetensors
  budgetjax train wind.csv --target north --target east --regression -m wind.st
  budgetjax train large.csv --target y -m large.safetensors --checkpoint large.ckpt
  budgetjax train small.csv --target y -m small.safetensors --learner smo --penalty 10
"""


@budgetjax.command(epilog=TRAIN)
@options.files
@click.option(
    "--model", "-m", required=True, metavar="OUT", help="The model file to write."
)
@options.columns
@options.training_rows
@click.option("--test", metavar="FILE", help="Another file, to test the model on.")
@options.train_options
def train(**given: Any) -> None:
    """Train a model on FILE.

    One row is one example. FILE is CSV, Parquet, Arrow, .npy or LIBSVM text, by its
    extension, and is read in parts, so it may be larger than memory. Several tables, or
    a folder of them, count as one longer file. Up to 8,192 rows are learned in random
    order, as by the estimators in Python. A longer file should be in random order: if
    it is sorted, the last rows count most in the stream, even though a sample of all
    of them is learned again at the end.

    The learners ball-sgd, budget-svm, kernel-pegasos, sbp, sdca and smo (support vector
    machines) and dcd, linear-pegasos and mpu (linear ones) hold all rows in memory and
    find the best classifier, one-versus-rest for more than two classes. LIBSVM text
    stays sparse for a linear one with --encode no.
    """
    from budgetjax.cli.train import train as run

    run(**given)


PREDICT = """\b
Examples:
  budgetjax predict iris.safetensors new.csv --output predicted.csv
  budgetjax predict iris.safetensors new.csv --scores | head
  budgetjax predict a9a.safetensors a9a.t --output predicted.txt
  budgetjax predict houses.safetensors new.csv --interval 0.9 --output predicted.csv
"""


@budgetjax.command(epilog=PREDICT)
@click.argument("model")
@options.files
@options.columns
@click.option(
    "--output",
    "-o",
    default=options.STANDARD,
    metavar="OUT",
    show_default=False,
    help="File for the predictions, one per line.  [default: -, standard output]",
)
@click.option(
    "--scores",
    is_flag=True,
    help="Write CSV with a header: the prediction, and the score of every class.",
)
@click.option(
    "--probabilities",
    is_flag=True,
    help="Write CSV with a header: the prediction, and the probability of every class.",
)
@click.option(
    "--interval",
    type=options.SHARE,
    metavar="LEVEL",
    help="Write CSV with a header: the predicted number, and the ends of an interval "
    "that holds it with this probability, such as 0.9.",
)
@options.quiet
def predict(**given: Any) -> None:
    """Predict the rows of FILE with MODEL.

    MODEL is a file of "budgetjax train", or of budgetjax.save in Python. Columns are
    matched by name to those of the training, so FILE may have others too. FILE may be
    several tables, a folder of them, or -, the standard input, with its format in
    --format.

    If FILE has targets, the accuracy is printed, or for numbers the root mean squared
    error: on standard output, or on standard error if the predictions go to standard
    output. The target is the column of the training, or --target. Predictions of
    several targets are CSV with a header of their names.
    """
    from budgetjax.cli.predict import predict as run

    run(**given)


SWEEP = """\b
Examples:
  budgetjax sweep iris.csv --target species
  budgetjax sweep a9a.libsvm --gamma 0.01,0.03,0.1 --budget 50,100,200
  budgetjax sweep large.csv --target y --learner pegasos \\
    --set regularization=1e-3,1e-4,1e-5 --rows 50000 --output large.png
  budgetjax sweep houses.csv --target price --regression --model houses.safetensors
"""


@budgetjax.command(epilog=SWEEP)
@options.files
@options.columns
@options.training_rows
@click.option(
    *("--gamma", "gammas"),
    type=options.numbers(options.POSITIVE),
    metavar="NUMBER[,NUMBER...]",
    help="Gamma of the kernel.  [default: 1/4, 1/2, 1, 2 and 4 times that of train "
    "--no-refit]",
)
@click.option(
    *("--budget", "budgets"),
    type=options.numbers(options.SLOTS),
    metavar="NUMBER[,NUMBER...]",
    default=str(BUDGET),
    help="Maximum number of support vectors.",
)
@options.learner()
@options.settings(several=True)
@options.encode
@options.maintenance
@options.loss
@click.option(
    "--rows",
    type=options.AT_LEAST_1,
    default=100_000,
    help="Learn from this number of first rows of FILE; they must fit into memory.",
)
@options.regression
@click.option(
    "--model",
    "-m",
    metavar="OUT",
    help="Train the best combination on all rows of FILE, as train does.",
)
@options.output(
    *(".csv", *options.PICTURES),
    required=False,
    text="The table as .csv, or its picture as .png, .svg or .pdf.",
)
@options.seed
@options.quiet
def sweep(**given: Any) -> None:
    """Try all combinations of hyperparameters on FILE.

    Every combination is a model that learns the rows one by one, all models at the same
    time. The table is sorted by the progressive error, the rate of mistakes on rows
    before they are learned, or for numbers the root mean squared error. The best model
    comes first.
    """
    from budgetjax.cli.sweep_command import sweep as run

    run(**given)


LEARNERS = """\b
Examples:
  budgetjax learners
  budgetjax learners pegasos
  budgetjax learners smo
"""


@budgetjax.command(epilog=LEARNERS)
@click.argument(
    "name", type=options.Name(options.all_names), required=False, metavar="[NAME]"
)
def learners(**given: Any) -> None:
    """List learners and solvers, or the settings of NAME, which --set gives.

    A setting is a field of the class in Python, or the name of a strategy or a loss.
    Learners learn row by row; solvers hold all rows in memory.
    """
    from budgetjax.cli.learners_command import learners as run

    run(**given)


@budgetjax.command()
@click.argument("model")
@click.option(
    "--json", "as_json", is_flag=True, help="Write one JSON object, for programs."
)
def info(**given: Any) -> None:
    """Describe MODEL, one "name: value" per line.

    MODEL is a file of "budgetjax train", a checkpoint, or a file of budgetjax.save.
    """
    from budgetjax.cli.info import info as run

    run(**given)


PLOT = """\b
Examples:
  budgetjax plot iris.safetensors --output iris.png
  budgetjax plot small.safetensors large.safetensors --output curves.pdf
  budgetjax plot digits.safetensors --images 28x28 --output vectors.png
  budgetjax plot digits.safetensors --test new.csv --output reliability.png
"""


@budgetjax.command(epilog=PLOT)
@click.argument("model", nargs=-1, required=True, metavar="MODEL...")
@options.output(*options.PICTURES, text="The .png, .svg or .pdf file.")
@click.option(
    "--images",
    type=options.image_shape,
    metavar="HEIGHTxWIDTH",
    help="Draw the support vectors as images of this shape.",
)
@click.option(
    "--test",
    metavar="FILE",
    help="Draw the reliability of predicted probabilities on FILE.",
)
def plot(**given: Any) -> None:
    """Draw a picture of MODEL.

    For a model of "budgetjax train": its learning curve. For any model with two
    features: its decision regions. For several models: their learning curves, in one
    picture. FILE has the target of the training, and is as for "budgetjax predict".
    """
    from budgetjax.cli.plot import plot as run

    run(**given)


EXPORT = """\b
Examples:
  budgetjax export iris.safetensors --output iris.onnx
  budgetjax export iris.safetensors --output iris.stablehlo
"""


@budgetjax.command(epilog=EXPORT)
@click.argument("model")
@options.output(
    *(".onnx", ".stablehlo"),
    text="The .onnx file, for onnxruntime and others, or .stablehlo, for JAX.",
)
@click.option("--deviation", is_flag=True, help="Return deviations of numbers, too.")
def export(model: str, output: str, deviation: bool) -> None:
    """Write a predictor of MODEL to a file that runs without budgetjax.

    It takes raw rows and returns labels, scores and, if MODEL is calibrated,
    probabilities; or numbers. It includes the scaling and the labels.
    """
    from budgetjax.cli import reading
    from budgetjax.exporting import export_model

    reports.check_outputs({"--output": output}, model)
    value = reading.open_model(model).value
    export_model.export(output, value, deviation=deviation)
    dtype = export_model.predictor(value).row_dtype
    click.echo(f"exported: {output}, of rows in {dtype}")

"""The table of file formats, in which each reader registers itself."""

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.stream.batches import Batches
from budgetjax.stream.readers import files

Reader = TypeVar("Reader", bound=Callable[..., Batches])


class Format(NamedTuple):
    """A file format: its reader, and the endings of its files.

    `has_columns` tells whether columns have names, so that several files, or a folder,
    form one table. `arguments` are the names of those of the reader.
    """

    name: str
    reader: Callable[..., Batches]
    endings: tuple[str, ...]
    has_columns: bool
    arguments: frozenset[str]


FORMATS: dict[str, Format] = {}
# The format of files without a known ending.
DEFAULT_FORMAT = "libsvm"


def register_format(
    *endings: str, has_columns: bool = False
) -> Callable[[Reader], Reader]:
    r"""Registers a reader of files, by its name, for `read` and the command line.

    The reader takes a path, or if it `has_columns` also a list of paths or a folder.
    It returns `Batches`, and raises a `ValueError` for a file that is not of its
    format. `target`, `features`, `weight`, `batch_rows` and `dtype` mean the same for
    all readers; a reader need not have them.

    Args:
      *endings: the endings of file names that this reader is for, such as ".jsonl".
        Without them, `format` must name the reader.
      has_columns: whether columns have names, by which a target is chosen. Otherwise
        `target` is the path of another file.

    Returns:
      A decorator, which returns the reader unchanged.

    Raises:
      ValueError: if the name or an ending is taken.

    Example:
      >>> @bj.stream.register_format(".spaces")
      ... def spaces(path, *, batch_rows=None):
      ...     rows = np.loadtxt(path, ndmin=2)
      ...     batch = rows[:, :-1], rows[:, -1]
      ...     return bj.stream.Batches(str(path), 2, lambda: iter([batch]))
      >>> import pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = pathlib.Path(folder) / "train.spaces"
      ...     _ = path.write_text("0.5 2 1\n0.1 3 0\n")
      ...     [(X.shape, y.tolist()) for X, y in bj.stream.read(path)]
      [((2, 2), [1.0, 0.0])]
    """

    @names_errors("register_format")
    def register(reader: Reader) -> Reader:
        name = reader.__name__
        # A module that is executed again replaces its reader.
        if name in FORMATS and FORMATS[name].reader.__module__ == reader.__module__:
            del FORMATS[name]
        taken = dict.fromkeys(FORMATS, "name") | dict.fromkeys(by_ending(), "ending")
        for one in (name, *endings):
            if one in taken:
                raise ArgumentError(
                    f"the {taken[one]} {one!r}", "be free", "one that is taken"
                )
        arguments = frozenset(inspect.signature(reader).parameters)
        FORMATS[name] = Format(name, reader, endings, has_columns, arguments)
        return reader

    return register


def names(argument: str = "") -> tuple[str, ...]:
    """The names of all formats, or of those whose reader has an argument."""
    takers = [one for one in FORMATS.values() if argument in {"", *one.arguments}]
    # Those with named columns come first, and the one without endings last.
    takers.sort(key=lambda one: (not one.has_columns, not one.endings))
    return tuple(one.name for one in takers)


def by_ending() -> dict[str, Format]:
    """The format of each known ending."""
    return {end: FORMATS[name] for name in names() for end in FORMATS[name].endings}


# Extensions of other formats, which are not read as LIBSVM text.
UNSUPPORTED_ENDINGS = (
    *(".json", ".jsonl", ".xlsx", ".xls", ".ods", ".npz", ".pkl", ".pickle", ".mat"),
    *(".h5", ".hdf5", ".arff", ".orc", ".avro", ".db", ".sqlite", ".html", ".xml"),
    *(".yaml", ".safetensors", ".pt"),
)
PACKED_ENDINGS = (".zip", ".zst", ".tar", ".tgz", ".7z", ".rar", ".lz4", ".br")


def first_ending(path: files.Path | Sequence[files.Path]) -> str:
    """The extension of a file, or of the first file of a list or folder."""
    if not isinstance(path, str | os.PathLike):
        return first_ending(next(iter(path), ""))
    if os.path.isdir(path):
        known, ends = by_ending(), map(files.ending, files.walk(path))
        return next((end for end in ends if end in known), ".parquet")
    return files.ending(path)


@names_errors("read")
def format_of(
    path: files.Path | Sequence[files.Path], format: str | None = None
) -> Format:
    """The named format, or the format of a file by its ending."""
    if format is not None:
        in_order = {name: FORMATS[name] for name in names()}
        return _checks.look_up("format", in_order, format)
    end, known = first_ending(path), by_ending()
    if end in PACKED_ENDINGS + UNSUPPORTED_ENDINGS and end not in known:
        advice = "unpack it first" if end in PACKED_ENDINGS else ""
        expected = f"be {', '.join(known)}, or LIBSVM text under another name"
        with names_errors(str(path)):
            raise ArgumentError("the file", expected, end).advised(advice)
    return known.get(end, FORMATS[DEFAULT_FORMAT])


@names_errors("read")
def read(
    path: files.Path | Sequence[files.Path],
    *,
    format: str | None = None,
    target: Any = None,
    **arguments: Any,
) -> Batches:
    r"""Batches of a file in any supported format, chosen by its extension.

    Each reader names its extensions; a file with any other is read as LIBSVM text. Text
    files may also end in `.gz`, `.bz2` or `.xz`. Several files, or a folder of them,
    are read one after the other if they have named columns.

    Args:
      path: the path of a file or a folder, or a list of files.
      format: the name of the reader, such as "csv" or "libsvm", whatever the extension;
        None goes by the extension.
      target: the column of y in a table, or for a `.npy` file the path of another one;
        LIBSVM files contain their targets.
      **arguments: the arguments of the reader, such as `features`, `header` or
        `zero_based`; for a `.npy` file, `weight` is the path of another one. None is
        the default.

    Raises:
      ValueError: if the format has no such argument, and as the reader.

    Example:
      >>> import pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = pathlib.Path(folder) / "train.csv"
      ...     _ = path.write_text("size,weight,kind\n1,0.5,cat\n")
      ...     bj.stream.read(path, target="kind").feature_names
      ('size', 'weight')
    """
    file_format = format_of(path, format)
    given = {"target": target} | arguments
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if name not in file_format.arguments:
            raise ArgumentError(
                name, f"not be given for files of {file_format.name}", f"{value!r}"
            )
    if file_format.has_columns:
        given.setdefault("target", None)
    elif not isinstance(path, str | os.PathLike) or os.path.isdir(path):
        raise ArgumentError("path", f"be one file of {file_format.name}", f"{path!r}")
    return file_format.reader(path, **given)

"""Files that commands read and write."""

import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import click
import numpy as np

# Names of tables with named columns, and of arrays; all else is LIBSVM text.
TABLES = (".csv", ".tsv", ".parquet", ".arrow", ".feather")
TEXT = {".csv": ",", ".tsv": "\t"}
ARRAYS = ".npy"
COMPRESSED = (".gz", ".bz2")


def extension(path: str) -> str:
    """The end of the name of a file, without a compression: `.csv` for `a.csv.gz`."""
    stem, end = os.path.splitext(path)
    if end.lower() in COMPRESSED:
        end = os.path.splitext(stem)[1]
    return ".parquet" if os.path.isdir(path) else end.lower()


def is_libsvm(path: str) -> bool:
    """Whether a file is LIBSVM text: what no other format is."""
    return extension(path) not in (*TABLES, ARRAYS)


def has_columns(path: str) -> bool:
    """Whether the columns of a file have names."""
    return extension(path) in TABLES


class Columns(NamedTuple):
    """How to read a file, by the options of that.

    Attributes:
      target: column of y, or for `.npy` another file; None for LIBSVM text, and where
        there is none.
      ignore: columns that are neither target nor features.
      header: whether a CSV file begins with the names of its columns.
      zero_based: whether the indices of LIBSVM text start at 0.
    """

    target: str | None = None
    ignore: tuple[str, ...] = ()
    header: bool = True
    zero_based: bool = False


def opened(
    path: str,
    columns: Columns,
    *,
    features: Sequence[str] | None = None,
    num_features: int | None = None,
    sparse: bool = False,
) -> Any:
    """A file as `budgetjax.stream.Batches`.

    Args:
      path: path of the file.
      columns: how to read it.
      features: the columns of X in their order, None for all others.
      num_features: largest index of LIBSVM text that a model has seen; what is beyond
        it is left out. None takes the largest of the file.
      sparse: whether rows of LIBSVM text are to stay sparse.

    Raises:
      click.UsageError: if columns are named, and the file has none.
      ValueError, OSError: as the readers of `budgetjax.stream`.
    """
    from budgetjax.stream.readers import formats

    kind = extension(path)
    if path == "-":
        raise click.UsageError("FILE cannot be standard input: it is read repeatedly.")
    formats.check_format(path)
    if columns.zero_based and not is_libsvm(path):
        raise click.UsageError(f"--zero-based is for LIBSVM text, and {path} is none.")
    if not columns.header and kind not in TEXT:
        raise click.UsageError(f"--no-header is for CSV, and {path} is none.")
    if kind in TABLES:
        read = _table if columns.header else _bare
        if features is None and columns.ignore:
            known = read(path, columns.target, None).feature_names
            for name in columns.ignore:
                if name not in known:
                    raise ValueError(
                        f"{path}: --ignore must be among the columns {listed(known)}, "
                        f"got {name}"
                    )
            features = [name for name in known if name not in columns.ignore]
        return read(path, columns.target, features)
    for option, given in (("--target", columns.target), ("--ignore", columns.ignore)):
        if given and not (option == "--target" and kind == ARRAYS):
            raise click.UsageError(
                f"{option}: the columns of {path} have no names; tables that have "
                f"them end in {', '.join(TABLES)}."
            )
    if kind == ARRAYS:
        return formats.read(path, target=columns.target)
    return formats.libsvm(
        path,
        num_features=num_features,
        zero_based=columns.zero_based,
        ignore_beyond=num_features is not None,
        sparse=sparse,
    )


def names(path: str, columns: Columns) -> Sequence[str]:
    """The names of all columns of a file that has them."""
    return opened(path, Columns(header=columns.header)).feature_names


def _table(path: str, target: str | None, features: Any) -> Any:
    from budgetjax.stream.readers import formats

    return formats.read(path, target=target, features=features)


def _bare(path: str, target: str | None, features: Any) -> Any:
    """A CSV file whose columns have numbers."""
    from budgetjax.stream.readers import formats

    try:
        number = None if target is None else int(target)
    except ValueError:
        raise click.UsageError(
            "--target must be the number of a column with --no-header, from 0 on or "
            f"from -1 backwards, got {target!r}."
        ) from None
    delimiter = TEXT[extension(path)]
    return formats.csv(
        path, target=number, features=features, header=False, delimiter=delimiter
    )


def like(
    path: str,
    columns: Columns,
    features: Sequence[str] | None,
    num_features: int,
    *,
    sparse: bool = False,
) -> Any:
    """A file with the columns of a model, by their names where both have names.

    Raises:
      ValueError: if it lacks one, or has another number of them.
    """
    if not has_columns(path) or columns.ignore:
        features = None
    if features is not None and columns.header:
        known = names(path, columns)
        lacks = [repr(name) for name in features if name not in known]
        if lacks:
            raise ValueError(
                f"{path}: must have the columns that the model was trained on, and "
                f"lacks {listed(lacks)}"
            )
    source = opened(
        path, columns, features=features, num_features=num_features, sparse=sparse
    )
    if source.num_features != num_features:
        hint = ""
        if source.feature_names is not None:
            hint = "; --target and --ignore name those that are none"
        raise ValueError(
            f"{path}: must have {counted(num_features, 'feature')}, as the model, got "
            f"{source.num_features}{hint}"
        )
    return source


def check_target(path: str, columns: Columns) -> None:
    """Raises unless the target is named where a file needs that."""
    if columns.target is not None:
        return
    if has_columns(path):
        what = f"which of the columns {listed(names(path, columns))}"
    elif extension(path) == ARRAYS:
        what = "in which .npy file what"
    else:
        return
    raise click.UsageError(f"Missing option '--target': {what} is to be predicted.")


def check_outputs(outputs: dict[str, str | None], *inputs: str | None) -> None:
    """Raises unless these files can be written: before the work, not after it.

    Args:
      outputs: paths by their options.
      *inputs: files that must not be written over.

    Raises:
      click.UsageError: if one path is given twice.
      ValueError: if there is no such folder, or a folder in the place of the file.
    """
    taken = {os.path.realpath(path): path for path in inputs if path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        real = os.path.realpath(path)
        if real in taken:
            raise click.UsageError(f"{option}: {path} is also another file of the run.")
        taken[real] = path
        if _is_special(real):
            continue
        folder = os.path.dirname(real)
        if not os.path.isdir(folder):
            raise ValueError(f"{option} {path}: there is no folder {folder}")
        if os.path.isdir(real):
            raise ValueError(f"{option} {path}: must be a file, got a folder")
        if not os.access(folder, os.W_OK):
            raise ValueError(f"{option} {path}: the folder {folder} is not writable")


def write(path: str, parts: Iterable[bytes]) -> None:
    """Writes a file whole or not at all; a device or a pipe piece by piece.

    Raises:
      OSError: if that fails; what was there before is unchanged.
    """
    from budgetjax.saving import model_files

    if _is_special(path):
        with open(path, "wb") as file:
            file.writelines(parts)
        return
    model_files.replace("write", path, parts)


def _is_special(path: str) -> bool:
    """Whether there is a device or a pipe, such as /dev/null."""
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def label(value: Any) -> str:
    """A label or a number as text; whole numbers have no decimals."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value)) if abs(value) < 2**53 else repr(float(value))
    return str(value)


def listed(words: Sequence[str]) -> str:
    """Words between commas; of many the first 20."""
    more = f", ... ({len(words):,} in all)" if len(words) > 20 else ""
    return ", ".join(words[:20]) + more


def counted(number: int, what: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")

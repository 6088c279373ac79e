"""Files that commands read."""

import contextlib
import dataclasses
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import numpy as np

from budgetjax.cli.data import counted, listed

# The format of a file by the end of its name; all else is LIBSVM text.
FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".npy": "npy",
}
LIBSVM = "libsvm"
# Formats with named columns.
TABLES = ("csv", "parquet", "arrow")
COMPRESSED = (".gz", ".bz2")
STANDARD_INPUT = "-"
# What a copy of standard input or of a pipe is called in messages, by its path.
COPIES: dict[str, str] = {}


class Columns(NamedTuple):
    """How to read a file, by the options of that.

    Attributes:
      target: column of y, or for `.npy` another file; None for LIBSVM text, and where
        there is none.
      ignore: columns that are neither target nor features.
      weight: column of weights, or for `.npy` another file; None if all are 1.
      format: one of `FORMATS` or "libsvm"; None goes by the name of the file.
      delimiter: what is between the cells of CSV; None is a comma, or a tab for .tsv.
      header: whether a CSV file begins with the names of its columns.
      zero_based: whether the indices of LIBSVM text start at 0.
      one_hot: columns of which each text becomes a feature.
      missing: what stands for missing numbers, "mean"; None is an error.
    """

    target: str | None = None
    ignore: tuple[str, ...] = ()
    weight: str | None = None
    format: str | None = None
    delimiter: str | None = None
    header: bool = True
    zero_based: bool = False
    one_hot: tuple[str, ...] = ()
    missing: str | None = None


def extension(path: str) -> str:
    """The end of the name of a file, without a compression: `.csv` for `a.csv.gz`."""
    stem, end = os.path.splitext(path)
    if end.lower() in COMPRESSED:
        end = os.path.splitext(stem)[1]
    return ".parquet" if os.path.isdir(path) else end.lower()


def format_of(path: str, columns: Columns) -> str:
    """The format of a file."""
    return columns.format or FORMATS.get(extension(path), LIBSVM)


def has_columns(path: str, columns: Columns) -> bool:
    """Whether the columns of a file have names."""
    return format_of(path, columns) in TABLES


def local(path: str, columns: Columns) -> str:
    """A file that can be read repeatedly: the path, or that of a copy.

    Standard input, and a pipe, are copied to a temporary file that lives as long as the
    command.

    Raises:
      click.UsageError: if it is standard input, whose format is not said.
    """
    name = path
    if path == STANDARD_INPUT:
        if columns.format is None:
            raise click.UsageError("--format must say what standard input is.")
        name = "standard input"
    elif not os.path.exists(path) or _is_plain(path):
        return path
    folder = click.get_current_context().with_resource(tempfile.TemporaryDirectory())
    copy = os.path.join(folder, os.path.basename(name))
    COPIES[copy] = name
    stdin = contextlib.nullcontext(sys.stdin.buffer)
    with (
        stdin if path == STANDARD_INPUT else open(path, "rb") as source,
        open(copy, "wb") as file,
    ):
        shutil.copyfileobj(source, file)
    return copy


def _is_plain(path: str) -> bool:
    mode = os.stat(path).st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def named(text: str) -> str:
    """A message with the names of standard input and pipes, not of their copies."""
    for copy, name in COPIES.items():
        text = text.replace(copy, name)
    return text


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
      path: path of the file, or of the copy of a pipe.
      columns: how to read it.
      features: the columns of X in their order, None for all others.
      num_features: largest index of LIBSVM text that a model has seen; what is beyond
        it is left out. None takes the largest of the file.
      sparse: whether rows of LIBSVM text are to stay sparse.

    Raises:
      click.UsageError: if an option is not for the format of the file.
      ValueError, OSError: as the readers of `budgetjax.stream`.
    """
    from budgetjax.stream.readers import formats

    if columns.format is None:
        formats.check_format(path)
    kind = format_of(path, columns)
    _check_options(path, kind, columns)
    if kind == LIBSVM:
        source = formats.libsvm(
            path,
            num_features=num_features,
            zero_based=columns.zero_based,
            ignore_beyond=num_features is not None,
            sparse=sparse,
        )
    elif kind == "npy":
        source = formats.npy(path, columns.target, columns.weight)
    else:
        if features is None and (columns.ignore or columns.one_hot):
            features = _features(path, columns)
        source = _table(path, columns, features)
    return dataclasses.replace(source, name=named(source.name))


def _features(path: str, columns: Columns) -> list[str]:
    """All columns but those that are left out, each text of some as a feature."""
    known = _table(path, columns, None).feature_names
    named = {"--ignore": columns.ignore, "--one-hot": columns.one_hot}
    for option, chosen in named.items():
        for name in chosen:
            if name not in known:
                raise ValueError(
                    f"{path}: {option} must be among the columns {listed(known)}, got "
                    f"{name}"
                )
    kept = (name for name in known if name not in columns.ignore)
    return [f"{name}=" if name in columns.one_hot else name for name in kept]


def _check_options(path: str, kind: str, columns: Columns) -> None:
    """Raises if an option is not for this format."""
    path = named(path)
    one_format = {
        "--zero-based": (columns.zero_based, LIBSVM, "LIBSVM text"),
        "--no-header": (not columns.header, "csv", "CSV"),
        "--delimiter": (columns.delimiter is not None, "csv", "CSV"),
    }
    for option, (given, only, called) in one_format.items():
        if given and kind != only:
            raise click.UsageError(f"{option} is for {called}, and {path} is none.")
    named_columns = {
        "--target": columns.target,
        "--weight": columns.weight,
        "--ignore": columns.ignore,
        "--one-hot": columns.one_hot,
        "--missing": columns.missing,
    }
    of_arrays = ("--target", "--weight", "--missing")
    for option, column in named_columns.items():
        if column and not (kind in TABLES or (kind == "npy" and option in of_arrays)):
            ends = ", ".join(end for end, one in FORMATS.items() if one in TABLES)
            raise click.UsageError(
                f"{option}: the columns of {path} have no names; tables that have "
                f"them end in {ends}."
            )


def _table(path: str, columns: Columns, features: Sequence[str] | None) -> Any:
    """A file with named columns, or with numbered ones."""
    from budgetjax.stream.readers import formats

    more: dict[str, Any] = {
        "target": columns.target,
        "weight": columns.weight,
        "features": features,
        "allow_missing": columns.missing is not None,
    }
    kind = format_of(path, columns)
    if kind != "csv":
        return {"parquet": formats.parquet, "arrow": formats.arrow}[kind](path, **more)
    if not columns.header:
        for name in ("target", "weight"):
            more[name] = _number(f"--{name}", more[name])
    tab = extension(path) == ".tsv"
    return formats.csv(
        path,
        header=columns.header,
        delimiter=columns.delimiter or ("\t" if tab else ","),
        **more,
    )


def _number(option: str, column: str | None) -> int | None:
    """The number of a column without a name."""
    try:
        return None if column is None else int(column)
    except ValueError:
        raise click.UsageError(
            f"{option} must be the number of a column with --no-header, from 0 on or "
            f"from -1 backwards, got {column!r}."
        ) from None


def names(path: str, columns: Columns) -> Sequence[str]:
    """The names of all columns of a file that has them."""
    plain = columns._replace(target=None, weight=None, ignore=(), one_hot=())
    return opened(path, plain).feature_names


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
    if not has_columns(path, columns) or columns.ignore:
        features = None
    if features is not None:
        # They are found by their names, whatever else there is.
        columns = columns._replace(weight=None)
    if features is not None and columns.header:
        from budgetjax.stream.readers.columns import text_of

        known = names(path, columns)
        lacks = [
            repr(name)
            for name in features
            if name not in known and text_of(name, known) is None
        ]
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


def check_finite(source: Any, X: Any, first_row: int, fills: bool) -> None:
    """Raises unless rows are finite; gaps need not be where a model fills them.

    Raises:
      ValueError: with the row and the column.
    """
    from budgetjax import checks

    if hasattr(X, "tocsr"):
        # A model checks them.
        return
    rows = np.where(np.isnan(X), 0, X) if fills else X
    checks.check_finite(source.name, rows, first_row, source.feature_names)


def check_target(path: str, columns: Columns) -> None:
    """Raises unless the target is named where a file needs that."""
    if columns.target is not None:
        return
    if has_columns(path, columns):
        what = f"which of the columns {listed(names(path, columns))}"
    elif format_of(path, columns) == "npy":
        what = "in which .npy file what"
    else:
        return
    raise click.UsageError(f"Missing option '--target': {what} is to be predicted.")

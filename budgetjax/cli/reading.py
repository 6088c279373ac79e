"""Opens the files of commands: tables, and models with the rows for them."""

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click
import numpy as np

# All records that a file may hold are known then.
import budgetjax.public  # noqa: F401
from budgetjax import stream
from budgetjax._errors import names_errors
from budgetjax._rows import SparseMatrix
from budgetjax.cli import reports, targets
from budgetjax.cli.options import BALANCED, STANDARD, Columns, option_name
from budgetjax.cli.reports import join_values, with_count
from budgetjax.model import LinearModel
from budgetjax.online import examples
from budgetjax.refitting import calibration
from budgetjax.saving import model_files
from budgetjax.stream.batches import Batches
from budgetjax.stream.readers import formats
from budgetjax.stream.readers.columns import split_feature
from budgetjax.tables import columns as table_columns
from budgetjax.tables.columns import check_columns, take_rows
from budgetjax.tables.table_model import TableModel

# A file, several files, or a folder.
Path = str | Sequence[str]


def local_paths(paths: Sequence[str], columns: Columns) -> Path:
    """The files of a command line, each of which can be read repeatedly."""
    copies = [copy_pipe(path, columns) for path in paths]
    return copies[0] if len(copies) == 1 else copies


def copy_pipe(path: str, columns: Columns) -> str:
    """A file that can be read repeatedly: the path, or the path of a copy.

    Standard input and pipes are copied to a temporary file that lives as long as the
    command.
    """
    name = path
    if path == STANDARD:
        if columns.format is None:
            raise click.UsageError("--format must say what standard input is.")
        name = "standard input"
    elif not reports.is_special(path):
        return path
    folder = click.get_current_context().with_resource(tempfile.TemporaryDirectory())
    copy = os.path.join(folder, os.path.basename(name))
    reports.COPIES[copy] = name
    with click.open_file(path, "rb") as source, open(copy, "wb") as file:
        shutil.copyfileobj(source, file)
    return copy


def open_source(path: Path, columns: Columns, **arguments: Any) -> Batches:
    """A file, or several, as `budgetjax.stream.Batches`.

    `arguments` are those of readers, each for the readers that have it; `features` are
    by default all columns except ignored ones.
    """
    file_format = formats.format_of(path, columns.format)
    given = {
        "target": columns.target,
        "weight": columns.weight,
        "features": columns.ignore,
        "header": not columns.header,
        "delimiter": columns.delimiter,
        "decimal": columns.decimal,
        "zero_based": columns.zero_based,
    }
    given = {name: value for name, value in given.items() if value}
    for name in given:
        if name not in file_format.arguments:
            option = {"features": "ignore", "header": "no-header"}.get(name, name)
            shown = reports.restore_names(display_name(path))
            raise click.UsageError(
                f"--{option_name(option)} is for {', '.join(formats.names(name))}, and "
                f"{shown} is taken for {file_format.name}; --format names another."
            )
    if len(columns.target) > 1 and not file_format.has_columns:
        raise click.UsageError("--target is one file, which may have several columns.")
    if columns.ignore:
        given["features"] = _features(path, columns)
    if not columns.header:
        given["header"] = False
        given["target"] = [_number("--target", one) for one in columns.target]
        given["weight"] = _number("--weight", columns.weight)
    if columns.target:
        # A reader of one's own need not take several.
        first, *others = given["target"]
        given["target"] = [first, *others] if others else first
    else:
        arguments["text_target"] = None
    for name, value in arguments.items():
        if name in file_format.arguments and value is not None:
            given[name] = value
    source = stream.read(path, format=columns.format, **given)
    return dataclasses.replace(source, name=reports.restore_names(source.name))


def display_name(path: Path) -> str:
    """The name of a file, or the names of several."""
    return path if isinstance(path, str) else join_values(path)


def _features(path: Path, columns: Columns) -> list[str]:
    """All columns except ignored ones."""
    source = open_source(path, columns._replace(ignore=()))
    features = source.feature_names or ()
    # Those of an index are no features, but may be named.
    known = [*features, *source.index_names]
    for name in columns.ignore:
        if name not in {*known, *map(_list_of, known)}:
            raise ValueError(
                f"{display_name(path)}: --ignore must be among the columns "
                f"{join_values(known)}, got {name}"
            )
    return [one for one in features if not {one, _list_of(one)} & {*columns.ignore}]


def _list_of(feature: str) -> str:
    """The column of lists that has this place; for another feature its name."""
    return feature.rpartition("[")[0] if feature.endswith("]") else feature


def _number(option: str, column: str | None) -> int | None:
    """The number of an unnamed column."""
    try:
        return None if column is None else int(column)
    except ValueError:
        raise click.UsageError(
            f"{option} must be the number of a column with --no-header, from 0 on or "
            f"from -1 backwards, got {column!r}."
        ) from None


def column_names(path: Path, columns: Columns) -> Sequence[str]:
    """The names of all columns of a file with named columns."""
    plain = columns._replace(target=(), weight=None, ignore=())
    source = open_source(path, plain)
    return (*(source.feature_names or ()), *source.index_names)


def open_for_model(
    path: Path, columns: Columns, model: TableModel | Batches, **more: Any
) -> Batches:
    """A file with the columns of a model, or of what one will be trained on.

    They are matched by name if both have names. `more` are other arguments of readers.
    """
    features, num_features = model.feature_names, model.num_features
    if columns.ignore or not formats.format_of(path, columns.format).has_columns:
        features = None
    if features is not None:
        # Features are matched by name, whatever other columns exist.
        columns = columns._replace(weight=None)
    if features is not None and columns.header:
        known = column_names(path, columns)
        plain = [name for name in features if split_feature(name, known) is None]
        with names_errors(display_name(path)):
            check_columns(plain, known)
    more |= {"features": features, "num_features": num_features}
    # Features of LIBSVM text that a model has not seen are left out.
    source = open_source(path, columns, ignore_beyond=True, **more)
    if source.num_features != num_features:
        named = source.feature_names is not None
        hint = "; --target and --ignore name those that are none" * named
        raise ValueError(
            f"{display_name(path)}: must have {with_count(num_features, 'feature')}, "
            f"as the model, got {source.num_features}{hint}"
        )
    return source


def check_finite(source: Batches, X: Any, first_row: int, takes_missing: bool) -> None:
    """Raises if numbers are infinite, or missing where a model has no code for it."""
    if isinstance(X, SparseMatrix):
        # A model checks sparse rows.
        return
    names = source.feature_names
    if source.texts:
        names = tuple(one for one in names or () if one not in source.texts)
        X = np.asarray(X.select(names)) if names else np.zeros((0, 0))
    rows = np.where(np.isnan(X), 0, X) if takes_missing else X
    with names_errors(source.name):
        table_columns.check_finite(rows, first_row, names)


def open_examples(
    files: Sequence[str],
    columns: Columns,
    *,
    regression: bool,
    classes: str | None = None,
    class_weight: str | None = None,
    sparse: bool = False,
) -> tuple[Batches, np.ndarray | None]:
    """Files to learn from, after a check that their target is known, and the classes.

    `classes` and `class_weight` are the texts of these options.
    """
    of_classes = {"--classes": classes, "--class-weight": class_weight}
    for option, text in of_classes.items():
        if regression and text is not None:
            raise click.UsageError(f"{option} and --regression exclude each other.")
    if class_weight == BALANCED and classes is not None:
        raise click.UsageError(
            f"--class-weight {BALANCED} and --classes exclude each other: the pass "
            "that counts the classes finds them."
        )
    path = local_paths(files, columns)
    check_target(path, columns)
    if len(columns.target) > 1 and not regression:
        raise click.UsageError("--target is given twice, which is for --regression.")
    text_target = False if regression else None
    source = open_source(path, columns, sparse=sparse, text_target=text_target)
    source = source if columns.weight is None else drop_weightless(source)
    labels = targets.parse_classes(source, classes)
    if class_weight is not None:
        source = drop_weightless(targets.weigh_classes(source, class_weight, labels))
    return source, labels


def open_test(
    path: str, columns: Columns, training: Batches, *, regression: bool, sparse: bool
) -> Batches:
    """A file to test on, with the columns of the training."""
    test_format = formats.format_of(path, columns.format)
    if "target" in test_format.arguments and not test_format.has_columns:
        endings = " or ".join(test_format.endings)
        raise click.UsageError(f"--test cannot be {endings}, got {path}.")
    labels = None if regression else next(targets.read_targets(training))
    return open_for_model(
        *(copy_pipe(path, columns), columns, training),
        sparse=sparse,
        text_target=is_text_target(labels),
        texts=training.texts,
    )


def drop_weightless(source: Batches) -> Batches:
    """The source without rows of weight 0, which have no say in units or gamma."""

    def read() -> Iterator[tuple[Any, ...]]:
        row = 0
        for X, y, weight in source.read():
            with names_errors(source.name):
                examples.check_weights(weight, np.dtype(np.float32), row)
            row += len(y)
            if len(present := np.flatnonzero(weight)):
                yield take_rows(X, present), y[present], weight[present]

    # How many rows are left, and which targets, their weights have to tell.
    return dataclasses.replace(source, read=read, num_rows=None, read_targets=None)


def check_target(path: Path, columns: Columns) -> None:
    """Raises if a file needs a named target and none is given."""
    file_format = formats.format_of(path, columns.format)
    if columns.target or "target" not in file_format.arguments:
        return
    what = f"in which {' or '.join(file_format.endings)} file what"
    if file_format.has_columns:
        what = f"which of the columns {join_values(column_names(path, columns))}"
    raise click.UsageError(f"Missing option '--target': {what} is to be predicted.")


def is_text_target(classes: np.ndarray | None) -> bool | None:
    """How to read targets for a model with these classes, or for a regressor."""
    if classes is None:
        return False
    return True if classes.dtype.kind in "UO" else None


class Model(NamedTuple):
    """The content of a file, the model that predicts, and the targets of its training.

    The targets are names of columns.
    """

    value: Any
    table: TableModel
    targets: tuple[str, ...]


def open_model(path: str) -> Model:
    """Loads a model of any kind that predicts."""
    value, notes = model_files.read(path)
    with names_errors(path):
        table = TableModel.of(value)
        table.check_single()
    known = notes.get("target") or ()
    return Model(value, table, (known,) if isinstance(known, str) else tuple(known))


def open_rows(model: Model, files: Sequence[str], columns: Columns) -> Batches:
    """The rows of files for a model, as `budgetjax.stream.Batches`.

    The targets are those of the training if the file has these columns and no other is
    named.
    """
    path, table = local_paths(files, columns), model.table
    if (
        model.targets
        and not columns.target
        and not {*model.targets} & {*columns.ignore}
        and formats.format_of(path, columns.format).has_columns
        and {*model.targets} <= {*column_names(path, columns)}
    ):
        columns = columns._replace(target=model.targets)
    return open_for_model(
        *(path, columns, table),
        # Scaled rows are dense.
        sparse=isinstance(table.inner, LinearModel) and table.scaling is None,
        text_target=is_text_target(table.class_labels),
        texts=list(table.categories),
    )


def check_probabilities(option: str, path: str, model: TableModel) -> None:
    """Rejects models without probabilities before a row is read."""
    if model.is_regressor:
        raise click.UsageError(f"{option}: {path} predicts numbers.")
    if calibration.factor_of(model) is None:
        raise click.UsageError(
            f"{option}: {path} is not calibrated, as models of --refit are."
        )

"""The reader of CSV text."""

import contextlib
import functools
import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from jax.typing import DTypeLike

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.stream.batches import Batches
from budgetjax.stream.readers import files
from budgetjax.stream.readers.columns import (
    DAMAGED,
    Columns,
    DamageError,
    Selection,
    Table,
    Target,
    list_targets,
    report_damage,
    table_batches,
)
from budgetjax.stream.readers.formats import register_format

if TYPE_CHECKING:
    from pyarrow import DataType, NativeFile, RecordBatch, Schema

# Bytes per block, of which pyarrow reads up to 32 ahead. A row must fit, at CELL bytes
# per cell.
BLOCK = 2**18
CELL = 64
# Delimiters that other programs use.
DELIMITERS = (",", ";", "\t", "|")
WHAT = "CSV in UTF-8"
GAPS = "empty cells, NA, nan and null count as missing unless they are quoted"
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
# What pyarrow reads as booleans.
WORDS = "true", "True", "TRUE", "false", "False", "FALSE"
TRUTH: dict[str, str] = dict.fromkeys(WORDS, "truth") | dict.fromkeys("01", "bit")
WHOLE = re.compile(r"[+-]?\d+")
# Two zeros are a code too; -0 is a number.
CODE = re.compile(r"[+-]?0\d")
COMMA = re.compile(r"[+-]?\d*,\d+")
# Other formats by the first bytes of a file.
ALIEN = {
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"\x1f\x8b": "a file of gzip: its name must end in .gz",
    b"BZh9": "a file of bzip2: its name must end in .bz2",
    b"PK\3\4": "a file of zip: unpack it first",
}


@register_format(".csv", ".tsv", has_columns=True)
@names_errors("csv")
def csv(
    path: files.Path | Sequence[files.Path],
    *,
    target: Target | None,
    features: Sequence[str | int] | None = None,
    weight: str | int | None = None,
    header: bool = True,
    delimiter: str | None = None,
    decimal: str = ".",
    text_target: bool | None = None,
    texts: Collection[str] = (),
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    r"""Batches of a CSV file (`.csv`; `.tsv` with tabs), or of several.

    pyarrow parses it in blocks, of which about 10 MiB are held; files `.gz`, `.bz2` and
    `.xz` are decompressed. The text is UTF-8, cells may be quoted, and empty lines are
    skipped. Unused columns may hold anything.

    Args:
      path: a file, a list of files, or a folder, whose files `*.csv`, also compressed,
        are read in the order of their names. In folders in it named `KEY=VALUE`, as
        Hive, pandas and Spark write them, each KEY is a column.
      target: the column of y, by name or number (negative numbers count from the end);
        or a list of several, which hold numbers; with None, batches are `(X,)`.
      features: the columns of X: numbers, of which missing ones become NaN, true and
        false, and texts; None is all but the target and the weight.
      weight: the column of weights, or None.
      header: whether the first line holds the names of the columns. Otherwise they are
        named "0", "1" and so on.
      delimiter: the character between cells; None is a tab for a file `.tsv`, otherwise
        a comma.
      decimal: the decimal separator of numbers.
      text_target: True if targets are strings, whatever they look like; False if all
        that look like numbers are numbers, even with leading zeros; None decides after
        a pass over them.
      texts: columns that are read as texts, whatever they look like.
      batch_rows: rows per batch; None chooses about 4 MiB of them, at most 65,536.
      dtype: the dtype of X and the weights, float32 or float64; None is float64.

    Returns:
      `Batches`. Where a column of X has texts, X is a `pyarrow.Table`, which
      `encoding.fit`, estimators and models take. Targets are numbers or booleans if all
      in the first block are, otherwise strings. Numbers are int64 if a pass over all of
      them finds integers, float64 otherwise, but strings if an integer has leading
      zeros, such as "007", or exceeds 64 bits, or if a word comes below integers or
      booleans.

    Raises:
      ValueError: if the file is empty, a column is missing, two have the same name, or
        a header holds numbers; and during reading, if the number of cells in a row
        differs, a target is empty or missing (`NA`, `null`, `nan`), a cell is text or
        out of the range of `dtype` in a column of numbers, or the compressed file is
        damaged.

    Example:
      >>> import pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = pathlib.Path(folder) / "train.csv"
      ...     _ = path.write_text("size,weight,kind\n1,0.5,cat\n7,20,dog\n")
      ...     for X, y in bj.stream.csv(path, target="kind"):
      ...         print(X.tolist(), y.tolist())
      [[1.0, 0.5], [7.0, 20.0]] ['cat', 'dog']
    """
    pa = _checks.import_optional("pyarrow")
    dtype = files.float_type(dtype)
    _checks.flag("header", header)
    if text_target is not None:
        _checks.flag("text_target", text_target)
    characters = {"delimiter": "," if delimiter is None else delimiter}
    for name, character in (characters | {"decimal": decimal}).items():
        if not isinstance(character, str) or len(character) != 1:
            raise ArgumentError(name, "be one character", f"{character!r}")
    sources: list[_File] = []
    for one in map(str, files.list_files(path, (".csv", ".tsv"))):
        tab_or_comma = "\t" if files.ending(one) == ".tsv" else ","
        separators = delimiter or tab_or_comma, decimal
        file = _File(one, header, *separators, pa.schema([]))
        with names_errors(one):
            sources.append(file.with_columns())
    named = set(list_targets(target)) <= set(sources[0].schema.names)
    if header and features is None and not (named and list_targets(target)):
        with names_errors(sources[0].path):
            _check_names(sources[0].schema.names)
    # One pass over the labels, for any number of passes over the rows.
    several = len(list_targets(target)) > 1
    text = False if several and text_target is None else text_target
    target_type = functools.cache(lambda name: _target_type(sources, name, text))

    def read(file: _File, wanted: Columns, rows: int) -> Iterator["RecordBatch"]:
        types = {name: file.schema.field(name).type for name in wanted.names()}
        for name, kind in types.items():
            tests = pa.types.is_integer, pa.types.is_null
            types[name] = pa.float64() if any(test(kind) for test in tests) else kind
        names = wanted.texts.intersection(types)
        types |= dict.fromkeys(names, pa.string())
        if wanted.weight is not None:
            types[wanted.weight] = pa.float64()
        for name in wanted.targets:
            types[name] = target_type(name)
        with file.opened(types, wanted.features) as blocks:
            for i, block in enumerate(blocks):
                if not i:
                    _check_commas(block, names.difference(texts))
                yield block

    tables = [
        Table(file.path, WHAT, file.schema, functools.partial(read, file), None, GAPS)
        for file in sources
    ]
    chosen = Selection(target, features, weight, batch_rows, dtype, texts)
    return table_batches(path, tables, chosen)


class _File(NamedTuple):
    """A file, how to read its text, and its columns, if they are known."""

    path: str
    header: bool
    delimiter: str
    decimal: str
    schema: "Schema"
    block: int = BLOCK

    def with_columns(self) -> "_File":
        """The file with its columns, after checks that it is text."""
        import pyarrow

        files.check_readable(self.path)
        with report_damage(WHAT), _open_bytes(self.path) as file:
            start = file.read(BLOCK)
        binary = "bytes that are no text" if b"\0" in start else None
        alien = (ALIEN[head] for head in ALIEN if start.startswith(head))
        if got := next(alien, binary):
            raise ArgumentError("the file", f"be {WHAT}", got)
        line = start.partition(b"\n")[0].decode(errors="replace").strip()
        seen = (one for one in DELIMITERS if one in line)
        other = None if self.delimiter in line else next(seen, None)
        if other is not None:
            raise ArgumentError(
                "cells",
                f"be separated by {self.delimiter!r}",
                f"{line[:80]!r} as the first line",
            ).advised(f"delimiter={other!r} reads it")
        block = max(BLOCK, CELL * line.count(self.delimiter))
        file = self._replace(block=block)
        with report_damage(WHAT), file.opened({}) as reader:
            schema = reader.schema
            # They are decoded here, where an error names the file.
            names = schema.names
        if not self.header:
            fields = (schema.field(i).with_name(str(i)) for i in range(len(names)))
            schema = pyarrow.schema(fields)
        return file._replace(schema=schema)

    @contextlib.contextmanager
    def opened(
        self, types: "dict[str, DataType]", features: Collection[str] = ()
    ) -> Iterator["RecordBatch"]:
        """A reader of blocks of these columns and types, or of all.

        Errors count rows from 0, name columns, and give advice.
        """
        import pyarrow
        from pyarrow import csv

        read = csv.ReadOptions(
            use_threads=False,
            block_size=self.block,
            # None takes the names from the first line.
            column_names=None if self.header else self.schema.names or None,
            autogenerate_column_names=not (self.header or self.schema.names),
        )
        cells = csv.ParseOptions(
            delimiter=self.delimiter,
            newlines_in_values=True,
            # With one column, an empty line is an empty cell.
            ignore_empty_lines=len(self.schema) != 1,
        )
        values = csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            decimal_point=self.decimal,
        )
        try:
            with csv.open_csv(_open_bytes(self.path), read, cells, values) as reader:
                yield reader
        except pyarrow.ArrowInvalid as error:
            raise DamageError(*self._explain(str(error), features)) from error

    def _explain(self, text: str, features: Collection[str]) -> tuple[str, str]:
        """An error with rows counted from 0 and names of columns, and advice."""
        advice = ""
        if column := re.search(r"CSV column #(\d+)", text):
            name = self.schema.names[int(column[1])]
            text = text.replace(column[0], f"column {name!r}")
            value = text.partition("invalid value '")[2].removesuffix("'")
            if value and name in features:
                advice = "texts= names columns that hold texts"
            if self.decimal != "," and COMMA.fullmatch(value):
                advice = "decimal=',' reads decimal commas"
        if row := re.search(r"Row #(\d+)", text):
            text = text.replace(row[0], f"row {int(row[1]) - 1 - self.header}")
        return text, advice


def _check_commas(block: "RecordBatch", texts: Collection[str]) -> None:
    """Raises if texts of the first block are numbers with decimal commas."""
    for name in texts:
        known = block.column(name).unique().drop_null().to_pylist()
        commas = [one for one in known if COMMA.fullmatch(one)]
        rest = (one for one in known if one not in commas)
        if commas and all(map(WHOLE.fullmatch, rest)):
            text = f"In column {name!r}: numbers such as {commas[0]!r}"
            raise DamageError(text, "decimal=',' reads decimal commas")


def _target_type(sources: list[_File], name: str, text: bool | None) -> "DataType":
    """The type of the targets, after a pass over them if they look like integers.

    So it is if they look like booleans: words far below make texts of them.
    """
    import pyarrow as pa

    kind = sources[0].schema.field(name).type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if text or not (is_number or pa.types.is_boolean(kind)):
        return pa.string()
    types = {"text": pa.string(), "number": pa.float64()}
    if text is not None:
        return types["number"] if is_number else kind
    kinds: set[str] = set()
    for file in sources:
        # The read of the rows reports other errors of the file.
        suppressed = contextlib.suppress(pa.ArrowException, *DAMAGED)
        with suppressed, file.opened({name: pa.string()}) as blocks:
            for block in blocks:
                texts = block.column(name).unique().drop_null().to_pylist()
                kinds |= {_kind_of_label(text.strip(), file.decimal) for text in texts}
                if kinds & types.keys():
                    return types["text" if "text" in kinds else "number"]
    if "truth" in kinds:
        return pa.bool_() if kinds <= {"truth", "bit"} else pa.string()
    return pa.string() if "code" in kinds else pa.int64()


def _kind_of_label(text: str, decimal: str) -> str:
    """The type that keeps this label distinct from labels with other texts."""
    if text in TRUTH:
        return TRUTH[text]
    if not WHOLE.fullmatch(text):
        plain = text.replace(decimal, ".")
        return "number" if NUMBER.fullmatch(plain) else "text"
    if str(value := int(text)) == text:
        return "whole" if abs(value) < 2**63 else "text"
    return "code" if CODE.match(text) else "number"


def _open_bytes(path: str) -> "NativeFile | BinaryIO":
    """The open file, decompressed by pyarrow if possible."""
    from pyarrow import input_stream

    by_python = files.compression(path) == "lzma"
    return files.open_decompressed(path) if by_python else input_stream(path)


def _check_names(names: Sequence[str]) -> None:
    """Raises if the header looks like a row: a name is a number, not its own index."""
    for i, name in enumerate(names):
        if NUMBER.fullmatch(name.strip()) and name.strip() != str(i):
            error = ArgumentError(
                "the first line", "hold the names of columns", repr(name)
            )
            raise error.advised(
                "header=False reads files without names, and a target that is one of "
                "them says that these are names"
            )

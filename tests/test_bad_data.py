"""Bad data: what every door says of it, and that the model before it is kept."""

import bz2
import functools
import gzip
import io
import os
import re
import sys

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import registry
import scipy.sparse
import streams
from click.testing import CliRunner
from refusals import refused
from streams import ROWS, cut, fit, identical, without_classes

import budgetjax as bj
from budgetjax._errors import ArgumentError, InputError
from budgetjax.cli.commands import budgetjax as command_line
from budgetjax.stream import Batches
from budgetjax.stream.batches import labels, regroup

pytestmark = pytest.mark.usefixtures("as_installed")

NAN, INF = float("nan"), float("inf")

# Damaged files, which are the same at three doors: `stream.read`, `fit_stream` and the
# command line. Messages name the file, what was expected, what was got and where; what
# a message advises is spelled as the door is.

ADVICE = {
    "texts": ("texts= names columns that hold texts", "--ignore COLUMN leaves it out"),
    "encode": (
        "encode=budgetjax.encoding.fit(X) reads texts and missing values",
        "--encode auto reads missing values",
    ),
    "header": ("header=False reads", "--no-header reads"),
    "name": ("choose columns with features=", "name it in the first line"),
    "zero": ("zero_based=True reads", "--zero-based reads"),
    "semicolon": ("delimiter=';' reads", "--delimiter ';' reads"),
    "tab": ("delimiter='\\t' reads", "--delimiter tab reads"),
    "comma": ("decimal=',' reads", "--decimal , reads"),
}


def cut_off(data):
    return data[:-5]


def damaged(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x55]) * 8 + data[middle + 8 :]


def parquet(content, **options):
    raw = io.BytesIO()
    pa.parquet.write_table(pa.table(content), raw, **options)
    return raw.getvalue()


def arrow(content):
    raw = io.BytesIO()
    with pa.ipc.new_file(raw, pa.table(content).schema) as writer:
        writer.write_table(pa.table(content))
    return raw.getvalue()


def npy(array, **options):
    raw = io.BytesIO()
    np.save(raw, array, **options)
    return raw.getvalue()


def beyond_its_end(data):
    """With the last of three strings of one letter a million long."""
    old, new = (np.array([0, 1, 2, end], np.int32).tobytes() for end in (3, 10**6))
    assert data.count(old) == 1
    return data.replace(old, new)


def whole(what, rows="0 rows: "):
    return f"the file must be {what}, got an error after {rows}"


GAPS = "; empty cells, NA, nan and null count as missing unless they are quoted"


def missing(use, row, column):
    return (
        f"{use} must not have missing values, got one in row {row}, column {column!r}"
    )


LONG = "a,b,y\n" + "".join(f"{i},{i * 7919 % 1009},{i % 2}\n" for i in range(2000))
SPARSE = "".join(f"{i % 2} 1:{i * 7919 % 1009} 2:0.5\n" for i in range(2000))
PLAIN = {"compression": None, "use_dictionary": False, "write_page_checksum": True}
TWICE = {"a": np.arange(9e3), "y": np.arange(9000) % 2}
ROWS_OF_3 = {"a": [1.0, 2.0, 3.0], "b": [0, 1, 2], "y": ["p", "q", "p"]}
OF_CSV = "CSV in UTF-8"
CSV = whole(OF_CSV)
NUMBER = "CSV conversion error to double: invalid value "
TYPES = "X must have columns of numbers, booleans, texts or categories, got "
LINE = "rows must be 'label index:value ...' with ascending indices, got "
PARQUET, ARROW = whole("whole Parquet"), whole("whole Arrow")
DAMAGED, GZIP = whole("whole Parquet", "..."), whole("whole gzip", "...")
ARRAY = "X must be a whole .npy file of numbers, got an error: ..."
# Of each file the rows of: name, content, message. "..." at its end stands for the
# words of a library.
FILES = {
    "a.csv": {
        "empty": ("", f"{CSV}..."),
        "blank": ("\n\n", f"{CSV}..."),
        "too few cells": (
            "a,b,y\n1,2,3\n\n1,3\n",
            f"{CSV}CSV parse error: row 1: Expected 3 columns, got 2: 1,3",
        ),
        "too many cells": (
            LONG + "1,2,3,4\n" + LONG[6:],
            f"{CSV}CSV parse error: row 2000: Expected 3 columns, got 4: 1,2,3,4",
        ),
        "no target": ("a,b\n1,2\n", "target must be of the columns 'a', 'b', got 'y'"),
        "names twice": (
            "a,b,a,y\n1,2,3,4\n",
            "column names must be unique, got 'a' 2 times",
        ),
        "no name": (
            "a,,y\n0,2,3\n",
            "every column must have a name, got none for column 1; {name}",
        ),
        "no features": (
            "y\n1\n",
            "features must be at least one column, got none; the columns are 'y'",
        ),
        "no header": (
            "5.1,3,1\n4,3,0\n",
            "the first line must hold the names of columns, got '5.1'; {header} files "
            "without names, and a target that is one of them says that these are names",
        ),
        "text far down": (
            LONG + LONG[6:] * 30 + "1,red,z\n",
            whole(OF_CSV, "50723 rows: ")
            + f"In column 'b': row 62000: {NUMBER}'red'; {{texts}}",
        ),
        "decimal comma": (
            'a,y\n"1,5",2\n3,4\n',
            f"{CSV}In column 'a': numbers such as '1,5'; {{comma}} decimal commas",
        ),
        "empty target": ("a,y\n1,x\n1,\n", missing("y", 1, "y") + GAPS),
        "Namibia": ("a,y\n1,BW\n1,NA\n", missing("y", 1, "y") + GAPS),
        "label of another kind": (
            "a,y\n1,.5\n" + "1,2\n" * 99_999 + "1,many\n",
            whole(OF_CSV, "65534 rows: ")
            + f"In column 'y': row 100000: {NUMBER}'many'",
        ),
        "rubbish": (
            np.random.default_rng(0).bytes(5000),
            f"the file must be {OF_CSV}, got ...",
        ),
        "utf-16": (
            "a,y\n1,2\n".encode("utf-16"),
            f"the file must be {OF_CSV}, got UTF-16",
        ),
        "gzip": (
            gzip.compress(b"a,y\n1,2\n"),
            f"the file must be {OF_CSV}, got a file of gzip: its name must end in .gz",
        ),
        "latin-1": (
            "a,y\n1,oui\n1,non é\n".encode("latin-1"),
            f"{CSV}In column 'y': row 1: CSV conversion error to string: invalid UTF8 "
            "data",
        ),
        "latin-1 in the header": (
            "größe,y\n1,oui\n".encode("latin-1"),
            f"{CSV}'utf-8' codec can't decode byte 0xf6 in position 2: invalid start "
            "byte",
        ),
        "semicolons": (
            "a;b;y\n1;2;3\n",
            "cells must be separated by ',', got 'a;b;y' as the first line; "
            "{semicolon} it",
        ),
        "tabs": (
            "a\ty\n1\t2\n",
            "cells must be separated by ',', got 'a\\ty' as the first line; {tab} it",
        ),
    },
    "a.csv.gz": {
        "cut off": (cut_off(gzip.compress(LONG.encode())), f"{CSV}..."),
        "damaged": (damaged(gzip.compress(LONG.encode())), f"{CSV}..."),
        "of nothing": (gzip.compress(b""), f"{CSV}..."),
        "no gzip": (LONG, f"{CSV}..."),
    },
    "a.csv.bz2": {"cut off": (cut_off(bz2.compress(LONG.encode())), f"{CSV}...")},
    "a.parquet": {
        "null target": (
            parquet(ROWS_OF_3 | {"y": ["p", "q", None]}),
            missing("y", 2, "y"),
        ),
        "dates": (
            parquet({"a": pa.array([1, 2], pa.date32()), "y": [1, 2]}),
            f"{TYPES}date32[day] in column 'a'; turn it into numbers, such as days",
        ),
        "durations": (
            parquet({"a": pa.array([1, 2], pa.duration("s")), "y": [1, 2]}),
            f"{TYPES}duration[s] in column 'a'; turn it into numbers, such as days",
        ),
        "structs": (
            parquet({"a": [{"b": 1}, {"b": 2}], "y": [1, 2]}),
            f"{TYPES}struct<b: int64> in column 'a'; turn it into numbers",
        ),
        "lists of text": (
            parquet({"a": [["x"], ["z"]], "y": [1, 2]}),
            f"{TYPES}list<element: string> in column 'a'; turn it into numbers",
        ),
        "lists of two lengths": (
            parquet({"a": [[1.0, 2.0], [3.0]], "y": [1, 2]}),
            "X must have lists of 2 in column 'a', as in the first row, got one of 1 "
            "in row 1",
        ),
        "date target": (
            parquet({"y": pa.array([1, 2], pa.date32()), "a": [1, 2]}),
            "y must be numbers or strings, got date32[day] in row 0, column 'y'",
        ),
        "large": (
            parquet({"a": [1], "y": pa.array([2**63], pa.uint64())}),
            "y must be in the range of int64, got 9223372036854775808 in row 0",
        ),
        "no Parquet": (b"a,y\n1,2\n", f"{PARQUET}..."),
        "empty": (b"", f"{PARQUET}..."),
        "cut off": (cut_off(parquet(ROWS_OF_3)), f"{PARQUET}..."),
        "damaged": (damaged(parquet(TWICE)), DAMAGED),
        "altered": (damaged(parquet(TWICE, **PLAIN)), DAMAGED),
        "other text": (
            parquet(ROWS_OF_3 | {"y": ["pqr", "q", "q"]}).replace(b"pqr", b"p\xffr"),
            f"{PARQUET}...",
        ),
    },
    "a.arrow": {
        "no Arrow": ("a,y\n1,2\n", f"{ARROW}..."),
        "empty": ("", f"{ARROW}..."),
        "cut off": (cut_off(arrow(ROWS_OF_3)), f"{ARROW}..."),
        "altered": (beyond_its_end(arrow(ROWS_OF_3)), f"{ARROW}..."),
    },
    "a": {
        "descending": ("1 2:1 1:2\n-1 2:2 1:1\n", f"{LINE}'1 2:1 1:2' in row 0: ..."),
        "further": ("1 1:1 4:1\n-1 3:1 2:1\n", f"{LINE}'-1 3:1 2:1' in row 1: ..."),
        "rows that no memory holds": (
            "1 2:1\n1 9999999999:1\n",
            "indices must be at most 134,217,728, so that a row and a model fit in "
            "memory, got 9,999,999,999 in row 1",
        ),
        "empty": ("", "the file must have rows, got none"),
        "comments": ("# 1 2:3\n\n", "the file must have rows, got none"),
        "no features": ("1\n-1\n", "the file must have features, got none"),
        "no number": (SPARSE + "1 1:x\n", f"{LINE}'1 1:x' in row 2000: ..."),
        "a weight": (
            "1:2.5 1:3\n-1:1 2:4\n",
            f"{LINE}'1:2.5...",
        ),
        "no label": ("x 1:1\n", f"{LINE}..."),
        "zero": (
            "1 1:1\n-1 0:1 2:1\n",
            f"{LINE}'-1 0:1 2:1' in row 1: Invalid index 0 in SVMlight/LibSVM data "
            "file; {zero} files that start at 0",
        ),
        "rubbish": (b"\x00\xff\xfe 1:1\n", f"{LINE}..."),
        "controls": (b"\x1b[31m\x07 1:1\n", f"{LINE}..."),
    },
    "a.gz": {
        "cut off": (cut_off(gzip.compress(SPARSE.encode())), GZIP),
        "damaged": (damaged(gzip.compress(SPARSE.encode())), GZIP),
    },
    "a.bz2": {
        "cut off": (cut_off(bz2.compress(SPARSE.encode())), whole("whole bz2", "..."))
    },
    "a.npy": {
        "rank": (
            npy(np.ones(3)),
            "X must be numbers of shape (n, d), got float64 of shape (3,)",
        ),
        "complex": (
            npy(np.full((3, 2), 1j)),
            "X must be numbers of shape (n, d), got complex128 of shape (3, 2)",
        ),
        "objects": (npy(np.array([{}, None]), allow_pickle=True), ARRAY),
        "cut off": (cut_off(npy(np.ones((3, 2)))), ARRAY),
        "header altered": (npy(np.ones((3, 2))).replace(b"}", b"("), ARRAY),
        "no npy": ("a,y\n1,2\n", ARRAY),
        "no columns": (npy(np.ones((3, 0))), "X must have columns, got shape (3, 0)"),
    },
    "a.json": {
        "of no format": (
            "{}",
            "the file must be .csv, .tsv, .parquet, .arrow, .feather, .npy, or LIBSVM "
            "text under another name, got .json",
        )
    },
}
TARGETS = {"a.npy": "y.npy"} | dict.fromkeys(("a", "a.gz", "a.bz2"))


def raw(content):
    return content if isinstance(content, bytes) else content.encode()


def told(expected, message):
    """Whether a message is as expected, but for what "..." stands for."""
    if expected.endswith("..."):
        start = expected.removesuffix("...")
        return message.startswith(start) and len(message) > len(start)
    return message == expected


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        pytest.param(file, content, says, id=f"{file}-{name}")
        for file, faults in FILES.items()
        for name, (content, says) in faults.items()
    ],
)
def test_a_damaged_file_is_told_at_every_door(
    file, content, says, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).write_bytes(raw(content))
    (tmp_path / "y.npy").write_bytes(npy(np.array([0, 1, 0])))
    target = TARGETS.get(file, "y")
    python, spoken = (
        f"{file}: " + says.format(**{name: two[i] for name, two in ADVICE.items()})
        for i in range(2)
    )
    before = sorted(os.listdir())

    with pytest.raises(ValueError, match=r".+: .+ must .+, got .+") as raised:
        list(bj.stream.read(file, target=target, batch_rows=100))
    assert isinstance(raised.value, InputError)
    assert told(python, str(raised.value))

    with pytest.raises(ValueError, match=r".+: .+ must .+, got .+") as raised:
        learned_from(bj.stream.read(file, target=target))
    message = str(raised.value)
    # A file that cannot be opened is no stream yet.
    if raised.type is bj.StreamError:
        assert raised.value.model.num_rows == 0
        message = message.removeprefix("fit_stream: ")
    assert told(python, message)

    command = ["train", file, "--model", "new.st", "--learner", "dcd"]
    command += [] if target is None else ["--target", target]
    result = CliRunner().invoke(command_line, command)
    assert result.exit_code == 1, result.exception
    start, message = "budgetjax: error: ", result.stderr.removesuffix("\n")
    assert message.isprintable()
    assert message.startswith(start)
    assert told(spoken, message.removeprefix(start))
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("file", "content", "place"),
    [
        ("a.csv", "a,b,y\n1,2,x\n3,,z\n", "row 1, column 'b'"),
        ("a.csv", "a,b,y\n1,2,x\n\n3,4,x\nNA,1,z\n", "row 2, column 'a'"),
        ("a.parquet", parquet({"a": [1, None], "y": [1, 2]}), "row 1, column 'a'"),
        ("a.parquet", parquet({"a": pa.nulls(2), "y": [1, 2]}), "row 0, column 'a'"),
        (
            "a.parquet",
            parquet({"a": [[1.0, 2.0], None], "y": [1, 2]}),
            "row 1, column 'a[0]'",
        ),
        ("a.npy", npy(np.array([[1.0], [NAN], [2.0]])), "row 1, column 0"),
    ],
)
def test_a_missing_number_is_told_where_nothing_encodes_it(
    file, content, place, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).write_bytes(raw(content))
    (tmp_path / "y.npy").write_bytes(npy(np.array([0, 1, 0])))
    target = TARGETS.get(file, "y")
    python, spoken = (
        f"{file}: X must be finite, got nan in {place}; {two}"
        for two in ADVICE["encode"]
    )
    (X, _), *_ = bj.stream.read(file, target=target)
    assert np.any(np.isnan(X))
    with pytest.raises(ValueError, match="X must be finite") as raised:
        learned_from(bj.stream.read(file, target=target))
    assert told(f"fit_stream: {python}", str(raised.value))
    command = ["train", file, "--model", "new.st", "--learner", "dcd"]
    plain = ["--target", target, "--encode", "no", "--quiet"]
    result = CliRunner().invoke(command_line, [*command, *plain])
    assert (result.exit_code, result.stdout) == (1, "")
    assert told(f"budgetjax: error: {spoken}\n", result.stderr)


def learned_from(batches):
    width = batches.num_features
    state = bj.Perceptron().init(bj.RBF(1.0), num_features=width, budget=2, **REMOVAL)
    bj.fit_stream(state, batches)


# What only Python can ask for, of files and of batches.


def read(name, content, **arguments):
    """Writes a file and reads it."""

    def call(folder):
        (folder / name).write_bytes(raw(content))
        target = {} if "target" in arguments else {"target": "y"}
        list(bj.stream.read(folder / name, **target | arguments))

    return call


def libsvm(content, **arguments):
    return read("a", content, target=None, **arguments)


def npys(X, y=None, weight=None, **arguments):
    def call(folder):
        paths = []
        for name, array in (("X", X), ("y", y), ("w", weight)):
            if array is not None:
                (folder / f"{name}.npy").write_bytes(npy(array))
                paths.append(folder / f"{name}.npy")
        list(bj.stream.npy(*paths, **arguments))

    return call


def many(*contents, use=list, **arguments):
    """Several Parquet files in one folder."""

    def call(folder):
        for i, content in enumerate(contents):
            (folder / f"{i}.parquet").write_bytes(parquet(content))
        use(bj.stream.parquet(folder, target="y", **arguments))

    return call


def pipe(folder):
    os.mkfifo(folder / "a.csv")
    bj.stream.csv(folder / "a.csv", target="y")


def batch(*parts):
    return lambda folder: list(regroup([parts], 2, 2))


def distinct(*batches):
    return lambda folder: labels(list(batches))


ONE, ONES, TWO = "a,y\n1,2\n", np.ones((3, 2)), np.ones((2, 2))
DIFFERENT = "a.csv: features, target and weight must be different columns, got "
INT64 = "y must be in the range of int64, got "
FLOAT32 = "must be in the range of float32, got "
CODED = pa.array(["p", "q", None]).dictionary_encode()
OTHERS = "1.parquet: every file must have the columns of 0.parquet, got "
LARGE = np.array([1, 2**63], np.uint64)
CALLS = {
    "a.csv: features must be of the columns 'a', 'y', got 'c'": read(
        "a.csv", ONE, features=["a", "c"]
    ),
    "a.csv: weight must be of the columns 'a', 'y', got 'w'": read(
        "a.csv", ONE, weight="w"
    ),
    "a.csv: target must be a column number from -2 to 1, got 2": read(
        "a.csv", ONE, target=2
    ),
    "a.csv: target must be the name or the number of a column, got 1.0": read(
        "a.csv", ONE, target=1.0
    ),
    f"{DIFFERENT}'y' 2 times": read("a.csv", ONE, features=["a", "y"]),
    f"{DIFFERENT}'a' 2 times": read("a.csv", ONE, features=["a", 0]),
    f"{DIFFERENT}'w' 2 times": read("a.csv", "a,w\n1,2\n", target="w", weight=-1),
    "a.csv: features must be a list of columns, got 'a'": read(
        "a.csv", ONE, features="a"
    ),
    "a.csv: weight must come with a target, got 'w' and target=None": read(
        "a.csv", "a,w\n1,2\n", target=None, weight="w"
    ),
    "a.csv: batches must be (X, y) or (X, y, weight), got tuple of 1 as batch 0; "
    "give the reader a target": lambda folder: labels(
        Batches("a.csv", 2, lambda: iter([(TWO,)]))
    ),
    f"a.csv: {CSV}In column 'w': row 1: {NUMBER}'much'": read(
        "a.csv", "a,y,w\n1,2,1\n1,2,much\n", weight="w"
    ),
    "a.csv: target must be of the columns 'a', ' y', got 'y'; spaces are part of the "
    "name ' y'": read("a.csv", "a, y\n1,x\n", target="y"),
    f"a.csv: {missing('weight', 0, 'w')}": read("a.csv", "a,y,w\n1,x,\n", weight="w"),
    f"a.csv: X {FLOAT32}-1e+39 in row 1, column 'b'": read(
        "a.csv", "a,b,y\n1,2,x\n3,-1e39,z\n", dtype=np.float32
    ),
    "csv: delimiter must be one character, got ',,'": read(
        "a.csv", ONE, delimiter=",,"
    ),
    "csv: batch_rows must be at least 1, got 0": read("a.csv", ONE, batch_rows=0),
    "csv: dtype must be float32, float64 or None, got <class 'numpy.float16'>": read(
        "a.csv", ONE, dtype=np.float16
    ),
    "a.csv: the source must be a file, which can be read more than once, got a pipe "
    "or a device; write it to a file first": pipe,
    f"1.parquet: {missing('y', 2, 'y')}": many(ROWS_OF_3, ROWS_OF_3 | {"y": CODED}),
    f"1.parquet: X {FLOAT32}1e+39 in row 1, column 'a'": many(
        ROWS_OF_3, ROWS_OF_3 | {"a": [1, 1e39, 1]}, dtype=np.float32
    ),
    "FOLDER: y must be all numbers or all strings, got 1 in row 3": many(
        ROWS_OF_3, ROWS_OF_3 | {"y": [1, 2, 3]}, use=labels
    ),
    f"{OTHERS}'b' in one of them only": many(ROWS_OF_3, {"a": [1.0], "y": ["p"]}),
    f"{OTHERS}'a' in one of them only": many({"b": [1.0], "y": ["p"]}, ROWS_OF_3),
    "FOLDER: the folder must have files *.parquet, got none": many(),
    "parquet: path must be files, got an empty list": lambda folder: bj.stream.parquet(
        [], target="y"
    ),
    "read: path must be one file of libsvm, got ...": lambda folder: bj.stream.read(
        [folder / "a", folder / "b"]
    ),
    "arrow: source must be a path, or a table of Arrow, got dict": lambda folder: (
        bj.stream.arrow({"a": [1], "y": [2]}, target="y")
    ),
    f"a: {LINE}'1:2 1:3' in row 0: could not convert string to float: b'1:2'; weights "
    "are not read from LIBSVM text, and go beside the rows": libsvm("1:2 1:3\n"),
    f"a: {LINE}'1 3:1' in row 2000: ...": libsvm(SPARSE + "1 3:1\n", num_features=2),
    f"a: {LINE}'1 99999999999:1' in row 1: ...": libsvm(
        "1 1:1\n1 99999999999:1\n", num_features=2
    ),
    f"a: {LINE}'1 2:1e39' in row 1: ...": libsvm("1 1:1\n1 2:1e39\n", dtype=np.float32),
    "read: target must not be given for files of libsvm, got 'y'": read("a", "1 1:1\n"),
    "read: format must be one of csv, parquet, arrow, npy, libsvm, got 'text'": read(
        "a", "1 1:1\n", format="text"
    ),
    "y.npy: y must have shape (3,), one per row of X, got (2,)": npys(ONES, np.ones(2)),
    "w.npy: weight must have shape (3,), one per row of X, got (4,)": npys(
        ONES, np.ones(3), np.ones(4)
    ),
    "y.npy: y must be numbers or strings of shape (n,), or numbers of shape "
    "(n, outputs), got float64 of shape (3, 1, 1)": npys(ONES, np.ones((3, 1, 1))),
    f"y.npy: {INT64}9223372036854775808 in row 1": npys(ONES[:2], LARGE),
    f"X.npy: X {FLOAT32}1e+39 in row 1, column 1": npys(
        np.array([[1, 2], [3, 1e39]]), dtype=np.float32
    ),
    "read: features must not be given for files of npy, got ['a']": read(
        "a.npy", npy(ONES), target=None, features=["a"]
    ),
    "batches: batch 0, from row 0 on: weight must have shape (2,), one per row of "
    "X, got (1,)": batch(TWO, [1, 2], [1]),
    "batches: y must be numbers or strings, got datetime64[s] from row 0 on": batch(
        TWO, np.array([1, 2], "datetime64[s]")
    ),
    f"batches: {INT64}9223372036854775808 in row 1": batch(TWO, LARGE),
    f"batches: weight {FLOAT32}1e+39 in row 1": batch(TWO, [1, 2], [1, 1e39]),
    f"batches: X {FLOAT32}1e+39 in row 0, column 0": batch(
        scipy.sparse.csr_array(TWO * 1e39), [1, 2]
    ),
    "batches: batches must have rows, got none": distinct(),
    "batches: batches must be a source that can be read again, got an iterator, "
    "which would be used up": lambda folder: labels(iter([(TWO, [1, 2])])),
    "batches: y must be a label, got nan in row 3": distinct(
        (TWO, [1, 2]), (TWO, [1, NAN])
    ),
    "batches: y must hold at most 10,000 labels, got more: targets of a regression "
    "have no classes": distinct((np.ones((20_000, 1)), np.arange(2e4) / 3)),
}


@pytest.mark.parametrize(
    ("says", "call"),
    [pytest.param(says, call, id=says[:60]) for says, call in CALLS.items()],
)
def test_a_bad_call_is_told(says, call, tmp_path):
    with pytest.raises(ValueError, match=r".+: .+ must .+, got .+") as raised:
        call(tmp_path)
    assert isinstance(raised.value, InputError)
    message = str(raised.value)
    message = message.replace(f"{tmp_path}/", "").replace(str(tmp_path), "FOLDER")
    assert told(says, message)


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow", "npy", "libsvm"])
def test_a_file_that_is_not_there(ending, tmp_path):
    with pytest.raises(FileNotFoundError, match=f"none.{ending}"):
        bj.stream.read(tmp_path / f"none.{ending}")


@pytest.mark.parametrize("name", ["libsvm", "csv", "parquet", "arrow"])
def test_what_is_not_installed_is_named(name, tmp_path, monkeypatch):
    module, needs = "pyarrow", "pyarrow"
    if name == "libsvm":
        module, needs = "sklearn.datasets", "scikit-learn"
    monkeypatch.setitem(sys.modules, module, None)
    arguments = {} if name == "libsvm" else {"target": "y"}
    says = f"^{name} needs {needs}: pip install {needs}, "
    with pytest.raises(ImportError, match=says):
        getattr(bj.stream, name)(tmp_path / "a", **arguments)


# Batches that cannot be learned: the model before them is kept, and can continue.

REMOVAL = {"maintenance": bj.RemoveOldest()}
POWERS = {"kernel": bj.Polynomial(degree=5)}
LEARNERS = streams.LEARNERS | {
    row.name: row
    for row in (
        registry.Row(
            "unbudgeted", bj.Perceptron(), {"maintenance": bj.Unbudgeted()}, budget=ROWS
        ),
        registry.Row("polynomial", bj.Perceptron(), REMOVAL, **POWERS),
        registry.Row("projecting", bj.Projectron(), {}, **POWERS),
    )
}


def value(number, column=1, dtype=np.float32, row=17):
    def second(X, y):
        X = X.astype(dtype)
        X[row, column] = number
        return X, y

    return second


def label(name, dtype=None):
    def second(X, y):
        y = y.astype(dtype or y.dtype)
        y[17] = name
        return X, y

    return second


def weight(number):
    return lambda X, y: (X, y, np.where(np.arange(len(y)) == 17, number, 1.0))


def weighted(X, y):
    return X, y, np.ones(len(y))


def named(X, y):
    return X, np.where(y > 0, "yes", "no")


def sparse(X, y):
    X[17, 1] = NAN
    return scipy.sparse.csr_array(X), y


def failing(error):
    def second(X, y):
        raise error

    return second


def bad(
    name,
    second,
    says,
    learner="binary",
    first=lambda X, y: (X, y),
    source="batches",
    **more,
):
    """A stream that must fail in its second batch, the rows from 64 on.

    Functions of good rows and labels give its batches. `says` is a pattern of the
    message after the name of the source, and `more` are arguments of `fit_stream`.
    """
    given = (second, says, learner, first, source, more)
    return pytest.param(*given, id=f"{name}@{learner}")


FINITE = "X must be finite, got"
SCALE = "the model must stay finite: kernel values overflow float32; scale X.*"
SHAPES = r"must be \(X, y\) or \(X, y, weight\), got "
OF_THE_LEARNER, OF_4 = r"-1 or \+1, got", "y must be in 0 .. 3, got"
IN_FLOAT32 = "y must be finite in float32"
BAD_BATCHES = [
    bad("nan", value(NAN, 2), f"{FINITE} nan in row 81, column 2"),
    bad("infinite", value(INF), f"{FINITE} inf in row 81, column 1"),
    bad("minus infinite", value(-INF, row=0), f"{FINITE} -inf in row 64, "),
    bad("nan and names", value(NAN, 2), "nan in row 81, column 'age'", source="a.csv"),
    bad("nan in a sparse row", sparse, f"{FINITE} nan in row 81, column 1"),
    bad(
        *("infinite where encoded", value(INF), "inf in row 81, column 1"),
        encode=bj.encoding.fit(np.eye(3), 0),
    ),
    *(
        bad(
            f"{number} in row {row}",
            value(number, row=row),
            rf"{SCALE}{re.escape(f'{number:g}')}.*row {64 + row}.*column 1",
            learner,
        )
        for row, number, learner in (
            (0, 1e38, "binary"),
            (17, 1e38, "multiclass"),
            (63, 1e38, "regression"),
            (0, -1e10, "polynomial"),
            (63, -1e10, "polynomial"),
        )
    ),
    # Its kernel values with the others are finite, and the model breaks later.
    bad("infinite norm", value(1e5), f"{SCALE}row 81, column 1", "projecting"),
    bad(
        *("beyond float32", value(1e300, dtype=np.float64)),
        r"X must be in the range of float32, got 1e\+300 in row 81, column 1",
    ),
    bad("wider", lambda X, y: (X[:, [0, 0, 1, 2]], y), "row 64.* 3 columns.* 4"),
    bad("narrower", lambda X, y: (X[:, :2], y), "row 64.* 3 columns.* 2"),
    bad("flat", lambda X, y: (X[:, 0], y), "row 64.*X must have shape"),
    bad("ragged", lambda X, y: ([[0.0] * 3, [0.0]], y[:2]), "row 64.*ragged"),
    bad("texts", lambda X, y: (X.astype(str), y), "row 64.*must hold real numbers.*<U"),
    bad(
        *("complex", lambda X, y: (X.astype(complex), y)),
        "row 64.*must hold real numbers.*complex",
    ),
    bad(
        "no labels", lambda X, y: (X,), f"{SHAPES}tuple of 1.*give the reader a target"
    ),
    bad("four parts", lambda X, y: (X, y, y, y), f"{SHAPES}tuple of 4"),
    bad("an array", lambda X, y: X, f"{SHAPES}ndarray"),
    bad("None", lambda X, y: None, f"{SHAPES}NoneType"),
    bad("fewer labels", lambda X, y: (X, y[:-1]), r"row 64.*63.*\(64, 3\)"),
    bad("labels in a matrix", lambda X, y: (X, y[:, None]), r"\(n,\).*row 64"),
    bad("labels of None", lambda X, y: (X, None), r"\(n,\).*row 64"),
    bad("0 for a label", label(0), f"{OF_THE_LEARNER} 0.*row 81"),
    bad("1.5", label(1.5, float), f"{OF_THE_LEARNER} 1.5.*row 81"),
    bad("nan for a label", label(NAN, float), f"{OF_THE_LEARNER} nan.*row 81"),
    bad("1.5", label(1.5, float), f"{OF_4} 1.5.*row 81", "multiclass"),
    *(
        bad(f"{i}", label(i, np.int64), f"{OF_4} {i}.*row 81", "multiclass")
        for i in (4, -1, 2**40)
    ),
    bad(
        "a label never seen",
        lambda X, y: label("maybe", object)(*named(X, y)),
        "y must be one of 'no', 'yes', got 'maybe' in row 81",
        first=named,
        classes=["no", "yes"],
    ),
    bad(
        *("a number never seen", label(8, np.int64)),
        "y must be one of -1, 1, got 8 in row 81",
        classes=[-1, 1],
    ),
    bad("texts for labels", named, "y must be numbers.*strings.*row 64"),
    bad(
        *("labels of all kinds", label("no", object)),
        "y must be all numbers or all strings.*'no' in row 81",
    ),
    bad("nan target", label(NAN), f"{IN_FLOAT32}.*nan.*row 81", "regression"),
    bad(
        *("target beyond float32", label(1e39, float)),
        rf"{IN_FLOAT32}.*1e\+39.*row 81",
        "regression",
    ),
    *(
        bad(f"weight {w}", weight(w), f"weight must.*{w}.*row 81", first=weighted)
        for w in (-1.0, NAN, INF)
    ),
    bad(
        *("a source that fails", failing(OSError(5, "Input/output error"))),
        "batches must be readable.*OSError.*Input/output.*after row 64",
    ),
    bad(
        *("another failure", failing(KeyError("age"))),
        "batches must be readable.*KeyError: 'age'.*after row 64",
    ),
    bad(
        *("a reader that fails", failing(ValueError("a.csv: 'age' must be there"))),
        "'age' must be there",
        source="a.csv",
    ),
    bad(
        *("no room", lambda X, y: (X, y)),
        "a budget of 64 support vectors was full",
        "unbudgeted",
    ),
]


@functools.cache
def initial(name):
    """A model without room learns every row."""
    more = {"margin": 1e3} if name == "unbudgeted" else {}
    return LEARNERS[name].init(**more)


@pytest.mark.parametrize(
    ("second", "says", "learner", "first", "source", "more"), BAD_BATCHES
)
def test_the_model_before_a_bad_batch_is_kept(
    second, says, learner, first, source, more
):
    row, state = LEARNERS[learner], initial(learner)
    X, y = row.stream(3 * ROWS)
    # Half a good batch is read with the bad one, and lost with it.
    good = first(X, y)

    def read():
        yield tuple(part[:ROWS] for part in good)
        try:
            batch = second(X[ROWS : 2 * ROWS].copy(), y[ROWS : 2 * ROWS].copy())
        except Exception:
            # Here, so that its traceback begins in the source.
            raise
        yield batch

    batches = read()
    if source != "batches":
        batches = Batches(source, 3, read, feature_names=("a", "b", "age"))
    with pytest.raises(ValueError, match=f"^fit_stream: {source}: .*{says}") as raised:
        fit(row, batches, state, **more)
    error = raised.value
    assert type(error) is bj.StreamError
    halves = cut([part[:ROWS] for part in good], [ROWS // 2])
    before = fit(row, halves, state, **more)
    names = getattr(batches, "feature_names", None)
    before = before._replace(model=before.model._replace(feature_names=names))
    assert error.model.num_rows == ROWS
    np.testing.assert_array_equal(error.model.classes, before.classes)
    identical(without_classes(error.model), without_classes(before))
    # It can predict, and go on with what is good.
    assert np.all(np.isfinite(error.model.decision_function(X)))
    if learner != "unbudgeted":
        rest = [part[2 * ROWS :] for part in good]
        after = fit(row, [tuple(rest)], error.model)
        assert after.num_rows == 2 * ROWS
        assert np.isfinite(after.error)


@pytest.mark.parametrize(
    "batches", [[], [(np.zeros((0, 3)), np.zeros(0))]], ids=["none", "empty"]
)
def test_a_stream_without_rows(batches):
    state = initial("binary")
    says = r"fit_stream: batches: .* rows, got none"
    with pytest.raises(bj.StreamError, match=says) as raised:
        fit(LEARNERS["binary"], batches, state)
    identical(raised.value.model.state, state)
    assert raised.value.model.num_rows == 0
    assert np.isnan(raised.value.model.error)


X, Y = LEARNERS["binary"].stream(8)
DISTINCT = "classes must be distinct numbers, or distinct strings, got"
NO_BATCHES = r"batches must be an iterable of \(X, y\).*got @.*\[\(X, y\)\]"
FLAG = "must be True or False.*got #"
# Of each argument: values, and a pattern, in which # stands for the value and @ for its
# type.
ARGUMENTS = {
    "batches": [
        ((X, (X, Y), "a.csv", {"X": X}, scipy.sparse.csr_array(X), None), NO_BATCHES),
        ((Batches("a.csv", 4, lambda: iter(())),), "X must have 3 columns.*got 4"),
    ],
    "every": [
        ((2.5, "10", True, None), "every must be an integer.*got #"),
        ((0,), "every must be at least 1.*0"),
    ],
    "batch_rows": [
        ((2.5, "10", True), "batch_rows must be an integer.*got #"),
        ((0,), "batch_rows must be at least 1.*0"),
    ],
    "resume": [((1, "yes", None), f"resume {FLAG}")],
    "progress": [((1,), f"progress {FLAG}")],
    "checkpoint": [((5, True), "checkpoint must be a path.*#")],
    "classes": [
        (([1, 1], ["a", "a"], [0, NAN], [1, "a"], [[0, 1]], [[1], 2]), DISTINCT),
        ((3, "ab", [1j, 2j]), DISTINCT),
        (([1],), "classes must be 2.*got 1"),
        (([1, 2, 3],), "classes must be 2.*got 3"),
        (([],), "classes must be 2.*got 0"),
    ],
    "state": [
        ((3, bj.RBF(1.0), X), "state must be of .*got @"),
        ((jax.tree.map(lambda leaf: leaf[None], initial("binary")),), "a single one"),
    ],
}


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        (name, value, says)
        for name, cases in ARGUMENTS.items()
        for values, says in cases
        for value in values
    ],
)
def test_bad_arguments(name, given, says):
    says = says.replace("#", re.escape(repr(given))).replace("@", type(given).__name__)
    arguments = {"batches": [(X, Y)], name: given}
    with pytest.raises(ValueError, match=f"^fit_stream: .*{says}") as raised:
        fit(LEARNERS["binary"], **arguments)
    assert type(raised.value) is ArgumentError


def test_what_does_not_fit_a_model_that_goes_on():
    row = LEARNERS["binary"]
    model = fit(row, [(X, Y)], classes=[-1, 1])
    encoding = bj.encoding.fit(X, 0)
    refused(
        lambda: fit(row, [(X, Y)], model, encode=encoding),
        *("encode", "None", "", "fit_stream"),
    )
    refused(
        lambda: fit(row, [(X, Y)], model, classes=[1, -1]), "classes", "-1, 1", "1, -1"
    )
    assert fit(row, [(X, Y)], model, classes=[-1, 1]).num_rows == 16
    regression = LEARNERS["regression"]
    refused(lambda: fit(regression, [(X, Y)], classes=[-1, 1]), "classes", "None")


def test_texts_need_classes():
    says = "y must be numbers, or classes= be given, got 'a'"
    with pytest.raises(bj.StreamError, match=says):
        fit(LEARNERS["binary"], [(X, ["a"] * 8)])

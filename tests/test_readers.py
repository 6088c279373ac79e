"""Readers: files come back as they were written, in constant memory, read ahead."""

import bz2
import functools
import gc
import gzip
import lzma
import os
import pathlib
import threading
import time
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.sparse
from sklearn import datasets as sklearn_datasets

import budgetjax as bj
from budgetjax.stream.batches import labels, prefetch, regroup
from budgetjax.stream.readers import csv_text
from budgetjax.tables import columns

N, D = 257, 3
NAMES = ("width", "height", "length, in m")


def numbers():
    X = np.random.default_rng(0).normal(size=(N, D))
    X[::7, 1] = 0
    return X


def weights():
    return np.random.default_rng(1).uniform(0, 3, N)


TARGETS = {
    "int": np.arange(N) % 5 - 1,
    "float": np.random.default_rng(2).normal(size=N),
    "string": np.array(["cat", "dog", "Größe", "NaN", 'a "b", c'])[np.arange(N) % 5],
}


def table(y):
    """A table with the target between features, and a column of no use."""
    X = numbers()
    columns = {NAMES[0]: X[:, 0], "kind": y, NAMES[1]: X[:, 1], NAMES[2]: X[:, 2]}
    columns |= {"importance": weights(), "remark": np.resize(["none", "some"], N)}
    return pa.table({name: pa.array(column) for name, column in columns.items()})


WRITERS = {
    # Strings are quoted: "NaN" is one here, and no missing value.
    ".csv": pa.csv.write_csv,
    ".parquet": pa.parquet.write_table,
    ".feather": lambda content, path, **more: pa.feather.write_feather(
        content, str(path), **more
    ),
}
PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def written(path, content, **more):
    """Writes a table in the format of the path's name, compressed if that says so."""
    pack = PACK.get(path.suffix)
    plain = path.with_name(f"{path.stem}.plain") if pack else path
    WRITERS[next(end for end in path.suffixes if end in WRITERS)](
        content, plain, **more
    )
    if pack:
        path.write_bytes(pack(plain.read_bytes()))
        plain.unlink()
    return path


def csv(end):
    return lambda folder, y: written(folder / f"train.csv{end}", table(y))


def parts(ends, sizes):
    """Files of a folder, some of them without rows, each second one turned round."""

    def write(folder, y):
        folder = folder / "parts"
        folder.mkdir()
        start = 0
        for i, (end, size) in enumerate(zip(ends, sizes, strict=True)):
            part = table(y).slice(start, size)
            part = part.select(part.column_names[:: 1 if i % 2 else -1])
            written(folder / f"{i}{end}", part)
            start += size
        (folder / "_SUCCESS").write_text("")
        return folder

    return write


def arrow_stream(folder, y):
    path = folder / "train.arrow"
    content = table(y)
    with pa.ipc.new_stream(str(path), content.schema) as writer:
        writer.write_table(content, max_chunksize=100)
    return path


csv_parts = parts([".csv", ".csv.gz", ".csv.xz"], [100, 50, 107])
parquet_parts = parts([".parquet"] * 4, [100, 0, 1, 156])
TABLES = {
    "csv": csv(""),
    "csv-gz": csv(".gz"),
    "csv-bz2": csv(".bz2"),
    "csv-xz": csv(".xz"),
    "csv-folder": csv_parts,
    "csv-list": lambda folder, y: sorted(csv_parts(folder, y).glob("*.csv*")),
    "parquet": lambda folder, y: written(
        folder / "train.parquet", table(y), row_group_size=50
    ),
    "parquet-folder": parquet_parts,
    "parquet-list": lambda folder, y: sorted(
        parquet_parts(folder, y).glob("*.parquet")
    ),
    "feather": lambda folder, y: written(
        folder / "train.feather", table(y), chunksize=60
    ),
    "arrow-stream": arrow_stream,
}


def joined(batches):
    """All of a source: X, y and, if there, the weights."""
    return [columns.join_rows(arrays) for arrays in zip(*batches, strict=True)]


def check_types(batches, dtype=np.float64):
    for X, *more in batches:
        assert X.dtype == dtype
        assert X.flags.c_contiguous
        assert all(array.shape == X.shape[:1] for array in more)


def check_lengths(found, rows):
    """All batches are of so many rows, but the last."""
    tail = [N % rows] if N % rows else []
    assert [len(batch[0]) for batch in found] == [rows] * (N // rows) + tail


def check_equal(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        if other.dtype.kind == "U":
            assert one.dtype == object
            assert set(map(type, one)) <= {str}
            assert one.tolist() == other.tolist()
        else:
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


# What is written comes back.


@pytest.mark.parametrize(
    ("format_", "kind", "rows"),
    [
        ("csv", "int", N),
        ("csv", "float", None),
        ("csv", "string", 10),
        ("csv-gz", "string", 64),
        ("csv-bz2", "int", 64),
        ("csv-xz", "float", 64),
        ("csv-folder", "string", N - 1),
        ("csv-list", "int", 64),
        ("parquet", "int", None),
        ("parquet", "float", 64),
        ("parquet", "string", 50),
        ("parquet-folder", "string", N + 1),
        ("parquet-folder", "int", 50),
        ("parquet-list", "float", 64),
        ("feather", "string", 20),
        ("feather", "int", N),
        ("arrow-stream", "float", 64),
    ],
)
def test_tables_come_back(format_, kind, rows, tmp_path):
    y = TARGETS[kind]
    batches = bj.stream.read(
        TABLES[format_](tmp_path, y),
        target="kind",
        weight="importance",
        features=NAMES,
        batch_rows=rows,
    )
    assert batches.feature_names == NAMES
    assert batches.num_features == D
    assert batches.num_rows == (N if "parquet" in format_ else None)
    for _ in range(2):
        found = list(batches)
        check_lengths(found, rows or N)
        check_types(found)
        check_equal(joined(found), [numbers(), y, weights()])
    np.testing.assert_array_equal(labels(batches), np.unique(y))
    assert labels(batches).dtype == np.unique(y).dtype


@pytest.mark.parametrize("format_", ["csv", "csv-folder", "parquet", "feather"])
def test_columns_are_chosen_by_name_or_number(format_, tmp_path):
    path = TABLES[format_](tmp_path, TARGETS["int"])
    X, w = numbers(), weights()
    # The first file of a folder has its columns turned round.
    place = {"target": 1, "features": [2, 3, 0], "weight": 4}
    if "folder" in format_:
        place = {"target": -2, "features": [-3, -4, -1], "weight": -5}
    batches = bj.stream.read(path, **place)
    assert batches.feature_names == (NAMES[1], NAMES[2], NAMES[0])
    check_equal(joined(batches), [X[:, [1, 2, 0]], TARGETS["int"], w])
    alone = bj.stream.read(path, features=NAMES[:1], dtype=np.float32)
    assert alone.read_targets is None
    check_types(alone, np.float32)
    check_equal(joined(alone), [X[:, :1].astype(np.float32)])


@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_several_targets_are_columns_of_y(end, tmp_path):
    content = {"a": [1.5, 2.5], "n": [3, 4], "x": [0.5, 0.25], "t": ["p", "q"]}
    path = tmp_path / f"table.{end}"
    write = pa.csv.write_csv if end == "csv" else pa.parquet.write_table
    write(pa.table(content), path)
    for target in (["x", "n"], [2, -3]):
        batches = bj.stream.read(path, target=target, features=["a"])
        ((X, y),) = batches
        assert (X.tolist(), y.tolist()) == ([[1.5], [2.5]], [[0.5, 3], [0.25, 4]])
        assert [part.tolist() for part in batches.read_targets()] == [y.tolist()]
    ((X, y),) = bj.stream.read(path, target=["x"])
    assert (X.num_rows, y.tolist()) == (2, [0.5, 0.25])
    with pytest.raises(ValueError, match=r"y must be numbers where .* 'p' in row 0"):
        list(bj.stream.read(path, target=["x", "t"]))
    with pytest.raises(ValueError, match="must be different columns, got 'x' 2 times"):
        bj.stream.read(path, target=["x", "x"])


def test_all_but_target_weight_and_the_index_of_pandas_are_features(tmp_path):
    frame = pd.DataFrame(numbers(), columns=list("abc")).assign(y=1)
    frame = frame.sort_values("a")
    path = tmp_path / "train.parquet"
    frame.to_parquet(path)
    assert "__index_level_0__" in pa.parquet.read_schema(path).names
    batches = bj.stream.parquet(path, target="y", weight="b")
    assert batches.feature_names == ("a", "c")
    np.testing.assert_array_equal(joined(batches)[0], frame[["a", "c"]])


@pytest.mark.parametrize(
    ("zero_based", "kind", "ending"),
    [
        (False, "int", ""),
        (True, "float", ".gz"),
        (False, "float", ".bz2"),
        (True, "int", ".xz"),
    ],
)
def test_libsvm_comes_back(zero_based, kind, ending, tmp_path):
    X, y = numbers(), TARGETS[kind]
    path = tmp_path / f"train.libsvm{ending}"
    lines = ["# two features and one that is often 0"]
    for x, label in zip(X.tolist(), y.tolist(), strict=True):
        pairs = [f"{j}:{v}" for j, v in enumerate(x, 0 if zero_based else 1) if v]
        lines.append(f"{label} {' '.join(pairs)}")
    path.write_bytes(PACK.get(ending, bytes)("\n".join(lines).encode()))
    arguments = {"batch_rows": 60, "zero_based": zero_based}
    for given in ({}, {"num_features": D}):
        batches = bj.stream.libsvm(path, **arguments, **given)
        assert batches.num_features == D
        assert batches.num_rows == (None if given else N)
        assert batches.feature_names is None
        for _ in range(2):
            found = list(batches)
            check_lengths(found, 60)
            check_types(found)
            check_equal(joined(found), [X, y])
        np.testing.assert_array_equal(labels(batches), np.unique(y))
    wide = bj.stream.libsvm(path, **arguments, num_features=D + 2, dtype=np.float32)
    padded = np.pad(X, ((0, 0), (0, 2))).astype(np.float32)
    check_equal(joined(wide), [padded, y])


def test_libsvm_with_comments_signs_and_empty_rows(tmp_path):
    path = tmp_path / "train.txt"
    path.write_bytes(
        b"# a comment\n+1 qid:3 2:5 # more: 7:1\r\n\n-1\n  \n1e0   1:-.5\t3:1e-3"
    )
    batches = bj.stream.read(path)
    assert (batches.num_features, batches.num_rows) == (3, 3)
    X, y = joined(batches)
    np.testing.assert_array_equal(X, [[0, 5, 0], [0] * 3, [-0.5, 0, 1e-3]])
    check_equal([y, labels(batches)], [np.array([1, -1, 1]), np.array([-1, 1])])


def test_a_file_of_libsvm_itself():
    path = pathlib.Path(os.environ.get("BUDGETJAX_DATA", ""), "letter.scale")
    if not path.is_file():
        pytest.skip(f"BUDGETJAX_DATA names no folder with {path.name}")
    X, y = sklearn_datasets.load_svmlight_file(str(path))
    batches = bj.stream.read(path, batch_rows=5000)
    assert batches.num_rows == len(y)
    check_equal(joined(batches), [X.toarray(), y.astype(np.int64)])
    np.testing.assert_array_equal(labels(batches), np.unique(y))


@pytest.mark.parametrize(
    ("source", "order", "kind"),
    [
        ("float64", "C", "int"),
        ("float64", "F", "string"),
        ("float16", "F", "float"),
        ("int8", "C", "string"),
        ("bool", "F", "int"),
    ],
)
def test_npy_comes_back(source, order, kind, tmp_path):
    X, y = numbers().astype(source), TARGETS[kind]
    paths = {name: tmp_path / f"{name}.npy" for name in ("path", "target", "weight")}
    arrays = (np.asarray(X, order=order), y, weights())
    for path, array in zip(paths.values(), arrays, strict=True):
        np.save(path, array)
    batches = bj.stream.read(**paths, batch_rows=100)
    assert (batches.num_rows, batches.num_features) == (N, D)
    # float32 holds all but float64.
    dtype = np.float64 if source == "float64" else np.float32
    for _ in range(2):
        found = list(batches)
        check_types(found, dtype)
        X_found, y_found, w = joined(found)
        check_equal([X_found, w], [X.astype(dtype), weights().astype(dtype)])
        np.testing.assert_array_equal(y_found, y)
    np.testing.assert_array_equal(labels(batches), np.unique(y))
    check_equal(joined(bj.stream.npy(paths["path"])), [X.astype(dtype)])


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("int", lambda content: content),
        ("float", lambda content: content.to_reader(max_chunksize=40)),
        ("string", lambda content: content.to_reader(max_chunksize=40)),
        ("string", lambda content: content.combine_chunks().to_batches()[0]),
        ("int", lambda content: content.to_pandas()),
    ],
    ids=["table", "stream", "stream-string", "record-batch", "pandas"],
)
def test_tables_in_memory(kind, form):
    y = TARGETS[kind]
    source = form(table(y))
    batches = bj.stream.arrow(source, target="kind", features=NAMES, batch_rows=100)
    assert batches.name == type(source).__name__
    for _ in range(2):
        check_equal(joined(batches), [numbers(), y])
    np.testing.assert_array_equal(labels(batches), np.unique(y))


@pytest.mark.parametrize(
    ("column", "X_type", "y_type"),
    [
        (pa.array([1, 2, 3], pa.int8()), np.float32, np.int64),
        (pa.array([1, 2, 2**63 - 1], pa.uint64()), np.float64, np.int64),
        (pa.array([True, False, True]), np.float32, np.bool),
        (pa.array(np.float16([1, 2, 3])), np.float32, np.float64),
        (pa.array([1, 2, 3], pa.decimal128(5, 2)), np.float64, np.float64),
        (pa.array([1.5, 2, 1.5]).dictionary_encode(), np.float64, np.float64),
    ],
    ids=["int8", "uint64", "bool", "half", "decimal", "coded"],
)
def test_columns_of_numbers_of_any_type(column, X_type, y_type):
    expected = np.array([float(value) for value in column.to_pylist()])
    # A dictionary has categories where it is no target.
    plain = getattr(column, "dictionary_decode", lambda: column)()
    content = pa.table({"x": plain, "y": column})
    X, y = joined(bj.stream.arrow(content, target="y"))
    np.testing.assert_array_equal(X[:, 0], expected)
    np.testing.assert_array_equal(y, expected)
    assert (X.dtype, y.dtype) == (X_type, y_type)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), "coded"], ids=str
)
def test_columns_of_strings_of_any_type(kind):
    values = ["b", "a", "b"]
    column = pa.array(values).dictionary_encode()
    if kind != "coded":
        column = pa.array(values, kind)
    batches = bj.stream.arrow(pa.table({"x": [1, 2, 3], "y": column}), target="y")
    assert joined(batches)[1].tolist() == values
    assert labels(batches).tolist() == ["a", "b"]


# CSV of the world.


HUGE, EUROPE = "99999999999999999999", ([[1.5]], [2.5])


@pytest.mark.parametrize(
    ("text", "arguments", "X", "y"),
    [
        ("a,y\r\n1,+1\r\n 2 , -1\r\n", {"target": "y"}, [[1], [2]], [1.0, -1.0]),
        (b"\xef\xbb\xbfa,y\n1,2\n", {"target": "y", "features": ["a"]}, [[1]], [2]),
        ("a,y\n1,2\n\n3,4", {"target": -1}, [[1], [3]], [2, 4]),
        ('"a","y"\n"1","no, not"\n', {"target": 1}, [[1]], ["no, not"]),
        ('"a\nb",y\n1,"x\ny"\n2,z\n', {"target": 1}, [[1], [2]], ["x\ny", "z"]),
        ("a,y\n1,007\n2,8.5\n", {"target": "y"}, [[1], [2]], [7.0, 8.5]),
        ("a,y\n1,007\n2,7\n3,0\n", {"target": "y"}, [[1], [2], [3]], ["007", "7", "0"]),
        ("a,y\n1,000\n2,1\n3,0\n", {"target": "y"}, [[1], [2], [3]], ["000", "1", "0"]),
        ("a,y\n1,-0\n2,1\n", {"target": "y"}, [[1], [2]], [0.0, 1.0]),
        ('a,y\n1,"007"\n', {"target": 1, "text_target": False}, [[1]], [7.0]),
        ("a,y\n1,7\n", {"target": "y", "text_target": True}, [[1]], ["7"]),
        (f"a,y\n1,{HUGE}\n2,5\n", {"target": "y"}, [[1], [2]], [HUGE, "5"]),
        ("a;y\n1,5;2,5\n", {"target": "y", "decimal": ",", "delimiter": ";"}, *EUROPE),
        ("a,y\n1,1\n2,two\n", {"target": "y"}, [[1], [2]], ["1", "two"]),
        ("a,y\n1e-3,true\n", {"target": "y"}, [[1e-3]], [True]),
        ("1,2\n3,4\n", {"target": 1, "header": False}, [[1], [3]], [2, 4]),
        ("\n1;2\n", {"target": 1, "header": False, "delimiter": ";"}, [[1]], [2]),
        ("0,1,2\n3,4,5\n", {"target": 2}, [[3, 4]], [5]),
        ("2019,2020,y\n3,4,5\n", {"target": "y"}, [[3, 4]], [5]),
        (b"caf\xc3\xa9,y,z\n3,4,\xe9\n", {"target": "y", "features": [0]}, [[3]], [4]),
    ],
)
def test_csv_of_many_kinds(text, arguments, X, y, tmp_path):
    path = tmp_path / "train.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = joined(bj.stream.csv(path, **arguments))
    np.testing.assert_array_equal(found[0], X)
    assert found[1].tolist() == y
    assert [type(value) for value in found[1].tolist()] == [type(value) for value in y]


def test_tabs(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\ty\n1\t2\tno\n3\t4\tyes\n")
    X, y = joined(bj.stream.read(tmp_path / "a.tsv", target="y"))
    assert (X.tolist(), y.tolist()) == ([[1, 2], [3, 4]], ["no", "yes"])


def test_a_code_far_down_makes_all_labels_of_csv_text(tmp_path):
    lines = "1,7\n" * 100_000
    for name, last in [("a", "1,12\n"), ("b", "1,007\n")]:
        (tmp_path / f"{name}.csv").write_text(f"x,y\n{lines}{last}")
    read = bj.stream.csv(tmp_path, target="y")
    assert labels(read).tolist() == ["007", "12", "7"]
    assert labels(bj.stream.csv(tmp_path / "a.csv", target="y")).tolist() == [7, 12]


def test_csv_longer_than_a_block(tmp_path):
    # Whole numbers to a place in the third block: all are real.
    n = 60_000
    y = np.arange(n) % 7 - 3.0
    y[50_000] = 0.5
    X = np.arange(2.0 * n).reshape(n, 2) / 8
    path = written(tmp_path / "a.csv", pa.table({"a": X[:, 0], "b": X[:, 1], "y": y}))
    assert path.stat().st_size > 3 * csv_text.BLOCK
    batches = bj.stream.csv(path, target="y", batch_rows=10_000)
    found = list(batches)
    assert {batch[1].dtype for batch in found} == {np.dtype(np.float64)}
    check_equal(joined(found), [X, y])
    np.testing.assert_array_equal(labels(batches), np.unique(y))


def test_rows_wider_than_a_block(tmp_path):
    d = 6000
    x = np.random.default_rng(0).normal(size=(2, d))
    lines = [",".join([*(f"{value:.45f}" for value in row), "0"]) for row in x]
    assert len(lines[0]) > csv_text.BLOCK
    names = ",".join([*map("x{}".format, range(d)), "y"])
    path = tmp_path / "train.csv"
    path.write_text("\n".join([names, *lines]))
    check_equal(joined(bj.stream.csv(path, target="y")), [x, np.zeros(2, np.int64)])


def test_rows_before_a_bad_one_are_given(tmp_path):
    n = 100_000
    content = pa.table({"a": np.arange(n), "y": np.ones(n)})
    path = written(tmp_path / "train.csv", content)
    with path.open("a") as handle:
        handle.write("red,1\n")
    batches, rows = iter(bj.stream.csv(path, target="y", batch_rows=1000)), 0

    def read():
        nonlocal rows
        for X, y in batches:
            np.testing.assert_array_equal(X[:, 0], np.arange(rows, rows + len(y)))
            rows += len(y)

    with pytest.raises(ValueError, match=f"column 'a': row {n}: .* 'red'"):
        read()
    assert rows > n / 2


# The same in all formats.


FORMATS = pytest.mark.parametrize("end", ["csv", "parquet", "feather", "npy", "libsvm"])


def in_format(folder, end, X, y, **more):
    """Arguments of `read`, for a file of any format; `more` are of its writer."""
    path = folder / f"a.{end}"
    if end == "npy":
        np.save(path, X)
        np.save(folder / "y.npy", y)
        return {"path": path, "target": folder / "y.npy"}
    if end == "libsvm":
        rows = (" ".join(f"{i}:{v!r}" for i, v in enumerate(x, 1)) for x in X.tolist())
        lines = (f"{label} {row}" for label, row in zip(y.tolist(), rows, strict=True))
        path.write_text("\n".join(["# text", *lines]))
        return {"path": path, "num_features": X.shape[1]}
    columns = {f"x{i}": column for i, column in enumerate(X.T)}
    written(path, pa.table(columns | {"y": y}), **more)
    return {"path": path, "target": "y"}


@FORMATS
def test_whole_numbers_are_exact_labels(tmp_path, end):
    """float64 holds only the first and the last of them."""
    y = np.array([10**18, 10**18 + 1, 5, -(10**18) - 1])
    given = y
    if end in ("parquet", "feather"):
        given = pa.array(y).cast(pa.decimal128(19))
    found = bj.stream.read(**in_format(tmp_path, end, np.ones((4, 1)), given))
    assert joined(found)[1].tolist() == y.tolist()
    assert labels(found).tolist() == sorted(y.tolist())


@FORMATS
def test_files_without_rows_have_no_batches(tmp_path, end):
    given = in_format(tmp_path, end, np.ones((0, 1)), np.array([], "U1"))
    found = bj.stream.read(**given)
    assert (found.num_features, list(found)) == (1, [])


@FORMATS
def test_digits_that_float32_has_not_are_read(tmp_path, end):
    """Seconds since 1970, which float32 rounds to multiples of 128."""
    seconds = 1_700_000_000.0 + np.arange(1000)
    given = in_format(tmp_path, end, seconds[:, None], np.arange(1000) % 2)
    assert joined(bj.stream.read(**given))[0][:, 0].tolist() == seconds.tolist()


def test_files_that_differ_are_read_in_the_type_that_holds_all_of_them(tmp_path):
    seconds = 1_700_000_000.0 + np.arange(20)
    for i, one in enumerate((np.float32(seconds[:10]), seconds[10:])):
        written(tmp_path / f"{i}.parquet", pa.table({"at": one}))
    found = joined(bj.stream.read(tmp_path))[0]
    assert found[10:, 0].tolist() == seconds[10:].tolist()


def test_true_and_false_are_the_same_in_text_and_tables(tmp_path):
    content = pa.table({"a": [True, False, True], "y": [False, True, True]})
    content.to_pandas().to_csv(tmp_path / "pandas.csv", index=False)
    for name in ("arrow.csv", "a.parquet"):
        written(tmp_path / name, content)
    for name in ("arrow.csv", "pandas.csv", "a.parquet"):
        batches = bj.stream.read(tmp_path / name, target="y")
        X, y = joined(batches)
        assert X.tolist() == [[1], [0], [1]]
        check_equal([y, labels(batches)], [content["y"].to_numpy(), np.bool([0, 1])])


def test_words_below_true_and_false_make_labels_of_text(tmp_path):
    start = "a,y\n" + "1,true\n2,False\n" * 30_000
    path = tmp_path / "a.csv"
    path.write_text(start + "3,maybe\n")
    batches = bj.stream.csv(path, target="y")
    assert labels(batches).tolist() == ["False", "maybe", "true"]
    assert joined(batches)[1][-2:].tolist() == ["False", "maybe"]
    # Digits beside such words are booleans, wherever they are.
    for text in (start + "3,1\n", "a,y\n" + "1,1\n2,0\n" * 30_000 + "3,true\n"):
        path.write_text(text)
        batches = bj.stream.csv(path, target="y")
        check_equal([labels(batches)], [np.bool([0, 1])])
        assert joined(batches)[1][-1]
    # So the booleans of one file and the words of another are labels of both.
    (tmp_path / "1.csv").write_text("a,y\n1,true\n1,false\n")
    (tmp_path / "2.csv").write_text("a,y\n1,maybe\n1,true\n")
    paths = [tmp_path / "1.csv", tmp_path / "2.csv"]
    found = labels(bj.stream.csv(paths, target="y"))
    assert found.tolist() == ["false", "maybe", "true"]
    with pytest.raises(ValueError, match="to bool: invalid value 'maybe'"):
        list(bj.stream.csv(paths, target="y", text_target=False))


INDICES = {
    "one": pd.Index([7, 9, 8], name="id"),
    "texts": pd.Index(["p", "q", "r"], name="id"),
    "dates": pd.DatetimeIndex(["2020-01-03", "2020-01-01", "2020-02-01"], name="id"),
    "two": pd.MultiIndex.from_tuples([(1, 2), (3, 4), (6, 5)], names=["id", "v"]),
    "half": pd.MultiIndex.from_tuples([(1, 2), (3, 4), (6, 5)], names=["id", None]),
    "range": pd.RangeIndex(5, 8, name="id"),
}


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("form", ["parquet", "feather", "folder", "frame", "table"])
def test_a_named_index_is_no_feature(index, form, tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0], "y": list("yny")})
    frame = frame.set_index(INDICES[index])
    table = pa.Table.from_pandas(frame)
    if form in ("parquet", "feather", "folder"):
        end = "parquet" if form == "folder" else form
        path = written(tmp_path / f"a.{end}", table)
        source = tmp_path if form == "folder" else path
        read = functools.partial(bj.stream.read, source)
    else:
        read = functools.partial(bj.stream.arrow, frame if form == "frame" else table)
    batches = read(target="y")
    assert batches.feature_names == ("a",)
    assert joined(batches)[0].tolist() == [[1], [2], [4]]
    if index == "one":
        # It is read where it is named.
        X, _ = joined(read(target="y", features=["id", "a"]))
        assert X.tolist() == [[7, 1], [9, 2], [8, 4]]
        assert joined(read(target="id", features=["a"]))[1].tolist() == [7, 9, 8]


LISTS = {
    "lists": pa.list_(pa.float64()),
    "large lists": pa.large_list(pa.int32()),
    "embeddings": pa.list_(pa.float32(), 2),
    "half": pa.list_(pa.float16(), 2),
    "flags": pa.list_(pa.bool_()),
}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("end", ["parquet", "feather"])
def test_lists_of_numbers_are_a_feature_for_each_place(kind, end, tmp_path):
    values = [[1, 0], [0, 1], [1, 1]]
    as_type = pa.array([[bool(v) for v in row] for row in values], pa.list_(pa.bool_()))
    if kind != "flags":
        lists = np.float16(values) if kind == "half" else values
        as_type = pa.array([list(row) for row in lists], LISTS[kind])
    content = pa.table({"a": [5.0, 6.0, 7.0], "e": as_type, "y": [0, 1, 0]})
    path = written(tmp_path / f"a.{end}", content)
    batches = bj.stream.read(path, target="y", batch_rows=2)
    assert batches.feature_names == ("a", "e[0]", "e[1]")
    assert joined(batches)[0].tolist() == [[5, 1, 0], [6, 0, 1], [7, 1, 1]]
    X, _ = joined(bj.stream.read(path, target="y", features=["e[1]", "a"]))
    assert X.tolist() == [[0, 5], [1, 6], [1, 7]]
    assert bj.stream.read(path, target="y", features=["e"]).num_features == 2
    with pytest.raises(ValueError, match="features must be places in lists, got dou"):
        bj.stream.read(path, target="y", features=["a[0]"])


def test_missing_lists_are_nan(tmp_path):
    lists = pa.array([None, [1.0, 2.0], [None, 3.0]], pa.list_(pa.float64()))
    path = written(tmp_path / "a.parquet", pa.table({"e": lists}))
    (X,) = joined(bj.stream.read(path))
    np.testing.assert_array_equal(X, [[np.nan] * 2, [1, 2], [np.nan, 3]])


def test_longer_lists_than_those_of_a_model_are_refused():
    known = ("a", "e[0]", "e[1]")
    columns.check_columns(known, (*known, "b[0]"))
    with pytest.raises(ValueError, match=r"lists of 2 in 'e'"):
        columns.check_columns(known, (*known, "e[2]"))
    # A place may be chosen.
    columns.check_columns(("e[1]",), known)


@pytest.mark.parametrize("end", ["parquet", "feather", "csv"])
def test_folders_in_the_layout_of_hive_have_their_keys_as_columns(end, tmp_path):
    x, day = np.arange(24.0), np.arange(24) % 3
    kinds = np.array(["no", "yes, sure"])[np.arange(24) % 2]
    for kind in set(kinds):
        for one in set(day):
            folder = tmp_path / f"kind={kind.replace(',', '%2C')}" / f"day={one:02}"
            folder.mkdir(parents=True)
            own = x[(kinds == kind) & (day == one)]
            written(folder / f"part.{end}", pa.table({"x": own}))
    batches = bj.stream.read(tmp_path, target="kind", batch_rows=5)
    assert batches.feature_names == ("x", "day")
    X, y = joined(batches)
    assert sorted(X[:, 0]) == x.tolist()
    np.testing.assert_array_equal(X[:, 1], day[X[:, 0].astype(int)])
    assert y.tolist() == kinds[X[:, 0].astype(int)].tolist()
    assert labels(batches).tolist() == ["no", "yes, sure"]
    X, y = joined(bj.stream.read(tmp_path, target="day", features=["kind", "x"]))
    x = np.asarray(X["x"]).astype(int)
    assert X["kind"].to_pylist() == kinds[x].tolist()
    np.testing.assert_array_equal(y, day[x])


def test_folders_that_pandas_parts_come_back(tmp_path):
    frame = pd.DataFrame({"x": np.arange(4.0), "good": [True, False] * 2})
    frame["size"] = [1.5, 2.5, None, 1.5]
    frame.to_parquet(tmp_path / "a", partition_cols=["good", "size"])
    X, y = joined(bj.stream.read(tmp_path / "a", target="good"))
    order = X[:, 0].astype(int)
    np.testing.assert_array_equal(X[:, 1], frame["size"][order])
    check_equal([y], [frame["good"].to_numpy()[order]])


def test_the_nameless_index_that_pandas_writes_first_is_no_feature(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0], "y": ["no", "yes"]}, index=[7, 8])
    frame.to_csv(tmp_path / "a.csv")
    batches = bj.stream.read(tmp_path / "a.csv", target="y")
    assert batches.feature_names == ("a",)
    assert joined(batches)[0].tolist() == [[1], [2]]


def gaps():
    """A table with numbers, texts and flags, some of them missing."""
    return pa.table(
        {
            "a": [1.5, None, 3.0, -1.0],
            "colour": ["red", "a=b", None, "red"],
            "size": [10, None, 10, 9],
            "flag": [True, False, None, True],
            "y": ["no", "yes", "no", "yes"],
        }
    )


@pytest.mark.parametrize("end", ["csv", "parquet", "feather"])
def test_rows_with_texts_are_tables_and_gaps_nan(tmp_path, end):
    path = written(tmp_path / f"a.{end}", gaps())
    batches = bj.stream.read(path, target="y", batch_rows=3)
    assert batches.feature_names == ("a", "colour", "size", "flag")
    assert batches.texts == ("colour",)
    X, y = joined(batches)
    assert X["colour"].to_pylist() == ["red", "a=b", None, "red"]
    numbers = X.select(["a", "size", "flag"])
    expected = [[1.5, 10, 1], [np.nan, np.nan, 0], [3.0, 10, np.nan], [-1, 9, 1]]
    np.testing.assert_array_equal(np.asarray(numbers), expected)
    assert y.tolist() == ["no", "yes", "no", "yes"]
    # Without the texts they are arrays.
    X, _ = joined(bj.stream.read(path, target="y", features=["flag", "a"]))
    np.testing.assert_array_equal(X, np.array(expected)[:, [2, 0]])


def test_texts_are_the_same_in_every_type(tmp_path):
    zones = [3, 10, 4, 3]
    model = bj.encoding.fit(pa.table({"zone": ["10", "3"]}), 0)
    expected = [[0, 1], [1, 0], [0, 0], [0, 1]]
    for kind in (pa.string(), pa.int8(), pa.float64(), pa.float32(), pa.binary()):
        is_text = kind in (pa.string(), pa.binary())
        given = [str(zone) for zone in zones] if is_text else zones
        column = pa.array(given).cast(kind)
        for values in (column, column.dictionary_encode()):
            path = written(tmp_path / "a.parquet", pa.table({"zone": values}))
            (X,) = joined(bj.stream.read(path))
            X = X if hasattr(X, "columns") else pa.table({"zone": X[:, 0]})
            assert model.apply(X).tolist() == expected
    (tmp_path / "b.csv").write_text("zone\n3.0\n10.0\n4.0\n 3\n")
    for texts in ([], ["zone"]):
        (X,) = joined(bj.stream.csv(tmp_path / "b.csv", target=None, texts=texts))
        X = X if texts else pa.table({"zone": X[:, 0]})
        assert model.apply(X).tolist() == expected


def test_a_column_of_texts_in_one_file_has_them_in_all(tmp_path):
    written(tmp_path / "1.parquet", pa.table({"zone": [3, 4]}))
    written(tmp_path / "2.parquet", pa.table({"zone": ["3", "no"]}))
    (X,) = joined(bj.stream.read(tmp_path))
    assert X["zone"].to_pylist() == ["3", "4", "3", "no"]


def test_indices_beyond_those_of_a_model_can_be_left_out(tmp_path):
    path = tmp_path / "a"
    path.write_text("1 2:5 3:7 9:1\n-1 1:3\n")
    batches = bj.stream.libsvm(path, num_features=2, ignore_beyond=True, batch_rows=1)
    with pytest.warns(UserWarning, match="indices beyond 2, which .* are left out"):
        X, y = joined(batches)
    assert (X.tolist(), y.tolist()) == ([[0, 5], [3, 0]], [1, -1])
    X, y = joined(batches)
    assert X.tolist() == [[0, 5], [3, 0]]


def test_rows_of_libsvm_text_can_stay_sparse(tmp_path):
    path = tmp_path / "a"
    path.write_text("1 2:5 3:7 100000000:1\n-1 1:3\n")
    ((X, y),) = bj.stream.libsvm(path, sparse=True)
    assert X.shape == (2, 100_000_000)
    assert (X.nnz, X[0, 99_999_999], y.tolist()) == (4, 1, [1, -1])


# Constant memory.


def peak(batches):
    """Maximum number of bytes in NumPy and Arrow between two batches."""
    most, rows = 0, 0
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    for batch in batches:
        rows += len(batch[0])
        held = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before
        most = max(most, held)
    tracemalloc.stop()
    return most, rows


@FORMATS
def test_memory_is_that_of_a_batch(end, tmp_path, monkeypatch):
    # Of CSV 32 blocks are read ahead, and of each column of Parquet a page.
    monkeypatch.setattr(csv_text, "BLOCK", 2**14)
    n = 100_000 if end != "libsvm" else 20_000
    # One row group, or one record batch, of all rows.
    more = {
        "parquet": {
            "row_group_size": n,
            "data_page_size": 2**15,
            "use_dictionary": False,
        },
        "feather": {"compression": "uncompressed", "chunksize": n},
    }
    X = np.random.default_rng(0).normal(size=(n, 2))
    given = in_format(tmp_path, end, X, np.arange(n) % 2, **more.get(end, {}))
    # What is imported at the first read is no memory of a batch.
    next(iter(bj.stream.read(**given, batch_rows=10)))
    # Nor is what other threads and first calls take, which the second reading lacks.
    most, rows = min(
        peak(bj.stream.read(**given, batch_rows=n // 50)) for _ in range(2)
    )
    assert rows == n
    assert most < given["path"].stat().st_size / 2


# Batches of one length.


def pieces(lengths, weighted=False, dtype=np.float64):
    X, y, w = numbers().astype(dtype), TARGETS["int"], weights()
    start = 0
    for length in lengths:
        cut = slice(start, start + length)
        yield (X[cut], y[cut], w[cut]) if weighted else (X[cut], y[cut])
        start += length
    assert start == N


@pytest.mark.parametrize("rows", [1, 10, 100, N, 1000])
def test_batches_are_joined_and_split(rows):
    for weighted, lengths in (
        (False, [N]),
        (True, [1] * N),
        (True, [0, 100, 0, 157, 0]),
        (False, [10] * 25 + [7]),
        (True, [3, 250, 4]),
    ):
        found = list(regroup(list(pieces(lengths, weighted)), rows, D))
        check_lengths(found, rows)
        check_types(found, np.float32)
        w = weights() if weighted else np.ones(N)
        expected = [numbers().astype(np.float32), TARGETS["int"], w.astype(np.float32)]
        check_equal(joined(found), expected)
    assert list(regroup([], rows, D)) == []


def test_joined_batches_are_in_the_type_asked_for():
    for given in (np.float64, np.float32, np.float16, np.int8):
        for dtype in (np.float64, np.float32):
            found = list(regroup(list(pieces([N], dtype=given)), 100, D, dtype))
            check_types(found, dtype)
            np.testing.assert_array_equal(
                joined(found)[0], numbers().astype(given).astype(dtype)
            )


def test_lists_frames_and_sparse_matrices_are_batches():
    X, y = numbers().astype(np.float32), TARGETS["string"]
    batches = [
        (X[:10].tolist(), y[:10].tolist()),
        [scipy.sparse.csc_matrix(X[10:200]), y[10:200]],
        (pd.DataFrame(X[200:210]), pd.Series(y[200:210])),
        (scipy.sparse.coo_array(X[210:]), y[210:].astype(object)),
    ]
    check_equal(joined(regroup(batches, 60, D)), [X, y, np.ones(N, np.float32)])
    assert labels(batches).tolist() == sorted(set(y.tolist()))


def test_a_source_may_fill_the_same_arrays_again():
    def filled():
        X, y = np.empty((30, D)), np.empty(30, np.int64)
        for start in range(0, N - N % 30, 30):
            part = slice(start, start + 30)
            X[:], y[:] = numbers()[part], TARGETS["int"][part]
            yield X, y

    found = list(regroup(filled(), 40, D))
    n = N - N % 30
    check_equal(joined(found)[:2], [np.float32(numbers())[:n], TARGETS["int"][:n]])


def test_integers_become_real_where_some_are():
    batches = [(np.zeros((2, 1)), [1, 2]), (np.zeros((2, 1)), [0.5, 1])]
    assert joined(regroup(batches, 3, 1))[1].tolist() == [1, 2, 0.5, 1]
    assert labels(batches).tolist() == [0.5, 1, 2]


# Reading ahead.


def test_prefetched_items_keep_their_order():
    for depth in (1, 2, 50):
        items = (i for i in range(30))
        assert list(prefetch(items, depth)) == list(range(30))
        assert list(prefetch(items)) == []


def test_prefetched_reads_ahead_but_not_far():
    read = []

    def items():
        for i in range(20):
            read.append(i)
            yield i

    ahead = prefetch(items(), 3)
    assert read == []
    for i in range(5):
        assert next(ahead) == i
        # One is in use, three wait, and one more is at hand for a free place.
        wait_until(lambda i=i: len(read) == i + 5)
    ahead.close()


def wait_until(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def test_an_error_in_reading_comes_in_its_place():
    def items():
        yield 1
        yield 2
        raise KeyError("third")

    ahead = prefetch(items())
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(KeyError, match="third"):
        next(ahead)
    with pytest.raises(StopIteration):
        next(ahead)


@pytest.mark.parametrize("end", ["close", "error", "exhausted", "collected"])
def test_the_thread_ends_with_its_reader(end):
    closed = threading.Event()

    def items():
        try:
            yield from range(10 if end == "exhausted" else 10**9)
        finally:
            closed.set()

    before = threading.active_count()
    ahead = prefetch(items())
    next(ahead)
    assert threading.active_count() == before + 1
    if end == "close":
        ahead.close()
    elif end == "error":
        with pytest.raises(RuntimeError, match="of the consumer"):
            ahead.throw(RuntimeError("of the consumer"))
    elif end == "exhausted":
        assert list(ahead) == list(range(1, 10))
    else:
        del ahead
        gc.collect()
    wait_until(lambda: threading.active_count() == before)
    assert closed.is_set()

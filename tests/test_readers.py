"""Readers: files come back as they were written, and bad ones raise clear errors."""

import bz2
import gc
import gzip
import io
import lzma
import os
import pathlib
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.sparse
from sklearn import datasets as sklearn_datasets

from budgetjax.stream.batches import in_rows, labels, prefetched
from budgetjax.stream.readers import formats

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


def table(y, weight=True):
    """A table with the target between features, and a column of no use."""
    X = numbers()
    columns = {NAMES[0]: X[:, 0], "kind": y, NAMES[1]: X[:, 1], NAMES[2]: X[:, 2]}
    if weight:
        columns["importance"] = weights()
    columns["remark"] = np.array(["none", "some"])[np.arange(N) % 2]
    return pa.table({name: pa.array(column) for name, column in columns.items()})


def compressed(path):
    """Compresses a file by the end of its name."""
    modules = {".gz": gzip, ".bz2": bz2, ".xz": lzma}
    compress = getattr(modules.get(path.suffix), "compress", None)
    if compress is not None:
        path.write_bytes(compress(path.read_bytes()))
    return path


def csv(folder, y, ending=""):
    path = folder / f"train.csv{ending}"
    # Strings are quoted: "NaN" is one here, and no missing value.
    pa.csv.write_csv(table(y), str(path) + ".plain")
    os.rename(str(path) + ".plain", path)
    return compressed(path)


def parquet(folder, y):
    path = folder / "train.parquet"
    pa.parquet.write_table(table(y), path, row_group_size=50)
    return path


def parts(folder, y, sizes=(100, 0, 1, 156)):
    """Files of a folder, some of them without rows, the last features in front."""
    folder = folder / "parts"
    folder.mkdir()
    start = 0
    for i, size in enumerate(sizes):
        part = table(y).slice(start, size)
        part = part.select(part.column_names[:: 1 if i % 2 else -1])
        pa.parquet.write_table(part, folder / f"part-{i}.parquet")
        start += size
    (folder / "_SUCCESS").write_text("")
    return folder


def list_of_parts(folder, y):
    return sorted(parts(folder, y).glob("*.parquet"))


def feather(folder, y):
    path = folder / "train.feather"
    pa.feather.write_feather(table(y), str(path), chunksize=60)
    return path


def arrow_stream(folder, y):
    path = folder / "train.arrow"
    content = table(y)
    with pa.ipc.new_stream(str(path), content.schema) as writer:
        writer.write_table(content, max_chunksize=100)
    return path


def csv_parts(folder, y):
    """A file with all columns, and two compressed ones in another order."""
    parts = folder / "csv-parts"
    parts.mkdir()
    whole = table(y)
    for i, (start, end) in enumerate([(0, ""), (100, ".gz"), (150, ".xz")]):
        one = whole.slice(start, [100, 50, N][i])
        path = parts / f"{i}.csv{end}"
        pa.csv.write_csv(one.select(one.column_names[:: -1 if i else 1]), f"{path}.p")
        os.rename(f"{path}.p", path)
        compressed(path)
    return parts


TABLES: dict[str, Callable[[pathlib.Path, np.ndarray], Any]] = {
    "csv": csv,
    "csv-gz": lambda folder, y: csv(folder, y, ".gz"),
    "csv-bz2": lambda folder, y: csv(folder, y, ".bz2"),
    "csv-xz": lambda folder, y: csv(folder, y, ".xz"),
    "csv-folder": csv_parts,
    "csv-list": lambda folder, y: sorted(csv_parts(folder, y).glob("*.csv*")),
    "parquet": parquet,
    "parquet-folder": parts,
    "parquet-list": list_of_parts,
    "feather": feather,
    "arrow-stream": arrow_stream,
}


def joined(batches):
    """All of a source: X, y and, if there, the weights."""
    return [np.concatenate(arrays) for arrays in zip(*batches, strict=True)]


def check_types(batches, dtype=np.float64):
    for X, *more in batches:
        assert X.dtype == dtype
        assert X.flags.c_contiguous
        assert all(array.shape == X.shape[:1] for array in more)


def check_equal(actual, expected):
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        if other.dtype.kind == "U":
            assert one.dtype == object
            assert set(map(type, one)) <= {str}
            assert one.tolist() == other.tolist()
        else:
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


# What is written comes back.


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("format_", TABLES)
def test_tables_come_back(format_, kind, tmp_path):
    y = TARGETS[kind]
    batches = formats.read(
        TABLES[format_](tmp_path, y),
        target="kind",
        weight="importance",
        features=NAMES,
        batch_rows=64,
    )
    assert batches.feature_names == NAMES
    assert batches.num_features == D
    assert batches.num_rows in (None, N)
    assert (batches.num_rows == N) == ("parquet" in format_)
    X, w = numbers(), weights()
    for _ in range(2):
        found = list(batches)
        assert [len(batch[0]) for batch in found] == [64] * 4 + [1]
        check_types(found)
        check_equal(joined(found), [X, y, w])
    np.testing.assert_array_equal(labels(batches), np.unique(y))
    assert labels(batches).dtype == np.unique(y).dtype


@pytest.mark.parametrize("rows", [1, 2, 50, N - 1, N, N + 1, None])
@pytest.mark.parametrize("format_", ["csv", "parquet-folder", "feather"])
def test_batches_have_any_number_of_rows(format_, rows, tmp_path):
    y = TARGETS["int"]
    path = TABLES[format_](tmp_path, y)
    batches = formats.read(path, target="kind", features=NAMES, batch_rows=rows)
    size = N if rows is None else rows
    found = list(batches)
    tail = [N % size] if N % size else []
    assert [len(X) for X, _ in found] == [size] * (N // size) + tail
    check_equal(joined(found), [numbers(), y])


@pytest.mark.parametrize("format_", TABLES)
def test_columns_are_chosen_by_name_or_number(format_, tmp_path):
    path = TABLES[format_](tmp_path, TARGETS["int"])
    reversed_ = format_ in ("parquet-folder", "parquet-list")
    X, w = numbers(), weights()
    order = [2, 3, 0] if not reversed_ else [-3, -4, -1]
    batches = formats.read(path, target=1, features=order, weight=4)
    if reversed_:
        batches = formats.read(path, target=-2, features=order, weight=-5)
    assert batches.feature_names == (NAMES[1], NAMES[2], NAMES[0])
    check_equal(joined(batches), [X[:, [1, 2, 0]], TARGETS["int"], w])
    alone = formats.read(path, features=NAMES[:1], dtype=np.float32)
    assert alone.read_targets is None
    check_types(alone, np.float32)
    check_equal(joined(alone), [numbers()[:, :1].astype(np.float32)])


def test_all_but_target_weight_and_the_index_of_pandas_are_features(tmp_path):
    frame = pd.DataFrame(numbers(), columns=list("abc")).assign(y=1)
    frame = frame.sort_values("a")
    path = tmp_path / "train.parquet"
    frame.to_parquet(path)
    assert "__index_level_0__" in pa.parquet.read_schema(path).names
    batches = formats.parquet(path, target="y", weight="b")
    assert batches.feature_names == ("a", "c")
    np.testing.assert_array_equal(joined(batches)[0], frame[["a", "c"]])


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("kind", ["int", "float"])
@pytest.mark.parametrize("zero_based", [False, True], ids=["one-based", "zero-based"])
def test_libsvm_comes_back(zero_based, kind, ending, tmp_path):
    X, y = numbers(), TARGETS[kind]
    path = tmp_path / f"train.libsvm{ending}"
    lines = ["# two features and one that is often 0"]
    for x, label in zip(X.tolist(), y.tolist(), strict=True):
        pairs = [f"{j}:{v}" for j, v in enumerate(x, 0 if zero_based else 1) if v]
        lines.append(f"{label} {' '.join(pairs)}")
    path.write_text("\n".join(lines))
    compressed(path)
    arguments = {"batch_rows": 60, "zero_based": zero_based}
    for given in ({}, {"num_features": D}):
        batches = formats.libsvm(path, **arguments, **given)
        assert batches.num_features == D
        assert batches.num_rows == (None if given else N)
        assert batches.feature_names is None
        for _ in range(2):
            found = list(batches)
            assert [len(y) for _, y in found] == [60] * 4 + [17]
            check_types(found)
            check_equal(joined(found), [X, y])
        np.testing.assert_array_equal(labels(batches), np.unique(y))
    wide = formats.libsvm(path, **arguments, num_features=D + 2, dtype=np.float32)
    padded = np.pad(X, ((0, 0), (0, 2))).astype(np.float32)
    check_equal(joined(wide), [padded, y])


def test_libsvm_with_comments_signs_and_empty_rows(tmp_path):
    path = tmp_path / "train.txt"
    path.write_bytes(
        b"# a comment\n+1 qid:3 2:5 # more: 7:1\r\n\n-1\n  \n1e0   1:-.5\t3:1e-3"
    )
    batches = formats.read(path)
    assert (batches.num_features, batches.num_rows) == (3, 3)
    X, y = joined(batches)
    np.testing.assert_array_equal(X, [[0, 5, 0], [0] * 3, [-0.5, 0, 1e-3]])
    check_equal([y, labels(batches)], [np.array([1, -1, 1]), np.array([-1, 1])])


@pytest.mark.parametrize("name", ["a9a.libsvm", "letter.scale"])
def test_files_of_libsvm_itself(name, tmp_path):
    folder = os.environ.get("BUDGETJAX_DATA")
    if not folder or not (pathlib.Path(folder) / name).is_file():
        pytest.skip(f"BUDGETJAX_DATA names no folder with {name}")
    path = pathlib.Path(folder) / name
    X, y = sklearn_datasets.load_svmlight_file(str(path))
    batches = formats.read(path, batch_rows=5000)
    assert batches.num_rows == len(y)
    check_equal(joined(batches), [X.toarray(), y.astype(np.int64)])
    np.testing.assert_array_equal(labels(batches), np.unique(y))


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("source", ["float64", "float16", "int8", "bool"])
def test_npy_comes_back(source, order, kind, tmp_path):
    X, y = numbers().astype(source), TARGETS[kind]
    np.save(tmp_path / "X.npy", np.asarray(X, order=order))
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "w.npy", weights())
    batches = formats.read(
        tmp_path / "X.npy",
        target=tmp_path / "y.npy",
        weight=tmp_path / "w.npy",
        batch_rows=100,
    )
    assert (batches.num_rows, batches.num_features) == (N, D)
    for _ in range(2):
        found = list(batches)
        # float32 holds all but float64.
        dtype = np.float64 if source == "float64" else np.float32
        check_types(found, dtype)
        X_found, y_found, w = joined(found)
        check_equal([X_found, w], [X.astype(dtype), weights().astype(dtype)])
        np.testing.assert_array_equal(y_found, y)
    np.testing.assert_array_equal(labels(batches), np.unique(y))
    check_equal(joined(formats.npy(tmp_path / "X.npy")), [X.astype(dtype)])


MEMORY: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda content: content,
    "stream": lambda content: content.to_reader(max_chunksize=40),
    "one-chunk": lambda content: content.combine_chunks(),
    "record-batch": lambda content: content.combine_chunks().to_batches()[0],
    "pandas": lambda content: content.to_pandas(),
}


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("form", MEMORY)
def test_tables_in_memory(form, kind):
    y = TARGETS[kind]
    source = MEMORY[form](table(y))
    batches = formats.arrow(source, target="kind", features=NAMES, batch_rows=100)
    assert batches.name == type(source).__name__
    for _ in range(2):
        check_equal(joined(batches), [numbers(), y])
    np.testing.assert_array_equal(labels(batches), np.unique(y))


COLUMNS = {
    "int8": pa.array([1, 2, 3], pa.int8()),
    "uint64": pa.array([1, 2, 2**63 - 1], pa.uint64()),
    "bool": pa.array([True, False, True]),
    "half": pa.array(np.float16([1, 2, 3])),
    "decimal": pa.array([1, 2, 3], pa.decimal128(5, 2)),
    "coded": pa.array([1.5, 2, 1.5]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_numbers_of_any_type(kind):
    column = COLUMNS[kind]
    expected = np.array([float(value) for value in column.to_pylist()])
    content = pa.table({"x": column, "y": column})
    X, y = joined(formats.arrow(content, target="y"))
    np.testing.assert_array_equal(X[:, 0], expected)
    assert X.dtype == (np.float32 if kind in ("int8", "bool", "half") else np.float64)
    np.testing.assert_array_equal(y, expected)
    types = {"int8": np.int64, "uint64": np.int64, "bool": np.bool}
    assert y.dtype == types.get(kind, np.float64)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), "coded"], ids=str
)
def test_columns_of_strings_of_any_type(kind):
    values = ["b", "a", "b"]
    column = pa.array(values).dictionary_encode()
    if kind != "coded":
        column = pa.array(values, kind)
    batches = formats.arrow(pa.table({"x": [1, 2, 3], "y": column}), target="y")
    assert joined(batches)[1].tolist() == values
    assert labels(batches).tolist() == ["a", "b"]


# CSV of the world.


def csv_of(folder, text):
    path = folder / "train.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


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
    found = joined(formats.csv(csv_of(tmp_path, text), **arguments))
    np.testing.assert_array_equal(found[0], X)
    assert found[1].tolist() == y
    assert [type(value) for value in found[1].tolist()] == [type(value) for value in y]


@pytest.mark.parametrize("end", ["csv", "parquet", "feather", "npy", "libsvm"])
def test_whole_numbers_are_exact_labels(tmp_path, end):
    """float64 holds only the first and the last of them."""
    y = np.array([10**18, 10**18 + 1, 5, -(10**18) - 1])
    table = pa.table({"a": np.ones(4), "t": y})
    path, target = tmp_path / f"a.{end}", "t"
    if end == "csv":
        pa.csv.write_csv(table, path)
    elif end == "npy":
        np.save(path, np.ones((4, 1)))
        np.save(target := tmp_path / "y.npy", y)
    elif end == "libsvm":
        path.write_text("".join(f"{one} 1:1\n" for one in y))
        target = None
    else:
        write = pa.parquet.write_table if end == "parquet" else pa.feather.write_feather
        write(table.set_column(1, "t", table["t"].cast(pa.decimal128(19))), str(path))
    found = formats.read(path, target=target)
    assert joined(found)[1].tolist() == y.tolist()
    assert labels(found).tolist() == sorted(y.tolist())


def test_a_code_far_down_makes_all_labels_of_csv_text(tmp_path):
    lines = "1,7\n" * 100_000
    for name, last in [("a", "1,12\n"), ("b", "1,007\n")]:
        (tmp_path / f"{name}.csv").write_text(f"x,y\n{lines}{last}")
    read = formats.csv(tmp_path, target="y")
    assert labels(read).tolist() == ["007", "12", "7"]
    assert labels(formats.csv(tmp_path / "a.csv", target="y")).tolist() == [7, 12]


@pytest.mark.parametrize("end", ["csv", "parquet", "feather", "npy", "libsvm"])
def test_files_without_rows_have_no_batches(tmp_path, end):
    table = pa.table({"a": np.ones(2), "y": ["p", "q"]})[:0]
    path = tmp_path / f"a.{end}"
    if end == "csv":
        path.write_text("a,y\n\n")
    elif end == "npy":
        np.save(path, np.ones((0, 1)))
    elif end == "libsvm":
        path.write_text("# nothing\n")
        assert list(formats.read(path, num_features=1)) == []
        return
    else:
        write = pa.parquet.write_table if end == "parquet" else pa.feather.write_feather
        write(table, str(path))
    found = formats.read(path, target=None if end == "npy" else "y")
    assert (found.num_features, list(found)) == (1, [])


def test_csv_longer_than_a_block(tmp_path):
    # Whole numbers to a place in the third block: all are real.
    n = 60_000
    y = np.arange(n) % 7 - 3.0
    y[50_000] = 0.5
    X = np.arange(2.0 * n).reshape(n, 2) / 8
    lines = (
        f"{a},{b},{c:g}\n" for (a, b), c in zip(X.tolist(), y.tolist(), strict=True)
    )
    path = csv_of(tmp_path, "a,b,y\n" + "".join(lines))
    assert path.stat().st_size > 3 * 2**18
    batches = formats.csv(path, target="y", batch_rows=10_000)
    found = list(batches)
    assert {batch[1].dtype for batch in found} == {np.dtype(np.float64)}
    check_equal(joined(found), [X, y])
    np.testing.assert_array_equal(labels(batches), np.unique(y))


def test_rows_wider_than_a_block(tmp_path):
    d = 18_000
    x = np.random.default_rng(0).normal(size=(2, d))
    lines = [",".join([*(f"{value:.55f}" for value in row), "0"]) for row in x]
    assert len(lines[0]) > 2**20
    names = ",".join([*map("x{}".format, range(d)), "y"])
    path = csv_of(tmp_path, "\n".join([names, *lines]))
    batches = formats.csv(path, target="y")
    check_equal(joined(batches), [x, np.zeros(2, np.int64)])


def test_true_and_false_are_the_same_in_text_and_tables(tmp_path):
    content = pa.table({"a": [True, False, True], "y": [False, True, True]})
    pa.csv.write_csv(content, tmp_path / "arrow.csv")
    content.to_pandas().to_csv(tmp_path / "pandas.csv", index=False)
    pa.parquet.write_table(content, tmp_path / "a.parquet")
    for name in ("arrow.csv", "pandas.csv", "a.parquet"):
        batches = formats.read(tmp_path / name, target="y")
        X, y = joined(batches)
        assert X.tolist() == [[1], [0], [1]]
        check_equal([y, labels(batches)], [content["y"].to_numpy(), np.bool([0, 1])])


def test_the_nameless_index_that_pandas_writes_first_is_no_feature(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0], "y": ["no", "yes"]}, index=[7, 8])
    frame.to_csv(tmp_path / "a.csv")
    batches = formats.read(tmp_path / "a.csv", target="y")
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
def test_texts_become_features_and_gaps_nan(tmp_path, end):
    path = tmp_path / f"a.{end}"
    {
        "csv": pa.csv.write_csv,
        "parquet": pa.parquet.write_table,
        "feather": pa.feather.write_feather,
    }[end](gaps(), str(path))
    reader = {"csv": formats.csv, "parquet": formats.parquet, "feather": formats.arrow}
    given = {"target": "y", "allow_missing": True, "batch_rows": 3}
    features = ["colour=", "a", "size=", "flag"]
    batches = reader[end](path, features=features, **given)
    assert batches.feature_names == (
        *("colour=a=b", "colour=red", "a"),
        *("size=10", "size=9", "flag"),
    )
    X, y = joined(batches)
    nan = np.nan
    expected = [
        [0, 1, 1.5, 1, 0, 1],
        [1, 0, nan, 0, 0, 0],
        [0, 0, 3.0, 1, 0, nan],
        [0, 1, -1, 0, 1, 1],
    ]
    np.testing.assert_array_equal(X, expected)
    assert y.tolist() == ["no", "yes", "no", "yes"]
    # What a model was trained on, and a text that is in no row.
    chosen = ["colour=red", "colour=blue"]
    X, _ = joined(reader[end](path, features=chosen, **given))
    assert X.tolist() == [[1, 0], [0, 0], [0, 0], [1, 0]]


def test_too_many_texts_are_no_features(tmp_path):
    content = pa.table({"id": [f"row {i}" for i in range(1001)], "y": range(1001)})
    pa.csv.write_csv(content, tmp_path / "a.csv")
    with pytest.raises(ValueError, match="column 'id' must have at most 1,000"):
        formats.csv(tmp_path / "a.csv", target="y", features=["id="])
    with pytest.raises(ValueError, match="must be different columns, got 'y' 2 times"):
        formats.csv(tmp_path / "a.csv", target="y", features=["y="])


def test_tabs(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\ty\n1\t2\tno\n3\t4\tyes\n")
    X, y = joined(formats.read(tmp_path / "a.tsv", target="y"))
    assert (X.tolist(), y.tolist()) == ([[1, 2], [3, 4]], ["no", "yes"])


def test_indices_beyond_those_of_a_model_can_be_left_out(tmp_path):
    path = tmp_path / "a"
    path.write_text("1 2:5 3:7 9:1\n-1 1:3\n")
    batches = formats.libsvm(path, num_features=2, ignore_beyond=True, batch_rows=1)
    with pytest.warns(UserWarning, match="indices beyond 2, which .* are left out"):
        X, y = joined(batches)
    assert (X.tolist(), y.tolist()) == ([[0, 5], [3, 0]], [1, -1])
    X, y = joined(batches)
    assert X.tolist() == [[0, 5], [3, 0]]


def test_rows_of_libsvm_text_can_stay_sparse(tmp_path):
    path = tmp_path / "a"
    path.write_text("1 2:5 3:7 100000000:1\n-1 1:3\n")
    ((X, y),) = formats.libsvm(path, sparse=True)
    assert X.shape == (2, 100_000_000)
    assert (X.nnz, X[0, 99_999_999], y.tolist()) == (4, 1, [1, -1])


def test_digits_that_float32_has_not_are_read(tmp_path):
    """Seconds since 1970, which float32 rounds to multiples of 128."""
    seconds = 1_700_000_000.0 + np.arange(1000)
    content = pa.table({"at": seconds, "y": np.arange(1000) % 2})
    pa.csv.write_csv(content, tmp_path / "a.csv")
    pa.parquet.write_table(content, tmp_path / "a.parquet")
    pa.feather.write_feather(content, str(tmp_path / "a.feather"))
    np.save(tmp_path / "a.npy", seconds[:, None])
    lines = (f"1 1:{value:.0f}" for value in seconds)
    (tmp_path / "a.libsvm").write_text("\n".join(lines))
    for path in tmp_path.iterdir():
        target = "y" if path.suffix in (".csv", ".parquet", ".feather") else None
        X = joined(formats.read(path, target=target))[0]
        assert X[:, 0].tolist() == seconds.tolist(), path.suffix
    # Files that differ are read in the type that holds all of them.
    parts = tmp_path / "parts"
    parts.mkdir()
    for i, one in enumerate((np.float32(seconds[:10]), seconds[10:])):
        pa.parquet.write_table(pa.table({"at": one}), parts / f"{i}.parquet")
    assert joined(formats.read(parts))[0][10:, 0].tolist() == seconds[10:].tolist()


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


@pytest.mark.parametrize("format_", ["csv", "parquet", "feather", "npy", "libsvm"])
def test_memory_is_that_of_a_batch(format_, tmp_path):
    n = 30_000 if format_ == "libsvm" else 1_000_000
    X = np.random.default_rng(0).normal(size=(n, 2))
    path = tmp_path / f"train.{format_}"
    columns = {**dict(zip("ab", X.T, strict=True)), "y": np.arange(n) % 2}
    arguments: dict[str, Any] = {"target": "y"}
    if format_ == "csv":
        pa.csv.write_csv(pa.table(columns), path)
    elif format_ == "parquet":
        # One row group: as large as a file's can be.
        pa.parquet.write_table(pa.table(columns), path, row_group_size=n)
    elif format_ == "feather":
        content = pa.table(columns)
        pa.feather.write_feather(content, str(path), "uncompressed", chunksize=n)
    elif format_ == "npy":
        np.save(path, X)
        arguments = {}
    else:
        row = "1 1:0.5 2:0.25" + " " * 300
        path.write_text("\n".join([row] * n))
        arguments = {"num_features": 2}
    most, rows = peak(formats.read(path, **arguments, batch_rows=2000))
    assert rows == n
    # pyarrow reads 32 blocks of CSV ahead, and of each column of Parquet a page.
    limit = {"csv": 12e6, "parquet": 8e6}.get(format_, 2e6)
    assert most < limit < path.stat().st_size / 2


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
@pytest.mark.parametrize(
    "lengths",
    [[N], [1] * N, [0, 100, 0, 157, 0], [10] * 25 + [7], [3, 250, 4]],
    ids=lambda lengths: f"{len(lengths)}x{lengths[1:2]}",
)
@pytest.mark.parametrize("weighted", [False, True])
def test_batches_are_joined_and_split(weighted, lengths, rows):
    found = list(in_rows(list(pieces(lengths, weighted)), rows))
    tail = [N % rows] if N % rows else []
    assert [len(batch[1]) for batch in found] == [rows] * (N // rows) + tail
    check_types(found, np.float32)
    w = weights() if weighted else np.ones(N)
    expected = [numbers().astype(np.float32), TARGETS["int"], w.astype(np.float32)]
    check_equal(joined(found), expected)
    assert list(in_rows([], rows)) == []


def test_joined_batches_are_in_the_type_asked_for():
    for given in (np.float64, np.float32, np.float16, np.int8):
        for dtype in (np.float64, np.float32):
            found = list(in_rows(list(pieces([N], dtype=given)), 100, dtype))
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
    check_equal(joined(in_rows(batches, 60)), [X, y, np.ones(N, np.float32)])
    assert labels(batches).tolist() == sorted(set(y.tolist()))


def test_a_source_may_fill_the_same_arrays_again():
    def filled():
        X, y = np.empty((30, D)), np.empty(30, np.int64)
        for start in range(0, N - N % 30, 30):
            X[:], y[:] = (
                numbers()[start : start + 30],
                TARGETS["int"][start : start + 30],
            )
            yield X, y

    found = list(in_rows(filled(), 40))
    n = N - N % 30
    check_equal(joined(found)[:2], [np.float32(numbers())[:n], TARGETS["int"][:n]])


def test_integers_become_real_where_some_are():
    batches = [(np.zeros((2, 1)), [1, 2]), (np.zeros((2, 1)), [0.5, 1])]
    assert joined(in_rows(batches, 3))[1].tolist() == [1, 2, 0.5, 1]
    assert labels(batches).tolist() == [0.5, 1, 2]


# Reading ahead.


def test_prefetched_items_keep_their_order():
    for depth in (1, 2, 50):
        assert list(prefetched(range(30), depth)) == list(range(30))
    assert list(prefetched([])) == []


def test_prefetched_reads_ahead_but_not_far():
    read = []

    def items():
        for i in range(20):
            read.append(i)
            yield i

    ahead = prefetched(items(), 3)
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

    ahead = prefetched(items())
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
    ahead = prefetched(items())
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


# Bad input. Every message names the file, what was expected, what was got and where.


class Bad(NamedTuple):
    """A source that must fail.

    Attributes:
      name: name of the test.
      call: function that opens the source in a folder, and reads it.
      says: the whole message, with FOLDER for the folder; "..." at its end stands for
        the words of a library.
    """

    name: str
    call: Callable[[pathlib.Path], Any]
    says: str


def file(name, content, **arguments):
    """Writes a file and reads it."""

    def call(folder):
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        for _ in formats.read(path, **arguments):
            pass

    return call


def pipe(folder):
    os.mkfifo(folder / "a.csv")
    formats.csv(folder / "a.csv", target="y")


def csv_file(content, name="a.csv", **arguments):
    def call(folder):
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        list(formats.csv(path, **({"target": "y"} | arguments)))

    return call


def cut(data, off=5):
    return data[:-off]


def damaged(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x55]) * 8 + data[middle + 8 :]


def parquet_of(content, **options):
    raw = io.BytesIO()
    pa.parquet.write_table(pa.table(content), raw, **options)
    return raw.getvalue()


def arrow_of(content):
    raw = io.BytesIO()
    with pa.ipc.new_file(raw, pa.table(content).schema) as writer:
        writer.write_table(pa.table(content))
    return raw.getvalue()


def beyond_its_end(data):
    """With the last of three strings of one letter a million long."""
    old, new = (np.array([0, 1, 2, end], np.int32).tobytes() for end in (3, 10**6))
    assert data.count(old) == 1
    return data.replace(old, new)


def npy_of(array, **options):
    raw = io.BytesIO()
    np.save(raw, array, **options)
    return raw.getvalue()


def npys(X, y=None, weight=None, **arguments):
    def call(folder):
        paths = []
        for name, array in (("X", X), ("y", y), ("w", weight)):
            if array is not None:
                (folder / f"{name}.npy").write_bytes(npy_of(array))
                paths.append(folder / f"{name}.npy")
        list(formats.npy(*paths, **arguments))

    return call


def many(*contents, use=list, **arguments):
    def call(folder):
        for i, content in enumerate(contents):
            (folder / f"{i}.parquet").write_bytes(content)
        use(formats.parquet(folder, target="y", **arguments))

    return call


def from_arrays(*batches, **arguments):
    def call(folder):
        list(in_rows(list(batches), 2, **arguments))

    return call


LONG = "a,b,y\n" + "".join(f"{i},{i * 7919 % 1009},1\n" for i in range(2000))
SPARSE = "".join(f"{i % 2} 1:{i * 7919 % 1009} 2:0.5\n" for i in range(2000))
ROWS = {"a": [1.0, 2.0, 3.0], "b": [0, 1, 2], "y": ["p", "q", "p"]}
ENCODE = (
    "'COLUMN=' in features= makes a feature of each text of a column, and features= "
    "without it leaves it out"
)
FILL = "; allow_missing=True reads NaN"

CSV = (
    "a.csv: the file must be CSV in UTF-8, with numbers as features, got an error "
    "after 0 rows: "
)
LINE = "a: rows must be 'label index:value ...' with ascending indices, got "
BAD_CSV = [
    Bad("empty", csv_file(""), f"{CSV}..."),
    Bad("blank", csv_file("\n\n"), f"{CSV}..."),
    Bad(
        "too-few-cells",
        csv_file("a,b,y\n1,2,3\n\n1,3\n"),
        f"{CSV}CSV parse error: row 1: Expected 3 columns, got 2: 1,3",
    ),
    Bad(
        "too-many-cells",
        csv_file(LONG + "1,2,3,4\n" + LONG[6:]),
        f"{CSV}CSV parse error: row 2000: Expected 3 columns, got 4: 1,2,3,4",
    ),
    Bad(
        "no-such-target",
        csv_file("a,b\n1,2\n"),
        "a.csv: target must be of the columns 'a', 'b', got 'y'",
    ),
    Bad(
        "no-such-feature",
        csv_file("a,y\n1,2\n", features=["a", "c"]),
        "a.csv: features must be of the columns 'a', 'y', got 'c'",
    ),
    Bad(
        "no-such-weight",
        csv_file("a,y\n1,2\n", weight="w"),
        "a.csv: weight must be of the columns 'a', 'y', got 'w'",
    ),
    Bad(
        "no-such-number",
        csv_file("a,y\n1,2\n", target=2),
        "a.csv: target must be a column number from -2 to 1, got 2",
    ),
    Bad(
        "no-number",
        csv_file("a,y\n1,2\n", target=1.0),
        "a.csv: target must be the name or the number of a column, got 1.0",
    ),
    Bad(
        "duplicate-names",
        csv_file("a,b,a,y\n1,2,3,4\n"),
        "a.csv: column names must be unique, got 'a' 2 times",
    ),
    Bad(
        "nameless",
        csv_file("a,,y\n0,2,3\n"),
        "a.csv: every column must have a name, got none for column 1; choose columns "
        "with features=",
    ),
    Bad(
        "target-as-feature",
        csv_file("a,y\n1,2\n", features=["a", "y"]),
        "a.csv: features, target and weight must be different columns, got 'y' 2 times",
    ),
    Bad(
        "feature-twice",
        csv_file("a,y\n1,2\n", features=["a", 0]),
        "a.csv: features, target and weight must be different columns, got 'a' 2 times",
    ),
    Bad(
        "features-of-text",
        csv_file("a,y\n1,2\n", features="a"),
        "a.csv: features must be a list of columns, got 'a'",
    ),
    Bad(
        "no-features",
        csv_file("y\n1\n"),
        "a.csv: features must be at least one column, got none; the columns are 'y'",
    ),
    Bad(
        "weight-is-target",
        csv_file("a,y\n1,2\n", weight=-1),
        "a.csv: features, target and weight must be different columns, got 'y' 2 times",
    ),
    Bad(
        "weight-alone",
        csv_file("a,w\n1,2\n", target=None, weight="w"),
        "a.csv: weight must come with a target, got 'w' and target=None",
    ),
    Bad(
        "labels-without-target",
        lambda folder: labels(formats.csv(csv_of(folder, "a\n1\n"), target=None)),
        "train.csv: batches must be (X, y) or (X, y, weight), got tuple of 1 as "
        "batch 0; give the reader a target",
    ),
    Bad(
        "no-header",
        csv_file("5.1,3,1\n4,3,0\n", target=-1),
        "a.csv: the first line must hold the names of columns, got '5.1'; header=False "
        "reads files without names, and a target that is one of them says that these "
        "are names",
    ),
    Bad(
        "text",
        csv_file("a,b,y\n1,2,x\n3,red,z\n"),
        f"{CSV}In column 'b': row 1: CSV conversion error to double: "
        f"invalid value 'red'; {ENCODE}",
    ),
    Bad(
        "text-far-down",
        csv_file(LONG * 30 + "1,red,z\n", header=True, target="y"),
        f"{CSV}In column 'a': row 2000: CSV conversion error to "
        f"double: invalid value 'a'; {ENCODE}",
    ),
    Bad(
        "weight-of-text",
        csv_file("a,y,w\n1,2,1\n1,2,much\n", weight="w"),
        f"{CSV}In column 'w': row 1: CSV conversion error to double: "
        "invalid value 'much'",
    ),
    Bad(
        "decimal-comma",
        csv_file('a;y\n"1,5";2\n', delimiter=";"),
        f"{CSV}In column 'a': row 0: CSV conversion error to double: "
        "invalid value '1,5'; decimal=',' reads decimal commas",
    ),
    Bad(
        "empty-cell",
        csv_file("a,b,y\n1,2,x\n3,,z\n"),
        "a.csv: X must not have missing values, got one in row 1, column 'b'" + FILL,
    ),
    Bad(
        "missing-number",
        csv_file("a,b,y\n1,2,x\n\n3,4,x\nNA,1,z\n"),
        "a.csv: X must not have missing values, got one in row 2, column 'a'" + FILL,
    ),
    Bad(
        "missing-in-one-column",
        csv_file("a\n1\n\n2\n", target=None),
        "a.csv: X must not have missing values, got one in row 1, column 'a'" + FILL,
    ),
    Bad(
        "missing-target",
        csv_file("a,y\n1,x\n1,\n"),
        "a.csv: y must not have missing values, got one in row 1, column 'y'",
    ),
    Bad(
        "missing-weight",
        csv_file("a,y,w\n1,x,\n", weight="w"),
        "a.csv: weight must not have missing values, got one in row 0, column 'w'",
    ),
    Bad(
        "label-of-another-kind",
        csv_file("a,y\n1,.5\n" + "1,2\n" * 99_999 + "1,many\n"),
        "a.csv: the file must be CSV in UTF-8, with numbers as features, got an "
        "error after 65534 rows: In column 'y': row 100000: CSV conversion error to"
        " double: invalid value 'many'",
    ),
    Bad(
        "beyond-float32",
        csv_file("a,b,y\n1,2,x\n3,-1e39,z\n", dtype=np.float32),
        "a.csv: X must be in the range of float32, got -1e+39 in row 1, column 'b'",
    ),
    Bad(
        "gzip-cut-off",
        csv_file(cut(gzip.compress(LONG.encode())), "a.csv.gz"),
        "a.csv.gz: the file must be CSV in UTF-8, with numbers as features, got an "
        "error after 0 rows: ...",
    ),
    Bad(
        "gzip-damaged",
        csv_file(damaged(gzip.compress(LONG.encode())), "a.csv.gz"),
        "a.csv.gz: the file must be CSV in UTF-8, with numbers as features, got an "
        "error after 0 rows: ...",
    ),
    Bad(
        "gzip-of-nothing",
        csv_file(gzip.compress(b""), "a.csv.gz"),
        "a.csv.gz: the file must be CSV in UTF-8, with numbers as features, got an "
        "error after 0 rows: ...",
    ),
    Bad(
        "no-gzip",
        csv_file(LONG, "a.csv.gz"),
        "a.csv.gz: the file must be CSV in UTF-8, with numbers as features, got an "
        "error after 0 rows: ...",
    ),
    Bad(
        "bz2-cut-off",
        csv_file(cut(bz2.compress(LONG.encode())), "a.csv.bz2"),
        "a.csv.bz2: the file must be CSV in UTF-8, with numbers as features, got an"
        " error after 0 rows: ...",
    ),
    Bad(
        "rubbish",
        csv_file(np.random.default_rng(0).bytes(5000)),
        "a.csv: the file must be CSV in UTF-8, with numbers as features, got ...",
    ),
    Bad(
        "utf-16",
        csv_file("a,y\n1,2\n".encode("utf-16")),
        f"{CSV.partition('an error')[0]}UTF-16",
    ),
    Bad(
        "latin-1",
        csv_file("a,y\n1,oui\n1,non é\n".encode("latin-1")),
        f"{CSV}In column 'y': row 1: CSV conversion error to string: invalid UTF8 data",
    ),
    Bad(
        "delimiter",
        csv_file("a,y\n1,2\n", delimiter=",,"),
        "csv: delimiter must be one character, got ',,'",
    ),
    Bad(
        "batch-rows",
        csv_file("a,y\n1,2\n", batch_rows=0),
        "csv: batch_rows must be at least 1, got 0",
    ),
    Bad(
        "another-separator",
        csv_file("a;b;y\n1;2;3\n"),
        "a.csv: cells must be separated by ',', got 'a;b;y' as the first line; "
        "delimiter=';' reads it",
    ),
    Bad(
        "neither-true-nor-false",
        csv_file("a,y\ntrue,1\n7,2\n"),
        f"{CSV}In column 'a': row 0: CSV conversion error to double: "
        f"invalid value 'true'; {ENCODE}",
    ),
    Bad(
        "of-no-format",
        file("a.json", "{}"),
        "a.json: the file must be .csv, .tsv, .parquet, .arrow, .feather, .npy, or "
        "LIBSVM text under another name, got .json",
    ),
    Bad(
        "pipe",
        pipe,
        "a.csv: the source must be a file, which can be read more than once, got a "
        "pipe or a device; write it to a file first",
    ),
    Bad(
        "dtype",
        csv_file("a,y\n1,2\n", dtype=np.float16),
        "csv: dtype must be float32, float64 or None, got <class 'numpy.float16'>",
    ),
]
BAD_TABLES = [
    Bad(
        "null",
        many(parquet_of({"a": [1, None], "y": [1, 2]})),
        "0.parquet: X must not have missing values, got one in row 1, column 'a'"
        + FILL,
    ),
    Bad(
        "nulls-only",
        many(parquet_of({"a": pa.nulls(2), "y": [1, 2]})),
        "0.parquet: X must not have missing values, got one in row 0, column 'a'"
        + FILL,
    ),
    Bad(
        "null-target",
        many(parquet_of(ROWS), parquet_of(ROWS | {"y": ["p", "q", None]})),
        "1.parquet: y must not have missing values, got one in row 2, column 'y'",
    ),
    Bad(
        "null-in-a-dictionary",
        many(
            parquet_of(ROWS),
            parquet_of(ROWS | {"y": pa.array(["p", "q", None]).dictionary_encode()}),
        ),
        "1.parquet: y must not have missing values, got one in row 2, column 'y'",
    ),
    Bad(
        "text",
        many(parquet_of({"a": ["x"], "y": [1]})),
        f"0.parquet: X must be numbers, got 'x' in row 0, column 'a'; {ENCODE}",
    ),
    Bad(
        "dates",
        many(parquet_of({"a": pa.array([1, 2], pa.date32()), "y": [1, 2]})),
        f"0.parquet: X must be numbers, got date32[day] in row 0, column 'a'; {ENCODE}",
    ),
    Bad(
        "dates-as-target",
        many(parquet_of({"y": pa.array([1, 2], pa.date32()), "a": [1, 2]})),
        "0.parquet: y must be numbers or strings, got date32[day] in row 0, column 'y'",
    ),
    Bad(
        "large-labels",
        many(parquet_of({"a": [1, 2], "y": pa.array([1, 2**63], pa.uint64())})),
        "0.parquet: y must be in the range of int64, got 9223372036854775808 in row 1",
    ),
    Bad(
        "beyond-float32",
        many(
            parquet_of(ROWS), parquet_of(ROWS | {"a": [1, 1e39, 1]}), dtype=np.float32
        ),
        "1.parquet: X must be in the range of float32, got 1e+39 in row 1, column 'a'",
    ),
    Bad(
        "labels-of-another-kind",
        many(parquet_of(ROWS), parquet_of(ROWS | {"y": [1, 2, 3]}), use=labels),
        "FOLDER: y must be all numbers or all strings, got 1 in row 3",
    ),
    Bad(
        "missing-column",
        many(parquet_of(ROWS), parquet_of({"a": [1.0], "y": ["p"]})),
        "1.parquet: every file must have the columns of 0.parquet, got 'b' in one "
        "of them only",
    ),
    Bad(
        "one-column-more",
        many(parquet_of({"a": [1.0], "y": ["p"]}), parquet_of(ROWS)),
        "1.parquet: every file must have the columns of 0.parquet, got 'b' in one "
        "of them only",
    ),
    Bad(
        "empty-folder", many(), "FOLDER: the folder must have files *.parquet, got none"
    ),
    Bad(
        "empty-list",
        lambda folder: formats.parquet([], target="y"),
        "parquet: path must be files, got an empty list",
    ),
    Bad(
        "no-parquet",
        many(b"a,y\n1,2\n"),
        "0.parquet: the file must be whole Parquet, got an error after 0 rows: ...",
    ),
    Bad(
        "empty-parquet",
        many(b""),
        "0.parquet: the file must be whole Parquet, got an error after 0 rows: ...",
    ),
    Bad(
        "parquet-cut-off",
        many(parquet_of(ROWS), cut(parquet_of(ROWS))),
        "1.parquet: the file must be whole Parquet, got an error after 0 rows: ...",
    ),
    Bad(
        "parquet-damaged",
        many(damaged(parquet_of({"a": np.arange(9e3), "y": np.arange(9000)}))),
        "0.parquet: the file must be whole Parquet, got an error after ...",
    ),
    Bad(
        "parquet-altered",
        many(
            damaged(
                parquet_of(
                    {"a": np.arange(9e3), "y": np.arange(9000)},
                    compression=None,
                    use_dictionary=False,
                    write_page_checksum=True,
                )
            )
        ),
        "0.parquet: the file must be whole Parquet, got an error after ...",
    ),
    Bad(
        "parquet-of-other-text",
        many(parquet_of(ROWS | {"y": ["pqr", "q", "q"]}).replace(b"pqr", b"p\xffr")),
        "0.parquet: the file must be whole Parquet, got an error after 0 rows: ...",
    ),
    Bad(
        "no-arrow",
        file("a.arrow", "a,y\n1,2\n", target="y"),
        "a.arrow: the file must be whole Arrow, got an error after 0 rows: ...",
    ),
    Bad(
        "empty-arrow",
        file("a.feather", "", target="y"),
        "a.feather: the file must be whole Arrow, got an error after 0 rows: ...",
    ),
    Bad(
        "arrow-cut-off",
        file("a.arrow", cut(arrow_of(ROWS)), target="y"),
        "a.arrow: the file must be whole Arrow, got an error after 0 rows: ...",
    ),
    Bad(
        "arrow-altered",
        file("a.arrow", beyond_its_end(arrow_of(ROWS)), target="y"),
        "a.arrow: the file must be whole Arrow, got an error after 0 rows: ...",
    ),
    Bad(
        "no-table",
        lambda folder: formats.arrow({"a": [1], "y": [2]}, target="y"),
        "arrow: source must be a path, or a table of Arrow, got dict",
    ),
]
BAD_LIBSVM = [
    Bad(
        "no-order-at-the-end-of-a-line",
        file("a", "1 2:1 1:2\n-1 2:2 1:1\n"),
        f"{LINE}'1 2:1 1:2' in row 0: ...",
    ),
    Bad(
        "rows-that-no-memory-holds",
        file("a", "1 2:1\n1 9999999999:1\n"),
        "a: indices must be at most 134,217,728, so that a row and a model fit in "
        "memory, got 9,999,999,999 in row 1",
    ),
    Bad("empty", file("a", ""), "a: the file must have rows, got none"),
    Bad("comments", file("a", "# 1 2:3\n\n"), "a: the file must have rows, got none"),
    Bad(
        "no-features", file("a", "1\n-1\n"), "a: the file must have features, got none"
    ),
    Bad(
        "no-number",
        file("a", SPARSE + "1 1:x\n", batch_rows=100),
        f"{LINE}'1 1:x' in row 2000: ...",
    ),
    Bad("no-label", file("a", "x 1:1\n"), f"{LINE}'x 1:1' in row 0: ..."),
    Bad(
        "descending",
        file("a", "1 1:1 4:1\n1 3:1 2:1\n"),
        f"{LINE}'1 3:1 2:1' in row 1: ...",
    ),
    Bad(
        "zero",
        file("a", "1 1:1\n1 0:1 2:1\n"),
        "a: rows must be 'label index:value ...' with ascending indices, got '1 0:1"
        " 2:1' in row 1: Invalid index 0 in SVMlight/LibSVM data file; "
        "zero_based=True reads files that start at 0",
    ),
    Bad(
        "wide",
        file("a", SPARSE + "1 3:1\n", num_features=2),
        f"{LINE}'1 3:1' in row 2000: ...",
    ),
    Bad(
        "index-beyond-32-bits",
        file("a", "1 1:1\n1 99999999999:1\n", num_features=2),
        f"{LINE}'1 99999999999:1' in row 1: ...",
    ),
    Bad(
        "beyond-float32",
        file("a", "1 1:1\n1 2:1e39\n", dtype=np.float32),
        f"{LINE}'1 2:1e39' in row 1: ...",
    ),
    Bad(
        "gzip-cut-off",
        file("a.gz", cut(gzip.compress(SPARSE.encode())), num_features=2),
        "a.gz: the file must be whole gzip, got an error after 2000 rows: ...",
    ),
    Bad(
        "gzip-damaged",
        file("a.gz", damaged(gzip.compress(SPARSE.encode()))),
        "a.gz: the file must be whole gzip, got an error after ...",
    ),
    Bad(
        "bz2-cut-off",
        file("a.bz2", cut(bz2.compress(SPARSE.encode()))),
        "a.bz2: the file must be whole bz2, got an error after 2000 rows: ...",
    ),
    Bad("rubbish", file("a", b"\x00\xff\xfe 1:1\n"), f"{LINE}..."),
    Bad(
        "target",
        file("a", "1 1:1\n", target="y"),
        "read: target must not be given for files of libsvm, got 'y'",
    ),
]
OBJECTS = npy_of(np.array([{}, None]), allow_pickle=True)
ONES = np.ones((3, 2))
BAD_NPY = [
    Bad(
        "lengths",
        npys(ONES, np.ones(2)),
        "y.npy: y must have shape (3,), one per row of X, got (2,)",
    ),
    Bad(
        "weights",
        npys(ONES, np.ones(3), np.ones(4)),
        "w.npy: weight must have shape (3,), one per row of X, got (4,)",
    ),
    Bad(
        "rank",
        npys(np.ones(3)),
        "X.npy: X must be numbers of shape (n, d), got float64 of shape (3,)",
    ),
    Bad(
        "rank-of-y",
        npys(ONES, np.ones((3, 1))),
        "y.npy: y must be numbers or strings of shape (n,), got float64 of shape "
        "(3, 1)",
    ),
    Bad(
        "complex",
        npys(ONES * 1j),
        "X.npy: X must be numbers of shape (n, d), got complex128 of shape (3, 2)",
    ),
    Bad(
        "objects",
        file("X.npy", OBJECTS),
        "X.npy: X must be a whole .npy file of numbers, got an error: ...",
    ),
    Bad(
        "large-labels",
        npys(ONES, np.array([1, 2, 2**64 - 1], np.uint64)),
        "y.npy: y must be in the range of int64, got 18446744073709551615 in row 2",
    ),
    Bad(
        "beyond-float32",
        npys(np.array([[1, 2], [3, 1e39]]), dtype=np.float32),
        "X.npy: X must be in the range of float32, got 1e+39 in row 1, column 1",
    ),
    Bad(
        "cut-off",
        file("X.npy", cut(npy_of(ONES))),
        "X.npy: X must be a whole .npy file of numbers, got an error: ...",
    ),
    Bad(
        "header-altered",
        file("X.npy", npy_of(ONES).replace(b"}", b"(")),
        "X.npy: X must be a whole .npy file of numbers, got an error: ...",
    ),
    Bad(
        "no-npy",
        file("X.npy", "a,y\n1,2\n"),
        "X.npy: X must be a whole .npy file of numbers, got an error: ...",
    ),
    Bad(
        "no-columns", npys(ONES[:, :0]), "X.npy: X must have columns, got shape (3, 0)"
    ),
    Bad(
        "features",
        file("X.npy", npy_of(ONES), features=["a"]),
        "read: features must not be given for files of npy, got ['a']",
    ),
]
TWO = np.ones((2, 2))
# Other bad batches are those of test_stream_errors.py.
BAD_BATCHES = [
    Bad(
        "weights",
        from_arrays((TWO, [1, 2], [1])),
        "batches: batch 0, from row 0 on: weight must have shape (2,), one per row "
        "of X, got (1,)",
    ),
    Bad(
        "labels-of-time",
        from_arrays((TWO, np.array([1, 2], "datetime64[s]"))),
        "batches: y must be numbers or strings, got datetime64[s] from row 0 on",
    ),
    Bad(
        "large-labels",
        from_arrays((TWO, np.array([1, 2**63], np.uint64))),
        "batches: y must be in the range of int64, got 9223372036854775808 in row 1",
    ),
    Bad(
        "weight-beyond-float32",
        from_arrays((TWO, [1, 2], [1, 1e39])),
        "batches: weight must be in the range of float32, got 1e+39 in row 1",
    ),
    Bad(
        "beyond-float32-in-sparse",
        from_arrays((scipy.sparse.csr_array(TWO * 1e39), [1, 2])),
        "batches: X must be in the range of float32, got 1e+39 in row 0, column 0",
    ),
    Bad(
        "rows",
        lambda folder: list(in_rows([], 0)),
        "batches: rows must be at least 1, got 0",
    ),
    Bad(
        "labels-of-nothing",
        lambda folder: labels([]),
        "batches: batches must have rows, got none",
    ),
    Bad(
        "labels-of-an-iterator",
        lambda folder: labels(iter([(TWO, [1, 2])])),
        "batches: batches must be a source that can be read again, got an iterator, "
        "which would be used up",
    ),
    Bad(
        "labels-that-are-none",
        lambda folder: labels([(TWO, [1, 2]), (TWO, [1, np.nan])]),
        "batches: y must be a label, got nan in row 3",
    ),
    Bad(
        "labels-of-a-regression",
        lambda folder: labels([(np.ones((20_000, 1)), np.arange(2e4) / 3)]),
        "batches: y must hold at most 10,000 labels, got more: targets of a regression "
        "have no classes",
    ),
]


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=f"{kind}-{row.name}")
        for kind, rows in {
            "csv": BAD_CSV,
            "tables": BAD_TABLES,
            "libsvm": BAD_LIBSVM,
            "npy": BAD_NPY,
            "batches": BAD_BATCHES,
        }.items()
        for row in rows
    ],
)
def test_bad_input_is_told(row, tmp_path):
    with pytest.raises(ValueError, match=r".+: .+ must .+, got .+") as raised:
        row.call(tmp_path)
    assert raised.type is ValueError
    message = str(raised.value)
    message = message.replace(f"{tmp_path}/", "").replace(str(tmp_path), "FOLDER")
    if row.says.endswith("..."):
        start = row.says.removesuffix("...")
        assert message[: len(start)] == start
        assert len(message) > len(start)
    else:
        assert message == row.says


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow", "npy", "libsvm"])
def test_a_file_that_is_not_there(ending, tmp_path):
    with pytest.raises(FileNotFoundError, match=f"none.{ending}"):
        formats.read(tmp_path / f"none.{ending}")


def test_rows_before_a_bad_one_are_given(tmp_path):
    path, n = tmp_path / "train.csv", 100_000
    pa.csv.write_csv(pa.table({"a": np.arange(n), "y": np.ones(n)}), path)
    with path.open("a") as handle:
        handle.write("red,1\n")
    batches, rows = iter(formats.csv(path, target="y", batch_rows=1000)), 0

    def read():
        nonlocal rows
        for X, y in batches:
            np.testing.assert_array_equal(X[:, 0], np.arange(rows, rows + len(y)))
            rows += len(y)

    with pytest.raises(ValueError, match=f"column 'a': row {n}: .* 'red'"):
        read()
    assert rows > n / 2


@pytest.mark.parametrize(
    ("call", "module", "says"),
    [
        (formats.libsvm, "sklearn.datasets", "libsvm needs scikit-learn: pip install "),
        (formats.csv, "pyarrow", "csv needs pyarrow: pip install pyarrow, "),
        (formats.parquet, "pyarrow", "parquet needs pyarrow: pip install pyarrow, "),
        (formats.arrow, "pyarrow", "arrow needs pyarrow: pip install pyarrow, "),
    ],
    ids=["libsvm", "csv", "parquet", "arrow"],
)
def test_what_is_not_installed_is_named(call, module, says, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    arguments = {} if call is formats.libsvm else {"target": "y"}
    with pytest.raises(ImportError) as raised:
        call(tmp_path / "a", **arguments)
    assert str(raised.value).startswith(says)

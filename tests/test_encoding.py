"""Encodings against the slow reference, on the host and in programs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import budgetjax as bj
from budgetjax.tables import encoding

from .reference import encoding as reference

random = np.random.default_rng(0)
GAPS = np.where(random.random((60, 2)) < 0.3, np.nan, random.normal(size=(60, 2)))
# Columns with NaN in fitting; in the second only NaN but for one value.
GAPS[:, 1] = np.nan
GAPS[3, 1] = 5
TABLES = {
    "normal": random.normal(size=(200, 3)),
    "equal values": random.integers(0, 3, (100, 3)).astype(float),
    "ties": np.where(random.random((300, 2)) < 0.7, 0, random.normal(size=(300, 2))),
    "constant columns": np.array([[1e6, 0.1, x] for x in random.normal(size=50)]),
    "all constant": np.full((20, 2), 0.1),
    "missing": GAPS,
    "all missing": np.array([[np.nan, 1.0], [np.nan, 2.0]]),
    "huge values": random.normal(size=80)[:, None] * np.geomspace(1, 1e18, 80)[:, None],
    "wild values": np.where(np.arange(9)[:, None] == 7, 1e200, random.random((9, 1))),
    "far from 0": (1e5 + random.normal(size=(150, 2))).astype(np.float32),
    "milliseconds": 1.7e12 + 1e4 * random.normal(size=(150, 2)),
    "one row": random.normal(size=(1, 3)),
    "two rows": random.normal(size=(2, 3)),
    "few rows": random.normal(size=(5, 2)),
    "rare value": np.repeat([[0.0], [1.0]], [999, 1], axis=0),
    "close values": np.array([[0, 1e-6, 2e-6, 1, 2, 3]]).T,
    "integers": random.integers(0, 256, (100, 2)),
    "booleans": random.random((50, 2)) < 0.2,
}  # fmt: skip
NOMINAL = {"equal values": (1,), "missing": (1,), "integers": (0, 1), "normal": (0,)}


def rows_around(X, unseen=5):
    """The rows, and others outside and between, some with gaps."""
    X = np.asarray(X, np.float64)
    more = random.normal(size=(unseen, X.shape[1])) * 10 + X[0]
    more[0] = np.nan
    return np.concatenate([X[:40], more])


@pytest.mark.parametrize("num_bins", [0, 1, 4, 16])
@pytest.mark.parametrize("name", TABLES)
def test_fit_and_apply_against_the_reference(name, num_bins):
    X, nominal = TABLES[name], NOMINAL.get(name, ())
    expected = reference.fit(X, num_bins, nominal)
    found = bj.encoding.fit(X, num_bins, nominal)
    assert all(
        leaf.dtype in (np.float64, np.int32, bool) for leaf in jax.tree.leaves(found)
    )
    np.testing.assert_allclose(
        found.centre, [one.centre for one in expected], rtol=1e-12
    )
    np.testing.assert_allclose(found.unit, [one.unit for one in expected], rtol=1e-12)
    assert found.lacks.tolist() == [one.has_missing for one in expected]
    rows = rows_around(X)
    codes = np.array([reference.codes(expected, row) for row in rows])
    np.testing.assert_allclose(
        found.apply(rows, np.float64), codes, rtol=1e-9, atol=1e-9
    )
    features = found.apply(rows)
    assert features.dtype == np.float32
    assert features.shape == (len(rows), found.num_features)
    np.testing.assert_allclose(features, codes, rtol=1e-6, atol=1e-6)
    assert found.num_codes == codes.shape[1]


PROGRAMS = ("normal", "equal values", "missing", "far from 0", "ties", "all constant")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_the_host_gives(name):
    X = np.asarray(TABLES[name], np.float32)
    found = bj.encoding.fit(X, 8, NOMINAL.get(name, ()))
    rows = rows_around(X).astype(np.float32)
    host, narrowest = (
        found.apply(rows),
        np.min((found.high - found.low)[found.high > found.low], initial=1),
    )
    atol = 2e-6 / narrowest
    # Closed over, and as an argument, whose float64 leaves become float32.
    closed = jax.jit(lambda X: bj.encoding.encode(found, X))(rows)
    np.testing.assert_allclose(closed, host, atol=atol, rtol=1e-5)
    given = jax.jit(bj.encoding.encode)(found, rows)
    np.testing.assert_allclose(given, host, atol=atol, rtol=1e-5)


def test_a_map_multiplies_the_codes():
    X = TABLES["normal"]
    found = bj.encoding.fit(X, 8)
    matrix = random.normal(size=(found.num_codes, 5))
    mapped = found._replace(map=matrix)
    expected = found.apply(X, np.float64) @ matrix
    np.testing.assert_allclose(mapped.apply(X), expected, atol=1e-5)
    program = jax.jit(lambda X: bj.encoding.encode(mapped, X))(X)
    np.testing.assert_allclose(program, expected, atol=1e-4)
    assert mapped.num_features == 5


def test_blocks_do_not_matter(monkeypatch):
    X = TABLES["missing"]
    found = bj.encoding.fit(X, 8)
    mapped = found._replace(map=np.ones((found.num_codes, 2)))
    expected = found.apply(X), mapped.apply(X)
    monkeypatch.setattr(encoding, "BLOCK", 50)
    monkeypatch.setattr(encoding, "PRODUCT", 150)
    for one, rows in zip((found, mapped), expected, strict=True):
        np.testing.assert_array_equal(one.apply(X), rows)
        assert one.apply(X[:0]).shape == (0, one.num_features)


def test_gradients_are_slopes_of_bins():
    found = bj.encoding.fit(np.arange(5.0)[:, None], 4)
    slopes = jax.vmap(jax.jacobian(lambda x: bj.encoding.encode(found, x[None])))(
        jnp.array([-1.0, 0.5, 1.5, 9.0])
    )
    assert (np.asarray(slopes) > 0).tolist() == np.eye(4, dtype=bool)[
        [0, 0, 1, 3]
    ].tolist()
    step = 1e-3
    differences = (
        found.apply([[1.5 + step]], float) - found.apply([[1.5 - step]], float)
    ) / (2 * step)
    np.testing.assert_allclose(slopes[2], differences[0], rtol=1e-3)
    gap = bj.encoding.fit(TABLES["missing"], 4)
    gradient = jax.grad(lambda x: jnp.sum(bj.encoding.encode(gap, x)))(
        jnp.full(2, jnp.nan)
    )
    assert np.all(np.isfinite(gradient))


def test_encodings_of_one_size_are_stacked():
    tables = [random.normal(size=(50, 2)).astype(np.float32) for _ in range(3)]
    each = [bj.encoding.fit(X, 4) for X in tables]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    found = jax.vmap(bj.encoding.encode)(stacked, np.stack(tables))
    for one, X, rows in zip(each, tables, found, strict=True):
        np.testing.assert_allclose(rows, one.apply(X), atol=1e-5)
    rows = jax.vmap(functools.partial(bj.encoding.encode, each[0]))(tables[0])
    np.testing.assert_allclose(rows, found[0], atol=1e-5)


def test_edges_are_quantiles_in_the_unit_of_the_column():
    X = TABLES["normal"]
    found = bj.encoding.fit(X, 8)
    np.testing.assert_allclose(found.edges(1), np.quantile(X[:, 1], np.arange(9) / 8))
    few = bj.encoding.fit(TABLES["equal values"], 8, nominal=[1])
    np.testing.assert_allclose(few.edges(0), [0, 1, 2], atol=1e-12)
    assert few.edges(1).tolist() == [0, 1, 2]


def test_edges_of_a_reservoir_are_near_those_of_the_stream():
    from budgetjax.stream.reservoir import Reservoir

    X = random.exponential(size=(100_000, 1)).astype(np.float32)
    for stream in (X, np.sort(X, axis=0)):
        kept = Reservoir.empty(1, X.dtype, X.dtype, size=8192)
        for part in np.array_split(stream, 20):
            kept = kept.updated(part, part[:, 0], np.ones(len(part)))
        edges = bj.encoding.fit(kept.rows().X, 16).edges(0)
        ranks = np.searchsorted(np.sort(X[:, 0]), edges[1:-1]) / len(X)
        assert np.max(np.abs(ranks - np.arange(1, 16) / 16)) < 0.015


@pytest.mark.parametrize("max_values", [0, 40, 41, 60])
def test_few_values_have_an_edge_each(max_values):
    X = np.stack([np.repeat(np.arange(41.0) ** 2, 8), np.arange(328.0)] * 2, axis=1)
    # Seven rows per value are too few.
    X[0, 2] = np.nan
    expected = reference.fit(X, 4, max_values=max_values)
    found = bj.encoding.fit(X, 4, max_values=max_values)
    codes = np.array([reference.codes(expected, row) for row in X])
    np.testing.assert_allclose(found.apply(X, np.float64), codes, rtol=1e-9, atol=1e-9)
    edges = [len(found.edges(column)) for column in range(4)]
    assert edges == [41 if max_values > 40 else 5, 5, 5, 5]


def test_a_column_with_one_value_may_change_in_a_stream():
    X = np.array([[7.0, 1.0], [7.0, 2.0], [7.0, 3.0]])
    later = [[7.0, 2.0], [8.0, 2.0], [6.9, 2.0]]
    assert bj.encoding.fit(X, 2).apply(later, float)[:, :-2].shape == (3, 0)
    codes = bj.encoding.fit(X, 2, more_to_come=True).apply(later, float)[:, 0]
    assert codes[0] == 0
    np.testing.assert_allclose(codes[1:], [1 / np.sqrt(1 + 1 / 9), -0.1], rtol=1e-3)


def test_columns_of_a_data_frame_have_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"price": [1.0, 2.5, 9.0, 4.0], "colour": [3, 7, 7, 5]})
    found = bj.encoding.fit(frame, 4, nominal=["colour"])
    jax.tree.map(
        np.testing.assert_array_equal,
        found,
        bj.encoding.fit(frame.to_numpy(), 4, nominal=[1]),
    )
    # A code for each of 3, 5 and 7, and none for a number in between.
    one_of_three = [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 1, 0]]
    assert found.apply(frame)[:, -3:].tolist() == one_of_three
    assert not np.any(found.apply([[9, 4], [9, 6]])[:, -3:])


@pytest.mark.parametrize(
    ("X", "more", "message"),
    [
        ([[0.0, np.inf]], {}, "X must be finite, or NaN .* inf in row 0, column 1"),
        ([0.0, 1.0], {}, r"X must have shape \(n, d\), with .* row, got \(2,\)"),
        (np.zeros((0, 2)), {}, r"X .* with at least one row, got \(0, 2\)"),
        ([[-1e308], [1e308]], {}, "X must have differences .* -1e.308 and .* column 0"),
        ([["a"]], {}, "X must hold real numbers"),
        ([[0.0], [1.0]], {"num_bins": -1}, "num_bins must be at least 0, got -1"),
        ([[0.0], [1.0]], {"nominal": [1]}, "nominal must be .* below 1, .* got 1"),
        ([[0.0], [1.0]], {"nominal": ["a"]}, "nominal must be .* got 'a'"),
    ],
)  # fmt: skip
def test_what_cannot_be_encoded_is_refused(X, more, message):
    with pytest.raises(ValueError, match=f"^encoding.fit: {message}"):
        bj.encoding.fit(X, **more)


def test_rows_that_do_not_fit_are_refused():
    found = bj.encoding.fit(TABLES["normal"])
    with pytest.raises(ValueError, match=r"X must have shape \(n, 3\)"):
        found.apply(np.zeros((4, 2)))
    with pytest.raises(ValueError, match="got -inf in row 11, column 2"):
        found.apply([[0, 0, 0], [0, 0, -np.inf]], first_row=10)
    with pytest.raises(ValueError, match=r"encode: X must have 3 columns, .* \(4, 2\)"):
        bj.encoding.encode(found, np.zeros((4, 2)))


def test_importances_are_variances_of_parts_of_the_features():
    X = random.normal(size=(500, 3))
    found = bj.encoding.fit(X, 4)
    np.testing.assert_allclose(bj.encoding.importances(found, X), 1 / 3, atol=0.02)
    matrix = random.normal(size=(found.num_codes, 5))
    codes = found.apply(X, np.float64)
    expected = np.array([
        np.trace(np.cov((codes[:, 4 * j : 4 * j + 4] @ matrix[4 * j : 4 * j + 4]).T))
        for j in range(3)
    ])  # fmt: skip
    shares = bj.encoding.importances(found._replace(map=matrix), X)
    np.testing.assert_allclose(shares, expected / expected.sum())
    constant = bj.encoding.fit(TABLES["all constant"])
    assert bj.encoding.importances(constant, TABLES["all constant"]).tolist() == [0, 0]


def test_codes_written_in_programs_are_those_of_the_host():
    """Far from 0, with gaps, unseen categories, and columns of one value."""
    rows = np.random.default_rng(0)
    lacking = np.where(rows.random(200) < 0.2, np.nan, rows.normal(size=200))
    names = np.where(np.isnan(lacking), np.nan, rows.choice([1e9, 1e9 + 1, 5], 200))
    X = np.stack([1e7 + rows.normal(size=200), lacking, names, np.ones(200)], axis=1)
    codes = encoding.fit(X, 4, nominal=[2])
    other = np.array([[-1e30, 0, 7, 2], [np.nan, np.nan, np.nan, np.nan]])
    given = np.concatenate([X, other])
    width, count = 16, codes.num_codes
    for dtype, numpy in ((np.float64, np), (np.float32, jnp)):
        coder = encoding.Coder.of(codes, dtype, width)
        numbers = codes.numbers(given, dtype, 8)
        assert numbers.shape == (202, 8)
        assert np.all(np.isfinite(numbers))
        found = np.asarray(coder.write(numpy.asarray(numbers)))
        expected = codes.apply(given, dtype)
        np.testing.assert_allclose(found[:, :count], expected, atol=1e-5)
        assert not np.any(found[:, count:])

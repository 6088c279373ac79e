"""Columns of names in data frames."""

import functools

import numpy as np
import pytest
from refusals import refused

import budgetjax as bj
from budgetjax.estimators import (
    BudgetedKernelClassifier,
    BudgetedKernelRegressor,
    BudgetedOneClass,
    SMOClassifier,
)
from budgetjax.tables import categories, columns

pytestmark = pytest.mark.usefixtures("plain_loops", "few_passes")

pandas = pytest.importorskip("pandas")
TYPES = "numbers, booleans, texts or categories"
CITIES = np.array(["Rome", "Oslo", "Bern", "Kyiv"])


def frame(n=400, seed=0):
    """A number, names, and categories that are numbers; some of each are missing."""
    random = np.random.default_rng(seed)
    city, code = random.integers(0, 4, n), random.integers(1, 4, n)
    X = pandas.DataFrame(
        {
            "size": random.normal(size=n),
            "city": CITIES[city],
            "code": pandas.Categorical(code),
        }
    )
    y = (X["size"].to_numpy() > 0) ^ (city % 2 == 0) ^ (code == 2)
    X.loc[::50, "city"] = None
    X.loc[1::50, "code"] = np.nan
    return X, y


def test_names_are_numbers_of_categories():
    X, _ = frame()
    found, _ = categories.find(X)
    assert found["city"].tolist() == ["Bern", "Kyiv", "Oslo", "Rome"]
    assert found["code"].tolist() == ["1", "2", "3"]
    numbers = categories.to_numbers(X, found)
    assert list(numbers.columns) == ["size", "city", "code"]
    known = X["city"].notna().to_numpy()
    cities = found["city"][numbers["city"][known].astype(int)]
    assert cities.tolist() == X["city"][known].tolist()
    assert np.all(np.isnan(numbers["city"][~known]))
    # Without missing values the same numbers are integers; others are unseen.
    other = pandas.DataFrame({"size": [0.0], "city": ["Lima"], "code": [3]})
    assert categories.to_numbers(other, found).to_numpy().tolist() == [[0.0, 4.0, 2.0]]


def test_an_encoding_of_a_data_frame_has_a_code_per_name():
    found = bj.encoding.fit(frame()[0])
    assert [found.edges(column).tolist() for column in (1, 2)] == [
        [0, 1, 2, 3],
        [0, 1, 2],
    ]


def test_rare_names_are_as_unseen_ones():
    names = [f"{i:03}" for i in range(categories.MOST_CATEGORIES)] * 2 + ["rare"]
    X = pandas.DataFrame({"name": names})
    found, _ = categories.find(X)
    assert len(found["name"]) == categories.MOST_CATEGORIES
    assert categories.to_numbers(X, found)["name"].iloc[-1] == len(found["name"])


def test_frequent_names_are_kept_and_a_warning_names_the_column_of_others():
    shops = [f"shop {i:04}" for i in range(1100)]
    # Each of 300 shops says enough, in 8 rows.
    X = pandas.DataFrame({"shop": shops[:300] * categories.ENOUGH_EACH})
    assert categories.find(X)[0]["shop"].tolist() == shops[:300]
    for names, kept, share in (
        (shops * 8, 1024, "7%"),
        (shops[:300] * 7, 128, "57%"),
        (shops[:200] * 8 + shops[200:220], 200, "1%"),
    ):
        X = pandas.DataFrame({"shop": names})
        said = f"'shop' has {len(set(names)):,} names, of .* {kept:,} .*: {share} of"
        with pytest.warns(UserWarning, match=said):
            assert categories.find(X)[0]["shop"].tolist() == shops[:kept]
    # Texts that are numbers may be meant as such.
    X = pandas.DataFrame({"shop": [str(i) for i in range(300)]})
    with pytest.warns(UserWarning, match=r"pandas.to_numeric\(X\['shop'\]"):
        categories.find(X)


@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_estimators_take_names(dtype):
    X, y = frame(1500)
    X["city"] = X["city"].astype(dtype)
    model = BudgetedKernelClassifier(20, learn_metric=False, random_state=0)
    fitted = model.fit(X[:1100], y[:1100])
    assert fitted.score(X[1100:], y[1100:]) > 0.9
    assert fitted.categories_["city"].tolist() == sorted(CITIES)
    # A row of an unseen name is predicted, by its number.
    assert fitted.predict(X[:2].assign(city="Lima")).shape == (2,)


def test_streams_take_names():
    X, y = frame()
    fitted = BudgetedKernelRegressor(20, learn_metric=False, random_state=0)
    for part in (slice(300), slice(300, None)):
        fitted.partial_fit(X[part], 1.0 * y[part])
    assert fitted.model_.scaling.num_columns == 3
    assert np.all(np.isfinite(fitted.predict(X)))


@pytest.mark.parametrize(
    "estimator",
    [
        BudgetedKernelClassifier(
            20, encode=False, learn_metric=False, penalty=1.0, random_state=0
        ),
        BudgetedOneClass(20, random_state=0),
        SMOClassifier(tolerance=1.0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_what_is_no_number_needs_an_encoding(estimator):
    X, y = frame(60)
    random = np.random.default_rng(0)
    good = pandas.DataFrame(random.normal(size=(60, 2)), columns=["size", "other"])
    fitted = estimator.fit(good.astype({"other": str}), y)
    city = X["city"].fillna("Rome")
    for bad, expected, got in (
        (pandas.date_range("2020", periods=60), TYPES, "datetime64"),
        (city, "numbers in column 'other'", f"{city[0]!r} in row 0"),
        ([{"a": 1.0}] * 60, TYPES, "dict in column 'other'"),
        (1j * good["size"], TYPES, "complex128 in column 'other'"),
    ):
        wrong = good.assign(other=bad)
        for call in (estimator.fit, fitted.predict):
            given = (wrong, y) if call == estimator.fit else (wrong,)
            refused(functools.partial(call, *given), "X", expected, got)
    gap = good["other"].astype(str).replace(str(good["other"][3]), "?")
    with (
        pytest.warns(UserWarning, match="'other' has numbers, and 1 .* '\\?' in row 3"),
        pytest.raises(ValueError, match="NaN"),
    ):
        estimator.fit(good.assign(other=gap), y)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_dates_are_refused_by_name(zone):
    X, y = frame()
    X["day"] = pandas.date_range("2020-01-01", periods=400, tz=zone)
    error = refused(lambda: BudgetedKernelClassifier(20).fit(X, y), "X", TYPES)
    assert error.got.startswith("datetime64")
    assert "column 'day'" in error.got


@pytest.mark.parametrize(
    "dtype", ["timestamp[ns][pyarrow]", "date32[pyarrow]", "period[D]", "object"]
)
def test_dates_of_every_kind_are_refused_by_name(dtype):
    if "arrow" in dtype:
        pytest.importorskip("pyarrow")
    days = pandas.Series(pandas.date_range("2020-01-01", periods=3))
    days = days.dt.to_period("D") if dtype == "period[D]" else days.astype(dtype)
    days[1] = None
    X = pandas.DataFrame({"day": days})
    refused(lambda: categories.find(X), "X", TYPES, "column 'day'", function="")


def test_categories_may_be_intervals():
    sizes = np.array([0.0, 1.0, 2.0, np.nan])
    X = pandas.DataFrame({"size": pandas.cut(sizes, [-1, 0, 1, 2])})
    found, _ = categories.find(X)
    assert found["size"].tolist() == ["(-1.0, 0.0]", "(0.0, 1.0]", "(1.0, 2.0]"]
    numbers = categories.to_numbers(X, found).to_numpy()
    np.testing.assert_equal(numbers[:, 0], [0, 1, 2, np.nan])
    whole = pandas.DataFrame({"size": pandas.cut([0, 1, 2], [-1, 0, 1, 2])})
    assert categories.to_numbers(whole, found)["size"].tolist() == [0, 1, 2]


def test_columns_of_names_need_names_of_their_own():
    X, y = frame()
    number_named, fit = X.set_axis(range(3), axis=1), BudgetedKernelClassifier(20).fit
    refused(lambda: fit(number_named, y), "X", "texts as names", "[0, 1")
    assert categories.find(number_named[[0]])[0] == {}
    twice = X.set_axis(["size", "city", "city"], axis=1)
    refused(lambda: fit(twice, y), "X", "one column", "2 of 'city'")
    # A missing column is not taken for one that is there twice.
    found = categories.find(X)[0]
    read = functools.partial(categories.to_numbers, twice, found)
    refused(read, "X", "one column", "2 of 'city'", function="")


def test_names_that_occur_once_have_a_metric():
    # Their codes have equal variances, for which LAPACK's default method may fail.
    random = np.random.default_rng(0)
    X = pandas.DataFrame({"size": random.normal(size=240)})
    X["city"] = random.choice(CITIES[:3], 240)
    y = (X["size"] > 0) ^ (X["city"] == "Rome")
    X["number"] = [f"id{i}" for i in range(240)]
    with pytest.warns(UserWarning, match="column 'number' has 240 names"):
        fitted = BudgetedKernelClassifier(20, random_state=0).fit(X, y)
    assert fitted.score(X, y) > 0.9


def test_a_fit_reads_each_column_of_a_frame_once(monkeypatch):
    X, y = frame()
    X["count"] = np.array([None, *range(1, len(X))], object)
    read, real = [], {}
    for name in ("_as_numbers", "_read_column"):
        real[name] = getattr(categories, name)

        def note(*given, name=name):
            read.append(name)
            return real[name](*given)

        monkeypatch.setattr(categories, name, note)
    model = BudgetedKernelClassifier(20, learn_metric=False, random_state=0).fit(X, y)
    assert sorted(read) == 2 * ["_as_numbers"] + 2 * ["_read_column"]
    assert model.categories_.keys() == {"city", "code"}


def test_numbers_have_no_categories():
    arrow = pytest.importorskip("pyarrow")
    X = frame()[0][["size"]]
    assert categories.find(X) == ({}, X)
    assert categories.to_numbers(X, {}) is X
    table = arrow.Table.from_pandas(X)
    assert categories.find(table) == ({}, table)
    assert categories.to_numbers(table, {}) is table


# Zones as other programs write them, in the types of NumPy, pandas, polars and Arrow.
WAYS = {
    "text": lambda zones: zones.astype(str),
    "object": lambda zones: zones.astype(str).astype(object),
    "bytes": lambda zones: zones.astype(bytes).astype(object),
    "integers": lambda zones: zones,
    "bytes-long": lambda zones: zones.astype(np.int8),
    "floats": lambda zones: zones.astype(float),
    "float32": lambda zones: zones.astype(np.float32),
    "text-of-floats": lambda zones: zones.astype(float).astype(str),
    "spaces": lambda zones: [f" {zone} " for zone in zones],
    "zeros": lambda zones: [f"0{zone}" for zone in zones],
    "category-of-texts": lambda zones: pandas.Categorical(zones.astype(str)),
    "category": lambda zones: pandas.Categorical(zones),
    "category-of-floats": lambda zones: pandas.Categorical(zones.astype(float)),
    "Int64": lambda zones: pandas.array(zones, "Int64"),
    "string": lambda zones: pandas.array(zones.astype(str), "string"),
    "mixed": lambda zones: [zone if zone % 2 else str(zone) for zone in zones.tolist()],
}
OF_TRUTH = {
    "booleans": lambda zones: zones > 0,
    "boolean": lambda zones: pandas.array(zones > 0, "boolean"),
    "text-of-booleans": lambda zones: (zones > 0).astype(str),
    "true": lambda zones: np.where(zones > 0, "true", "false"),
    "category-of-booleans": lambda zones: pandas.Categorical(zones > 0),
}
LIBRARIES = {
    "pandas": lambda columns: pandas.DataFrame(columns),
    "polars": lambda columns: pytest.importorskip("polars").DataFrame(columns),
    "Arrow": lambda columns: pytest.importorskip("pyarrow").table(columns),
}


def zone_positions(values, found, library="pandas"):
    X = LIBRARIES[library]({"zone": values, "size": np.zeros(len(values))})
    return np.asarray(categories.to_numbers(X, found)["zone"]).tolist()


@pytest.mark.parametrize("trained", ["text", "category", "text-of-floats", "bytes"])
def test_a_category_is_the_same_in_every_type(trained):
    zones = np.array([4, 1, 10, 2, 1])
    found, _ = categories.find(pandas.DataFrame({"zone": WAYS[trained](zones)}))
    order = [str(one) for one in found["zone"].tolist()]
    expected = [
        order.index(f"{one}.0" * (".0" in order[0]) or f"{one}") for one in zones
    ]
    for way, write in WAYS.items():
        assert zone_positions(write(zones), found) == expected, way


@pytest.mark.parametrize("trained", ["text", "category", *OF_TRUTH])
def test_a_boolean_is_the_same_in_every_type(trained):
    bits = np.array([1, 0, 0, 1])
    ways = WAYS | OF_TRUTH
    found, _ = categories.find(pandas.DataFrame({"zone": ways[trained](bits)}))
    for way, write in ways.items():
        # Booleans are numbers already.
        assert zone_positions(write(bits), found) == bits.tolist(), way


@pytest.mark.parametrize("library", LIBRARIES)
def test_frames_of_every_library_have_names(library):
    zones = np.array([4, 1, 10, 2, 1])
    texts = zones.astype(str).tolist()
    X = LIBRARIES[library]({"zone": texts, "size": np.zeros(5)})
    found, _ = categories.find(X)
    assert found["zone"].tolist() == ["1", "10", "2", "4"]
    for values in (texts, zones, [text.encode() for text in texts]):
        assert zone_positions(values, found, library) == [3.0, 0.0, 1.0, 2.0, 0.0]
    gaps = zone_positions([None, *texts[1:]], found, library)
    np.testing.assert_equal(gaps, [np.nan, 0, 1, 2, 0])


def test_names_that_differ_stay_apart():
    # What looks alike is the same name only where no other one is.
    X = pandas.DataFrame({"zone": ["1", "01", "1.0", "1.10", "1.1", "true"]})
    found = {"zone": np.array(sorted(X["zone"]))}
    assert sorted(zone_positions(X["zone"], found)) == [0, 1, 2, 3, 4, 5]
    assert zone_positions([1, True], found) == [found["zone"].tolist().index("1"), 6]
    versions = {"zone": np.array(["1.1", "2"])}
    assert zone_positions(["1.10", "2.0", 2], versions) == [2, 1, 1]


@pytest.mark.parametrize("way", ["text", "category", "category-of-gaps"])
def test_ids_of_64_bits_stay_apart(way):
    ids = 10**18 + np.arange(8)
    values = {
        "text": ids.astype(str),
        "category": pandas.Categorical(ids),
        "category-of-gaps": pandas.Categorical([*ids[:7].tolist(), ids[7]]),
    }[way]
    found, _ = categories.find(pandas.DataFrame({"zone": values}))
    assert found["zone"].tolist() == ids.astype(str).tolist()
    gaps = [*ids[:7].tolist(), None]
    for values in (ids, ids.astype(str), pandas.array(gaps[:7] + [ids[7]], "Int64")):
        assert zone_positions(values, found) == list(range(8))
    for library in LIBRARIES:
        if library != "polars" or pytest.importorskip("polars"):
            given = pandas.array(gaps, "Int64") if library == "pandas" else gaps
            positions = zone_positions(given, found, library)
            np.testing.assert_equal(positions, [*range(7), np.nan])
    # A float of theirs is none of them, as it stands for many.
    with pytest.warns(UserWarning, match="column 'zone' has none of the names"):
        assert zone_positions(np.tile(ids, 2).astype(float), found) == [8] * 16


def test_numbers_of_every_size_are_names():
    sizes = [-0.0, 0.1, 2.0**53, 1e300, -7.0, np.inf]
    found, _ = categories.find(pandas.DataFrame({"zone": pandas.Categorical(sizes)}))
    assert {"0", "0.1", "-7", "1e+300", "inf"} < set(found["zone"].tolist())
    positions = zone_positions(np.array(sizes), found)
    assert sorted(positions) == [0, 1, 2, 3, 4, 5]
    # The shortest digits of a float are its name, whatever its type.
    assert zone_positions(np.array(sizes[:2], np.float32), found) == positions[:2]


def test_models_that_wrote_whole_numbers_as_floats_read_them():
    found = {"zone": np.array(["1.0", "2.0", "3.0"])}
    assert (
        zone_positions([3, 1], found) == zone_positions(["3", "1.0"], found) == [2, 0]
    )


def test_a_column_without_a_known_name_is_said_by_name():
    found = {"zone": np.array(["Bern", "Rome"])}
    for values in (["Lima", "Oslo"], ["Lima"] * 10):
        with pytest.warns(
            UserWarning, match=r"column 'zone' has none .* such as 'Lima'"
        ):
            assert zone_positions(values, found) == [2] * len(values)
    # One new name in a few rows is no surprise.
    assert zone_positions(["Lima"] * 3, found) == [2] * 3


def numbers_as_text(odd, values=None):
    random = np.random.default_rng(0)
    numbers = random.normal(size=40).round(4) if values is None else values
    texts = numbers.astype(str).astype(object)
    texts[5] = odd
    return numbers, texts


@pytest.mark.parametrize("odd", ["?", "", "NA", "-", "unknown", "1,234", "forty", b"?"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_numbers_with_an_odd_text_are_numbers_with_a_gap(odd, library):
    numbers, texts = numbers_as_text(odd)
    if isinstance(odd, bytes):
        texts = np.array([odd if i == 5 else t.encode() for i, t in enumerate(texts)])
    X = LIBRARIES[library]({"size": texts.tolist()})
    numbers[5] = np.nan
    for read in (categories.find, lambda X: ({}, categories.to_numbers(X, {}))):
        with pytest.warns(UserWarning, match="column 'size' .* 1 of its 40 .* row 5"):
            known, found = read(X)
        assert known == {}
        np.testing.assert_array_equal(np.asarray(found["size"]), numbers)


def test_whole_numbers_with_a_sign_of_a_gap_are_numbers():
    numbers, texts = numbers_as_text("?", np.arange(40) % 4)
    mixed = [one if one == "?" else float(one) for one in texts]
    for values in (texts, mixed):
        X = pandas.DataFrame({"size": values})
        with pytest.warns(UserWarning, match="column 'size'"):
            known, found = categories.find(X)
        assert known == {}
        wanted = np.where(texts == "?", np.nan, numbers)
        np.testing.assert_array_equal(found["size"].to_numpy(), wanted)


@pytest.mark.parametrize(
    "values",
    [
        ["01", "02", "10"],
        ["?", *(f"{i:03}" for i in range(20))],
        ["1", "2", "3"],
        ["12", "14a", "3"],
        ["18", "19", "20+"],
        ["yes", "no", "?"],
    ],
)
def test_codes_stay_names(values):
    X = pandas.DataFrame({"zone": values * 10})
    assert categories.find(X)[0]["zone"].tolist() == sorted(values)
    X = pandas.DataFrame({"zone": pandas.Categorical(["1.5", "2.5", "?"])})
    assert len(categories.find(X)[0]["zone"]) == 3


def test_text_in_a_column_of_numbers_is_refused_by_name():
    X = pandas.DataFrame({"size": ["small", "large"]})
    read = functools.partial(categories.to_numbers, X, {})
    refused(read, "X", "numbers in column 'size'", "'small' in row 0", function="")


def test_estimators_take_numbers_as_text():
    random = np.random.default_rng(0)
    X = pandas.DataFrame({"a": random.normal(size=1500), "b": random.normal(size=1500)})
    y = np.sin(2 * X["a"]) + X["b"]
    odd = X.astype({"a": str})
    odd.loc[[5, 1200], "a"] = "?"
    fitted = BudgetedKernelRegressor(60, random_state=0, gamma=1.0, penalty=10.0)
    fitted.set_params(encode=8, learn_metric=False)
    with pytest.warns(
        UserWarning, match=r"column 'a' .* 1 of its 1,000 .*'\?' in row 5"
    ):
        fitted.fit(odd[:1000], y[:1000])
    assert fitted.categories_ == {}
    with pytest.warns(UserWarning, match="column 'a' .* in row 200"):
        score = fitted.score(odd[1000:], y[1000:])
    # One of 500 is lost: as numbers it is 0.95, as names less than 0.7.
    assert score > 0.9
    assert abs(score - fitted.score(X[1000:], y[1000:])) < 0.01
    with pytest.warns(UserWarning, match="column 'a'"):
        fitted.partial_fit(odd[:1000], y[:1000])


@pytest.fixture(scope="module")
def named():
    return BudgetedKernelClassifier(20, learn_metric=False, random_state=0).fit(
        *frame()
    )


@pytest.mark.parametrize(
    "call", ["predict", "predict_proba", "decision_function", "score", "partial_fit"]
)
def test_arrays_are_refused_where_names_were_learned(named, call):
    X, y = frame()
    labels = [y] * (call in ("score", "partial_fit"))
    # Numbers would be taken for positions of names.
    for rows in (X.to_numpy(), np.zeros((400, 3)), X.to_numpy().tolist()):
        ask = functools.partial(getattr(named, call), rows, *labels)
        error = refused(ask, "X", "be a data frame")
        assert "columns 'city', 'code'" in error.expected


def test_functions_take_the_names_of_an_estimator(named):
    X, y = frame()
    np.testing.assert_array_equal(bj.predict(named, X), named.predict(X))
    np.testing.assert_array_equal(bj.probabilities(named, X), named.predict_proba(X))
    ask = functools.partial(bj.predict, named, X.to_numpy())
    refused(ask, "X", "be a data frame", function="predict")
    again = bj.calibrate(named, X, y)
    # A frame has names, and an array their numbers.
    numbers = categories.to_numbers(X, named.categories_).to_numpy()
    for rows in (X, numbers, X[["code", "size", "city"]]):
        np.testing.assert_array_equal(bj.predict(again, rows), named.predict(X))
    # An array becomes a frame, which a program that calls the model by arrays does.
    back = pandas.DataFrame(X.to_numpy(), columns=named.feature_names_in_)
    np.testing.assert_array_equal(named.predict(back), named.predict(X))


def test_saved_estimators_know_a_category_in_other_types(named, tmp_path):
    X, _ = frame()
    bj.save(tmp_path / "model", named)
    loaded = bj.load(tmp_path / "model")
    texts = X.assign(code=X["code"].astype(object).astype(str).replace("nan", None))
    np.testing.assert_array_equal(loaded.predict(texts), named.predict(X))


@pytest.mark.parametrize("library", LIBRARIES)
def test_lists_are_a_column_for_each_place(library):
    places = np.arange(12.0).reshape(4, 3)
    X = LIBRARIES[library]({"e": places.tolist(), "size": np.zeros(4)})
    spread = categories.spread_lists(X)
    assert columns.column_names(spread) == ("e[0]", "e[1]", "e[2]", "size")
    np.testing.assert_array_equal(np.asarray(spread)[:, :3], places)
    plain = LIBRARIES[library]({"size": np.zeros(4)})
    assert categories.spread_lists(plain) is plain


@pytest.mark.parametrize(("bad", "shown"), [([1.0], "one of 1"), (None, "None")])
def test_lists_of_other_lengths_are_refused_by_name(bad, shown):
    X = pandas.DataFrame({"e": [[1.0, 2.0], [3.0, 4.0], bad]})
    spread = functools.partial(categories.spread_lists, X)
    error = refused(spread, "X", "lists of 2 in column 'e'", function="")
    assert error.got.startswith(f"{shown} in row 2")

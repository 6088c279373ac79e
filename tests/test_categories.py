"""Columns of names in data frames."""

import numpy as np
import pytest

from budgetjax.estimators import (
    BudgetedKernelClassifier,
    BudgetedKernelRegressor,
    categories,
)

pandas = pytest.importorskip("pandas")
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
    found = categories.find(X)
    assert found["city"].tolist() == ["Bern", "Kyiv", "Oslo", "Rome"]
    assert found["code"].tolist() == ["1.0", "2.0", "3.0"]
    numbers = categories.to_numbers(X, found)
    assert list(numbers.columns) == ["size", "city", "code"]
    known = X["city"].notna().to_numpy()
    cities = found["city"][numbers["city"][known].astype(int)]
    assert cities.tolist() == X["city"][known].tolist()
    assert np.all(np.isnan(numbers["city"][~known]))
    # Without missing values the same numbers are integers; others are unseen.
    other = pandas.DataFrame({"size": [0.0], "city": ["Lima"], "code": [3]})
    assert categories.to_numbers(other, found).to_numpy().tolist() == [[0.0, 4.0, 2.0]]


def test_rare_names_are_as_unseen_ones():
    names = [f"{i:03}" for i in range(categories.MOST_CATEGORIES)] * 2 + ["rare"]
    X = pandas.DataFrame({"name": names})
    found = categories.find(X)
    assert len(found["name"]) == categories.MOST_CATEGORIES
    assert categories.to_numbers(X, found)["name"].iloc[-1] == len(found["name"])


@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_estimators_take_names(dtype):
    X, y = frame(1500)
    X["city"] = X["city"].astype(dtype)
    fitted = BudgetedKernelClassifier(20, random_state=0).fit(X[:1100], y[:1100])
    assert fitted.score(X[1100:], y[1100:]) > 0.9
    assert fitted.categories_["city"].tolist() == sorted(CITIES)
    # A row of an unseen name is predicted, by its number.
    assert fitted.predict(X[:2].assign(city="Lima")).shape == (2,)


def test_streams_take_names():
    X, y = frame()
    fitted = BudgetedKernelRegressor(20, random_state=0)
    for part in (slice(300), slice(300, None)):
        fitted.partial_fit(X[part], 1.0 * y[part])
    assert fitted.model_.scaling.num_columns == 3
    assert np.all(np.isfinite(fitted.predict(X)))


def test_names_need_an_encoding():
    X, y = frame()
    with pytest.raises(ValueError, match="could not convert string to float"):
        BudgetedKernelClassifier(20, encode=False).fit(X, y)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_dates_are_refused_by_name(zone):
    X, y = frame()
    X["day"] = pandas.date_range("2020-01-01", periods=400, tz=zone)
    with pytest.raises(ValueError, match=r"X must .* got datetime64.* column 'day'"):
        BudgetedKernelClassifier(20).fit(X, y)


@pytest.mark.parametrize(
    "dtype", ["timestamp[ns][pyarrow]", "date32[pyarrow]", "period[D]", "object"]
)
def test_dates_of_every_kind_are_refused_by_name(dtype):
    if "arrow" in dtype:
        pytest.importorskip("pyarrow")
    days = pandas.Series(pandas.date_range("2020-01-01", periods=3))
    days = days.dt.to_period("D") if dtype == "period[D]" else days.astype(dtype)
    days[1] = None
    with pytest.raises(ValueError, match=r"X must .* got \w+.* column 'day'"):
        categories.find(pandas.DataFrame({"day": days}))


def test_categories_may_be_intervals():
    sizes = np.array([0.0, 1.0, 2.0, np.nan])
    X = pandas.DataFrame({"size": pandas.cut(sizes, [-1, 0, 1, 2])})
    found = categories.find(X)
    assert found["size"].tolist() == ["(-1.0, 0.0]", "(0.0, 1.0]", "(1.0, 2.0]"]
    numbers = categories.to_numbers(X, found).to_numpy()
    np.testing.assert_equal(numbers[:, 0], [0, 1, 2, np.nan])


def test_columns_of_names_need_names_of_their_own():
    X, y = frame()
    number_named = X.set_axis(range(3), axis=1)
    with pytest.raises(ValueError, match=r"X must have texts as names .* got \[0, 1"):
        BudgetedKernelClassifier(20).fit(number_named, y)
    assert categories.find(number_named[[0]]) == {}
    twice = X.set_axis(["size", "city", "city"], axis=1)
    with pytest.raises(ValueError, match=r"X must have one column .* got 2 of 'city'"):
        BudgetedKernelClassifier(20).fit(twice, y)
    # A missing column is not taken for one that is there twice.
    with pytest.raises(ValueError, match=r"X must have one column .* got 2 of 'city'"):
        categories.to_numbers(twice, categories.find(X))


def test_names_that_occur_once_have_a_metric():
    # Their codes have equal variances, for which LAPACK's default method may fail.
    random = np.random.default_rng(0)
    X = pandas.DataFrame({"size": random.normal(size=240)})
    X["city"] = random.choice(CITIES[:3], 240)
    y = (X["size"] > 0) ^ (X["city"] == "Rome")
    X["number"] = [f"id{i}" for i in range(240)]
    fitted = BudgetedKernelClassifier(20, random_state=0).fit(X, y)
    assert fitted.score(X, y) > 0.9


def test_numbers_have_no_categories():
    arrow = pytest.importorskip("pyarrow")
    X = frame()[0][["size"]]
    assert categories.find(X) == {}
    assert categories.to_numbers(X, {}) is X
    # Tables of Arrow are read as arrays, as before.
    table = arrow.Table.from_pandas(X)
    assert categories.find(table) == {}
    assert categories.to_numbers(table, {}) is table

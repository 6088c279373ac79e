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


def test_numbers_have_no_categories():
    arrow = pytest.importorskip("pyarrow")
    X = frame()[0][["size"]]
    assert categories.find(X) == {}
    assert categories.to_numbers(X, {}) is X
    # Tables of Arrow are read as arrays, as before.
    table = arrow.Table.from_pandas(X)
    assert categories.find(table) == {}
    assert categories.to_numbers(table, {}) is table

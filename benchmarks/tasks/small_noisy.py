"""Few and noisy rows: the defaults compared to scikit-learn's.

No hyperparameter is tuned: `BudgetedKernelClassifier()` and
`BudgetedKernelRegressor()`, with a hundred support vectors, are compared to
`LogisticRegression` or `Ridge`, `SVC` or `SVR`, and `HistGradientBoostingClassifier` or
`-Regressor`, all with their defaults. Features and real targets are standardised by the
training rows. Each figure is accuracy or R^2 in percent on up to 2,000 other rows, the
mean over several draws of the rows.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from methods import ESTIMATORS
from runner import Case, Row, given, mean, product
from sklearn import datasets
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

SIZES = (50, 300)
TESTED, GENERATED = 2000, 3000


def linear(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One feature of ten explains a fifth of the target's variance."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(GENERATED, 10))
    return X, X[:, 0] + 2 * random.normal(size=GENERATED)


# The data for a seed; real data are the same for all seeds.
CLASSIFICATION = {
    "breast_cancer": lambda seed: datasets.load_breast_cancer(return_X_y=True),
    "digits": lambda seed: datasets.load_digits(return_X_y=True),
}
REGRESSION = {
    "diabetes": lambda seed: datasets.load_diabetes(return_X_y=True),
    "friedman1, noise 3": lambda seed: datasets.make_friedman1(
        GENERATED, noise=3.0, random_state=seed
    ),
    "linear, R^2 0.2": linear,
}
DATA = CLASSIFICATION | REGRESSION


def models(regresses: bool, seed: int) -> dict[str, Any]:
    """All with their defaults."""
    return {
        "budgetjax": ESTIMATORS["budgetjax, 100"](regresses, seed),
        "linear": Ridge() if regresses else LogisticRegression(max_iter=1000),
        "SVM": SVR() if regresses else SVC(),
        "boosted trees": ESTIMATORS["HistGradientBoosting"](regresses, seed),
    }


def measured(name: str, rows: int, seeds: int) -> Row:
    """The mean score of each in percent."""
    scores: list[Row] = []
    for seed in range(seeds):
        X, y = DATA[name](seed)
        order = np.random.default_rng(seed).permutation(len(y))
        learned, tested = order[:rows], order[rows : rows + TESTED]
        row: Row = {}
        for method, model in models(name in REGRESSION, seed).items():
            if name in REGRESSION:
                model = TransformedTargetRegressor(model, transformer=StandardScaler())
            model = make_pipeline(StandardScaler(), model).fit(X[learned], y[learned])
            row[method] = 100 * float(model.score(X[tested], y[tested]))
        scores.append(row)
    return mean(scores)


def cases() -> Iterator[Case]:
    """All sets and numbers of rows."""
    return product(measured, data=DATA, rows=SIZES, seeds=given("seeds", 5))

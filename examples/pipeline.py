"""The estimator in a scikit-learn pipeline, compared to scikit-learn's own.

    python examples/pipeline.py
    python examples/pipeline.py --budget 50

The data are handwritten digits, 1,200 for training and 597 for testing. Each pipeline
standardises the pixels and then classifies; a grid search with three folds chooses its
hyperparameters. `SVC` has no limit on support vectors; the other two have a fixed
number of vectors or components.
"""

import argparse
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

try:
    from sklearn.datasets import load_digits
    from sklearn.kernel_approximation import Nystroem
    from sklearn.model_selection import GridSearchCV, train_test_split
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC, LinearSVC
except ImportError as error:
    raise SystemExit(f'pipeline: {error}; pip install ".[sklearn]"') from error

from budgetjax.estimators import BudgetedKernelClassifier

TRAIN_ROWS = 1200
FOLDS = 3
GAMMAS = (0.003, 0.01, 0.03)
PENALTIES = (1.0, 10.0, 100.0)


class Candidate(NamedTuple):
    """A pipeline to compare.

    Attributes:
      name: the name in the table.
      steps: the steps after the scaler.
      grid: values of their parameters to choose from.
    """

    name: str
    steps: list[tuple[str, Any]]
    grid: dict[str, Sequence[Any]]


def candidates(budget: int) -> list[Candidate]:
    """Three kernel classifiers with the same kernel and the same choices."""
    return [
        Candidate(
            "BudgetedKernelClassifier",
            [("classify", BudgetedKernelClassifier(budget, random_state=0))],
            {"classify__gamma": GAMMAS, "classify__penalty": PENALTIES},
        ),
        Candidate(
            "Nystroem + LinearSVC",
            [
                ("map", Nystroem(n_components=budget, random_state=0)),
                ("classify", LinearSVC(random_state=0)),
            ],
            {"map__gamma": GAMMAS, "classify__C": PENALTIES},
        ),
        Candidate(
            "SVC, no budget",
            [("classify", SVC())],
            {"classify__gamma": GAMMAS, "classify__C": PENALTIES},
        ),
    ]


def searched(candidate: Candidate, X: np.ndarray, y: np.ndarray) -> GridSearchCV:
    """The search, with the best pipeline trained on all rows."""
    pipeline = Pipeline([("scale", StandardScaler()), *candidate.steps])
    return GridSearchCV(pipeline, candidate.grid, cv=FOLDS).fit(X, y)


def vectors(pipeline: Pipeline) -> int:
    """The number of support vectors or components of a model."""
    steps = pipeline.named_steps
    if "map" in steps:
        return steps["map"].n_components
    return int(np.sum(steps["classify"].n_support_))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--budget", type=int, default=100, help="support vectors, or components"
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=TRAIN_ROWS,
        help="training rows; the rest is for testing",
    )
    options = parser.parse_args(arguments)
    X, y = load_digits(return_X_y=True)
    parts = train_test_split(X, y, train_size=options.rows, stratify=y, random_state=0)
    X_train, X_test, y_train, y_test = map(np.asarray, parts)
    print(
        f"{'digits':<26}{'gamma':>7}{'C':>6}{'vectors':>9}{'validation':>12}"
        f"{'test':>8}{'seconds':>9}"
    )
    for candidate in candidates(options.budget):
        start = time.perf_counter()
        search = searched(candidate, X_train, y_train)
        seconds = time.perf_counter() - start
        gamma, penalty = (search.best_params_[name] for name in candidate.grid)
        print(
            f"{candidate.name:<26}{gamma:>7g}{penalty:>6g}"
            f"{vectors(search.best_estimator_):>9}{search.best_score_:>12.1%}"
            f"{search.score(X_test, y_test):>8.1%}{seconds:>9.1f}"
        )
    fits = FOLDS * len(GAMMAS) * len(PENALTIES) + 1
    print(
        f"\nAccuracies are those of held-out folds and of {len(y_test)} test rows; "
        f"seconds\nare those of {fits} fits, the first ones of budgetjax with "
        "compilation."
    )


if __name__ == "__main__":
    main()

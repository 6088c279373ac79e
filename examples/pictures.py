"""Three pictures of an image classifier: vectors, accuracy and probabilities.

    python examples/pictures.py
    python examples/pictures.py --data mnist --rows 20000 --budget 50 100 200 500

One classifier is trained per budget. The vectors of the one with budget 100, or the
largest budget below, are drawn as images, next to their classes. The functions of
`budgetjax.plots` draw into any axes of matplotlib.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from budgetjax import datasets, plots

try:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC, LinearSVC
    from tqdm import tqdm

    from budgetjax.estimators import BudgetedKernelClassifier
except ImportError as error:
    raise SystemExit(f'pictures: {error}; pip install ".[examples]"') from error

SHOWN = 100  # the maximum number of vectors
SEEDS = range(3)


def panel(size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure, and its axes."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        *("--data", "-d"), choices=("digits", "usps", "mnist"), default="digits"
    )
    parser.add_argument(
        *("--budget", "-b"), type=int, nargs="+", default=[20, 50, 100, 200]
    )
    parser.add_argument(
        "--rows", type=int, help="first rows of the training part to use"
    )
    parser.add_argument("--folder", default=".", help="folder for the pictures")
    options = parser.parse_args(arguments)
    folder = Path(options.folder)
    if not folder.is_dir():
        parser.error(f"--folder: there is no folder {folder}")
    # Pixels share one scale, so they are not standardised.
    data = datasets.load(options.data, standardise=False)
    X, y = data.X_train[: options.rows], data.y_train[: options.rows]
    budgets = sorted(set(options.budget))
    drawn = max((budget for budget in budgets if budget <= SHOWN), default=budgets[0])

    fitted, accuracies = {}, np.zeros((len(SEEDS), len(budgets)))
    with tqdm(total=accuracies.size, unit="model") as bar:
        for (i, j), _ in np.ndenumerate(accuracies):
            budget = budgets[j]
            # Not encoded, so that vectors are images.
            model = BudgetedKernelClassifier(
                budget, encode=False, random_state=SEEDS[i]
            ).fit(X, y)
            accuracies[i, j] = model.score(data.X_test, data.y_test)
            fitted[budget] = model
            bar.update()
    svm = SVC(C=10).fit(X, y)
    features = Nystroem(gamma=svm._gamma, n_components=drawn, random_state=0)
    rival = make_pipeline(features, CalibratedClassifierCV(LinearSVC())).fit(X, y)
    whole = svm.score(data.X_test, data.y_test)
    print(f"{data.name}: {len(y):,} images to train, {len(data.y_test):,} to test")
    for budget, percent in zip(budgets, 100 * accuracies.mean(axis=0), strict=True):
        print(f"{budget:7,} vectors: {percent:.1f}% right")
    print(f"{len(svm.support_):7,} vectors of the SVM: {100 * whole:.1f}% right")

    height = round(X.shape[1] ** 0.5)
    ours, title = fitted[drawn], f"{data.name}, {drawn} vectors"
    with rc_context(plots.STYLE):
        figure, axes = panel((7, 4.2))
        plots.support_images(ours, (height, height), axes=axes)
        axes.set_title(title)
        figure.savefig(folder / "vectors.png", dpi=150)

        figure, axes = panel((4.2, 3))
        curves = {"BudgetedKernelClassifier": (budgets, accuracies)}
        name = f"SVM, {len(svm.support_):,} vectors"
        plots.accuracy_by_budget(curves, reference={name: whole}, axes=axes)
        axes.set_title(data.name)
        figure.savefig(folder / "budget.png", dpi=150)

        figure, axes = panel((3.6, 3.6))
        chances = {
            "BudgetedKernelClassifier": ours.predict_proba(data.X_test),
            "Nystroem, calibrated LinearSVC": rival.predict_proba(data.X_test),
        }
        curves = {
            name: plots.reliability_curve(found, data.y_test, ours.classes_)
            for name, found in chances.items()
        }
        plots.reliability(curves, axes=axes)
        axes.set_title(title)
        figure.savefig(folder / "reliability.png", dpi=150)
    print(f"Pictures: vectors.png, budget.png and reliability.png in {folder}")


if __name__ == "__main__":
    main()

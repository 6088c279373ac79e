"""Estimators in the manner of scikit-learn, on the functional core."""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "budgetjax.estimators needs scikit-learn: pip install 'budgetjax[sklearn]'"
    ) from error

from budgetjax.estimators.batch import BudgetSVC, MPUClassifier, SBPClassifier
from budgetjax.estimators.online import (
    BudgetedKernelClassifier,
    BudgetedKernelRegressor,
)

__all__ = [
    "BudgetSVC",
    "BudgetedKernelClassifier",
    "BudgetedKernelRegressor",
    "MPUClassifier",
    "SBPClassifier",
]

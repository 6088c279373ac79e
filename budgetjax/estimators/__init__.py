"""scikit-learn estimators on the functional core."""

from typing import TYPE_CHECKING, Any

from budgetjax._errors import names_errors

if TYPE_CHECKING:
    from budgetjax.estimators.batch import (
        BudgetSVC,
        MPUClassifier,
        SBPClassifier,
        SMOClassifier,
        SolverClassifier,
    )
    from budgetjax.estimators.classifier import BudgetedKernelClassifier
    from budgetjax.estimators.novelty import BudgetedOneClass
    from budgetjax.estimators.regressor import BudgetedKernelRegressor

__all__ = [
    "BudgetSVC",
    "BudgetedKernelClassifier",
    "BudgetedKernelRegressor",
    "BudgetedOneClass",
    "MPUClassifier",
    "SBPClassifier",
    "SMOClassifier",
    "SolverClassifier",
]


@names_errors("budgetjax.estimators")
def __getattr__(name: str) -> Any:
    """Imports the estimators on first use, since the command line needs none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from budgetjax import _checks

    _checks.import_optional("sklearn")
    from budgetjax.estimators import batch, classifier, novelty, regressor

    for module in (batch, classifier, novelty, regressor):
        globals().update({k: v for k, v in vars(module).items() if k in __all__})
    return globals()[name]

"""River estimators: online learners, one row at a time or in mini-batches."""

from budgetjax import _checks
from budgetjax._errors import names_errors

with names_errors("budgetjax.river"):
    _checks.import_optional("river")
    from budgetjax.river.classifier import BudgetedClassifier
    from budgetjax.river.encoder import Encoder
    from budgetjax.river.one_class import BudgetedOneClass
    from budgetjax.river.regressor import BudgetedRegressor

__all__ = ["BudgetedClassifier", "BudgetedOneClass", "BudgetedRegressor", "Encoder"]

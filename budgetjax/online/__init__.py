"""Online algorithms: learning from a stream on a budget, one file each."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from budgetjax.online.algorithm import Algorithm

# The algorithms, each in a module of its name. They are listed, and not found, where
# the command line need not wait for JAX.
ALGORITHMS = (
    *("ahpatron", "alma", "arow", "forgetron", "fourier", "norma", "nystrom"),
    *("passive_aggressive", "pegasos", "perceptron", "projectron", "sgd"),
)
# Algorithms of users by name; see `budgetjax.register`. They are kept here, where the
# command line finds them without waiting for JAX.
registered: "dict[str, Algorithm[Any, Any]]" = {}
# The default budget of estimators and commands.
BUDGET = 100

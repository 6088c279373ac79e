"""Online learners: learning from a stream on a budget."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from budgetjax.online.learner import OnlineLearner

# The names of the learners of `budgetjax.registry`, listed where the command
# line need not wait for JAX.
LEARNERS = (
    *("ahpatron", "alma", "arow", "forgetron", "fourier", "krlst", "norma"),
    *("nystrom", "passive_aggressive", "pegasos", "perceptron", "projectron", "sgd"),
    "mixture",
)
# Learners of users by name; see `budgetjax.register`. They are kept here, where the
# command line finds them without waiting for JAX.
registered: "dict[str, type[OnlineLearner]]" = {}
# The default budget of estimators and commands.
BUDGET = 100

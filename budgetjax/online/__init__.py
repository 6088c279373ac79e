"""Online algorithms: learning from a stream on a budget, one file each."""

# The registry: `NAME.py` holds the algorithm `NAME`; see `budgetjax.online.registry`.
ALGORITHMS = (
    "alma",
    "arow",
    "forgetron",
    "fourier",
    "norma",
    "nystrom",
    "passive_aggressive",
    "pegasos",
    "perceptron",
    "projectron",
    "sgd",
)

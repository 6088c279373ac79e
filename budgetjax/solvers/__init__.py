"""Solvers of a whole training set, kernel and linear, one file each."""

# The registry, by the floor of each.
SOLVERS = {
    "budget_svm": "kernel",
    "kernel_pegasos": "kernel",
    "sbp": "kernel",
    "sdca": "kernel",
    "smo": "kernel",
    "dcd": "linear",
    "linear_pegasos": "linear",
    "mpu": "linear",
}

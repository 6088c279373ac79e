"""What each of several processes runs that share a sweep: `rank count port file`."""

import sys

import jax
import numpy as np

import budgetjax as bj
from budgetjax.datasets import checkerboard


def main(rank, count, port, path):
    jax.config.update("jax_num_cpu_devices", 1)
    if count > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", count, rank)
    assert jax.device_count() == count
    X, y = checkerboard(200, seed=0)
    grid = bj.grid(gamma=[1.0, 8.0, 20.0], budget=[10])
    states = grid.init(
        lambda gamma, budget: bj.perceptron.init(
            bj.RBF(gamma),
            num_features=2,
            budget=budget,
            capacity=20,
            maintenance=bj.RemoveOldest(),
        )
    )
    result = bj.sweep(bj.perceptron, states, X, y)
    expansion = result.states.expansion
    # The spare row of the vectors is arbitrary.
    vectors = expansion.vectors[:, :-1]
    coefficients = expansion.coefficients_and_sums
    np.savez(path, result.errors, result.rounds, vectors, coefficients)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), sys.argv[4])

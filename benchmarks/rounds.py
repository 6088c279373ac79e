"""Microseconds a round of the plain scan, when every round changes the model.

    python benchmarks/rounds.py

The worst case of a stream: random labels, so that every example violates. Steady state:
the model is full before the clock starts, and the median of several passes is reported,
beside the time of predicting the same examples with the final model. The table goes to
the terminal and, with versions and machine, to `benchmarks/results/rounds.json`.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import measure
import numpy as np

import budgetjax as bj

SIZES = ((100, 22), (500, 54))
ROWS = 20_000


def learners(num_features):
    kernel = bj.RBF(0.5 / num_features)
    always = {"regularization": 1.0}

    def make(algorithm, **arguments):
        return algorithm, lambda budget: algorithm.init(
            kernel, num_features=num_features, budget=budget, **arguments
        )

    return {
        "perceptron, remove oldest": make(
            bj.perceptron, maintenance=bj.RemoveOldest(), margin=1e6
        ),
        "perceptron, remove random": make(
            bj.perceptron, maintenance=bj.RemoveRandom(), margin=1e6
        ),
        "perceptron, remove largest margin": make(
            bj.perceptron, maintenance=bj.RemoveLargestMargin(), margin=1e6
        ),
        "forgetron": make(bj.forgetron),
        "pegasos, remove smallest": make(
            bj.pegasos, maintenance=bj.RemoveSmallest(), **always
        ),
        "pegasos, merge": make(bj.pegasos, maintenance=bj.Merge(), **always),
    }


def main():
    parser = argparse.ArgumentParser(description="The plain scan, worst case")
    parser.add_argument("--repeats", type=int, default=7)
    results = Path(__file__).parent / "results" / "rounds.json"
    parser.add_argument("--output", type=Path, default=results)
    arguments = parser.parse_args()

    table = []
    for budget, num_features in SIZES:
        random = np.random.default_rng(0)
        X = jnp.asarray(random.normal(size=(ROWS, num_features)), jnp.float32)
        y = jnp.asarray(random.choice([-1.0, 1.0], ROWS), jnp.float32)
        for name, (algorithm, init) in learners(num_features).items():
            state, _ = bj.run(algorithm, init(budget), X, y)
            before = int(state.num_updates)
            scan = measure.learning(algorithm, state, X, y, block_size=1)
            new, _ = scan()
            table.append(
                {
                    "learner": name,
                    "B": budget,
                    "d": num_features,
                    "violations": (int(new.num_updates) - before) / ROWS,
                    "scan us": measure.median(scan, arguments.repeats) / ROWS * 1e6,
                    "predict us": measure.median(
                        lambda state=state, X=X: bj.decision_function(state, X),
                        arguments.repeats,
                    )
                    / ROWS
                    * 1e6,
                }
            )
            jax.clear_caches()
    measure.report(table, arguments.output)


if __name__ == "__main__":
    main()

"""Microseconds per round, plain scan and blocks, when every round is an update.

    python benchmarks/rounds.py

This is the worst case of a stream: labels are random, so every example violates. The
model is full before the clock starts. The table has the median of several passes and
the time of predicting the same examples with the final model. The table goes to the
terminal and, with versions and machine, to `benchmarks/results/rounds.json`.
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
# Learners whose updates go over all pairs of support vectors get a tenth of the rows.
OVER_PAIRS = ("project", "pair", "nearest")


def learners(num_features):
    kernel = bj.RBF(0.5 / num_features)
    pegasos = bj.Pegasos(regularization=1.0)
    perceptron = bj.Perceptron(margin=1e6)

    def make(learner, **shared):
        return lambda budget: learner.init(
            kernel, num_features=num_features, budget=budget, **shared
        )

    return {
        "perceptron, remove oldest": make(perceptron, maintenance=bj.RemoveOldest()),
        "perceptron, remove random": make(perceptron, maintenance=bj.RemoveRandom()),
        "perceptron, remove largest margin": make(
            perceptron, maintenance=bj.RemoveLargestMargin()
        ),
        "forgetron": make(bj.Forgetron()),
        "pegasos, remove smallest": make(pegasos, maintenance=bj.RemoveSmallest()),
        "pegasos, merge": make(pegasos, maintenance=bj.Merge()),
        "pegasos, multi-merge": make(pegasos, maintenance=bj.MultiMerge()),
        "pegasos, merge best pair": make(pegasos, maintenance=bj.MergeBestPair()),
        "pegasos, project": make(pegasos, maintenance=bj.Project()),
        "pegasos, project best": make(pegasos, maintenance=bj.Project(best=True)),
        "passive-aggressive, onto candidate": make(
            bj.PassiveAggressive(), maintenance=bj.ProjectOntoCandidate()
        ),
        "passive-aggressive, onto nearest": make(
            bj.PassiveAggressive(), maintenance=bj.ProjectOntoNearest()
        ),
        "norma": make(bj.NORMA(learning_rate=0.1, regularization=1.0)),
        "projectron++, threshold 2": make(
            bj.Projectron(margin_updates=True, threshold=2.0)
        ),
        "fourier": make(bj.Fourier()),
        "nystrom": make(bj.Nystrom()),
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
        points = jnp.asarray(random.normal(size=(ROWS, num_features)), jnp.float32)
        labels = jnp.asarray(random.choice([-1.0, 1.0], ROWS), jnp.float32)
        for name, init in learners(num_features).items():
            rows = ROWS // 10 if any(word in name for word in OVER_PAIRS) else ROWS
            X, y = points[:rows], labels[:rows]
            state, _ = bj.run(init(budget), X, y)
            before = int(state.num_updates)
            scan = measure.learning(state, X, y, block_size=1)
            blocks = measure.learning(state, X, y)
            new, _ = scan()
            table.append(
                {
                    "learner": name,
                    "B": budget,
                    "d": num_features,
                    "violations": (int(new.num_updates) - before) / rows,
                    "scan us": measure.median(scan, arguments.repeats) / rows * 1e6,
                    "blocks us": measure.median(blocks, arguments.repeats) / rows * 1e6,
                    "predict us": measure.median(
                        lambda state=state, X=X: bj.decision_function(state, X),
                        arguments.repeats,
                    )
                    / rows
                    * 1e6,
                }
            )
            jax.clear_caches()
    measure.report(table, arguments.output)


if __name__ == "__main__":
    main()

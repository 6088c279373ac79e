"""What an editor knows: read by pyright, not run.

An `ignore` that pyright does not need is an error here, so each shows a mistake found.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from typing import assert_type

import numpy as np

import budgetjax as bj
from budgetjax.solvers.kernel import smo
from budgetjax.solvers.linear import dcd

X, y = np.ones((3, 2)), np.array([1, -1, 1])

state = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=5)
assert_type(state, bj.State)
assert_type(bj.step(state, X[0], 1), bj.State)
assert_type(bj.run(state, X, y)[0], bj.State)
print(state.num_mistaks)  # pyright: ignore
bj.Perceptron(margni=0.5)  # pyright: ignore
bj.Perceptron().init(bj.RBF(1.0), num_features=2, budgett=5)  # pyright: ignore
bj.AROW().init(bj.RBF(1.0), num_features=2, budget="5")  # pyright: ignore

dual = bj.smo.init(X, y, kernel=bj.RBF(1.0), penalty=1.0)
assert_type(dual, smo.State)
bj.smo.init(X, y, kernel=bj.RBF(1.0), penalti=1.0)  # pyright: ignore

solution = bj.solve(bj.smo, X, y, kernel=bj.RBF(1.0), penalty=2.0)
assert_type(solution, bj.Solution[smo.State, bj.KernelModel])
print(solution.model.coefs)  # pyright: ignore
several = bj.solve(bj.dcd, X, y, penalty=[1.0, 2.0])
assert_type(several, tuple[bj.Solution[dcd.State, bj.LinearModel], ...])
print(several[0].state.weigt)  # pyright: ignore
bj.solve(bj.smo, X, y, state=several[0].state)  # pyright: ignore

"""What an editor knows: read by pyright, not run.

An `ignore` that pyright does not need is an error here, so each shows a mistake found.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from typing import assert_type

import numpy as np

import budgetjax as bj
from budgetjax.solvers.kernel.hinge_dual import HingeState
from budgetjax.solvers.linear.dcd import DCDState

X, y = np.ones((3, 2)), np.array([1, -1, 1])

state = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=5)
assert_type(state, bj.State)
assert_type(bj.step(state, X[0], 1), bj.State)
assert_type(bj.run(state, X, y)[0], bj.State)
print(state.num_mistaks)  # pyright: ignore
bj.Perceptron(margni=0.5)  # pyright: ignore
bj.Perceptron().init(bj.RBF(1.0), num_features=2, budgett=5)  # pyright: ignore
bj.AROW().init(bj.RBF(1.0), num_features=2, budget="5")  # pyright: ignore

solver = bj.SMO(bj.RBF(1.0), penalty=1.0)
bj.SMO(bj.RBF(1.0), penalti=1.0)  # pyright: ignore
bj.SMO(penalty=1.0)  # pyright: ignore
data = solver.read(X, y)
assert_type(data, bj.TrainingSet)
dual = solver.init(data)
assert_type(dual, HingeState)
assert_type(solver.step(dual, data), HingeState)

solution = bj.solve(solver, X, y)
assert_type(solution, bj.Solution[HingeState, bj.KernelModel])
print(solution.model.coefs)  # pyright: ignore
again = bj.solve(solver, data, start=solution.state, cache=bj.KernelCache())
assert_type(again, bj.Solution[HingeState, bj.KernelModel])
bj.solve(solver, X)  # pyright: ignore
bj.solve(solver, data, weight=y)  # pyright: ignore
linear = bj.solve(bj.DCD(2.0), X, y)
assert_type(linear, bj.Solution[DCDState, bj.LinearModel])
print(linear.state.weigt)  # pyright: ignore
bj.solve(solver, X, y, start=linear.state)  # pyright: ignore

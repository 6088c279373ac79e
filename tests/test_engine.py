"""The meaning of a round in plain code, beside the programs that run it."""

import functools

import jax
import numpy as np
import registry

import budgetjax as bj
from budgetjax.online import engine, examples

# Neither feature maps, whose rounds are steps of an optimiser, nor what `plain_step`
# leaves out.
PLAIN = [
    row
    for row in registry.ROWS
    if type(row.learner).block is bj.Learner.block
    and not row.shared.get("average")
    and "delayed" not in row.name
    and row.name != "ahpatron-multiclass"
]
# Each is traced anew; some are beyond the budget.
ROUNDS, BUDGET = 6, 4
# Without the second order, which takes longest to trace.
QUICK = [row for row in registry.FAMILIES if row.name != "arow-multiclass"]


@functools.partial(registry.each, rows=PLAIN, quick=QUICK)
def test_a_step_is_a_plain_round(row, double):
    X, y = row.stream(ROUNDS)
    plain = stepped = row.roomy(budget=BUDGET, dtype=np.float64)
    step = jax.jit(bj.step)
    for x, label in zip(X.astype(np.float64), y, strict=True):
        cast_x, cast_label, _ = examples.check_example(plain, x, label, None)
        plain = engine.plain_step(plain, cast_x, cast_label)
        stepped = step(stepped, x, label)
    assert int(plain.num_mistakes) == int(stepped.num_mistakes)
    assert int(plain.num_updates) == int(stepped.num_updates)
    one, other = bj.support(plain), bj.support(stepped)
    np.testing.assert_array_equal(one.mask, other.mask)
    most = np.abs(other.coefficients).max()
    for mine, its in zip(one[:2], other[:2], strict=True):
        np.testing.assert_allclose(mine, its, rtol=0, atol=1e-9 * max(1, most))

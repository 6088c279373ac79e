"""The compiled loop: no copy of a support matrix, one program for all values."""

import functools
import re

import jax
import jax.numpy as jnp
import pytest
import registry

import budgetjax as bj
from budgetjax import engine

BUDGET, FEATURES, BLOCK = 37, 11, 19


def compiled_text(row, block_size):
    state = row.init(budget=BUDGET, num_features=FEATURES)
    X, y = row.stream(50, num_features=FEATURES)
    X, y, weights = engine.stream("test", state, X, y, None)
    program = engine.run_checked.lower(row.algorithm, state, X, y, weights, block_size)
    return program.compile().as_text()


def copies_in_loops(text, shape):
    """Instructions outside the entry computation that copy an array of this shape."""
    found, computation = [], None
    for line in text.splitlines():
        if line.startswith(("ENTRY", "%", "fused_computation")) and "{" in line:
            computation = line.split()[0]
        copies = re.search(rf"= f32\[{shape}\]\S* (copy|copy-start)\(", line)
        if copies and computation != "ENTRY":
            found.append(line.strip())
    return found


# A ball with projections sums the whole kernel matrix at every update; learners on
# features have no loop over violations.
OTHERS = ("perceptron-unbudgeted", "pegasos-ball-project-average")


def learners():
    for row in registry.firsts():
        if row.name not in OTHERS and isinstance(row.algorithm, bj.Algorithm):
            yield row


LEARNERS = tuple(learners())


@functools.partial(registry.each, rows=LEARNERS)
@pytest.mark.parametrize("block_size", [1, BLOCK])
def test_no_copy_of_the_support_vectors_in_the_loop(row, block_size):
    text = compiled_text(row, block_size)
    vectors = f"{BUDGET + 1},{FEATURES}"
    assert f"f32[{vectors}]" in text
    assert "while(" in text
    assert copies_in_loops(text, vectors) == []
    # The loop's own buffer is made once, before it starts: so the pattern is right.
    everything = re.findall(rf"= f32\[{vectors}\]\S* copy\(", text)
    assert len(everything) <= 2


@functools.partial(registry.each, rows=LEARNERS)
def test_no_copy_of_the_kernel_rows_in_the_loop_over_violations(row):
    text = compiled_text(row, BLOCK)
    kernel_rows = f"{BLOCK},{BUDGET + 1}"
    assert f"f32[{kernel_rows}]" in text
    assert copies_in_loops(text, kernel_rows) == []


def test_a_copy_in_a_loop_is_found():
    """The check above can fail: a select over the whole matrix copies it."""

    def body(matrix, x):
        changed = matrix.at[0].set(x)
        return jax.lax.cond(x[0] > 0, lambda: changed * 2, lambda: matrix), matrix[1]

    matrix, xs = jnp.zeros((BUDGET, FEATURES)), jnp.zeros((50, FEATURES))
    program = jax.jit(lambda matrix, xs: jax.lax.scan(body, matrix, xs))
    text = program.lower(matrix, xs).compile().as_text()
    assert copies_in_loops(text, f"{BUDGET},{FEATURES}") != []


def test_calls_with_the_same_shapes_share_one_program():
    row = registry.ROWS[0]
    traces = []
    algorithm = row.algorithm._replace(
        violates=lambda *given: traces.append(None) or row.algorithm.violates(*given)
    )
    state, _ = bj.run(algorithm, row.init(), *row.stream(seed=0))
    once = len(traces)
    for seed in (1, 2):
        state, _ = bj.run(algorithm, state, *row.stream(seed=seed))
    assert len(traces) == once > 0

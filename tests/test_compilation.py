"""The compiled loop: no copy of a support matrix, one program for all values."""

import functools
import re

import jax
import jax.numpy as jnp
import pytest
import registry
from compiling import OLDER_FUSIONS
from registry import CAPACITY, NUM_FEATURES, N
from runs import compiled_text

import budgetjax as bj
from budgetjax.online import driver

ROWS = CAPACITY + 1
VECTORS = f"{ROWS},{NUM_FEATURES}"


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


# Delayed projections rewrite all vectors now and then; what has no maintenance never
# writes over a slot.
OTHERS = registry.named(
    "perceptron-unbudgeted",
    "ahpatron-multiclass",
    "pegasos-ball-delayed-project-average-multiclass",
)
LEARNERS = tuple(row for row in registry.firsts() if row not in OTHERS)


@functools.partial(registry.each, rows=LEARNERS)
def test_no_copy_of_the_support_vectors_in_the_loop(row):
    check_vectors(compiled_text(row.name))


@functools.partial(registry.each, rows=registry.FAMILIES)
def test_no_copy_of_the_support_vectors_in_the_plain_scan(row):
    check_vectors(compiled_text(row.name, block_size=1))


def check_vectors(text):
    assert f"f32[{VECTORS}]" in text
    assert "while(" in text
    assert copies_in_loops(text, VECTORS) == []
    # The loop's own buffer is made once, before it starts: so the pattern is right.
    everything = re.findall(rf"= f32\[{VECTORS}\]\S* copy\(", text)
    assert len(everything) <= 2


@functools.partial(registry.each, rows=LEARNERS)
def test_no_copy_of_the_kernel_rows_in_the_loop_over_violations(row):
    text = compiled_text(row.name)
    block = driver.block_length(None)
    kernel_rows = f"{block},{ROWS}"
    assert f"f32[{kernel_rows}]" in text
    assert copies_in_loops(text, kernel_rows) == []


@pytest.mark.skipif(
    OLDER_FUSIONS, reason="JAX 0.10 copies some that are read before written"
)
@functools.partial(registry.each, rows=LEARNERS)
def test_no_copy_of_a_matrix_of_pairs_in_the_loop_over_violations(row):
    assert copies_in_loops(compiled_text(row.name), f"{ROWS},{ROWS}") == []


def test_a_copy_in_a_loop_is_found():
    """The check above can fail: a select over the whole matrix copies it."""

    def body(matrix, x):
        changed = matrix.at[0].set(x)
        return jax.lax.cond(x[0] > 0, lambda: changed * 2, lambda: matrix), matrix[1]

    matrix, xs = jnp.zeros((ROWS, NUM_FEATURES)), jnp.zeros((N, NUM_FEATURES))
    program = jax.jit(lambda matrix, xs: jax.lax.scan(body, matrix, xs))
    text = program.lower(matrix, xs).compile().as_text()
    assert copies_in_loops(text, VECTORS) != []


def test_calls_with_the_same_shapes_share_one_program():
    row, traces = registry.ROWS[0].counted()
    state, _ = bj.run(row.roomy(), *row.stream(seed=0))
    once = len(traces)
    for seed in (1, 2):
        state, _ = bj.run(state, *row.stream(seed=seed))
    assert len(traces) == once > 0

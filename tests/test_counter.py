"""Streams beyond 2^31 rounds: counters, ages, step sizes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
import rounding
from compare import kept
from marks import first_quick
from registry import CAPACITY

import budgetjax as bj
from budgetjax import _counters
from budgetjax._counters import UNIT
from budgetjax.online.slots import FREE
from budgetjax.online.state import State

# Just under every place where a word of 30, 31 or 32 bits is full, and a long stream.
FAR = (UNIT - 30, 2**31 - 30, 2**32 - 30, 10**10, 10**12)
VALUES = (0, 320, 2**24 + 1, UNIT - 1, 2**31 - 1, 2**31, 2**32 + 7, 10**12 + 7)


def at(state, seen):
    """The state as if it had seen so many rounds."""
    return state._replace(counts=state.counts._replace(seen=_counters.of(seen)))


def start(**more):
    """A small model without a row."""
    given = {"budget": 3} | more
    return bj.Perceptron().init(bj.RBF(1.0), num_features=1, **given)


@pytest.mark.parametrize("value", VALUES)
def test_a_count_is_an_int64_of_numpy_outside_of_jit(value):
    state = at(start(), value)
    assert isinstance(state.num_seen, np.int64)
    assert state.num_seen == value
    assert f"{state.num_seen:,}" == f"{value:,}"
    # Of its own, so it may be written to JSON, indexed with and divided.
    assert [int(state.num_seen), state.num_seen / 4] == [value, value / 4]
    assert [state.num_mistakes, state.num_updates] == [0, 0]


@pytest.mark.parametrize("value", first_quick(VALUES))
def test_a_traced_count_ends_where_its_type_does(value, x64):
    count = jax.jit(lambda state: state.num_seen)(at(start(), value))
    assert count.dtype == (jnp.int64 if x64 else jnp.int32)
    shown = value if x64 else min(value, 2**31 - 1)
    assert int(count) == shown
    # It ends in words that are not normalized, too.
    words = _counters.Words(*map(jnp.int32, (value // UNIT - 1, value % UNIT + UNIT)))
    if value % UNIT < UNIT - 1:
        assert int(jax.jit(_counters.number)(words)) == shown


def test_counts_of_many_models_are_numbers_by_model():
    states = jax.vmap(lambda words: _with_seen(start(), words))(
        _stack(_counters.of(5), _counters.of(10**12))
    )
    assert states.num_seen.dtype == np.int64
    assert states.num_seen.tolist() == [5, 10**12]
    assert states.num_mistakes.tolist() == [0, 0]
    each = jax.vmap(lambda state: state.num_seen)(states)
    assert each.tolist() == [5, 2**31 - 1]


def _stack(*words):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *words)


def _with_seen(state, words):
    return state._replace(counts=state.counts._replace(seen=words))


def test_the_arithmetic_of_words_is_that_of_their_value():
    few, far = _counters.of(2), _counters.of(10**12 + 7)
    assert {word.dtype for word in (*few, *far)} == {jnp.dtype(jnp.int32)}
    near = _counters.of(10**12 - UNIT + 9)
    assert int(_counters.since(far, near)) == UNIT - 2
    assert _counters.number(_counters.after(few, UNIT)) == UNIT + 2
    stacked = _stack(few, far)
    later = jax.vmap(lambda words: _counters.after(words, 3))(stacked)
    assert _counters.number(later).tolist() == [5, 10**12 + 10]
    # Of several rounds ahead at once.
    ahead = _counters.after(few, jnp.arange(3, dtype=jnp.int32))
    assert _counters.number(ahead).tolist() == [2, 3, 4]
    np.testing.assert_allclose(
        _counters.real(stacked, jnp.float32), [2, 10**12 + 7], rtol=1e-7
    )
    if rounding.has_float16():
        assert _counters.real(far, jnp.float16) == np.inf
    after = _counters.after(_counters.of(UNIT - 1), jnp.int32(UNIT))
    for words in (after, _counters.normalized(after)):
        others = [_counters.of(2 * UNIT + i) for i in (-2, -1, 0)]
        found = [bool(_counters.reaches(words, one)) for one in others]
        assert found == [True, True, False]
    assert [*map(int, _counters.normalized(after))] == [1, UNIT - 1]


def test_counts_are_carried_by_loops():
    state = at(start(budget=4), UNIT - 2)
    X, y = np.arange(5, dtype=np.float32)[:, None], np.resize([1, -1], 5)
    state, seen = jax.lax.scan(
        lambda state, row: (bj.step(state, *row), state.num_seen), state, (X, y)
    )
    assert seen.tolist() == [UNIT - 2 + i for i in range(5)]
    assert state.num_seen == UNIT + 3
    assert 0 < state.num_mistakes <= state.num_updates <= 5


# Rows whose model does not depend on how many rounds there were.
@registry.only("forgetron", "perceptron-oldest-multiclass", "fourier-average")
def test_far_out_in_a_stream_is_as_at_its_start(row):
    X, y = row.stream()
    run = functools.partial(bj.run, X=X, y=y)
    begun, _ = run(state=row.roomy())
    near, scores = run(state=begun)
    order = np.argsort(kept(near).expansion.ages, kind="stable")
    for seen in FAR:
        far, far_scores = run(state=at(begun, seen))
        assert far.num_seen == seen + len(X)
        assert far.num_mistakes == near.num_mistakes
        np.testing.assert_array_equal(far_scores, scores)
        np.testing.assert_array_equal(
            far.expansion.vectors[:-1], near.expansion.vectors[:-1]
        )
        ages = kept(far).expansion.ages
        np.testing.assert_array_equal(np.argsort(ages, kind="stable"), order)
        assert len(set(ages[ages != FREE])) == int(far.expansion.num_active)


@registry.only("pegasos-oldest", "pegasos-ball")
def test_the_step_of_pegasos_far_out_is_that_of_its_round(row):
    X, y = row.stream()
    begun, _ = bj.run(row.roomy(), X, y)
    for seen in FAR:
        state = at(begun, seen)
        for _ in range(3):
            state, _ = bj.run(state, X, y)
        t = seen + 3 * len(X)
        coefficients = np.abs(np.asarray(bj.support(state).coefficients, np.float64))
        coefficients = coefficients[coefficients > 0]
        step = 1 / (row.learner.regularization * t)
        if state.memory is None:
            # Far out all examples violate, and each has the same coefficient.
            np.testing.assert_allclose(coefficients, step, rtol=1e-6)
            continue
        # A projection makes the step a multiple of the scale, for good.
        scale, unit = state.expansion.scale, state.memory.unit
        np.testing.assert_allclose(float(scale) * float(unit), step, rtol=1e-6)


@registry.only("fourier-average")
def test_averages_of_iterates_begin_far_out(row):
    X, y = row.stream()
    state = row.roomy()
    average = state.expansion.average._replace(start=_counters.of(UNIT + 30))
    state = state._replace(expansion=state.expansion._replace(average=average))
    run = functools.partial(bj.run, X=X, y=y)
    none = bj.average_iterates(run(state=at(state, UNIT - 31))[0])
    some = bj.average_iterates(run(state=at(state, UNIT - 30))[0])
    far, _ = run(state=at(state, UNIT))
    weights = far.memory.weights
    for one in (none, some):
        np.testing.assert_array_equal(one.expansion.coefficients_and_sums, weights)
    averaged = bj.average_iterates(far).expansion.coefficients_and_sums
    assert not np.allclose(averaged, weights, rtol=1e-3)


@registry.only("fourier-average", "norma")
def test_a_long_average_forgets_and_does_not_fade(row):
    X, y = row.stream()
    state = row.roomy(average=True, budget=CAPACITY)
    run = functools.partial(bj.run, X=X, y=y)
    state, _ = run(state=state)
    full = 2.0**23  # one more would be lost in rounding
    for _ in range(3):
        average, terms = state.expansion.average, state.expansion.coefficients_and_sums
        many = full / average.total
        state = state._replace(
            expansion=state.expansion._replace(
                coefficients_and_sums=terms
                * jnp.where(jnp.arange(2) == 1, many, 1)[None],
                average=average._replace(
                    total=jnp.float32(full), scale_sum=average.scale_sum * many
                ),
            )
        )
        if isinstance(row.learner, bj.Fourier):
            memory = state.memory
            state = state._replace(memory=memory._replace(sums=memory.sums * many))
        before = bj.decision_function(bj.average_iterates(state), X)
        state, _ = run(state=state, weight=np.arange(len(X)) < 3)
        assert state.expansion.average.total == full / 2 + 3
        after = bj.decision_function(bj.average_iterates(state), X)
        np.testing.assert_allclose(after, before, atol=1e-5 * np.abs(before).max())


@registry.only("arow-multiclass")
def test_the_moves_of_arow_are_counted_far_out(row):
    X, y = row.stream()
    near, far = (bj.run(at(row.roomy(), seen), X, y)[0] for seen in (0, 2**31 - 1))
    assert int(near.memory.num_moves) == int(far.memory.num_moves) > 0
    assert np.all(np.isfinite(bj.support(far).coefficients))


def test_ages_are_renewed_for_those_models_alone_whose_words_are_full():
    states = jax.vmap(lambda budget: start(budget=budget, capacity=3))(np.array([3, 3]))
    ages = jnp.array([[7, 5, FREE, FREE], [2**30 + 2, 7, -1, FREE]], jnp.int32)
    words = _counters.Words(jnp.int32([0, 3]), jnp.int32([9, 2**30 + 4]))
    states = _with_seen(states, words)
    states = states._replace(expansion=states.expansion._replace(ages=ages))
    settled = jax.vmap(State._rebase_clock)(states)
    np.testing.assert_array_equal(
        settled.expansion.ages, [[7, 5, FREE, FREE], [2, 7 - 2**30, -1 - 2**30, FREE]]
    )
    assert settled.num_seen.tolist() == states.num_seen.tolist()
    assert [word.tolist() for word in settled.counts.seen] == [[0, 4], [9, 4]]

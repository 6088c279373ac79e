"""Streams beyond 2^31 rounds: counters, ages, step sizes."""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
import rounding
from compare import kept
from registry import CAPACITY

import budgetjax as bj
from budgetjax._pytree import UNIT, Counter
from budgetjax.online import algorithm
from budgetjax.online.slots import FREE

# Just under every place where a word of 30, 31 or 32 bits is full, and a long stream.
FAR = (UNIT - 30, 2**31 - 30, 2**32 - 30, 10**10, 10**12)


def at(state, seen):
    """The state as if it had seen so many rounds."""
    return state._replace(num_seen=Counter.of(seen))


def test_a_counter_reads_as_a_number():
    one, other = Counter.of(10**12 + 7), Counter.of(2)
    assert int(one) == 10**12 + 7
    assert float(other) == 2.0
    assert one - other == 10**12 + 5
    assert other / 4 == 0.5
    assert [other < one, other >= Counter.of(1), other != 3, other == 2] == [True] * 4
    assert f"{one:,} {other}" == "1,000,000,000,007 2"
    assert np.asarray([one, other]).tolist() == [10**12 + 7, 2]
    stacked = jax.tree.map(lambda *words: jnp.stack(words), one, other)
    np.testing.assert_array_equal(stacked, [10**12 + 7, 2])
    if rounding.has_float16():
        assert one.real(jnp.float16) == np.inf
    assert other.after(UNIT) == UNIT + 2


VALUES = (0, 320, 2**24 + 1, UNIT - 1, 2**31 + 7, 10**12 + 7)
OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod")
OPERATORS += ("lt", "le", "gt", "ge", "eq", "ne")


def test_arithmetic_with_a_counter_is_that_of_its_value():
    """From both sides, with numbers of every kind."""
    others = (3, 7.5, np.int64(9), np.float32(2.5), np.arange(1, 4))
    for value in VALUES:
        count, known = Counter.of(value), np.int64(value)
        for function in (getattr(operator, name) for name in OPERATORS):
            for other in others:
                np.testing.assert_array_equal(
                    function(count, other), function(known, other)
                )
                if value:
                    np.testing.assert_array_equal(
                        function(other, count), function(other, known)
                    )
        assert [-count, abs(count), sum([count, count])] == [-value, value, 2 * value]
        assert divmod(count, 100) == divmod(value, 100)
        assert bool(count) is bool(value)
        assert operator.index(count) == value
        assert float(jnp.float32(count)) == float(jnp.float32(value))
        if value < 2**31:
            assert jnp.where(True, count, 0) == value
            assert jnp.asarray(count).dtype == jnp.int32
    rows = jnp.arange(1000)
    assert np.arange(1000)[Counter.of(320)] == rows[Counter.of(320) + 0] == 320
    with pytest.raises((IndexError, ValueError, TypeError)):
        # Not row 0 of column 320, as of a pair.
        rows[None][Counter.of(320)]


@pytest.mark.parametrize("value", VALUES[1:])
def test_arithmetic_with_a_traced_counter_is_that_of_its_value(value):
    def compute(count):
        exact = (count + 5, 5 - count, count - count, count - jnp.int32(9))
        real = (count / 4, 1 / count, count * 0.5)
        compared = (count > value - 1, count >= value, count == value, count < value)
        return exact, real, compared

    exact, real, compared = jax.jit(compute)(Counter.of(value))
    assert [int(one) for one in exact] == [value + 5, 5 - value, 0, value - 9]
    np.testing.assert_allclose(real, [value / 4, 1 / value, value / 2], rtol=1e-6)
    assert [bool(one) for one in compared] == [True, True, True, False]
    whole = jax.jit(lambda count: (count % 100, count // 3, jnp.where(True, count, 0)))
    shown = min(value, 2**31 - 1)
    assert [int(one) for one in whole(Counter.of(value))] == [
        *(shown % 100, shown // 3, shown)
    ]


def test_a_counter_is_carried_by_loops():
    start = Counter.of(UNIT - 2)
    assert jax.lax.fori_loop(0, 5, lambda i, count: count + 1, start) == UNIT + 3
    assert jax.lax.fori_loop(0, 5, lambda i, count: 1 + count, start) == UNIT + 3
    assert jax.lax.fori_loop(0, 4, lambda i, count: count - i, start) == UNIT - 8
    few = Counter.of(3)
    total = jax.lax.scan(lambda sum, _: (sum + few, None), jnp.int32(0), None, 4)[0]
    assert total == 12
    until = jax.lax.while_loop(lambda count: count < 20, lambda count: count + 7, few)
    assert until == 24


def test_counters_of_many_models_are_numbers_by_model():
    counts = jax.tree.map(
        lambda *words: jnp.stack(words), Counter.of(5), Counter.of(10**12)
    )
    assert len(counts) == 2
    assert [int(one) for one in counts] == [5, 10**12]
    assert counts[1] == 10**12
    assert (2 * counts).tolist() == [10, 2 * 10**12]
    assert jax.vmap(lambda count: count + 3)(counts).tolist() == [8, 10**12 + 3]


def test_a_counter_has_a_value_where_it_is_traced():
    half = jax.eval_shape(lambda count: count / 2, Counter.of(10**12))
    assert (half.shape, half.dtype) == ((), jnp.float32)
    after = Counter.of(UNIT - 1).after(jnp.int32(UNIT))
    for count in (after, after.normalized()):
        assert [bool(count.reaches(Counter.of(2 * UNIT + i))) for i in (-1, 0)] == [
            True,
            False,
        ]


def each(*names):
    """In the groups of the registry, with the programs of its other tests."""
    return functools.partial(registry.each, rows=registry.named(*names))


# Rows whose model does not depend on how many rounds there were.
@each("forgetron", "perceptron-oldest-multiclass", "fourier-average")
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


@each("pegasos-oldest", "pegasos-ball")
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
        step = 1 / (row.shared["regularization"] * t)
        if state.ball is None:
            # Far out all examples violate, and each has the same coefficient.
            np.testing.assert_allclose(coefficients, step, rtol=1e-6)
            continue
        # A projection makes the step a multiple of the scale, for good.
        scale, unit = state.expansion.scale, state.ball.unit
        np.testing.assert_allclose(float(scale) * float(unit), step, rtol=1e-6)


@each("fourier-average")
def test_averages_of_iterates_begin_far_out(row):
    X, y = row.stream()
    state = row.roomy()
    average = state.expansion.average._replace(start=Counter.of(UNIT + 30))
    state = state._replace(expansion=state.expansion._replace(average=average))
    run = functools.partial(bj.run, X=X, y=y)
    none = bj.average_iterates(run(state=at(state, UNIT - 31))[0])
    some = bj.average_iterates(run(state=at(state, UNIT - 30))[0])
    far, _ = run(state=at(state, UNIT))
    np.testing.assert_array_equal(none.expansion.coefficients_and_sums, far.weights)
    np.testing.assert_array_equal(some.expansion.coefficients_and_sums, far.weights)
    assert not np.allclose(
        bj.average_iterates(far).expansion.coefficients_and_sums, far.weights, rtol=1e-3
    )


@each("fourier-average", "norma")
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
            state = state._replace(sums=state.sums * many)
        before = bj.decision_function(bj.average_iterates(state), X)
        state, _ = run(state=state, weight=np.arange(len(X)) < 3)
        assert state.expansion.average.total == full / 2 + 3
        after = bj.decision_function(bj.average_iterates(state), X)
        np.testing.assert_allclose(after, before, atol=1e-5 * np.abs(before).max())


@each("arow-multiclass")
def test_the_moves_of_arow_are_counted_far_out(row):
    X, y = row.stream()
    near, far = (bj.run(at(row.roomy(), seen), X, y)[0] for seen in (0, 2**31 - 1))
    assert int(near.num_moves) == int(far.num_moves) > 0
    assert np.all(np.isfinite(bj.support(far).coefficients))


def test_ages_are_renewed_for_those_models_alone_whose_words_are_full():
    states = jax.vmap(
        lambda budget: bj.Perceptron().init(
            bj.RBF(1.0), num_features=1, budget=budget, capacity=3
        )
    )(np.array([3, 3]))
    ages = jnp.array([[7, 5, FREE, FREE], [2**30 + 2, 7, -1, FREE]], jnp.int32)
    seen = Counter(jnp.array([0, 3], jnp.int32), jnp.array([9, 2**30 + 4], jnp.int32))
    states = states._replace(
        num_seen=seen, expansion=states.expansion._replace(ages=ages)
    )
    settled = jax.vmap(algorithm.rebase_clock)(states)
    np.testing.assert_array_equal(
        settled.expansion.ages, [[7, 5, FREE, FREE], [2, 7 - 2**30, -1 - 2**30, FREE]]
    )
    np.testing.assert_array_equal(settled.num_seen, seen)
    np.testing.assert_array_equal(settled.num_seen, [9, 4])

"""Streams beyond 2^31 rounds: counters, ages, step sizes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import registry
import rounding
from compare import kept
from registry import CAPACITY

import budgetjax as bj
from budgetjax._pytree import UNIT, Counter
from budgetjax.online import algorithm
from budgetjax.online.support_set import FREE

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
    run = functools.partial(bj.run, row.algorithm, X=X, y=y)
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
    begun, _ = bj.run(row.algorithm, row.roomy(), X, y)
    for seen in FAR:
        state = at(begun, seen)
        for _ in range(3):
            state, _ = bj.run(row.algorithm, state, X, y)
        t = seen + 3 * len(X)
        coefficients = np.abs(np.asarray(bj.support(state).coefficients, np.float64))
        coefficients = coefficients[coefficients > 0]
        step = 1 / (row.arguments["regularization"] * t)
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
    run = functools.partial(bj.run, row.algorithm, X=X, y=y)
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
    run = functools.partial(bj.run, row.algorithm, X=X, y=y)
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
        if row.algorithm is bj.fourier:
            state = state._replace(sums=state.sums * many)
        before = bj.decision_function(bj.average_iterates(state), X)
        state, _ = run(state=state, weight=np.arange(len(X)) < 3)
        assert state.expansion.average.total == full / 2 + 3
        after = bj.decision_function(bj.average_iterates(state), X)
        np.testing.assert_allclose(after, before, atol=1e-5 * np.abs(before).max())


@each("arow-multiclass")
def test_the_moves_of_arow_are_counted_far_out(row):
    X, y = row.stream()
    near, far = (
        bj.run(row.algorithm, at(row.roomy(), seen), X, y)[0] for seen in (0, 2**31 - 1)
    )
    assert int(near.num_moves) == int(far.num_moves) > 0
    assert np.all(np.isfinite(bj.support(far).coefficients))


def test_ages_are_renewed_for_those_models_alone_whose_words_are_full():
    states = jax.vmap(
        lambda budget: bj.perceptron.init(
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
    np.testing.assert_array_equal(settled.num_seen.low, [9, 4])

"""Averages of iterates, of states whose learner was made with `average=`."""

import jax.numpy as jnp

from budgetjax import _counters, _forks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.online.state import State


@names_errors("average_iterates")
def average_iterates(state: State) -> State:
    """The state with the average of its iterates as the model, for predictions; O(B C).

    It is the average of the models after each round from `average` on (see
    `budgetjax.Learner.init`), mapped through all later maintenance: if a vector was
    removed, projected or merged, so was its part of the average. The average is
    therefore as good as the maintenance: over the second half of a stream, with 100
    vectors on letter, usps, ijcnn1 and checkerboard, it gained 0.7 to 9 points of
    accuracy with `Project`, nothing reliable with `Merge`, and lost up to 15 points
    with removal (`python benchmarks/accuracy.py`). The result cannot continue to learn
    from where `state` was: keep both.

    Args:
      state: a state made with `average=`, or stacked states.

    Returns:
      A state for `decision_function`, `predict` and `support`. Before the first round
      of the average it is the last iterate.

    Example:
      >>> state = bj.Perceptron().init(bj.RBF(1.0), num_features=1, budget=2,
      ...     maintenance=bj.RemoveOldest(), average=True)
      >>> X, y = np.array([[0.0], [9.0]]), np.array([1, -1])
      >>> state, _ = bj.run(state, X, y)
      >>> bj.support(bj.average_iterates(state)).coefficients.tolist()
      [[1.0], [-0.5]]
    """
    _forks.check()
    expansion = state.expansion
    average = expansion.average
    if average is None:
        raise ArgumentError(
            "state",
            "be of a learner made with average=True, or from a round on",
            "one without",
        )
    coefficients, sums = jnp.split(expansion.coefficients_and_sums, 2, axis=-1)
    total = average.total[..., None, None]
    sums = sums + average.scale_sum[..., None, None] * coefficients
    true = expansion.scale[..., None, None] * coefficients
    means = jnp.where(total > 0, sums / jnp.maximum(total, 1), true)
    return state._replace(
        expansion=expansion._replace(
            coefficients_and_sums=means,
            scale=jnp.ones_like(expansion.scale),
            average=None,
        )
    )


def restart_average(state: State) -> State:
    """The state, with an average that covers the rounds from the next one on."""
    average = state.expansion.average
    if average is None:
        return state
    start = int(_counters.number(average.start))
    average = average._replace(
        start=_counters.of(max(start, int(state.num_seen) + 1))[0],
        scale_sum=jnp.zeros_like(average.scale_sum),
        total=jnp.zeros_like(average.total),
    )
    return state._replace(expansion=state.expansion._replace(average=average))

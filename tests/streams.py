"""Batches for tests, and comparisons of their results."""

import jax
import numpy as np
import optax
import registry
from compare import same

import budgetjax as bj
from budgetjax.stream.fit import fit_stream

ROWS = 64
# A learner of each kind of target, and one without support vectors to choose. Removal
# compiles fast, and all tests of a learner share what is compiled.
LEARNERS = {
    row.name: row
    for row in (
        registry.Row(
            "binary",
            bj.Pegasos(regularization=1e-2),
            {"maintenance": bj.RemoveSmallest()},
        ),
        registry.Row(
            "multiclass",
            bj.Perceptron(),
            {"maintenance": bj.RemoveRandom()},
            registry.NUM_CLASSES,
        ),
        registry.Row(
            "regression",
            bj.SGD(loss=optax.losses.squared_error, learning_rate=0.3),
            {"maintenance": bj.RemoveSmallest()},
            0,
        ),
        registry.Row("features", bj.Nystrom(), {}),
    )
}


def cut(arrays, lengths):
    """The arrays in batches of these lengths, which are repeated to the end."""
    start, i = 0, 0
    while start < len(arrays[0]):
        stop = start + lengths[i % len(lengths)]
        yield tuple(array[start:stop] for array in arrays)
        start, i = stop, i + 1


def fit(row, batches, state=None, **more):
    """Learns with a row of the registry, 64 examples at once."""
    return fit_stream(
        row.init() if state is None else state,
        batches,
        **{"batch_rows": ROWS, "progress": False} | more,
    )


def identical(one, other):
    """All leaves of two models are equal, to the last bit."""
    same(*(jax.tree.map(as_array, model) for model in (one, other)))


def without_classes(model):
    """The model without what is no array of numbers."""
    return model._replace(model=model.model._replace(classes=None))


def as_array(leaf):
    return leaf if hasattr(leaf, "dtype") else np.asarray(leaf)

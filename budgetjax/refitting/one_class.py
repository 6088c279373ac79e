"""A model of one class, for novelty detection; see `one_class`."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._sharding import Shards, without_context_mesh
from budgetjax.refitting import newton, training_data
from budgetjax.refitting.newton import Basis
from budgetjax.refitting.problem import basis_of
from budgetjax.refitting.refit import check_state, find_model
from budgetjax.refitting.solution import put_weights
from budgetjax.refitting.training_data import Block
from budgetjax.tables.table_model import TableModel


@names_errors("one_class")
@without_context_mesh
def one_class(
    state: Any,
    X: ArrayLike | Iterable[tuple[Any, ...]],
    *,
    weight: ArrayLike | None = None,
    rate: float = 0.05,
    penalty: float = 1.0,
) -> Any:
    r"""Novelty detection: examples unlike the given ones score below 0.

    The support vectors of the model are kept, and the coefficients minimise
    :math:`\tfrac12 \|f\|^2 + \tfrac C2 \sum_i (f(x_i) - 1)^2`: the score is close to 1
    in dense regions, and to 0 far from all examples. The threshold is the `rate`
    quantile of leave-one-out scores, which follow from the leverages, as in ridge
    regression. About the same fraction of new examples of the same kind therefore
    scores below 0.

    A stream with targets 1 and a squared loss chooses good support vectors, as in the
    example. With the hinge loss, as in the one-class SVM, it stops adding them too
    soon.

    Cost: two passes, O(n B (d + B)), and O(B^3). Memory: B^2 numbers, and one per
    example. Rows that are divided among devices or processes stay there, as for
    `refit`; their scores are sent.

    Args:
      state: the state of any online algorithm with one column of coefficients; or the
        result of `fit_stream`, for raw rows.
      X: examples of the class, shape `(n, num_features)`; or batches as for `refit`,
        whose targets are ignored.
      weight: shape `(n,)`, at least 0; 2 counts an example twice.
      rate: the fraction of examples that score below 0, between 0 and 1.
      penalty: C, above 0. In experiments, a larger C separated other classes about as
        well, but more new examples of the same class scored below 0.

    Returns:
      A `TableModel`, or the given model, with new coefficients and minus the threshold
      as its intercept. `decision_function` is below 0 for novel examples.

    Raises:
      ValueError: if the examples or numbers do not fit the model, it has several
        columns or no support vectors, or batches can be read only once.

    Example:
      >>> X = np.random.default_rng(0).normal(size=(1000, 2)).astype(np.float32)
      >>> state = bj.SGD().init(
      ...     bj.RBF(gamma=0.5), num_features=2, budget=30, num_classes=None)
      >>> state, _ = bj.run(state, X, np.ones(1000))
      >>> model = bj.one_class(state, X, rate=0.1)
      >>> bool(abs(np.mean(model.decision_function(X) < 0) - 0.1) < 0.03)
      True
      >>> bool(model.decision_function(np.array([[5.0, 5.0]]))[0] < 0)
      True

    References:
      Kemmler, Rodner, Wacker and Denzler (2013), "One-class classification with
      Gaussian processes", for the mean as a score.
      https://doi.org/10.1016/j.patcog.2013.06.005 Schoelkopf, Platt, Shawe-Taylor,
      Smola and Williamson (2001), "Estimating the support of a high-dimensional
      distribution", for the one-class SVM. https://doi.org/10.1162/089976601750264965

    Differences from the papers: the span of a budget of support vectors, and a
    threshold by scores that leave one out.
    """
    _checks.check_not_traced(state, X, weight)
    inner = find_model(state).inner
    check_state(inner)
    _checks.open_unit_interval("rate", rate)
    _checks.positive("penalty", penalty)
    if inner.num_columns > 1:
        raise ArgumentError(
            "state", "have one column of coefficients", inner.num_columns
        )
    # The old intercept is removed.
    known = TableModel.of(state)
    table = known.add_intercept(-known.intercept / known.unit)
    rows, targets = _with_ones(X)
    # The targets are not labels of a classifier.
    takes = table._replace(classes=None)
    read, _, coder = training_data.read_examples(
        takes, rows, targets, weight, of_labels=False
    )
    newton.check_memory(inner)
    root = basis_of(inner)
    basis = Basis(inner.kernel, inner.expansion, root, coder=coder)
    coefficients, inverse = _fit_ones(basis, read(), penalty)
    scores, counts = _leave_one_out(basis, read(), penalty, coefficients, inverse)
    # The largest score with at most this share of the weight below it.
    threshold = np.quantile(
        scores,
        np.nextafter(rate, 1),
        weights=counts,
        method="inverted_cdf",
    )
    weights = coefficients[None].astype(root.dtype)
    new = put_weights(inner, basis, weights)
    return table.add_intercept(-float(threshold)).with_inner(new).put_in(state)


Vector = Float[np.ndarray, " features"]
Matrix = Float[np.ndarray, "features features"]


def _fit_ones(
    basis: Basis, blocks: Iterator[Block], penalty: float
) -> tuple[Vector, Matrix]:
    """The coefficients of ridge regression on targets 1, and `L^-1` of `I + C G`."""
    gram, products, _ = newton.moments(basis, blocks)
    factor = np.linalg.cholesky(
        np.eye(len(gram)) + penalty * np.asarray(gram, np.float64)
    )
    inverse = np.linalg.solve(factor, np.eye(len(gram)))
    pulls = np.asarray(products[0], np.float64)
    return penalty * inverse.T @ (inverse @ pulls), inverse


def _leave_one_out(
    basis: Basis,
    blocks: Iterator[Block],
    penalty: float,
    coefficients: Vector,
    inverse: Matrix,
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """The score of each example by the model without it, and its weight."""
    scores, counts, shards = [], [], Shards()
    for block, found in newton.with_features(basis, blocks):
        shards = block.shards
        features = shards.local(found).astype(np.float64)
        weights = shards.local(block.weights)
        features, weights = features[weights > 0], weights[weights > 0]
        lengths = np.sum((features @ inverse.T) ** 2, axis=1)
        # f without example i is (f - h) / (1 - h), for its leverage h and target 1.
        leverage = penalty * weights * lengths
        scores.append((features @ coefficients - leverage) / (1 - leverage))
        counts.append(weights)
    counts = shards.gather(np.concatenate(counts).astype(np.float64))
    return shards.gather(np.concatenate(scores)), counts


def _with_ones(X: Any) -> tuple[Any, Any]:
    """The examples, or batches of them, with targets 1."""
    if hasattr(X, "ndim") or hasattr(X, "columns"):
        return X, np.ones(X.shape[0])
    if not isinstance(X, Iterable):
        raise ArgumentError("X", "be an array or batches", f"{X!r}")
    if iter(X) is X:
        raise ArgumentError(
            "X", "be batches that can be read again, such as a list", "an iterator"
        )
    return _Ones(X), None


class _Ones:
    """Batches with targets 1."""

    def __init__(self, batches: Iterable[Any]):
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            X, _, *weight = batch
            yield X, np.ones(X.shape[0]), *weight

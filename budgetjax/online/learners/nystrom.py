"""Online learning on Nystrom features."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from budgetjax import _checks, kernels, losses
from budgetjax._record import leaf
from budgetjax._shapes import Index, Number, PerRow, Scalar
from budgetjax.online import span, support_set
from budgetjax.online.learners import features
from budgetjax.online.learners.features import FeatureLearner
from budgetjax.online.slots import FREE, NOWHERE, put
from budgetjax.online.state import State


class Nystrom(FeatureLearner):
    r"""Online learning on Nyström features: the span of at most B landmarks.

    With landmarks Z and :math:`R^T R = K_{ZZ}^{-1}` the features are
    :math:`p(x) = R \, k(Z, x)`, whose inner products equal those of the projections
    onto the span of the landmarks. Every round makes one step of the optimiser on the
    loss of :math:`W^T p(x_t)`. An example with a nonzero gradient becomes a landmark,
    until there are B, unless earlier landmarks nearly span it. R is the inverse of a
    Cholesky factor, so a new landmark adds a feature and does not change the others.

    The kernel may be any positive definite one. Landmarks are the support vectors;
    ``vectors`` of `init` are fixed ones.

    Cost: O(B (d + B + C)) per example.

    Args:
      loss: a function of `(scores, y)`, as for `budgetjax.SGD`.
      optimizer: as for `budgetjax.Fourier`.
      novelty: an example becomes a landmark if its squared distance from the span of
        the others is above this fraction of k(x, x).

    Example:
      >>> state = bj.Nystrom().init(bj.RBF(gamma=1.0), num_features=2, budget=100)
      >>> state = bj.step(state, jnp.array([1.0, 2.0]), -1)
      >>> bj.predict(state, jnp.array([[1.0, 2.0]])).tolist()
      [-1]

    References:
      Lu, Hoi, Wang, Zhao and Liu (2016), "Large scale online kernel learning",
      Algorithm 2 (NOGD). https://jmlr.org/papers/v17/14-148.html
      Williams and Seeger (2001), "Using the Nyström method to speed up kernel
      machines", for the features.
      https://papers.nips.cc/paper/1866-using-the-nystrom-method-to-speed-up-kernel-machines

    Differences from the paper: any optimiser; the basis comes from a Cholesky factor,
    not from eigenvectors (one is a rotation of the other), so learning on features
    starts with the first landmark, not with the last; nearly dependent landmarks are
    skipped. The kernel matrix of landmarks passed by the caller has a ridge of 0.001 of
    its diagonal.
    """

    takes = ("num_classes", "num_outputs", "vectors", "average")
    novelty: Number = leaf(_checks.positive, default=1e-3)

    def bind(self, expansion, num_classes):
        _checks.check_invertible_dtype(expansion.vectors.dtype)
        return super().bind(expansion, num_classes)

    def start(self, state, seed, vectors):
        rows = len(state.expansion.ages)
        root = jnp.zeros((rows, rows), state.dtype)
        if vectors is not None:
            expansion, basis = span.with_landmarks(
                state.kernel, state.expansion, vectors
            )
            state, root = state._replace(expansion=expansion), basis.root
        return features.start_features(state, root)

    def restart(self, state):
        """Forgets all but the landmarks of the caller, which came before the stream."""
        old = state.expansion
        given = old.mask & (old.ages <= 0)
        expansion = old._replace(
            vectors=jnp.where(given[:, None], old.vectors, 0),
            squares=jnp.where(given, old.squares, 0),
            ages=jnp.where(given, old.ages, FREE),
            num_active=jnp.sum(given, dtype=jnp.int32),
            origin=jnp.where(jnp.any(given), old.origin, 0),
        )
        # A row of the root has nothing of later landmarks.
        root = jnp.where(given[:, None], _root(state), 0)
        state = state._replace(expansion=expansion).forget()
        return features.start_features(state, root)

    def block(self, state, X, y, weights, axis=None):
        """Takes one optimiser step per example, which may become a landmark."""
        kernel, expansion = state.kernel, state.expansion
        squares = kernels.squared_norms(X)
        gram = kernel.gram(X, X, squares, squares)
        selves = kernel.diag(X, squares)
        kernel_rows = support_set.kernel_rows(kernel, expansion, X, squares)
        kernel_rows = jnp.where(expansion.mask[None], kernel_rows, 0)
        known = jnp.matmul(kernel_rows, _root(state).T, precision="highest")

        def body(carry, i: Integer[Array, ""]):
            state, known = carry
            p, label, weight = known[i], y[i], weights[i]
            score = jnp.matmul(p, state.memory.weights, precision="highest")
            beyond = selves[i] - jnp.dot(p, p, precision="highest")
            enters = (
                features.has_gradient(losses.gradient(self.loss, score, label), weight)
                & ~state.expansion.full
                & (beyond > self.novelty * selves[i])
            )
            slot = jnp.where(enters, state.expansion.num_active, NOWHERE)
            # The new feature: the part of k(x_t, x) outside the span of the other
            # landmarks.
            length = jnp.sqrt(jnp.where(enters, beyond, 1))

            def added():
                column = gram[i] - jnp.matmul(known, p, precision="highest")
                row = -jnp.matmul(p, _root(state), precision="highest")
                here = jnp.arange(row.shape[0], dtype=jnp.int32) == slot
                return column / length, jnp.where(here, 1, row) / length

            column, row = jax.lax.cond(
                enters,
                added,
                lambda: (jnp.zeros_like(known[:, 0]), jnp.zeros_like(_root(state)[0])),
            )
            known = put(known, slot, column, axis=1)
            state = _add_landmark(state, slot, X[i], squares[i], row)
            return (
                features.take_step(state, known[i], score, label, weight),
                known,
            ), score

        index = jnp.arange(X.shape[0], dtype=jnp.int32)
        (state, _), scores = jax.lax.scan(body, (state, known), index)
        return features.expand(state), scores

    def basis(self, state):
        """The features of the landmarks."""
        return _root(state).T

    def with_vectors(self, state, vectors):
        """Replaces the landmarks and recomputes their features.

        The coefficients `a` stay, so the weights are `R K a`, as `R K R^T = I`.
        """
        expansion = support_set.with_vectors(state.expansion, vectors)
        gram = support_set.gram(state.kernel, expansion)
        basis = span.reorthonormalise(_root(state), gram, expansion.mask)
        terms = jnp.where(expansion.mask[:, None], expansion.coefficients_and_sums, 0)
        for matrix in (basis.gram, basis.root):
            terms = jnp.matmul(matrix, terms, precision="highest")
        sums = None if state.memory.sums is None else terms[:, expansion.num_columns :]
        memory = state.memory._replace(
            root=basis.root, weights=terms[:, : expansion.num_columns], sums=sums
        )
        return state._replace(expansion=expansion, memory=memory)


def _add_landmark(
    state: State, slot: Index, x: Array, square: Scalar, row: PerRow
) -> State:
    """The state with a landmark, whose feature has this row of `R`."""
    expansion, entered = state.expansion, slot != NOWHERE
    age = jnp.where(entered, state.age, FREE)
    x, square = (jnp.where(entered, value, 0) for value in (x, square))
    expansion = expansion._replace(
        vectors=put(expansion.vectors, slot, x),
        squares=put(expansion.squares, slot, square),
        ages=put(expansion.ages, slot, age),
        num_active=expansion.num_active + entered.astype(jnp.int32),
    )
    root = put(_root(state), slot, row)
    memory = state.memory._replace(root=root)
    return state._replace(expansion=expansion, memory=memory)


def _root(state: State) -> Float[Array, "rows rows"]:
    """`R`, which a state with landmarks has."""
    assert state.memory.root is not None, "landmarks have a root, frequencies have none"
    return state.memory.root

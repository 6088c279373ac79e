"""Online learning on random Fourier features."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from budgetjax import _checks
from budgetjax._errors import ArgumentError
from budgetjax.kernels import RBF, Kernel, Laplacian
from budgetjax.online.learners import features
from budgetjax.online.learners.features import FeatureLearner
from budgetjax.online.slots import FREE
from budgetjax.online.state import State


class Waves(Kernel):
    """`sqrt(2 / B) cos(<x, w_j> - phase_j)`: a feature, written as a kernel.

    The frequencies `w_j` take the place of support vectors; each has one phase.

    Attributes:
      phases: shape `(rows,)`.
      amplitude: a scalar.
    """

    phases: Float[Array, " rows"]
    amplitude: Float[Array, ""]
    of_examples: ClassVar[bool] = False

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        angles = (
            jnp.matmul(X, jnp.asarray(Z).T, precision="highest") - self.phases[None]
        )
        return self.amplitude * jnp.cos(angles)

    def diag(self, X, squares=None):
        return jnp.ones(jnp.shape(X)[0], self.amplitude.dtype)


class Fourier(FeatureLearner):
    r"""Online learning on random Fourier features of the kernel.

    With frequencies :math:`\omega_j` drawn from the Fourier transform of the kernel, a
    Gaussian for `RBF` (:math:`\sqrt{2 \gamma}` times a standard normal) and a Cauchy
    distribution for `Laplacian` (:math:`\gamma` times the standard one), the features
    are

    .. math:: p(x) = \sqrt{2 / B} \, (\cos \omega_1^T x, \sin \omega_1^T x, \cos
        \omega_2^T x, \ldots), \qquad E[p(x)^T p(z)] = k(x, z),

    and every round makes one step of the optimiser on the loss of :math:`W^T p(x_t)`.
    The features do not depend on the data; they are a cheap alternative to support
    vectors.

    The kernel is an `RBF` or a `Laplacian`, and the budget B the number of features, an
    even one; ``seed`` of `init` draws the frequencies.

    Cost: O(B (d + C)) per example.

    Args:
      loss: a function of `(scores, y)`, as for `budgetjax.SGD`.
      optimizer: from optax; None is `optax.sgd(0.2)`. It is part of the compiled
        program: pass the same object each time, since a new one compiles the loops
        again.

    Example:
      >>> state = bj.Fourier().init(bj.RBF(gamma=1.0), num_features=2, budget=100)
      >>> state = bj.step(state, jnp.array([1.0, 2.0]), -1)
      >>> bj.predict(state, jnp.array([[1.0, 2.0]])).tolist()
      [-1]

    References:
      Lu, Hoi, Wang, Zhao and Liu (2016), "Large scale online kernel learning",
      Algorithm 1 (FOGD). https://jmlr.org/papers/v17/14-148.html
      Rahimi and Recht (2007), "Random features for large-scale kernel machines".
      https://papers.nips.cc/paper/3182-random-features-for-large-scale-kernel-machines

    Differences from the paper: any optimiser.
    """

    takes = ("num_classes", "num_outputs", "average")
    has_vectors = False

    def check_kernel(self, kernel):
        if not isinstance(kernel, RBF | Laplacian):
            raise ArgumentError(
                "kernel",
                "be an RBF or Laplacian, whose Fourier transform is known",
                type(kernel).__name__,
            )

    def _init(self, kernel, sizes, *more: Any):  # pyright: ignore[reportIncompatibleMethodOverride]
        state = super()._init(kernel, sizes, *more)
        # Before `jit`, which traces the array.
        budget = _checks.concrete(sizes["budget"])
        if budget is not None and budget % 2:
            raise ArgumentError("budget", "be even", budget)
        return state

    def start(self, state, seed, vectors):
        kernel: Any = state.kernel
        expansion, kind = state.expansion, state.dtype
        slots = jnp.arange(len(expansion.ages), dtype=jnp.int32)
        active = slots < expansion.budget
        key = jax.random.key(jnp.asarray(seed, jnp.int32))
        # Each frequency has its own key, so the first ones are the same for any budget.
        draw = jax.random.normal if isinstance(kernel, RBF) else jax.random.cauchy
        drawn = jax.vmap(
            lambda pair: draw(
                jax.random.fold_in(key, pair), (state.num_features,), kind
            )
        )(slots // 2)
        width = jnp.sqrt(2 * kernel.gamma) if isinstance(kernel, RBF) else kernel.gamma
        frequencies = jnp.where(active[:, None], width * drawn, 0)
        quarter = jnp.asarray(jnp.pi / 2, kind)
        waves = Waves(
            phases=jnp.where(slots % 2 == 1, quarter, 0),
            amplitude=jnp.sqrt(2 / expansion.budget.astype(kind)),
        )
        expansion = expansion._replace(
            vectors=frequencies,
            squares=jnp.sum(frequencies**2, axis=1),
            ages=jnp.where(active, slots + 1, FREE),
            num_active=jnp.array(expansion.budget),
        )
        # The kernel of the features takes the place of the one they are drawn for.
        state = state._exchange(kernel=waves, expansion=expansion)
        return features.start_features(state)

    def restart(self, state):
        """Forgets the weights; the features are not learned."""
        return features.start_features(state.forget())

    def block(self, state, X, y, weights, axis=None):
        """Takes one optimiser step per example, in order."""
        expansion = state.expansion
        waves = state.kernel.gram(X, expansion.vectors)
        waves = jnp.where(expansion.mask[None], waves, 0)

        def body(state: State, example: tuple[Array, Array, Array]):
            wave, label, weight = example
            score = jnp.matmul(wave, state.memory.weights, precision="highest")
            return features.take_step(state, wave, score, label, weight), score

        state, scores = jax.lax.scan(body, state, (waves, y, weights))
        return features.expand(state), scores

    def basis(self, state):
        """The identity: the features themselves."""
        return jnp.diag(state.expansion.mask.astype(state.dtype))

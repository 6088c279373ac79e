"""Online learning on random Fourier features; see `init`."""

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Shaped

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.kernels import RBF, Kernel, Laplacian
from budgetjax.online import features
from budgetjax.online.algorithm import Algorithm, init_fields
from budgetjax.online.features import State
from budgetjax.online.support_set import FREE


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


@names_errors("fourier.init")
def init(
    kernel: Kernel,
    *,
    num_features: int,
    budget: ArrayLike,
    num_classes: int | None = 2,
    num_outputs: int = 1,
    loss: Callable[..., Array] | None = None,
    optimizer: optax.GradientTransformation | None = None,
    average: bool | int = False,
    seed: ArrayLike = 0,
    capacity: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> State:
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

    Cost: O(B (d + C)) per example.

    Args:
      kernel: an `RBF` or `Laplacian`.
      budget: B, the number of random features, an even number; may be traced if
        `capacity` is given.
      loss: a function of `(scores, y)`, as for `budgetjax.sgd.init`.
      optimizer: from optax; None is `optax.sgd(0.2)`. It is part of the compiled
        program: pass the same object each time, since a new one compiles the loops
        again.
      seed: the seed for drawing the frequencies.

    Returns:
      A model that scores 0 everywhere. It has no support vectors.

    Example:
      >>> state = bj.fourier.init(bj.RBF(gamma=1.0), num_features=2, budget=100)
      >>> state = bj.fourier.step(state, jnp.array([1.0, 2.0]), -1)
      >>> bj.predict(state, jnp.array([[1.0, 2.0]])).tolist()
      [-1]

    References:
      Lu, Hoi, Wang, Zhao and Liu (2016), "Large scale online kernel learning",
      Algorithm 1 (FOGD). https://jmlr.org/papers/v17/14-148.html
      Rahimi and Recht (2007), "Random features for large-scale kernel machines".
      https://papers.nips.cc/paper/3182-random-features-for-large-scale-kernel-machines

    Differences from the paper: any optimiser.
    """
    if not isinstance(kernel, RBF | Laplacian):
        raise ArgumentError(
            "kernel",
            "be an RBF or Laplacian, whose Fourier transform is known",
            type(kernel).__name__,
        )
    sizes = num_features, budget, num_classes, capacity, dtype
    shared = init_fields(
        "fourier", kernel, *sizes, num_outputs=num_outputs, average=average
    )
    known = _checks.concrete(budget)
    if known is not None and known % 2:
        raise ArgumentError("budget", "be even", budget)
    expansion = shared["expansion"]
    rows, kind = expansion.ages.shape[0], expansion.vectors.dtype
    slots = jnp.arange(rows, dtype=jnp.int32)
    active = slots < expansion.budget
    key = jax.random.key(jnp.asarray(_checks.seed(seed), jnp.int32))
    # Each frequency has its own key, so the first ones are the same for any budget.
    draw = jax.random.normal if isinstance(kernel, RBF) else jax.random.cauchy
    drawn = jax.vmap(
        lambda pair: draw(jax.random.fold_in(key, pair), (num_features,), kind)
    )(slots // 2)
    gamma = shared["kernel"].gamma
    width = jnp.sqrt(2 * gamma) if isinstance(kernel, RBF) else gamma
    frequencies = jnp.where(active[:, None], width * drawn, 0)
    quarter = jnp.asarray(jnp.pi / 2, kind)
    shared["kernel"] = Waves(
        phases=jnp.where(slots % 2 == 1, quarter, 0),
        amplitude=jnp.sqrt(2 / expansion.budget.astype(kind)),
    )
    shared["expansion"] = expansion._replace(
        vectors=frequencies,
        squares=jnp.sum(frequencies**2, axis=1),
        ages=jnp.where(active, slots + 1, FREE),
        num_active=jnp.array(expansion.budget),
    )
    return features.init_features(shared, num_classes, num_outputs, loss, optimizer)


def block(
    algorithm: Algorithm,
    state: State,
    X: Float[Array, "size features"],
    y: Shaped[Array, "size ..."],
    weights: Float[Array, " size"],
    axis: str | None,
) -> tuple[State, Float[Array, "size columns"]]:
    """Takes one optimiser step per example, in order."""
    expansion = state.expansion
    waves = state.kernel.gram(X, expansion.vectors)
    waves = jnp.where(expansion.mask[None], waves, 0)

    def body(state: State, example: tuple[Array, Array, Array]):
        wave, label, weight = example
        score = jnp.matmul(wave, state.weights, precision="highest")
        return features.take_step(state, wave, score, label, weight), score

    state, scores = jax.lax.scan(body, state, (waves, y, weights))
    return features.expand(state), scores


def basis(state: State) -> Float[Array, "rows rows"]:
    """The identity: the features themselves."""
    return jnp.diag(state.expansion.mask.astype(state.weights.dtype))


fourier = Algorithm(
    "fourier",
    init,
    block=block,
    basis=basis,
    with_weights=features.with_weights,
    restart=None,
    with_vectors=None,
)

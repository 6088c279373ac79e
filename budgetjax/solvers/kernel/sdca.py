"""Stochastic dual coordinate ascent for the kernel SVM; see `init`."""

from jax.typing import ArrayLike
from jaxtyping import Array, Float

from budgetjax.kernels import Kernel
from budgetjax.solvers import training_set
from budgetjax.solvers.kernel import hinge_dual
from budgetjax.solvers.kernel.hinge_dual import State
from budgetjax.solvers.kernel.row_cache import KernelRows
from budgetjax.solvers.solver import Solver


def init(
    X: ArrayLike,
    y: ArrayLike,
    *,
    kernel: Kernel,
    penalty: ArrayLike = 1.0,
    weight: ArrayLike | None = None,
    batch_size: int = 64,
    precompute: bool | str = "auto",
    cache_size: float = 512.0,
    rows: KernelRows | None = None,
    seed: ArrayLike = 0,
) -> State:
    r"""The kernel SVM without a bias, one random dual coefficient after another.

    A visit draws an example :math:`i` and maximises the dual in its coefficient,

    .. math:: \alpha_i \leftarrow \min\Big(C v_i, \max\Big(0, \alpha_i +
        \frac{1 - c_i}{k(x_i, x_i)}\Big)\Big), \qquad c = Q \alpha.

    A step makes `batch_size` visits. The responses of the drawn examples follow by the
    kernel values among them, and one matrix product, of the kernel rows of those that
    have changed, updates all others.

    Cost: a step is O(batch_size^2 d), and O(n d) for every coefficient that changes and
    whose kernel row is not kept.

    Args:
      X: the training set, shape `(n, d)`; float64 stays so.
      y: labels, -1 and +1, both, shape `(n,)`.
      kernel: `k`, positive definite.
      penalty: C, positive.
      weight: weight of each example, above 0, shape `(n,)`; 2 counts it twice.
      batch_size: visits per step.
      precompute: True to compute all kernel values now, False to compute rows when they
        are needed, "auto" to choose by the number of examples; see `budgetjax.sbp`.
      cache_size: mebibytes for kernel rows that are kept.
      rows: `rows` of another state with this kernel, `X` and `batch_size`, to share.
      seed: integer seed of the draws.

    Returns:
      A state of the zero model.

    Raises:
      ValueError: if the training set is not of two classes, finite and of fitting
        shapes, or a number is out of its range.

    Example:
      >>> import budgetjax as bj
      >>> from budgetjax.datasets import load
      >>> data = load("checkerboard")
      >>> X, y = data.X_train[:1000], data.y_train[:1000]
      >>> found = bj.solve(bj.sdca, X, y, kernel=bj.RBF(8.0), penalty=1.0)
      >>> bool((found.model.predict(data.X_test) == data.y_test).mean() > 0.9)
      True

    References:
      Hsieh, Chang, Lin, Keerthi and Sundararajan (2008), "A dual coordinate descent
      method for large-scale linear SVM", Algorithm 1 with random draws, with a kernel
      as in Cotter, Shalev-Shwartz and Srebro (2012), Section 4.4.
      https://doi.org/10.1145/1390156.1390208, https://arxiv.org/abs/1204.0566

    Differences from the paper: examples are drawn with replacement; no shrinking.
    """
    return hinge_dual.start(
        "sdca.init",
        kernel,
        X,
        y,
        penalty=penalty,
        weight=weight,
        batch_size=batch_size,
        precompute=precompute,
        cache_size=cache_size,
        rows=rows,
        seed=seed,
    )


def step(state: State, X: Float[Array, "n d"], y: Float[Array, " n"]) -> State:
    """`batch_size` visits; see `init`."""

    def change(coefficient, response, diagonal, limit, count):
        return hinge_dual.best_change(coefficient, response, diagonal, limit)

    state, drawn = hinge_dual.draw(state)
    return hinge_dual.visit(state, X, y, drawn, change)


sdca = Solver(
    "sdca",
    init,
    training_set.prepare,
    step,
    hinge_dual.objective,
    hinge_dual.model,
    hinge_dual.work,
)

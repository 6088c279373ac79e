"""The base of solvers with a kernel, whose states have kernel rows while they run."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Integer, Key

from budgetjax import kernels
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import leaf
from budgetjax._rows import RawRows
from budgetjax.kernels import Kernel, check_kernel
from budgetjax.model import KernelModel
from budgetjax.solvers import training_set
from budgetjax.solvers.row_cache import KernelCache, KernelRows
from budgetjax.solvers.solver import Solver, SolverState
from budgetjax.solvers.training_set import Scalar, TrainingSet, Vector


class KernelState(SolverState, abstract=True):
    """The state of a kernel solver on `n` examples.

    Attributes:
      rows: the cached kernel rows, a `KernelRows`; None in a `Solution`.
      coefficients: alpha, shape `(n,)`.
      responses: `Q alpha`, that is `y_i f(x_i)` without the bias, shape `(n,)`.
      num_updates: the number of changes of a coefficient, or of a pair of them.
      key: the source of random draws.
    """

    rows: Any
    coefficients: Vector
    responses: Vector
    num_updates: Integer[Array, ""]
    key: Key[Array, ""]


State = TypeVar("State", bound=KernelState)
Zero = TypeVar("Zero", bound=KernelState)
Own = TypeVar("Own", bound="KernelSolver")


class KernelSolver(Solver[State, KernelModel], abstract=True):
    """A solver of a problem with a kernel: `solve` gives it a `KernelModel`.

    It works on the matrix `Q[i, j] = y_i y_j k(x_i, x_j)`, a few rows at a time. A
    subclass defines `start`, `step`, `objective` and, unless the coefficients are the
    model's, `model`. It computes in float32, or in float64 if X has it and JAX enables
    it.

    Args:
      kernel: positive definite.
    """

    kernel: Kernel = leaf(check_kernel)

    def read(
        self, X: RawRows, y: ArrayLike, weight: ArrayLike | None = None
    ) -> TrainingSet:
        with names_errors(type(self).__name__):
            X = training_set.read_features(X)
            y = training_set.read_labels(y, X.shape[0], X.dtype)
            weight = training_set.read_weight(weight, y)
            kernels.check_range(self.kernel, X.dtype)
            return TrainingSet(X, y, weight, training_set.digest(X))

    def bind(self: Own, data: TrainingSet) -> Own:
        if not isinstance(data.X, jax.Array):
            wanted = "be a training set of dense rows"
            raise ArgumentError("X", wanted, type(data.X).__name__)
        kernel = kernels.as_leaves(self.kernel, data.X.shape[1], data.dtype)
        return super().bind(data)._replace(kernel=kernel)

    def init(self, data: TrainingSet, cache: KernelCache | None = None) -> State:
        with names_errors(type(self).__name__):
            solver = self.bind(data)
            return solver.start(data, solver.find_rows(data, cache))

    def find_rows(self, data: TrainingSet, cache: KernelCache | None) -> KernelRows:
        """The kernel rows that a cache knows, or new ones; of a bound solver."""
        cache = KernelCache() if cache is None else cache
        return cache.take(self.kernel, data, self.batch(len(data.y)))

    def start(self, data: TrainingSet, rows: KernelRows) -> State:
        """The state of the zero model of a bound solver."""
        raise NotImplementedError

    def zero(
        self, kind: type[Zero], data: TrainingSet, rows: KernelRows, **more: Any
    ) -> Zero:
        """The state of this class of the zero model, with `more` fields."""
        zeros = jnp.zeros_like(data.y)
        return kind(
            solver=self,
            digest=data.digest,
            rows=rows,
            coefficients=zeros,
            responses=zeros,
            num_updates=jnp.int32(0),
            key=jax.random.key(self.seed),
            **more,
        )

    def batch(self, n: int) -> int:
        """The maximum number of kernel rows that a step on n examples asks for."""
        raise NotImplementedError

    def bias(self, state: State, data: TrainingSet) -> Scalar:
        """The bias of the model of a state."""
        return jnp.zeros((), data.dtype)

    def model(self, state: State, data: TrainingSet) -> KernelModel:
        return self.model_of(data, state.coefficients, self.bias(state, data))

    def model_of(
        self, data: TrainingSet, coefficients: Vector, bias: Scalar
    ) -> KernelModel:
        """The model of these coefficients of the examples."""
        return KernelModel.from_coefficients(
            self.kernel, data.X, data.y, coefficients, bias
        )

    def num_vectors(self, state: State) -> Array:
        return jnp.count_nonzero(state.coefficients)

    def work(self, state: State) -> int:
        if state.rows is None:
            wanted = "have the kernel rows of a run, which a Solution has not"
            raise ArgumentError("state", wanted, "none")
        n = state.coefficients.shape[0]
        return state.rows.num_values(state.solver.batch(n))

    def take_rows(self, state, data, cache):
        return state._replace(rows=state.solver.find_rows(data, cache))

    def split_rows(self, state: State) -> tuple[State, Any]:
        return state._replace(rows=None), state.rows

    def join_rows(self, state: State, rows: Any) -> State:
        return state._replace(rows=rows)

"""The base of linear solvers, which visit one pattern after another."""

import contextlib
from typing import Any, TypeVar

import jax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import equal, leaf, static, value_repr
from budgetjax._rows import RawRows
from budgetjax.solvers.linear.patterns import Patterns, read_patterns
from budgetjax.solvers.row_cache import KernelCache
from budgetjax.solvers.solver import Model, Solver, SolverState


class LinearState(SolverState, abstract=True):
    """The state of a linear solver.

    Attributes:
      weights: `w`, or the solver's own form of it, of the features and, with a bias, of
        the constant.
      key: the source of random orders or draws.
    """

    weights: Float[Array, " size"]
    key: Key[Array, ""]


State = TypeVar("State", bound=LinearState)
Own = TypeVar("Own", bound="LinearSolver")


class LinearSolver(Solver[State, Model], abstract=True):
    r"""A solver of a linear problem in patterns :math:`z_i = y_i (x_i, \rho)`.

    Rows may be sparse, a matrix of `scipy.sparse` or `budgetjax.sparse_rows`, and keep
    the dtype of their numbers. It computes in float64, whatever JAX's default precision
    is; a loop of your own runs inside `jax.enable_x64(True)`. A subclass defines
    `start`, `step`, `objective` and `model`.

    Args:
      penalty: C, positive.
      fit_bias: whether to add a bias, the weight of a constant feature. It is part of
        the norm like all weights.
      bias_scale: the value of that feature, rho.
    """

    penalty: ArrayLike = leaf(_checks.positive, default=1.0)
    fit_bias: bool = static(default=True, check=_checks.flag, kw_only=True)
    bias_scale: ArrayLike = leaf(_checks.positive, default=1.0, kw_only=True)

    # In place of inner products, for a solver that has one.
    kernel = None
    linear = True
    callback_every = 1

    def read(
        self, X: RawRows, y: ArrayLike, weight: ArrayLike | None = None
    ) -> Patterns:
        with names_errors(type(self).__name__), self.precision():
            constant = self.bias_scale if self.fit_bias else None
            return read_patterns(X, y, weight, constant, self.kernel)

    def init(self, data: Any, cache: KernelCache | None = None) -> State:
        with names_errors(type(self).__name__):
            solver = self.bind(data)
            solver.check_data(data)
            return self.take_rows(solver.start(data), data, cache)

    def bind(self: Own, data: Any) -> Own:
        if not jax.config.read("jax_enable_x64"):
            wanted = "have double precision: with jax.enable_x64(True)"
            raise ArgumentError("a loop of your own", wanted, "single precision")
        if not isinstance(data, Patterns):
            wanted = "be what a linear solver has read"
            raise ArgumentError("the training set", wanted, type(data).__name__)
        return super().bind(data)

    def check_data(self, data: Any) -> None:
        constant = self.bias_scale if self.fit_bias else None
        for name, known, wanted in (
            ("constant feature", data.constant, constant),
            ("kernel", data.kernel, self.kernel),
        ):
            if not _checks.is_traced((known, wanted)) and not equal(known, wanted):
                known, wanted = map(value_repr, (known, wanted))
                text = f"have the {name} {wanted} of the solver that reads it"
                raise ArgumentError("the training set", text, known)

    def start(self, data: Patterns) -> State:
        """The state of the zero model of a bound solver."""
        raise NotImplementedError

    def precision(self) -> contextlib.AbstractContextManager:
        return jax.enable_x64(True)

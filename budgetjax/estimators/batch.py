"""Classifiers that solve support vector machines, one problem per class."""

import dataclasses

import numpy as np
from jaxtyping import Float, Int32
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_class, warn
from budgetjax.estimators import inputs
from budgetjax.estimators.base import Classifier
from budgetjax.estimators.inputs import (
    ClassWeight,
    RandomState,
    Table,
    Weights,
)
from budgetjax.kernels import Kernel
from budgetjax.model import KernelModel, LinearModel
from budgetjax.online import defaults
from budgetjax.refitting.reduce import prune
from budgetjax.refitting.refit import refit
from budgetjax.solvers.kernel import norms
from budgetjax.solvers.kernel.budget_svm import BudgetSVM
from budgetjax.solvers.kernel.sbp import SBP
from budgetjax.solvers.kernel.smo import SMO
from budgetjax.solvers.linear.dcd import DCD
from budgetjax.solvers.linear.mpu import MPU
from budgetjax.solvers.one_versus_rest import (
    combine_models,
    convergence_warning,
    one_versus_rest,
    problem_labels,
)
from budgetjax.solvers.solver import Solver
from budgetjax.tables.table_model import TableModel
from budgetjax.training import rows as training_rows
from budgetjax.training.rows import Rows, Sample, SparseRows


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class OneVersusRest(Classifier):
    """One model per class, or one for two classes.

    Unlike scikit-learn's own one-versus-rest, which fits the classes separately, the
    problems share kernel rows and need memory for only one.
    """

    class_weight: ClassWeight = None
    progress: bool = False

    def _make_solver(self, sample: Sample) -> Solver:
        """The solver of these parameters for rows like these."""
        raise NotImplementedError

    @property
    def models_(self) -> tuple[KernelModel | LinearModel, ...]:
        """The model of each class against the rest, or one for two classes."""
        model = self._model.model
        return model if type(model) is tuple else (model,)

    @property
    def intercept_(self) -> Float[np.ndarray, " models"]:
        """The bias of each model."""
        return np.stack([np.asarray(model.bias) for model in self.models_])

    @names_class
    def fit(
        self, X: Table, y: ArrayLike, sample_weight: Weights = None
    ) -> "OneVersusRest":
        """Solves one problem per class, or one for two classes.

        Args:
          X: shape `(n, features)`, an array, a data frame or a sparse matrix.
          y: labels of any type, at least two classes, shape `(n,)`.
          sample_weight: shape `(n,)`, at least 0; 2 counts a row twice.

        Returns:
          The estimator.

        Warns:
          ConvergenceWarning: if a solver did not converge.
          UserWarning: if features look unscaled.
        """
        rows, labels, weights = self._examples(X, y, sample_weight, first=True)
        classes, name = inputs.classes_of(labels), type(self).__name__
        sample = Sample(rows)
        solver = self._make_solver(sample)
        kernel = getattr(solver, "kernel", None)
        origin = training_rows.origin_of(kernel, sample)
        training_rows.warn_unscaled(name, rows, origin)
        if kernel is not None:
            if isinstance(rows, SparseRows):
                n, features = rows.shape
                _checks.check_memory(
                    {"num_features": features, "rows": n},
                    # Dense rows, and those of the model.
                    2 * n * features * training_rows.dtype_of(rows).itemsize,
                    "for dense rows, which this kernel needs",
                    _checks.MEMORY_ADVICE["num_features"],
                )
            rows = training_rows.dense(rows, training_rows.dtype_of(rows), origin)
        weight = None
        if sample_weight is not None or self.class_weight is not None:
            of_classes = inputs.class_weights(
                self.class_weight, classes, labels, labels
            )
            weight = weights * of_classes
        parameters = self.get_params(deep=False)
        random = None
        if "random_state" in parameters:
            random = check_random_state(parameters["random_state"])
        solutions = one_versus_rest(
            *(solver, rows, labels, classes),
            weight=weight,
            random=random,
            cache_size=parameters.get("cache_size"),
            max_steps=parameters["max_steps"],
            progress=self.progress,
        )
        late = convergence_warning(solutions, classes)
        if late and solver.tolerance is not None:
            warn(f"{name}: {late}", ConvergenceWarning)
        solutions = tuple(
            solution._replace(model=self._reduce(solution.model, rows, signs, weight))
            for solution, signs in zip(
                solutions, problem_labels(labels, classes), strict=True
            )
        )
        scaling, names = training_rows.translation(origin), inputs.names_of(self)
        self._model = TableModel(combine_models(solutions), scaling, classes, names)
        self.n_iter_ = max(int(solution.history.step[-1]) for solution in solutions)
        return self

    def _reduce(
        self,
        model: KernelModel | LinearModel,
        X: Rows,
        y: Int32[np.ndarray, " n"],
        weight: Float[np.ndarray, " n"] | None,
    ) -> KernelModel | LinearModel:
        """The model to keep of a solution, from its training set."""
        return model


@dataclasses.dataclass(eq=False, repr=False)
class SolverClassifier(OneVersusRest):
    """Any solver of this package, or of your own, as a classifier.

    More than two classes are handled one-versus-rest, by one problem per class with
    shared kernel rows. Rows become dense for a solver with a kernel. The solver's
    fields are parameters too: `solver__penalty` is that of a new solver.

    Args:
      solver: such as `budgetjax.SDCA(budgetjax.RBF(0.1), penalty=10.0)`. None is
        `budgetjax.DCD()`, which is linear.
      max_steps: the maximum number of steps; None is the solver's default.
      cache_size: mebibytes of kernel rows to keep.
      class_weight, progress: as `SBPClassifier`.

    Attributes:
      models_, model_, n_iter_, intercept_, origin_, classes_, n_features_in_: as
        `SBPClassifier`.

    Example:
      >>> import budgetjax as bj
      >>> from budgetjax.estimators import SolverClassifier
      >>> from sklearn.datasets import make_moons
      >>> X, y = make_moons(300, noise=0.1, random_state=0)
      >>> model = SolverClassifier(bj.SDCA(bj.RBF(4.0))).fit(X, y)
      >>> bool(model.score(X, y) > 0.95)
      True
    """

    solver: Solver | None = None
    _: dataclasses.KW_ONLY
    max_steps: int | None = None
    cache_size: float = 512.0

    def _make_solver(self, sample: Sample) -> Solver:
        solver = DCD() if self.solver is None else self.solver
        if not isinstance(solver, Solver):
            wanted = "be one such as budgetjax.SMO(budgetjax.RBF(1.0))"
            raise ArgumentError("solver", wanted, f"{solver!r}")
        return solver


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class KernelClassifier(OneVersusRest):
    """One-versus-rest by a solver whose kernel may have a name."""

    kernel: str | Kernel = "rbf"
    gamma: float | str = "scale"

    def _make_kernel(self, sample: Sample) -> Kernel:
        return training_rows.kernel_of(self.kernel, self.gamma, sample)


@dataclasses.dataclass(eq=False, repr=False)
class SBPClassifier(KernelClassifier):
    """The kernel SVM by the Stochastic Batch Perceptron, `budgetjax.SBP`.

    It is made for large training sets: it predicts about as well as the SVM long before
    it has the last digits of the solution. The number of support vectors is not
    bounded.

    More than two classes are handled one-versus-rest, by one problem per class with
    shared kernel rows (the machine of Crammer and Singer is a single problem). The
    solver computes in float32, or in float64 if X is float64 and JAX enables it; X
    becomes dense.

    Args:
      slack: the mean slack of the examples for a weight vector of norm 1, at least 0,
        in place of the penalty C of other SVMs. 0 is a hard margin. Between 0.001 and
        0.1 the best was 0.001 on digits, letter and ijcnn1, whose classes are well
        separated, and 0.03 on a9a, whose classes are not.
      kernel: "rbf", "laplacian", "poly" (of degree 3, with `coef0=0`), "sigmoid" or
        "linear", as in scikit-learn, or a kernel, such as
        `budgetjax.Polynomial(3)`.
      gamma: the parameter of all kernels but "linear". "scale" is two divided by the
        mean squared distance of rows, `budgetjax.default_gamma`.
      fit_bias: whether the model has an unregularised bias.
      tolerance: the relative gap at which to stop, between the margin reached and a
        bound on all margins. The bound is loose: values from 0.2 to 1 predicted equally
        well.
      max_steps: the maximum number of steps, with up to 64 updates each.
      cache_size: mebibytes of kernel rows to keep.
      class_weight: weights by label, as a dict, or "balanced": inversely proportional
        to the frequencies of the classes. They multiply the weights of the rows.
      random_state: the seed of the draws.
      progress: whether to show a progress bar.

    Attributes:
      models_: one `budgetjax.KernelModel` per class, or one for two classes, for rows
        minus `origin_`.
      model_: the same as one model for raw rows, for all functions of budgetjax.
      support_vectors_: the support vectors of all models, shape
        `(n_support_, n_features_in_)`.
      dual_coef_: their coefficients, shape `(models, n_support_)`.
      n_support_: the number of support vectors; equal rows count once.
      intercept_: the biases, shape `(models,)`.
      n_iter_: the maximum number of steps over the models.
      origin_, classes_, n_features_in_, feature_names_in_: as
        `BudgetedKernelClassifier`.

    Example:
      >>> from budgetjax.estimators import SBPClassifier
      >>> from sklearn.datasets import make_moons
      >>> X, y = make_moons(300, noise=0.1, random_state=0)
      >>> model = SBPClassifier(random_state=0).fit(X, y)
      >>> bool(model.score(X, y) > 0.95)
      True
    """

    slack: float = 0.003
    _: dataclasses.KW_ONLY
    fit_bias: bool = True
    tolerance: float = 1.0
    max_steps: int = 2000
    cache_size: float = 512.0
    random_state: RandomState = None

    def _make_solver(self, sample: Sample) -> SBP:
        return SBP(
            self._make_kernel(sample),
            slack=self.slack,
            fit_bias=self.fit_bias,
            tolerance=self.tolerance,
        )


@dataclasses.dataclass(eq=False, repr=False)
class SMOClassifier(KernelClassifier):
    """The kernel SVM by sequential minimal optimisation, `budgetjax.SMO`.

    It solves the problem of scikit-learn's `SVC` up to the tolerance, for the same
    gamma. Here "scale" is another number, two divided by the mean squared distance of
    rows, which does not depend on the origin. More than two classes are handled
    one-versus-rest, while `SVC` has one problem per pair of classes. Precision and
    attributes are those of `SBPClassifier`.

    Args:
      penalty: C of the hinge loss, positive.
      tolerance: the relative duality gap at which to stop.
      max_steps: the maximum number of steps, with many pair updates each.
      kernel, gamma, fit_bias, cache_size, class_weight, progress: as `SBPClassifier`.

    Example:
      >>> from budgetjax.estimators import SMOClassifier
      >>> from sklearn.datasets import make_moons
      >>> X, y = make_moons(300, noise=0.1, random_state=0)
      >>> model = SMOClassifier().fit(X, y)
      >>> bool(model.score(X, y) > 0.95)
      True
    """

    penalty: float = 1.0
    _: dataclasses.KW_ONLY
    fit_bias: bool = True
    tolerance: float = 1e-3
    max_steps: int = 10_000
    cache_size: float = 512.0

    def _make_solver(self, sample: Sample) -> SMO:
        return SMO(
            self._make_kernel(sample),
            penalty=self.penalty,
            fit_bias=self.fit_bias,
            tolerance=self.tolerance,
        )


@dataclasses.dataclass(eq=False, repr=False)
class BudgetSVC(KernelClassifier):
    """An SVM of at most `budget` support vectors, by `budgetjax.BudgetSVM`.

    The loss of the solver counts only the `budget` worst examples. At its optimum
    several are tied, so more than `budget` have a coefficient. `budgetjax.prune` then
    keeps the largest, and `budgetjax.refit` recomputes the coefficients and the bias.

    The paper stops after a fixed number of pair steps instead. With "l1", a `max_steps`
    of half the budget and no tolerance, no more than `budget` coefficients are nonzero,
    and none is pruned. After more steps, `budgetjax.solve` and `budgetjax.prune` give
    its model, without a refit, which is more accurate.

    More than two classes are handled one-versus-rest, with `budget` support vectors per
    model. Precision and attributes are those of `SBPClassifier`.

    Args:
      budget: the maximum number of support vectors per model, and the number of
        examples that count, an integer of at least 1. With the number of rows, it is
        the ordinary SVM.
      penalty: C, positive. To compare budgets, take it proportional to `1 / budget`
        with "l1" and to its square root with "l2". The refit has its own penalty.
      norm: "l1", the sum of the losses of these examples, or "l2", about the root of
        the sum of their squares, which does not allow `sample_weight`.
      tolerance: relative duality gap at which to stop. None makes all steps.
      max_steps: the maximum number of steps, which change two coefficients with "l1",
        and all of them with "l2".
      kernel, gamma, cache_size, class_weight, progress: as `SBPClassifier`.

    Example:
      >>> from budgetjax.estimators import BudgetSVC
      >>> from sklearn.datasets import make_moons
      >>> X, y = make_moons(300, noise=0.1, random_state=0)
      >>> model = BudgetSVC(budget=20).fit(X, y)
      >>> bool(model.score(X, y) > 0.95), len(model.models_[0].vectors) <= 20
      (True, True)
    """

    budget: int = defaults.BUDGET
    _: dataclasses.KW_ONLY
    penalty: float = 1.0
    norm: str = "l1"
    tolerance: float | None = 1e-3
    max_steps: int = 100_000
    cache_size: float = 512.0

    def _make_solver(self, sample: Sample) -> BudgetSVM:
        norm = norms.named(self.norm, self.budget)
        kernel = self._make_kernel(sample)
        return BudgetSVM(kernel, norm, penalty=self.penalty, tolerance=self.tolerance)

    def _reduce(
        self,
        model: KernelModel | LinearModel,
        X: Rows,
        y: Int32[np.ndarray, " n"],
        weight: Float[np.ndarray, " n"] | None,
    ) -> KernelModel | LinearModel:
        assert isinstance(model, KernelModel), "the solver needs a kernel"
        size = _checks.size("budget", self.budget)
        if len(model.vectors) <= size:
            return model
        return refit(prune(model, size), training_rows.to_array(X), y, weight=weight)


@dataclasses.dataclass(eq=False, repr=False)
class MPUClassifier(KernelClassifier):
    """The linear SVM by the Margin Perceptron with Unlearning, `budgetjax.MPU`.

    It is made for many rows, dense or sparse, which are not converted. More than two
    classes are handled one-versus-rest. It solves in float64; the model has JAX's
    default precision. Other attributes are those of `SBPClassifier`; support vectors
    exist with nonlinear kernels only.

    Args:
      penalty: C of the hinge loss, positive.
      fit_bias: whether the model has a bias, the regularised weight of a constant
        feature.
      bias_scale: the value of that feature.
      kernel: "linear", or another kernel as for `SBPClassifier`, which makes X dense
        and keeps the kernel values of all pairs of rows.
      tolerance: relative gap at which to stop.
      max_steps: the maximum number of passes over all rows.
      gamma, class_weight, random_state, progress: as `SBPClassifier`.

    Attributes:
      models_: one `budgetjax.LinearModel` or `KernelModel` per class, or one for two
        classes, for rows minus `origin_`.
      coef_: the weights, shape `(models, n_features_in_)`, only with the linear kernel.
      n_iter_: the maximum number of passes over the models.

    Example:
      >>> from budgetjax.estimators import MPUClassifier
      >>> from sklearn.datasets import load_iris
      >>> X, y = load_iris(return_X_y=True)
      >>> model = MPUClassifier(random_state=0).fit(X, y)
      >>> model.coef_.shape, bool(model.score(X, y) > 0.9)
      ((3, 4), True)
    """

    penalty: float = 1.0
    _: dataclasses.KW_ONLY
    fit_bias: bool = True
    bias_scale: float = 1.0
    kernel: str | Kernel = "linear"
    tolerance: float = 1e-4
    max_steps: int = 1000
    random_state: RandomState = None

    def _make_solver(self, sample: Sample) -> MPU:
        # Inner products, of rows that may be sparse, are no kernel to the solver.
        linear = isinstance(self.kernel, str) and self.kernel == "linear"
        # A wrong gamma is refused with either.
        kernel = self._make_kernel(sample)
        return MPU(
            penalty=self.penalty,
            fit_bias=self.fit_bias,
            bias_scale=self.bias_scale,
            kernel=None if linear else kernel,
            tolerance=self.tolerance,
        )

    @property
    def coef_(self) -> Float[np.ndarray, "models features"]:
        """The weights, one row per model; only with the linear kernel."""
        models = [model for model in self.models_ if isinstance(model, LinearModel)]
        if not models:
            name = type(self).__name__
            raise AttributeError(f"{name} has coef_ with the linear kernel only")
        return np.stack([np.asarray(model.weights) for model in models])

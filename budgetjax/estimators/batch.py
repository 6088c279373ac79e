"""Classifiers that solve support vector machines, one problem per class."""

import dataclasses
import warnings
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from budgetjax import _checks
from budgetjax.estimators import inputs
from budgetjax.estimators.base import Classifier
from budgetjax.models import Labelled, prune
from budgetjax.refitting.refit import refit
from budgetjax.solvers.kernel.budget_svm import budget_svm
from budgetjax.solvers.kernel.sbp import sbp
from budgetjax.solvers.kernel.smo import smo
from budgetjax.solvers.linear.mpu import mpu
from budgetjax.solvers.one_versus_rest import (
    binary_labels,
    combine_models,
    convergence_warning,
    one_versus_rest,
)
from budgetjax.solvers.solver import Solver


class OneVersusRest(Classifier):
    """One model per class, or one for two classes.

    Unlike scikit-learn's own one-versus-rest, which fits the classes separately, the
    problems share kernel rows and need memory for only one.
    """

    # The solver; the parameters are its arguments.
    _solver: ClassVar[Solver]

    @property
    def models_(self) -> tuple[Any, ...]:
        """The model of each class against the rest, or one for two classes."""
        found = self._model.model
        return found if type(found) is tuple else (found,)

    @property
    def intercept_(self) -> Float[np.ndarray, " models"]:
        """The bias of each model."""
        return np.stack([np.asarray(model.bias) for model in self.models_])

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "OneVersusRest":
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
        X, y, weights = self._examples(X, y, sample_weight, first=True)
        arguments = self.get_params(deep=False)
        if not np.all(weights > 0):
            X, y, weights = (part[weights > 0] for part in (X, y, weights))
        classes = inputs.classes_of(self._where, y)
        by_class = arguments.pop("class_weight")
        if sample_weight is not None or by_class is not None:
            by_label = inputs.class_weights(by_class, classes, y, y)
            arguments["weight"] = weights * by_label
        given, gamma = arguments.pop("kernel"), arguments.pop("gamma")
        kernel = inputs.kernel_of(self._where, given, gamma, X)
        if self._solver.linear and isinstance(given, str) and given == "linear":
            kernel = None
        else:
            arguments["kernel"] = kernel
        origin = inputs.origin_of(kernel, X)
        inputs.warn_unscaled(self._where, X, origin, stacklevel=4)
        if kernel is not None:
            X = inputs.dense(X, inputs.dtype_of(X), origin)
        random = check_random_state(arguments.pop("random_state", None))
        solutions = one_versus_rest(
            self._solver, X, y, classes, random=random, **arguments
        )
        if late := convergence_warning(solutions, classes):
            warnings.warn(f"{self._where}: {late}", ConvergenceWarning, stacklevel=2)
        solutions = tuple(
            one._replace(model=self._finished(one.model, X, signs, arguments))
            for one, signs in zip(solutions, binary_labels(y, classes), strict=True)
        )
        away, names = inputs.translation(origin), inputs.names_of(self)
        self._model = Labelled(combine_models(solutions), away, classes, names)
        self.n_iter_ = max(int(one.history.step[-1]) for one in solutions)
        return self

    def _finished(self, model: Any, X: Any, y: Any, arguments: dict[str, Any]) -> Any:
        """The model to keep of a solution."""
        return model


@dataclasses.dataclass(eq=False, repr=False)
class SBPClassifier(OneVersusRest):
    """The kernel SVM by the Stochastic Batch Perceptron, `budgetjax.sbp`.

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

    slack: Any = 0.003
    _: dataclasses.KW_ONLY
    kernel: Any = "rbf"
    gamma: Any = "scale"
    fit_bias: Any = True
    tolerance: Any = 1.0
    max_steps: Any = 2000
    cache_size: Any = 512.0
    class_weight: Any = None
    random_state: Any = None
    progress: Any = False

    _solver = sbp


@dataclasses.dataclass(eq=False, repr=False)
class SMOClassifier(OneVersusRest):
    """The kernel SVM by sequential minimal optimisation, `budgetjax.smo`.

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

    penalty: Any = 1.0
    _: dataclasses.KW_ONLY
    kernel: Any = "rbf"
    gamma: Any = "scale"
    fit_bias: Any = True
    tolerance: Any = 1e-3
    max_steps: Any = 10_000
    cache_size: Any = 512.0
    class_weight: Any = None
    progress: Any = False

    _solver = smo


@dataclasses.dataclass(eq=False, repr=False)
class BudgetSVC(OneVersusRest):
    """An SVM of at most `budget` support vectors, by `budgetjax.budget_svm`.

    The loss of the solver counts only the `budget` worst examples. At its optimum
    several are tied, so more than `budget` have a coefficient. `budgetjax.prune` then
    keeps the largest, and `budgetjax.refit` recomputes the coefficients and the bias.

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
      tolerance: relative duality gap at which to stop.
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

    budget: Any = 100
    _: dataclasses.KW_ONLY
    penalty: Any = 1.0
    norm: Any = "l1"
    kernel: Any = "rbf"
    gamma: Any = "scale"
    tolerance: Any = 1e-3
    max_steps: Any = 100_000
    cache_size: Any = 512.0
    class_weight: Any = None
    progress: Any = False

    _solver = budget_svm

    def _finished(self, model: Any, X: Any, y: Any, arguments: dict[str, Any]) -> Any:
        size = _checks.size(self._where, "budget", self.budget)
        if len(model.vectors) <= size:
            return model
        return refit(prune(model, size), X, y, weight=arguments.get("weight"))


@dataclasses.dataclass(eq=False, repr=False)
class MPUClassifier(OneVersusRest):
    """The linear SVM by the Margin Perceptron with Unlearning, `budgetjax.mpu`.

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

    penalty: Any = 1.0
    _: dataclasses.KW_ONLY
    fit_bias: Any = True
    bias_scale: Any = 1.0
    kernel: Any = "linear"
    gamma: Any = "scale"
    tolerance: Any = 1e-4
    max_steps: Any = 1000
    class_weight: Any = None
    random_state: Any = None
    progress: Any = False

    _solver = mpu

    @property
    def coef_(self) -> Float[np.ndarray, "models features"]:
        """The weights, one row per model; only with the linear kernel."""
        return np.stack([np.asarray(model.weights) for model in self.models_])

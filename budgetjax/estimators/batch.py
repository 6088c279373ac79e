"""Classifiers that solve a support vector machine, one problem per class."""

import dataclasses
import warnings
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from budgetjax import checks
from budgetjax.estimators import inputs
from budgetjax.estimators.base import Classifier
from budgetjax.models import Labelled, prune
from budgetjax.refitting.refit import refit
from budgetjax.solvers.kernel.budget_svm import budget_svm
from budgetjax.solvers.kernel.sbp import sbp
from budgetjax.solvers.kernel.smo import smo
from budgetjax.solvers.linear.mpu import mpu
from budgetjax.solvers.one_versus_rest import (
    joined,
    one_versus_rest,
    signs_of,
    unfinished,
)
from budgetjax.solvers.solver import Solver


class OneVersusRest(Classifier):
    """One model per class, or one for two classes.

    Not scikit-learn's own, which fits the classes apart from each other: here they
    share kernel rows, and memory for one problem is enough.
    """

    # The solver, whose arguments the parameters are.
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
          y: labels of any kind, of at least two classes, shape `(n,)`.
          sample_weight: shape `(n,)`, at least 0; 2 counts a row twice.

        Returns:
          The estimator.

        Raises:
          ValueError: if the data or a parameter does not fit.
          ImportError: if `progress` needs tqdm.

        Warns:
          ConvergenceWarning: if the steps, or passes, were not enough.
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
        if late := unfinished(solutions, classes):
            warnings.warn(f"{self._where}: {late}", ConvergenceWarning, stacklevel=2)
        solutions = tuple(
            one._replace(model=self._finished(one.model, X, signs, arguments))
            for one, signs in zip(solutions, signs_of(y, classes), strict=True)
        )
        away, names = inputs.translation(origin), inputs.names_of(self)
        self._model = Labelled(joined(solutions), away, classes, names)
        self.n_iter_ = max(int(one.history.step[-1]) for one in solutions)
        return self

    def _finished(self, model: Any, X: Any, y: Any, arguments: dict[str, Any]) -> Any:
        """What is kept of a solution, given its examples and the solver's arguments."""
        return model


@dataclasses.dataclass(eq=False, repr=False)
class SBPClassifier(OneVersusRest):
    """The kernel SVM by the Stochastic Batch Perceptron, `budgetjax.sbp`.

    For large training sets: it soon predicts about as well as the SVM, long before it
    has the last digits of the solution. The number of support vectors is not bounded.

    One-versus-rest for more than two classes, one problem each, which share kernel
    rows; the machine of Crammer and Singer is one problem of all classes. Computes in
    float32, or in float64 where X is and JAX has it switched on; X becomes dense.

    Args:
      slack: mean slack of the examples, for a weight vector of norm 1, at least 0; it
        takes the place of the penalty C of other SVMs. 0 is a hard margin. From 0.001
        to 0.1 the best was 0.001 on digits, letter and ijcnn1, whose classes are well
        apart, and 0.03 on a9a, whose are not.
      kernel: "rbf", "laplacian", "poly" (of degree 3, with `coef0=0`), "sigmoid" or
        "linear", as in scikit-learn, or a kernel, such as
        `budgetjax.Polynomial(3)`.
      gamma: parameter of all but "linear". "scale" is two over the mean squared
        distance of rows, `budgetjax.default_gamma`.
      fit_bias: whether the model has a bias, which is not regularised.
      tolerance: relative gap at which to stop, between the margin reached and a bound
        on all margins. The bound is loose: from 0.2 to 1 none predicted better.
      max_steps: maximum number of steps, of up to 64 updates each.
      cache_size: mebibytes of kernel rows to keep.
      class_weight: weights by label, a dict, or "balanced": inversely proportional to
        the frequencies of the classes. They multiply those of the rows.
      random_state: seed of the draws.
      progress: whether to show a bar.

    Attributes:
      models_: one `budgetjax.KernelModel` per class, or one for two classes, of rows
        less `origin_`.
      model_: the same as one model of raw rows, for all functions of budgetjax.
      support_vectors_: those of all models, shape `(n_support_, n_features_in_)`.
      dual_coef_: their coefficients, shape `(models, n_support_)`.
      n_support_: number of support vectors; rows that are equal count once.
      intercept_: the biases, shape `(models,)`.
      n_iter_: maximum number of steps over the models.
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

    The machine of scikit-learn's `SVC`, exact up to the tolerance, for the same gamma:
    "scale" is another number here, two over the mean squared distance of rows, which
    does not change if all are moved. For more than two classes one-versus-rest, where
    `SVC` has one problem per pair of classes. Precision and attributes as
    `SBPClassifier`.

    Args:
      penalty: C of the hinge loss, positive.
      tolerance: relative duality gap at which to stop.
      max_steps: maximum number of steps, of many changes of pairs each.
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

    The solver looks at the `budget` examples of the largest loss only. At its optimum
    several are equally bad, and more than `budget` have a coefficient. Then the largest
    are kept, by `budgetjax.prune`, and all coefficients and the bias are solved for
    anew, by `budgetjax.refit`.

    One-versus-rest, with so many support vectors per model; precision and attributes as
    `SBPClassifier`.

    Args:
      budget: maximum number of support vectors of a model, and number of examples that
        count, at least 1, and a whole number. The number of rows makes the ordinary
        SVM.
      penalty: C, positive. To compare budgets, take it proportional to `1 / budget`
        with "l1" and to its square root with "l2". The refit has a penalty of its own.
      norm: "l1", the sum of the losses of these examples, or "l2", about the root of
        the sum of their squares, without `sample_weight`.
      tolerance: relative duality gap at which to stop.
      max_steps: maximum number of steps: changes of a pair of coefficients with "l1",
        of all of them with "l2".
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
        size = checks.size(self._where, "budget", self.budget)
        if len(model.vectors) <= size:
            return model
        return refit(prune(model, size), X, y, weight=arguments.get("weight"))


@dataclasses.dataclass(eq=False, repr=False)
class MPUClassifier(OneVersusRest):
    """The linear SVM by the Margin Perceptron with Unlearning, `budgetjax.mpu`.

    For many rows, dense or sparse, which stay as they are. One-versus-rest for more
    than two classes. It solves in float64; the model is in JAX's default precision.
    Other attributes as `SBPClassifier`; support vectors with other kernels only.

    Args:
      penalty: C of the hinge loss, positive.
      fit_bias: whether the model has a bias: the weight of a constant feature, which
        is regularised.
      bias_scale: value of that feature.
      kernel: "linear"; or another as `SBPClassifier`: then X becomes dense, and the
        kernel values of all pairs of rows are kept.
      tolerance: relative gap at which to stop.
      max_steps: maximum number of passes over all rows.
      gamma, class_weight, random_state, progress: as `SBPClassifier`.

    Attributes:
      models_: one `budgetjax.LinearModel`, or `KernelModel`, per class, or one for two
        classes, of rows less `origin_`.
      coef_: weights, shape `(models, n_features_in_)`, only with the linear kernel.
      n_iter_: maximum number of passes over the models.

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

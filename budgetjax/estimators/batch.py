"""Classifiers that solve a support vector machine, one problem per class."""

import warnings
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from budgetjax import models
from budgetjax.estimators import inputs
from budgetjax.kernels import Kernel
from budgetjax.models import Labelled
from budgetjax.solvers.kernel.budget_svm import budget_svm
from budgetjax.solvers.kernel.sbp import sbp
from budgetjax.solvers.linear.mpu import mpu
from budgetjax.solvers.solver import Solution, Solver, solve


class _OneVersusRest(ClassifierMixin, BaseEstimator):
    """One model per class, or one for two classes."""

    models_: tuple[Any, ...]
    origin_: Float[np.ndarray, " features"]
    classes_: Shaped[np.ndarray, " classes"]
    n_iter_: int

    # The solver, whose arguments are the parameters.
    _solver: Solver

    def _kernel(self, X: Any) -> Kernel | None:
        """The kernel, or None for a linear model that needs none."""
        given = self.get_params(deep=False)
        return inputs.kernel_of(self._where, given["kernel"], given["gamma"], X)

    @property
    def model_(self) -> Labelled:
        """What predicts raw rows."""
        one, *others = self.models_
        return Labelled(
            tuple(self.models_) if others else one,
            inputs.moved(self.origin_),
            self.classes_,
            inputs.names_of(self),
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "models_")

    @property
    def _where(self) -> str:
        return type(self).__name__

    def fit(self, X: Any, y: Any) -> "_OneVersusRest":
        """Solves a problem for each class, or one for two classes.

        Args:
          X: shape `(n, features)`, an array, a data frame or a sparse matrix.
          y: labels of any kind, of at least two classes, shape `(n,)`.

        Returns:
          The estimator.

        Raises:
          ValueError: if the data or a parameter does not fit.
          ImportError: if `progress` needs tqdm.

        Warns:
          ConvergenceWarning: if the steps, or passes, were not enough.
          UserWarning: if features look unscaled.
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=inputs.FLOATS)
        inputs.check_range(self._where, X, inputs.dtype_of(X))
        classes, codes = inputs.classes_of(self._where, y)
        kernel = self._kernel(X)
        origin = inputs.origin_of(kernel, X)
        inputs.warn_unscaled(self._where, X, origin, stacklevel=4)
        if kernel is not None:
            X = inputs.dense(X, inputs.dtype_of(X), origin)
        given = self.get_params(deep=False)
        random = check_random_state(given.pop("random_state", 0))
        del given["gamma"], given["kernel"]
        if kernel is not None:
            given["kernel"] = kernel
        solved: list[Solution] = []
        steps = []
        for number in range(1, 2) if len(classes) == 2 else range(len(classes)):
            if hasattr(self, "random_state"):
                given["seed"] = int(random.randint(2**31 - 1))
            labels = np.where(codes == number, 1, -1).astype(np.int32)
            found = solve(self._solver, X, labels, **given)
            # Kernel rows know nothing of classes, which share them.
            if hasattr(found.state, "rows"):
                given["rows"] = found.state.rows
            steps.append(int(found.history.step[-1]))
            solved.append(found._replace(state=None))
        late = [i for i, found in enumerate(solved) if not found.converged]
        if late:
            first = inputs.shown(classes[late[0] if len(solved) > 1 else 1])
            warnings.warn(
                f"{self._where}: {len(late)} of {len(solved)} models have a gap above "
                f"tolerance, the first of class {first}; raise max_steps, or tolerance",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.models_ = tuple(found.model for found in solved)
        self.origin_ = origin
        self.classes_ = classes
        self.n_iter_ = max(steps)
        return self

    def decision_function(self, X: Any) -> Float[np.ndarray, "n ..."]:
        """Scores of the models; O(n features) for each of their vectors.

        Args:
          X: shape `(n, n_features_in_)`.

        Returns:
          Shape `(n,)` for two classes, above 0 for the second one; else
          `(n, classes)`.

        Raises:
          NotFittedError: before `fit`.
          ValueError: if X does not fit.
        """
        check_is_fitted(self)
        X = validate_data(
            self, X, reset=False, accept_sparse="csr", dtype=inputs.FLOATS
        )
        model = self.model_
        inputs.check_range(self._where, X, models.dtype_of(model))
        return models.decision_function(model, X)

    def predict(self, X: Any) -> Shaped[np.ndarray, " n"]:
        """The label of each row: that of the largest score.

        Args:
          X: shape `(n, n_features_in_)`.

        Raises:
          NotFittedError: before `fit`.
          ValueError: if X does not fit.
        """
        scores = self.decision_function(X)
        return models.decided(self.model_, scores)


class SBPClassifier(_OneVersusRest):
    """The kernel SVM by the Stochastic Batch Perceptron, `budgetjax.sbp`.

    For large training sets: it soon predicts about as well as the SVM, of which it has
    no use for the last digits. The number of support vectors is not bounded.

    One against the rest for more than two classes, which share kernel rows. Computes in
    float32, or in float64 where X is and JAX has it switched on; X becomes dense.

    Args:
      slack: the mean slack that examples are given, for a weight vector of norm 1, at
        least 0; it takes the place of the penalty C of other SVMs. 0 is a hard margin.
        Of 0.001 to 0.1 the best was 0.001 on digits, letter and ijcnn1, whose classes
        are well apart, and 0.03 on a9a, whose are not.
      kernel: "rbf", "laplacian" or "linear", or a kernel, such as
        `budgetjax.Polynomial(3)`.
      gamma: of a kernel by name. "scale" is two over the mean squared distance of
        rows, `budgetjax.default_gamma`.
      fit_bias: whether the model has a bias, which is not regularised.
      tolerance: relative gap at which to stop, between the margin reached and a bound
        of all margins. The bound is loose: of 0.2 to 1 none predicted better.
      max_steps: maximum number of steps, of up to 64 updates each.
      cache_size: mebibytes for kernel rows that are kept.
      random_state: seed of the draws: an integer gives the same model again.
      progress: whether to show a bar.

    Attributes:
      models_: a `budgetjax.KernelModel` for each class, or one for two classes, of rows
        less `origin_`.
      origin_: what is subtracted from rows before float32 rounds them: zeros, unless
        they lie far from 0 and the kernel is one of differences; then their median.
      classes_: the labels, in order.
      n_iter_: maximum number of steps of a model.
      n_features_in_: features.
      feature_names_in_: their names, if X was a data frame.

    Example:
      >>> from budgetjax.estimators import SBPClassifier
      >>> from sklearn.datasets import make_moons
      >>> X, y = make_moons(300, noise=0.1, random_state=0)
      >>> model = SBPClassifier(random_state=0).fit(X, y)
      >>> bool(model.score(X, y) > 0.95)
      True
    """

    _solver = sbp

    def __init__(
        self,
        slack: Any = 0.003,
        *,
        kernel: Any = "rbf",
        gamma: Any = "scale",
        fit_bias: Any = True,
        tolerance: Any = 1.0,
        max_steps: Any = 2000,
        cache_size: Any = 512.0,
        random_state: Any = None,
        progress: Any = False,
    ):
        self.slack = slack
        self.kernel = kernel
        self.gamma = gamma
        self.fit_bias = fit_bias
        self.tolerance = tolerance
        self.max_steps = max_steps
        self.cache_size = cache_size
        self.random_state = random_state
        self.progress = progress


class BudgetSVC(_OneVersusRest):
    """An SVM that looks at its worst-classified examples, `budgetjax.budget_svm`.

    At most `budget` examples of the largest loss count, so that it is robust to few
    labels that are wrong, and small budgets are a strong regularisation. The number of
    support vectors is not bounded by it: at the optimum many examples are equally bad.
    `budgetjax.prune` keeps those of the largest coefficients.

    One against the rest for more than two classes, which share kernel rows. Computes in
    float32, or in float64 where X is and JAX has it switched on; X becomes dense.

    Args:
      budget: the number of examples that count, at least 1. As many as there are make
        the ordinary SVM.
      penalty: C, positive. To compare budgets, take it proportional to `1 / budget`
        with "l1" and to its square root with "l2".
      norm: "l1", the sum of the losses of these examples, or "l2", about the root of
        the sum of their squares.
      kernel: "rbf", "laplacian" or "linear", or a kernel, such as
        `budgetjax.Polynomial(3)`.
      gamma: of a kernel by name. "scale" is two over the mean squared distance of
        rows, `budgetjax.default_gamma`.
      tolerance: relative duality gap at which to stop.
      max_steps: maximum number of steps: changes of a pair of coefficients with "l1",
        of all of them with "l2".
      cache_size: mebibytes for kernel rows that are kept.
      progress: whether to show a bar.

    Attributes:
      models_: a `budgetjax.KernelModel` for each class, or one for two classes, of rows
        less `origin_`.
      origin_: what is subtracted from rows before float32 rounds them: zeros, unless
        they lie far from 0 and the kernel is one of differences; then their median.
      classes_: the labels, in order.
      n_iter_: maximum number of steps of a model.
      n_features_in_: features.
      feature_names_in_: their names, if X was a data frame.

    Example:
      >>> from budgetjax.estimators import BudgetSVC
      >>> from sklearn.datasets import make_moons
      >>> X, y = make_moons(300, noise=0.1, random_state=0)
      >>> model = BudgetSVC(budget=50).fit(X, y)
      >>> bool(model.score(X, y) > 0.95)
      True
    """

    _solver = budget_svm

    def __init__(
        self,
        budget: Any = 100,
        *,
        penalty: Any = 1.0,
        norm: Any = "l1",
        kernel: Any = "rbf",
        gamma: Any = "scale",
        tolerance: Any = 1e-3,
        max_steps: Any = 100_000,
        cache_size: Any = 512.0,
        progress: Any = False,
    ):
        self.budget = budget
        self.penalty = penalty
        self.norm = norm
        self.kernel = kernel
        self.gamma = gamma
        self.tolerance = tolerance
        self.max_steps = max_steps
        self.cache_size = cache_size
        self.progress = progress


class MPUClassifier(_OneVersusRest):
    """The linear SVM by the Margin Perceptron with Unlearning, `budgetjax.mpu`.

    For many rows, dense or sparse, which stay as they are. One against the rest for
    more than two classes. It solves in float64; the model is in JAX's default
    precision.

    Args:
      penalty: C, positive, of the hinge loss.
      fit_bias: whether the model has a bias: the weight of a constant feature, which
        is regularised.
      bias_scale: the value of that feature.
      kernel: "linear"; or "rbf", "laplacian" or a kernel: then X becomes dense, and the
        kernel values of all pairs of rows are kept.
      gamma: of a kernel by name. "scale" is two over the mean squared distance of
        rows, `budgetjax.default_gamma`.
      tolerance: relative gap at which to stop.
      max_steps: maximum number of passes over all rows.
      random_state: seed of the orders: an integer gives the same model again.
      progress: whether to show a bar.

    Attributes:
      models_: a `budgetjax.LinearModel`, or `KernelModel`, for each class, or one for
        two classes, of rows less `origin_`.
      origin_: what is subtracted from rows: zeros, unless they lie far from 0 and the
        kernel is one of differences; then their median.
      coef_: weights, shape `(models, n_features_in_)`, of the linear kernel.
      intercept_: the biases, shape `(models,)`.
      classes_: the labels, in order.
      n_iter_: maximum number of passes of a model.
      n_features_in_: features.
      feature_names_in_: their names, if X was a data frame.

    Example:
      >>> from budgetjax.estimators import MPUClassifier
      >>> from sklearn.datasets import load_iris
      >>> X, y = load_iris(return_X_y=True)
      >>> model = MPUClassifier(random_state=0).fit(X, y)
      >>> model.coef_.shape, bool(model.score(X, y) > 0.9)
      ((3, 4), True)
    """

    _solver = mpu

    def __init__(
        self,
        penalty: Any = 1.0,
        *,
        fit_bias: Any = True,
        bias_scale: Any = 1.0,
        kernel: Any = "linear",
        gamma: Any = "scale",
        tolerance: Any = 1e-4,
        max_steps: Any = 1000,
        random_state: Any = None,
        progress: Any = False,
    ):
        self.penalty = penalty
        self.fit_bias = fit_bias
        self.bias_scale = bias_scale
        self.kernel = kernel
        self.gamma = gamma
        self.tolerance = tolerance
        self.max_steps = max_steps
        self.random_state = random_state
        self.progress = progress

    @property
    def coef_(self) -> Float[np.ndarray, "models features"]:
        """The weights, a row a model; only of the linear kernel."""
        return np.stack([np.asarray(model.weights) for model in self.models_])

    @property
    def intercept_(self) -> Float[np.ndarray, " models"]:
        """The bias of each model."""
        return np.stack([np.asarray(model.bias) for model in self.models_])

    def _kernel(self, X: Any) -> Kernel | None:
        linear = isinstance(self.kernel, str) and self.kernel == "linear"
        return None if linear else super()._kernel(X)

"""A kernel classifier and a kernel regressor on a budget of support vectors."""

from typing import Any, ClassVar

import numpy as np
import scipy.special
from jaxtyping import Float, Shaped
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if

from budgetjax import models
from budgetjax.estimators import inputs, parameters
from budgetjax.estimators.learner import Learner
from budgetjax.models import learner_labels


def _logistic(estimator: Any) -> bool:
    """Whether scores are log-odds."""
    return estimator.loss == "logistic"


class BudgetedKernelClassifier(ClassifierMixin, Learner):
    """A kernel classifier of at most so many support vectors, however long the stream.

    `fit` streams the rows once and then solves for the best coefficients of the support
    vectors that the stream has chosen, `budgetjax.refit`. `partial_fit` streams too,
    and solves on a sample of the rows so far, when it is asked to predict. Memory and
    the time for a row are bounded by the budget. Standardise features of different
    units first.

    Computes in float32, or in float64 where X is and JAX has it switched on.

    Args:
      budget: the most support vectors.
      algorithm: that streams: "arow", which alone is a good model after one pass and
        slow for large budgets, "pegasos", "sgd", "norma", "passive_aggressive",
        "perceptron", "projectron", "forgetron" (two classes only), or, of features of
        the kernel, "nystrom" and "fourier". Each is told of in the docstring of its
        `init`, such as `budgetjax.arow.init`. None is "pegasos" if a refit follows,
        after which it is as good, and "arow" if none does.
      kernel: "rbf", "laplacian" or "linear", or a kernel, such as
        `budgetjax.Polynomial(3)`.
      gamma: of a kernel by name. "scale" is two over the mean squared distance of
        rows, `budgetjax.default_gamma`, of the first rows that come. "auto", in `fit`,
        tries this times 1/4, 1/2, 1, 2 and 4 on up to 4,096 rows, and takes what
        predicts up to 1,024 others best.
      maintenance: of a full budget, by name, such as "merge", "project" or
        "remove_oldest", or a strategy. None merges with a Gaussian kernel and projects
        with any other. After a
        refit, whose coefficients are large and balance each other, what removes does
        harm. Only of algorithms that have one.
      regularization: lambda of the algorithm, or None: 0.0001 for "pegasos" and
        "norma", 0 for "sgd". Others have none.
      loss: "hinge", or "logistic", which gives probabilities. Of the stream where the
        algorithm has a choice ("sgd", "norma", "nystrom", "fourier"), and of the refit,
        where the hinge is squared.
      options: more arguments of the algorithm's `init`, a dict such as
        `{"confidence": 0.1}` or `{"drift": 0.01}` for "arow".
      refit: whether to solve for the coefficients after the stream, in `partial_fit`
        on a sample of it.
      penalty: C of the refit, or several to choose from, on a part of the rows that is
        held out.
      move_vectors: whether the refit moves the support vectors too. It is slower, and
        gains most for small budgets.
      epochs: passes of `fit` over the rows.
      shuffle: whether each of them is in a new random order.
      average: whether the average of the iterates predicts, in place of the last one,
        or the row from which on; see `budgetjax.averaged`. Only of algorithms that have
        it, and without a refit.
      class_weight: weights by label, a dict, or "balanced": in inverse proportion to
        how frequent classes are. They multiply those of the rows.
      random_state: of orders and of what draws: an integer gives the same model again.
      progress: whether to show a bar.

    Attributes:
      state_: of the algorithm, for all functions of budgetjax, on rows less `origin_`.
      origin_: what is subtracted from rows before float32 rounds them, shape
        `(n_features_in_,)`: zeros, unless the first rows lie far from 0 and the kernel
        is one of differences; then their median.
      support_vectors_: shape `(n_support_, n_features_in_)`.
      dual_coef_: their coefficients, shape `(1, n_support_)`, or a row a class.
      n_support_: the number of support vectors.
      classes_: the labels, in order.
      n_iter_: passes over the rows.
      n_features_in_: features.
      feature_names_in_: their names, if X was a data frame.

    Example:
      >>> from budgetjax.estimators import BudgetedKernelClassifier
      >>> from sklearn.datasets import make_moons
      >>> X, y = make_moons(1000, noise=0.1, random_state=0)
      >>> model = BudgetedKernelClassifier(budget=20, random_state=0).fit(X, y)
      >>> model.n_support_, bool(model.score(X, y) > 0.95)
      (20, True)
    """

    _family: ClassVar[parameters.Family] = parameters.CLASSIFIER

    classes_: Shaped[np.ndarray, " classes"]
    _one_versus_rest: bool

    def __init__(
        self,
        budget: Any = 100,
        *,
        algorithm: Any = None,
        kernel: Any = "rbf",
        gamma: Any = "scale",
        maintenance: Any = None,
        regularization: Any = None,
        loss: Any = "hinge",
        options: Any = None,
        refit: Any = True,
        penalty: Any = 10.0,
        move_vectors: Any = False,
        epochs: Any = 1,
        shuffle: Any = True,
        average: Any = False,
        class_weight: Any = None,
        random_state: Any = None,
        progress: Any = False,
    ):
        self.budget = budget
        self.algorithm = algorithm
        self.kernel = kernel
        self.gamma = gamma
        self.maintenance = maintenance
        self.regularization = regularization
        self.loss = loss
        self.options = options
        self.refit = refit
        self.penalty = penalty
        self.move_vectors = move_vectors
        self.epochs = epochs
        self.shuffle = shuffle
        self.average = average
        self.class_weight = class_weight
        self.random_state = random_state
        self.progress = progress

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        assert tags.classifier_tags is not None, "this is a classifier"
        tags.classifier_tags.multi_class = self.algorithm != "forgetron"
        return tags

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> "BudgetedKernelClassifier":
        """Learns from nothing: passes over the rows, and the refit.

        Args:
          X: shape `(n, features)`, an array, a data frame or a sparse matrix, which is
            made dense a block at a time.
          y: labels of any kind, of at least two classes, shape `(n,)`.
          sample_weight: shape `(n,)`, at least 0: what multiplies the loss of a row.

        Returns:
          The estimator.

        Raises:
          ValueError: if the data or a parameter does not fit.
          ImportError: if `progress` needs tqdm.

        Warns:
          UserWarning: if features look unscaled, or the refit has not converged.
        """
        X, y = self._validated(X, y, first=True)
        classes, codes = inputs.classes_of(self._where, y)
        weights = self._weights(X, sample_weight)
        weights = weights * self._class_weights(classes, y)[codes]
        labels = learner_labels(codes, len(classes))

        def examples(order):
            return (
                (labels, weights) if order is None else (labels[order], weights[order])
            )

        name, state, origin, refits, seed = self._passed(
            *(X, len(classes), self._gamma(X, y, sample_weight), examples)
        )
        if refits:
            state = self._refitted(state, X, origin, labels, weights, seed)
        self._streamed, self._reservoir, self._solved = state, None, None
        self.origin_, self.classes_ = origin, classes
        self.n_iter_ = self.epochs
        self._name, self._one_versus_rest = name, refits
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> "BudgetedKernelClassifier":
        """Goes on learning: one pass over these rows in their order.

        With `refit=True` up to 8,192 rows are kept, a uniform sample of all that have
        come, at most 4 million numbers. What predicts has learned these once more, in
        another order, and its coefficients are the best for them, so that sorted
        streams are learned about as well as shuffled ones; the first prediction after
        a part takes the time for that, and a world that changes is not followed. With
        `refit=False` the one pass is all, and any division of the same rows gives the
        same model as `fit` with `shuffle=False` and one epoch, if `gamma` is a number:
        "scale" is of the first rows that come.

        After `fit` it goes on from there, one pass without a refit.

        Args:
          X: as for `fit`; any number of rows. Programs are compiled for a few numbers
            of rows only.
          y: labels.
          classes: all labels that will come, needed in the first call.
          sample_weight: as for `fit`.

        Returns:
          The estimator.

        Raises:
          ValueError: if the data or a parameter does not fit, or a label is not one of
            the classes; the model is as before.
        """
        where, first = self._where, not hasattr(self, "_streamed")
        known = self._classes(classes, first)
        X, y = self._validated(X, y, first=first)
        codes = inputs.codes_of(where, y, known)
        weights = self._weights(X, sample_weight)
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"{where}: class_weight must be a dict or None in partial_fit, as not "
                f"all labels are known, got {self.class_weight!r}"
            )
        weights = weights * self._class_weights(known, known)[codes]
        labels = learner_labels(codes, len(known))
        if first:
            begun = self._began(X, len(known), labels.dtype)
        else:
            begun = self._name, self._streamed, self.origin_, self._reservoir
        self._went_on(*begun, X, labels, labels, weights)
        if first:
            self.classes_, self.n_iter_ = known, 1
        self._one_versus_rest = self._reservoir is not None
        return self

    def _classes(self, classes: Any, first: bool) -> Shaped[np.ndarray, " classes"]:
        """The classes of the first call, which later ones may repeat."""
        where = self._where
        if classes is None and first:
            raise ValueError(
                f"{where}: classes must be given in the first call of partial_fit, got "
                "None"
            )
        if classes is None:
            return self.classes_
        known, _ = inputs.classes_of(where, np.asarray(classes))
        if not first and not np.array_equal(known, self.classes_):
            raise ValueError(
                f"{where}: classes must be those of the first call, "
                f"{self.classes_.tolist()}, got {known.tolist()}"
            )
        return known

    def _class_weights(
        self, classes: Shaped[np.ndarray, " classes"], y: Shaped[np.ndarray, " n"]
    ) -> Float[np.ndarray, " classes"]:
        return compute_class_weight(self.class_weight, classes=classes, y=y)

    def decision_function(self, X: Any) -> Float[np.ndarray, "n ..."]:
        """Scores, O(n budget features).

        Args:
          X: shape `(n, n_features_in_)`.

        Returns:
          Shape `(n,)` for two classes, above 0 for the second one; else
          `(n, classes)`.

        Raises:
          NotFittedError: before `fit`.
          ValueError: if X does not fit.
        """
        return self._scores(X)

    def predict(self, X: Any) -> Shaped[np.ndarray, " n"]:
        """The label of each row: that of the largest score.

        Args:
          X: shape `(n, n_features_in_)`.

        Raises:
          NotFittedError: before `fit`.
          ValueError: if X does not fit.
        """
        scores = self._scores(X)
        return models.decided(self.model_, scores)

    @available_if(_logistic)
    def predict_proba(self, X: Any) -> Float[np.ndarray, "n classes"]:
        """The probability of each class, only with `loss="logistic"`.

        For two classes `1 / (1 + exp(-score))`. For more, what the loss makes of them:
        after a refit, which has a problem a class, these values over their sum; else
        the softmax of the scores.

        Args:
          X: shape `(n, n_features_in_)`.

        Returns:
          Shape `(n, classes)`, in the order of `classes_`.

        Raises:
          AttributeError: with another loss.
          NotFittedError: before `fit`.
          ValueError: if X does not fit.
        """
        scores = self._scores(X).astype(np.float64)
        if scores.ndim == 1:
            return np.stack(
                [scipy.special.expit(-scores), scipy.special.expit(scores)], 1
            )
        if not self._one_versus_rest:
            return scipy.special.softmax(scores, axis=1)
        # By logarithms: all of them may underflow.
        return scipy.special.softmax(scipy.special.log_expit(scores), axis=1)


class BudgetedKernelRegressor(RegressorMixin, Learner):
    """Kernel regression on at most so many support vectors, however long the stream.

    `fit` streams the rows once and then solves for the best coefficients of the support
    vectors that the stream has chosen, `budgetjax.refit`. `partial_fit` streams too,
    and solves on a sample of the rows so far, when it is asked to predict. Memory and
    the time for a row are bounded by the budget. Standardise features of different
    units first; targets can be in any unit.

    The mean of the targets so far is subtracted before they are learned, and added to
    predictions.

    Args:
      budget: the most support vectors.
      algorithm: that streams: "sgd", "norma", or, of features of the kernel, "nystrom"
        and "fourier". Each is told of in the docstring of its `init`, such as
        `budgetjax.sgd.init`. None is "sgd".
      kernel: "rbf", "laplacian" or "linear", or a kernel, such as
        `budgetjax.Polynomial(3)`.
      gamma: of a kernel by name. "scale" is two over the mean squared distance of
        rows, `budgetjax.default_gamma`, of the first rows that come. "auto", in `fit`,
        tries this times 1/4, 1/2, 1, 2 and 4 on up to 4,096 rows, and takes what
        predicts up to 1,024 others best.
      maintenance: of a full budget, by name, such as "merge", "project" or
        "remove_oldest", or a strategy. None merges with a Gaussian kernel and projects
        with any other. After a refit, whose coefficients are large and balance each
        other, what removes does harm. Only of "sgd".
      regularization: lambda of the algorithm, or None: 0.0001 for "norma", 0 for "sgd".
        Others have none.
      loss: "squared"; "huber", squared up to an error of 1 and linear beyond it, in
        units of the target; "absolute"; or a function as for `budgetjax.sgd.init`, such
        as `budgetjax.losses.quantile(0.9)`. Of the stream and of the refit, which needs
        a derivative without jumps: "absolute" and quantiles are for `refit=False`.
      options: more arguments of the algorithm's `init`, a dict such as
        `{"learning_rate": 0.1}` for "sgd".
      refit: whether to solve for the coefficients after the stream, in `partial_fit`
        on a sample of it.
      penalty: C of the refit, or several to choose from, on a part of the rows that is
        held out.
      move_vectors: whether the refit moves the support vectors too. It is slower, and
        gains most for small budgets.
      epochs: passes of `fit` over the rows.
      shuffle: whether each of them is in a new random order.
      average: whether the average of the iterates predicts, in place of the last one,
        or the row from which on; see `budgetjax.averaged`. Only without a refit.
      random_state: of orders and of what draws: an integer gives the same model again.
      progress: whether to show a bar.

    Attributes:
      state_: of the algorithm, for all functions of budgetjax, on rows less `origin_`;
        it predicts without the intercept.
      origin_: what is subtracted from rows before float32 rounds them, shape
        `(n_features_in_,)`: zeros, unless the first rows lie far from 0 and the kernel
        is one of differences; then their median.
      intercept_: the mean of the targets.
      support_vectors_: shape `(n_support_, n_features_in_)`.
      dual_coef_: their coefficients, shape `(1, n_support_)`.
      n_support_: the number of support vectors.
      n_iter_: passes over the rows.
      n_features_in_: features.
      feature_names_in_: their names, if X was a data frame.

    Example:
      >>> import numpy as np
      >>> from budgetjax.estimators import BudgetedKernelRegressor
      >>> X = np.linspace(-3, 3, 500)[:, None]
      >>> y = 1000 + np.sin(2 * X[:, 0])
      >>> model = BudgetedKernelRegressor(budget=20, random_state=0).fit(X, y)
      >>> bool(model.score(X, y) > 0.99)
      True
    """

    _family: ClassVar[parameters.Family] = parameters.REGRESSOR

    intercept_: float
    _total_weight: float

    def __init__(
        self,
        budget: Any = 100,
        *,
        algorithm: Any = None,
        kernel: Any = "rbf",
        gamma: Any = "scale",
        maintenance: Any = None,
        regularization: Any = None,
        loss: Any = "squared",
        options: Any = None,
        refit: Any = True,
        penalty: Any = 10.0,
        move_vectors: Any = False,
        epochs: Any = 1,
        shuffle: Any = True,
        average: Any = False,
        random_state: Any = None,
        progress: Any = False,
    ):
        self.budget = budget
        self.algorithm = algorithm
        self.kernel = kernel
        self.gamma = gamma
        self.maintenance = maintenance
        self.regularization = regularization
        self.loss = loss
        self.options = options
        self.refit = refit
        self.penalty = penalty
        self.move_vectors = move_vectors
        self.epochs = epochs
        self.shuffle = shuffle
        self.average = average
        self.random_state = random_state
        self.progress = progress

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> "BudgetedKernelRegressor":
        """Learns from nothing: passes over the rows, and the refit.

        Args:
          X: shape `(n, features)`, an array, a data frame or a sparse matrix, which is
            made dense a block at a time.
          y: real targets, shape `(n,)`.
          sample_weight: shape `(n,)`, at least 0: what multiplies the loss of a row.

        Returns:
          The estimator.

        Raises:
          ValueError: if the data or a parameter does not fit.
          ImportError: if `progress` needs tqdm.

        Warns:
          UserWarning: if features look unscaled, or the refit has not converged.
        """
        X, y = self._validated(X, y, first=True, y_numeric=True)
        y = y.astype(np.float64)
        weights = self._weights(X, sample_weight)
        mean, total = 0.0, 0.0

        def examples(order):
            nonlocal mean, total
            given = (y, weights) if order is None else (y[order], weights[order])
            targets, mean, total = _centred(*given, mean, total)
            return targets, given[1]

        gamma = self._gamma(X, y, sample_weight)
        name, state, origin, refits, seed = self._passed(X, None, gamma, examples)
        if refits:
            state = self._refitted(state, X, origin, y - mean, weights, seed)
        self._streamed, self._reservoir, self._solved = state, None, None
        self.intercept_, self._total_weight = mean, total
        self.origin_ = origin
        self.n_iter_, self._name = self.epochs, name
        return self

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> "BudgetedKernelRegressor":
        """Goes on learning: one pass over these rows in their order.

        With `refit=True` up to 8,192 rows are kept, a uniform sample of all that have
        come, at most 4 million numbers. What predicts has learned these once more, in
        another order, and its coefficients are the best for them, so that sorted
        streams are learned about as well as shuffled ones; the first prediction after
        a part takes the time for that, and a world that changes is not followed. With
        `refit=False` the one pass is all, and any division of the same rows gives the
        same model as `fit` with `shuffle=False` and one epoch, if `gamma` is a number:
        "scale" is of the first rows that come.

        After `fit` it goes on from there, one pass without a refit.

        Args:
          X: as for `fit`; any number of rows. Programs are compiled for a few numbers
            of rows only.
          y: targets.
          sample_weight: as for `fit`.

        Returns:
          The estimator.

        Raises:
          ValueError: if the data or a parameter does not fit; the model is as before.
        """
        first = not hasattr(self, "_streamed")
        X, y = self._validated(X, y, first=first, y_numeric=True)
        weights = self._weights(X, sample_weight)
        if first:
            begun, mean, total = self._began(X, None, np.dtype(np.float64)), 0.0, 0.0
        else:
            begun = self._name, self._streamed, self.origin_, self._reservoir
            mean, total = self.intercept_, self._total_weight
        y = y.astype(np.float64)
        targets, mean, total = _centred(y, weights, mean, total)
        self._went_on(*begun, X, targets, y, weights)
        self.intercept_, self._total_weight = mean, total
        if first:
            self.n_iter_ = 1
        return self

    def _targets(self, y: Shaped[np.ndarray, " n"]) -> Shaped[np.ndarray, " n"]:
        return y - self.intercept_

    def predict(self, X: Any) -> Float[np.ndarray, " n"]:
        """The target of each row, O(n budget features).

        Args:
          X: shape `(n, n_features_in_)`.

        Returns:
          Doubles, shape `(n,)`.

        Raises:
          NotFittedError: before `fit`.
          ValueError: if X does not fit.
        """
        return self._scores(X).astype(np.float64)


def _centred(
    y: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    mean: float,
    total: float,
) -> tuple[Float[np.ndarray, " n"], float, float]:
    """Targets less the mean of those so far, each its own included.

    Args:
      y: the targets that come.
      weights: theirs.
      mean: of the targets before.
      total: the weight of these.

    Returns:
      The targets, and mean and total weight after them.
    """
    totals = total + np.cumsum(weights)
    # The mean moves by a part of the distance: a large offset takes no digits.
    start = mean if total > 0 else y[np.argmax(weights > 0)]
    moved = np.cumsum(weights * (y - start)) / np.where(totals > 0, totals, 1)
    means = start + moved
    return y - means, float(means[-1]), float(totals[-1])

"""A kernel classifier on a budget of support vectors."""

import dataclasses

import numpy as np
from jaxtyping import Float, Shaped
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if

from budgetjax._errors import ArgumentError, names_class
from budgetjax.estimators import inputs
from budgetjax.estimators.base import Classifier
from budgetjax.estimators.inputs import ClassWeight, Table, Weights
from budgetjax.estimators.supervised import Supervised
from budgetjax.refitting import calibration
from budgetjax.tables.labels import encode_labels
from budgetjax.tables.table_model import TableModel
from budgetjax.training.rows import Data


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class BudgetedKernelClassifier(Classifier, Supervised):
    """A kernel classifier with a bounded number of support vectors.

    `fit` streams the rows once; `budgetjax.refit` then recomputes the coefficients of
    the support vectors that the stream chose. With a learned metric, vectors start as
    those of a stream of at most 8,192 rows, and steps on all rows move them.
    `partial_fit` keeps a sample of its rows, and learns it as `fit` does whenever there
    are a quarter more rows than the last time. The budget bounds memory and time per
    row.

    The columns of a table are encoded in one form, `budgetjax.fit_encoding`: each is a
    number and codes of its quantiles, of which a map makes features. The metric is this
    map, which is learned where that predicts held-out rows better.

    It computes in float32, or in float64 if X is float64 and JAX enables it. Compiled
    programs are kept in the user's cache folder, so a later process starts faster; see
    `budgetjax.cache_compiled_programs`. The environment variable BUDGETJAX_CACHE names
    another folder, or is `off`.

    Args:
      budget: the maximum number of support vectors. Beyond the number of rows it costs
        nothing.
      learner: an online learner, such as `budgetjax.AROW(drift=0.01)`, whose fields can
        be set and searched by names such as `learner__drift`. "auto" is `Pegasos` with
        a refit, after which it is as good as `AROW`, and without one `AROW`, which is
        good after one pass but slow for large budgets.
      kernel: "rbf", "laplacian", "poly" (of degree 3, with `coef0=0`), "sigmoid" or
        "linear", as in scikit-learn, or a kernel, such as
        `budgetjax.Polynomial(3)`.
      gamma: the parameter of all kernels but "linear", for encoded rows. "scale" is two
        divided by the mean squared distance of some rows, `budgetjax.default_gamma`.
        "auto" is a multiple of it where rows are encoded and a metric may be learned: 2
        for up to 100 support vectors, and more by the root of their number, but at most
        a hundredth of the number of rows.
      maintenance: the strategy for a full budget, or its name, such as "merge",
        "project" or "remove_oldest". None merges with a Gaussian kernel and projects
        with any other. Removal does harm after a refit, whose coefficients are large
        and balance each other.
      average: as for `init` of the learner, without a refit: the average of the
        iterates then predicts.
      vectors: fixed support vectors, as for `init` of the learner.
      loss: of the refit, "hinge" (None), which it squares, or "logistic", and of a
        learner with a choice, such as `SGD`, that was given none.
      refit: whether to refit the coefficients.
      penalty: C of the refit, or a list of several to choose from on held-out rows.
        "auto" chooses from 0.01, 0.1, 1 and 10 for at most 5,000 rows, which may be
        noisy, and is 10 for more, each divided by the typical weight.
      move_vectors: whether the refit moves the support vectors too. This is slower, and
        helps most for small budgets.
      learn_metric: True, False, "diagonal" or a rank, as for `budgetjax.refit`; "auto"
        learns the map of the codes, or a matrix for rows as they are, where that
        predicts held-out rows better. A rank is the number of features of the map;
        "diagonal" is a factor per code.
      encode: how columns are written before they are learned. "auto" is the form of
        `budgetjax.fit_encoding`, whose bins grow with the rows; a number is that of the
        bins of a column, where 0 is its clipped number alone; False leaves rows as they
        are. "auto" is False for sparse rows, for more than 128 columns of one scale,
        as those of images, and for a kernel with parameters of single columns, such as
        a matrix. Encoded rows may have missing values, NaN, and those of a data frame
        names: columns of texts, or of pandas' categories, have a code per name, except
        for names beyond the 128 most frequent, or beyond the 1,024 most frequent of
        those with 8 rows each. Texts that are numbers except for a few, such as "?",
        are numbers and missing values, with a warning.
      epochs: passes of `fit` over the rows.
      shuffle: whether each pass of `fit` has a new random order.
      capacity: slots to allocate, at least the budget; None for the budget. Programs
        are compiled per capacity: with a common one, a search over budgets compiles
        once, and each budget takes the time of the largest.
      random_state: the seed of the orders and of random draws.
      progress: whether to show a progress bar.
      class_weight: weights by label, as a dict, or "balanced": inversely proportional
        to the frequencies of the classes. They multiply the weights of the rows.

    Attributes:
      state_: the state of the learner, for all functions of budgetjax, for rows minus
        `origin_`, or for encoded ones: `model_.scaling.apply(X)`.
      model_: the same for raw rows, with the labels.
      origin_: the origin that is subtracted from rows before float32 rounds them, shape
        `(n_features_in_,)`: the median of the first rows if they lie far from 0 and the
        kernel is stationary, otherwise zeros, and for encoded rows.
      support_vectors_: shape `(n_support_, n_features_in_)`, or for encoded rows
        `(n_support_, model_.scaling.num_features)`, in the space of the features.
      dual_coef_: their coefficients, shape `(1, n_support_)`, or one row per class.
      n_support_: the number of support vectors.
      feature_importances_: the importance of each feature in the metric that the last
        fit has learned, if it has.
      categories_: the names in each column of names, by column; in an array, `model_`
        takes their positions here, and the next number for any other. A name is the
        same as text, bytes, a number or a boolean; whole numbers are written without
        ".0".
      classes_: the labels, in order.
      n_iter_: passes over the rows.
      n_features_in_: the number of features.
      feature_names_in_: their names, if X was a data frame.

    Example:
      >>> from budgetjax.estimators import BudgetedKernelClassifier
      >>> from sklearn.datasets import make_moons
      >>> X, y = make_moons(500, noise=0.1, random_state=0)
      >>> model = BudgetedKernelClassifier(budget=20, random_state=0).fit(X, y)
      >>> model.n_support_ <= 20, bool(model.score(X, y) > 0.95)
      (True, True)
    """

    class_weight: ClassWeight = None

    _regression = False

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        assert tags.classifier_tags is not None, "this is a classifier"
        tags.classifier_tags.multi_class = "num_classes" in getattr(
            self.learner, "takes", ("num_classes",)
        )
        return tags

    @names_class
    def fit(
        self, X: Table, y: ArrayLike, sample_weight: Weights = None
    ) -> "BudgetedKernelClassifier":
        """Fits a new model: passes over the rows, then the refit.

        Args:
          X: shape `(n, features)`, an array, a data frame or a sparse matrix, which
            becomes dense block by block, without columns that no row uses.
          y: labels of any type, at least two classes, shape `(n,)`.
          sample_weight: factors of the losses of the rows in the refit, at least 0,
            shape `(n,)`. The stream divides them by the typical one so far, the square
            of the mean root. A row of weight 0 changes nothing.

        Returns:
          The estimator.

        Warns:
          UserWarning: if features look unscaled, or the refit has not converged.
        """
        self._fit_new(self._prepare(X, y, sample_weight))
        return self

    def _prepare(self, X: Table, y: ArrayLike, sample_weight: Weights) -> Data:
        rows, found, weights = self._examples(X, y, sample_weight, first=True)
        classes, balance = inputs.classes_of(found), self.class_weight
        weights = weights * inputs.class_weights(balance, classes, found, found)
        rows, found, weights = inputs.drop_weightless(weights, rows, found)
        return self._data(rows, found, weights, TableModel(None, classes=classes))

    @names_class
    def partial_fit(
        self,
        X: Table,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: Weights = None,
    ) -> "BudgetedKernelClassifier":
        """Continues to learn: one pass over these rows in their order.

        With `refit=True`, a uniform sample of all rows so far is kept, up to 8,192 rows
        and about 4 million numbers. It is learned and refitted by this call, as by
        `fit`, if there are a quarter more rows than the last time; other calls change
        no prediction. So sorted streams are learned about as well as shuffled ones, all
        calls together take some five times as long as the last refit, and the model
        does not follow drift. With `refit=False`, every call learns its rows in their
        order. The first 1,000 rows of a stream, however they are divided, then say how
        columns are encoded; with `encode=False` and a number as `gamma`, any division
        of the same rows gives the model of `fit` with `shuffle=False` and one epoch.

        After `fit` it continues from that model, in one pass without a refit.

        Args:
          X: as for `fit`; programs are compiled for only a few numbers of rows.
          y: labels.
          classes: all labels that will occur, required in the first call.
          sample_weight: as for `fit`.

        Returns:
          The estimator.

        Raises:
          ValueError: if an argument is invalid; the model does not change.
        """
        first = not self.__sklearn_is_fitted__()
        classes = self._check_classes(classes)
        if isinstance(self.class_weight, str):
            wanted = "be a dict or None in partial_fit, as not all labels are known"
            raise ArgumentError("class_weight", wanted, f"{self.class_weight!r}")
        rows, y, weights = self._examples(X, y, sample_weight, first=first)
        weights = weights * inputs.class_weights(self.class_weight, classes, classes, y)
        # In the dtype of the classes, in which a sample keeps them.
        y = classes[encode_labels(classes, y)]
        labels = TableModel(None, classes=classes)
        self._continue_stream(self._data(rows, y, weights, labels))
        return self

    def _check_classes(
        self, classes: ArrayLike | None
    ) -> Shaped[np.ndarray, " classes"]:
        """The classes of a stream, after a check of those of `partial_fit`."""
        fitted = self.__sklearn_is_fitted__()
        if classes is None:
            if fitted:
                return self.classes_
            wanted = "be given in the first call of partial_fit"
            raise ArgumentError("classes", wanted, "None")
        classes = inputs.classes_of(np.asarray(classes))
        if fitted and not np.array_equal(classes, self.classes_):
            wanted = f"be those of the first call, {self.classes_.tolist()}"
            raise ArgumentError("classes", wanted, classes.tolist())
        return classes

    @available_if(lambda estimator: estimator.refit or estimator.loss == "logistic")
    def predict_proba(self, X: Table) -> Float[np.ndarray, "n classes"]:
        """The probability of each class, after a refit or with `loss="logistic"`.

        See `budgetjax.probabilities`. The refit fits the factor of the scores on rows
        that it holds out as for several penalties; without a refit it is 1. Weights of
        rows and classes count: with `class_weight="balanced"`, probabilities refer to
        data with equally many rows per class. `partial_fit` after `fit` keeps the
        factor of `fit`.

        Args:
          X: shape `(n, n_features_in_)`.

        Returns:
          Shape `(n, classes)`, in the order of `classes_`.

        Raises:
          AttributeError: with `refit=False` and another loss.
        """
        return np.asarray(calibration.probabilities(self.model_, self._rows(X)))

    @available_if(lambda estimator: estimator.refit or estimator.loss == "logistic")
    def predict_log_proba(self, X: Table) -> Float[np.ndarray, "n classes"]:
        """The logarithms of `predict_proba`, always finite, shape `(n, classes)`."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))

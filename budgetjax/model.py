"""The base of all models, and the models of solvers.

A `Model` says its sizes, the meaning of its scores, and the scores of rows that are
checked already. What users call, `predict` and `decision_function`, is written once:
there rows are checked and cast, and what lies below trusts them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Shaped

from budgetjax import _checks, _forks, _record, _sharding, losses, scoring
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import Record, static
from budgetjax._rows import RawRows, cast_rows
from budgetjax.kernels import Kernel, Mapped
from budgetjax.scoring import KernelSum, Output, squeeze_columns

# Which models have a variance.
KNOW_VARIANCE = (
    "a regressor with a refit of an estimator or of train, or after "
    "budgetjax.calibrate, or a state of budgetjax.KRLST or Mixture"
)
# A JAX array, or a NumPy array of a model of raw rows, which scores on the host.
Scores = Array | np.ndarray


class Required:
    """What a model has to say, as a property, a field or a class attribute."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, model: Any, kind: type) -> Any:
        if model is None:
            # It is no default of a field of this name.
            raise AttributeError(self.name)
        raise NotImplementedError(f"{kind.__name__} has to define {self.name}")


def required() -> Any:
    """An attribute that subclasses define."""
    return Required()


@_record.record
class Support(NamedTuple):
    """The support set of a model.

    Attributes:
      vectors: shape `(capacity, num_features)`; raw rows for a `TableModel`, unless it
        encodes rows, since not every point of the features has a raw row.
      coefficients: with the scale multiplied in, shape `(capacity, columns)`.
      mask: True where a slot is active, shape `(capacity,)`.
    """

    vectors: Float[Array | np.ndarray, "*models capacity features"]
    coefficients: Float[Array | np.ndarray, "*models capacity columns"]
    mask: Bool[Array | np.ndarray, "*models capacity"]


class Model(Record, abstract=True):
    """The base of all models: what predicts, and what other functions ask of it.

    A model of your own is a subclass that says `num_features`, `num_columns`, `dtype`
    and `link`, as fields, properties or class attributes, and defines `scores`. It
    works with `predict`, `probabilities`, `calibrate` and `export`, in a `TableModel`,
    and, once `budgetjax.register` knows the class, with `save` and `load`.

    Attributes:
      num_features: the length of an example.
      num_columns: the number of scores of an example: 1, or one per class or output.
      dtype: the float type of examples and scores.
      link: the meaning of the scores: `budgetjax.losses.LABELS`; `SOFTMAX`, labels with
        probabilities; `IDENTITY`, values; or `EXP`, logarithms of values.

    Example:
      >>> class Quadratic(bj.Model):
      ...     matrix: jax.Array
      ...     num_columns, link = 1, bj.losses.LABELS
      ...     num_features = property(lambda self: self.matrix.shape[0])
      ...     dtype = property(lambda self: self.matrix.dtype)
      ...     def scores(self, X):
      ...         return jnp.sum(X @ self.matrix * X, axis=1, keepdims=True)
      >>> model = Quadratic(jnp.array([[1.0, 0.0], [0.0, -1.0]]))
      >>> bj.predict(model, np.array([[2.0, 1.0], [0.0, 1.0]])).tolist()
      [1, -1]
    """

    num_features = required()
    num_columns = required()
    dtype = required()
    link = required()

    def scores(self, X: Float[Array, "n features"]) -> Float[Array, "n columns"]:
        """The scores of examples of this dtype, in a program; they are not checked."""
        raise NotImplementedError

    @property
    def knows_variance(self) -> bool:
        """Whether it has a `variance`."""
        return type(self).variance is not Model.variance

    def variance(self, X: Float[Array, "n features"]) -> Float[Array, "*n_columns"]:
        """The variance of examples, or of each column, in a program.

        See `budgetjax.variance`.
        """
        raise NotImplementedError

    def check_knows_variance(self) -> None:
        """Raises for a model without a `variance`."""
        if not self.knows_variance:
            wanted = f"know the variance of its targets: {KNOW_VARIANCE}"
            raise ArgumentError("model", wanted, _checks.kind_name(self.inner))

    def interval_width(self, level: ArrayLike) -> Float[Array, "*columns"]:
        """Half of the interval with this share of all targets, in deviations."""
        return jax.scipy.stats.norm.ppf((1 + jnp.asarray(level, self.dtype)) / 2)

    def span_root(self) -> Array | None:
        """What `beyond` needs of the support vectors alone, in a program; O(B^3)."""
        return None

    def beyond(
        self, X: Float[Array, "n features"], root: Array | None = None
    ) -> Float[Array, " n"]:
        """The share of k(x, x) beyond the span of the support vectors, in a program.

        It is 0 for a model without any, and near 1 far from all of them. `root` is the
        result of `span_root`, if it is known.
        """
        return jnp.zeros(X.shape[0], X.dtype)

    def measure(self, X: RawRows) -> tuple[Any, Any]:
        """The scores of rows, and their variances; see `budgetjax.variance`.

        Here rows are checked and cast.
        """
        self.check_knows_variance()
        rows = cast_rows(X, self.num_features, self.dtype)
        scores, variances = _measure(self, rows)
        if not isinstance(variances, Tracer) and not np.all(np.isfinite(variances)):
            _checks.check_finite(rows)
        return scores, variances

    @names_errors("support")
    def support(self) -> Support:
        """The support vectors; see `budgetjax.support`."""
        raise ArgumentError("model", "have support vectors", _checks.kind_name(self))

    @names_errors("decision_function")
    def decision_function(self, X: RawRows) -> Any:
        """The scores of rows; see `budgetjax.decision_function`."""
        return self.evaluate(X, losses.IDENTITY)

    @names_errors("predict")
    def predict(self, X: RawRows) -> Any:
        """The labels, or values, of rows; see `budgetjax.predict`."""
        link = self.link
        # Probabilities do not matter here, so that models share a program.
        return self.evaluate(X, losses.LABELS if link == losses.SOFTMAX else link)

    def evaluate(self, X: RawRows, link: str, first_row: int = 0) -> Any:
        """What the scores of rows mean by this link; `IDENTITY` for the scores.

        Here rows are checked and cast; messages count them from `first_row`.
        """
        rows = cast_rows(X, self.num_features, self.dtype)
        output, split = Output(self.num_columns, link), _sharding.split_by_rows(rows)
        scores, finite = scoring.model_scores(self, rows, output, split)
        if not isinstance(finite, Tracer) and not finite:
            _checks.check_finite(rows, first_row)
        return scores

    def predict_from_scores(self, scores: Scores) -> Any:
        """The labels, or values, of examples with these scores."""
        return scoring.apply_link(self.link, scores)

    @property
    def approximate_link(self) -> str:
        """The meaning of approximate scores, which give no probabilities."""
        return losses.LABELS if self.link == losses.SOFTMAX else self.link

    @property
    def is_regressor(self) -> bool:
        """Whether the targets are real numbers."""
        return self.link in (losses.IDENTITY, losses.EXP)

    @property
    def target_shape(self) -> tuple[int, ...]:
        """The shape of one target: `()`, or `(num_outputs,)` for several."""
        several = self.is_regressor and self.num_columns > 1
        return (self.num_columns,) if several else ()

    @property
    def target_dtype(self) -> np.dtype:
        """The dtype of targets: integers for several classes."""
        integers = self.num_columns > 1 and not self.is_regressor
        return np.dtype(np.int32 if integers else self.dtype)

    @property
    def class_labels(self) -> Shaped[np.ndarray, " classes"] | None:
        """The labels in the order of the scores; None for a regressor."""
        if self.is_regressor:
            return None
        columns = self.num_columns
        return np.array([-1, 1]) if columns == 1 else np.arange(columns)

    @property
    def inner(self) -> Any:
        """The model that makes the scores: this one, or what it wraps."""
        return self

    def with_inner(self, new: "Model") -> Any:
        """The same with another model in place of `inner`."""
        return new

    def check_single(self) -> None:
        """Raises if this is a stack of models, as of `jax.vmap`."""

    def to_kernel_model(self) -> "KernelModel":
        """The model as a `KernelModel`, without free slots."""
        self.support()
        raise ArgumentError("model", "have a kernel", _checks.kind_name(self))

    def weight_norm(self) -> float:
        """The norm of the weight vector of a binary model, without bias; O(m^2 d)."""
        small = self.to_kernel_model()
        coefficients = np.asarray(small.coefficients, np.float64)
        images = np.asarray(small.values_at_vectors(), np.float64)
        return float(np.sqrt(max(coefficients @ images, 0)))


class Wrapper(Model, abstract=True):
    """The base of what has a model inside, and predicts as that one does.

    Attributes:
      model: the model.
    """

    model: Any

    @property
    def num_features(self) -> int:
        return self.model.num_features

    @property
    def num_columns(self) -> int:
        return self.model.num_columns

    @property
    def dtype(self) -> np.dtype:
        return self.model.dtype

    @property
    def link(self) -> str:
        return self.model.link

    def scores(self, X):
        return self.model.scores(X)

    @property
    def knows_variance(self) -> bool:
        return self.model.knows_variance

    def variance(self, X):
        return self.model.variance(X)

    def interval_width(self, level):
        return self.model.interval_width(level)

    def span_root(self) -> Array | None:
        return self.model.span_root()

    def beyond(self, X, root=None):
        return self.model.beyond(X, root)

    def measure(self, X: RawRows) -> tuple[Any, Any]:
        return self.model.measure(X)

    def support(self) -> Support:
        return self.model.support()

    def evaluate(self, X: RawRows, link: str, first_row: int = 0) -> Any:
        return self.model.evaluate(X, link, first_row)

    def predict_from_scores(self, scores: Scores) -> Any:
        return self.model.predict_from_scores(scores)

    @property
    def class_labels(self) -> np.ndarray | None:
        return self.model.class_labels

    @property
    def inner(self) -> Any:
        return self.model.inner

    def with_inner(self, new: Model) -> Any:
        return self._replace(model=self.model.with_inner(new))

    def check_single(self) -> None:
        self.model.check_single()

    def to_kernel_model(self) -> "KernelModel":
        return self.model.to_kernel_model()

    def weight_norm(self) -> float:
        return self.model.weight_norm()


class KernelModel(Model):
    """A kernel model, `f(x) = sum_j coefficients[j] k(vectors[j], x) + bias`.

    Attributes:
      kernel: k.
      vectors: the support vectors, shape `(m, d)`.
      coefficients: shape `(m,)`, or `(m, C)` for C classes or outputs.
      bias: a scalar, or shape `(C,)`; 0 for a model without one.
      link: the meaning of the scores: `budgetjax.losses.LABELS`; `SOFTMAX`, labels with
        probabilities; `IDENTITY`, values; or `EXP`, logarithms of values.
    """

    kernel: Kernel
    vectors: Float[Array | np.ndarray, "m d"]
    coefficients: Float[Array | np.ndarray, " m *classes"]
    bias: ArrayLike
    link: str = static(default=losses.LABELS, check=_checks.one_of(*losses.LINKS))

    @classmethod
    def from_coefficients(
        cls,
        kernel: Kernel,
        X: ArrayLike,
        y: ArrayLike,
        coefficients: Float[Array, " n"],
        bias: Float[Array, ""],
    ) -> "KernelModel":
        """The model of the examples with nonzero coefficients; it cannot be traced."""
        dtype = coefficients.dtype
        signed = np.asarray(y, dtype) * np.asarray(coefficients)
        active = np.flatnonzero(signed)
        vectors = jax.device_put(np.asarray(X, dtype)[active])
        return cls(kernel, vectors, jax.device_put(signed[active]), bias)

    @property
    def num_features(self) -> int:
        kernel = self.kernel
        if isinstance(kernel, Mapped) and kernel.mapped_vectors:
            return kernel.matrix.shape[0]
        return self.vectors.shape[-1]

    @property
    def num_columns(self) -> int:
        return (*self.coefficients.shape, 1)[1]

    @property
    def dtype(self) -> np.dtype:
        return self.vectors.dtype

    @property
    def is_compact(self) -> bool:
        """Whether the support vectors are mapped points."""
        return isinstance(self.kernel, Mapped) and self.kernel.mapped_vectors

    def scores(self, X):
        gram = self.kernel.gram(X, self.vectors)
        coefficients = jnp.reshape(self.coefficients, (-1, self.num_columns))
        found = jnp.matmul(gram, coefficients, precision="highest")
        return found + jnp.reshape(self.bias, (1, -1))

    def span_root(self) -> Array:
        every = jnp.ones(self.vectors.shape[0], bool)
        return scoring.span_root(self.kernel, self.vectors, every)

    def beyond(self, X, root=None):
        root = self.span_root() if root is None else root
        every = jnp.ones(self.vectors.shape[0], bool)
        return scoring.share_beyond(self.kernel, self.vectors, every, root, X)

    def evaluate(self, X: RawRows, link: str, first_row: int = 0) -> Any:
        if self.vectors.ndim != 2:
            self.check_single()
        vectors, terms = scoring.pad_vectors(self.vectors, self.coefficients)
        bias: Any = self.bias
        model = KernelSum(self.kernel, vectors, None, terms, bias=bias)
        output = Output((*self.coefficients.shape, 1)[1], link)
        return scoring.score_rows(model, self.num_features, X, output, first_row)

    @names_errors("support")
    def support(self) -> Support:
        _forks.check()
        if self.is_compact:
            wanted = "have support vectors in the space of the examples"
            got = "a compact one, which has them mapped"
            raise ArgumentError("model", wanted, got)
        coefficients = self.coefficients.reshape(-1, self.num_columns)
        return Support(self.vectors, coefficients, jnp.ones(len(coefficients), bool))

    def check_single(self) -> None:
        scoring.check_single(self.vectors)

    def to_kernel_model(self) -> "KernelModel":
        return of_support(self.kernel, self.support(), self.link, self.bias)

    def values_at_vectors(self) -> Float[Array, " m *classes"]:
        """The values of f, without the bias, at the support vectors; O(m^2 d)."""
        unbiased = self._replace(bias=jnp.zeros_like(self.bias))
        return jnp.asarray(unbiased.evaluate(self.vectors, losses.IDENTITY))

    def with_images(self, vectors: Any, kernel: Kernel) -> "KernelModel":
        """The same scores by `vectors(z)` of the support vectors, under a kernel."""
        return self._replace(vectors=vectors(self.vectors), kernel=kernel)


class LinearModel(Model):
    """A linear classifier, `f(x) = weights . x + bias`.

    Attributes:
      weights: shape `(d,)`.
      bias: a scalar; 0 for a model without one.
    """

    weights: Float[Array | np.ndarray, " d"]
    bias: ArrayLike

    num_columns = 1
    link = losses.LABELS

    @property
    def num_features(self) -> int:
        return len(self.weights)

    @property
    def dtype(self) -> np.dtype:
        return self.weights.dtype

    def scores(self, X):
        products = jnp.matmul(X, self.weights, precision="highest")
        return (products + self.bias)[:, None]

    def evaluate(self, X: RawRows, link: str, first_row: int = 0) -> Any:
        # Rows may stay sparse.
        return scoring.linear_scores(self.weights, self.bias, X, first_row, link)

    def weight_norm(self) -> float:
        return float(np.linalg.norm(np.asarray(self.weights, np.float64)))


def of_support(
    kernel: Kernel, support: Support, link: str, bias: ArrayLike | None = None
) -> KernelModel:
    """A kernel model of the active slots of a support set; its bias may be None, 0."""
    vectors, coefficients, mask = map(np.asarray, support)
    vectors, coefficients = vectors[mask], squeeze_columns(coefficients[mask])
    zeros = np.zeros(coefficients.shape[1:], vectors.dtype)
    vectors, coefficients, zeros = jax.device_put((vectors, coefficients, zeros))
    return KernelModel(
        kernel, vectors, coefficients, zeros if bias is None else bias, link
    )


def model_of(given: Any) -> Model:
    """A model as it is, or the model of a fitted estimator; raises for others."""
    model = getattr(given, "model_", given)
    if not isinstance(model, Model):
        wanted = "be the state of an online algorithm, or a model of a solver"
        raise ArgumentError("model", wanted, _checks.kind_name(model))
    return model


def open_estimator(given: Any, X: Any) -> tuple[Model, Any]:
    """The model of `model_of`, and rows, which an estimator of names wants named."""
    check = getattr(given, "_check_names", None)
    if check is not None:
        check(X)
    return model_of(given), X


def decision_function(model: Any, X: RawRows) -> Any:
    """The scores `f(x)` of every row; O(n B d).

    Rows are scored in blocks, so that no `(n, B)` matrix is built. Each device scores
    its own rows if they are divided among several; inside `jax.jit` this needs a mesh
    with explicit axes.

    Args:
      model: any `Model`: the state of a learner, a `KernelModel`, a `LinearModel`, a
        `TableModel`, one of your own, or the result of `solve` or `fit_stream`; or a
        fitted estimator.
      X: shape `(n, num_features)`; for a `LinearModel` also a matrix of `scipy.sparse`
        or `SparseRows`. A `TableModel` takes raw rows, also sparse ones, and finds the
        columns of a data frame by name if it was trained on named columns.

    Returns:
      Shape `(n,)` for a model with one column of coefficients, else `(n, columns)`,
      divided among devices like the rows; a NumPy array for a `TableModel`, of the rows
      of this process if they are divided among several.

    Raises:
      ValueError: if the shape of `X` does not fit the model, or `X` is not finite;
        inside `jit` or `vmap` only shapes are checked.

    Example:
      >>> model = bj.LinearModel(np.array([1.0, -1.0]), np.array(0.5))
      >>> bj.decision_function(model, np.array([[2.0, 1.0]])).tolist()
      [1.5]
    """
    if not isinstance(model, Model):
        with names_errors("decision_function"):
            model, X = open_estimator(model, X)
    return model.decision_function(X)


def predict(model: Any, X: RawRows) -> Any:
    """The predicted label, or value, of every row; O(n B d).

    Args:
      model: as for `decision_function`.
      X: as for `decision_function`.

    Returns:
      For a regressor the scores, or their exponentials if the scores of its loss are
      logarithms, shape `(n,)`, or `(n, num_outputs)` for several outputs. For a
      classifier integers, shape `(n,)`: -1 or +1 (-1 for a score of 0), or the class
      with the largest score, the lowest on ties. A `TableModel` returns the labels of
      the data.

    Example:
      >>> X = jnp.array([[0.0], [3.0]])
      >>> model = bj.KernelModel(bj.RBF(1.0), X, jnp.array([1.0, -1.0]), jnp.array(0.0))
      >>> bj.predict(model, X).tolist()
      [1, -1]
    """
    if not isinstance(model, Model):
        with names_errors("predict"):
            model, X = open_estimator(model, X)
    return model.predict(X)


@names_errors("support")
def support(model: Any) -> Support:
    """The support vectors, true coefficients and mask of a model; O(B (d + C)).

    It works on a single state and on states stacked by `jax.vmap`.

    Args:
      model: a model as for `decision_function`.

    Returns:
      A `Support`. Free slots are zero.

    Raises:
      ValueError: if the model has no support vectors because it is linear or its
        features are random (`budgetjax.Fourier`).

    Example:
      >>> state = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=10)
      >>> state = bj.step(state, jnp.array([1.0, 2.0]), -1)
      >>> bj.support(state).vectors[0].tolist()
      [1.0, 2.0]
    """
    return model_of(model).support()


def variance(model: Any, X: RawRows) -> Any:
    """How sure a model is of rows, if it knows it; O(n B (B + d)).

    For a regressor it is the variance of the target of each row, its noise included;
    for `budgetjax.AROW` that of the score. Its square root is a deviation.

    After a refit of an estimator, or of `budgetjax.train`, and after
    `budgetjax.calibrate`, it is what held-out rows tell: the noise, which may change
    with the score, plus a part that grows with the distance from the support vectors.
    A state of `budgetjax.KRLST` or of `budgetjax.Mixture` knows its own.

    Args:
      model: such a model, or a fitted estimator.
      X: as for `decision_function`.

    Returns:
      Variances in the squared unit of the targets, shape `(n,)`; of several real
      outputs one for each, shape `(n, num_outputs)`.

    Raises:
      ValueError: if the model knows none, or `X` does not fit.

    Example:
      >>> state = bj.AROW().init(bj.RBF(1.0), num_features=1, budget=10)
      >>> state = bj.step(state, jnp.array([0.0]), 1)
      >>> [round(float(v), 2) for v in bj.variance(state, jnp.array([[0.0], [9.0]]))]
      [0.01, 1.0]
    """
    with names_errors("variance"):
        _forks.check()
        model, X = open_estimator(model, X)
        return model.measure(X)[1]


def predict_interval(model: Any, X: RawRows, level: float = 0.9) -> Any:
    """Intervals that hold a share of all targets, of a regressor that knows how sure.

    They are the predictions, and on both sides a number of deviations: after a refit
    the one that covered this share of held-out targets, for `budgetjax.Mixture` the one
    that has covered its level so far, and for `budgetjax.KRLST` that of a Gaussian.
    Cost: that of `budgetjax.variance`.

    Args:
      model: as for `budgetjax.variance`.
      X: as for `decision_function`.
      level: the share, between 0 and 1.

    Returns:
      The ends, shape `(n, 2)`, or `(n, num_outputs, 2)`.

    Raises:
      ValueError: if the model is a classifier, knows no variance, or `X` does not fit.

    Example:
      >>> state = bj.KRLST().init(
      ...     bj.RBF(1.0), num_features=1, budget=10, num_classes=None)
      >>> state = bj.step(state, jnp.array([0.0]), 1.0)
      >>> low, high = bj.predict_interval(state, jnp.array([[0.0]]))[0]
      >>> bool(low < 1 < high)
      True
    """
    with names_errors("predict_interval"):
        _forks.check()
        model, X = open_estimator(model, X)
        _checks.open_unit_interval("level", level)
        if not model.is_regressor:
            kind = _checks.kind_name(model.inner)
            raise ArgumentError("model", "be of real targets", f"{kind} of labels")
        scores, variances = model.measure(X)
        width = model.interval_width(level)
        numpy = np if isinstance(variances, np.ndarray) else jnp
        half = numpy.broadcast_to(width, scores.shape) * numpy.sqrt(variances)
        ends = numpy.stack([scores - half, scores + half], axis=-1)
        return model.predict_from_scores(ends)


@jax.jit
def _measure(model: Model, X: Float[Array, "n features"]) -> tuple[Array, Array]:
    return squeeze_columns(model.scores(X)), model.variance(X)

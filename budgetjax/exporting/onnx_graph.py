"""A predictor as an ONNX graph, for any ONNX runtime; see `export`."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.typing import ArrayLike, DTypeLike

from budgetjax import _checks, kernels
from budgetjax._errors import ArgumentError
from budgetjax.exporting.predictor import Predictor, label_array
from budgetjax.kernels import Kernel
from budgetjax.models import KernelModel
from budgetjax.online.fourier import Waves

# Versions of 2024: the graph needs nothing newer, and older runtimes read it.
OPSET, IR_VERSION = 21, 10


def serialize(predictor: Predictor, version: str) -> bytes:
    """The bytes of a checked ONNX model."""
    onnx = _checks.import_optional("onnx")
    graph = Graph(onnx, predictor.dtype)
    _outputs(graph, predictor)
    graph_proto = onnx.helper.make_graph(
        graph.nodes,
        "budgetjax",
        [graph.value("X", predictor.row_dtype, ["rows", predictor.num_features])],
        graph.outputs,
        graph.constants,
    )
    model = onnx.helper.make_model(
        graph_proto,
        producer_name="budgetjax",
        producer_version=version,
        ir_version=IR_VERSION,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
    )
    if predictor.feature_names is not None:
        names = json.dumps(predictor.feature_names)
        onnx.helper.set_model_props(model, {"feature_names": names})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


class Graph:
    """A graph under construction: a call adds an operation and returns its name."""

    def __init__(self, onnx: Any, dtype: np.dtype):
        self.onnx, self.dtype = onnx, dtype
        self.nodes, self.constants, self.outputs = [], [], []

    def __call__(
        self,
        operation: str,
        *inputs: str | ArrayLike,
        name: str = "",
        **attributes: Any,
    ) -> str:
        """Adds an operation; inputs are names, or numbers in the dtype of the rows."""
        results = [name or f"{operation}_{len(self.nodes)}"]
        if operation == "TopK":
            results.append(f"{results[0]}_order")
        names = [
            one if isinstance(one, str) else self.constant(np.asarray(one, self.dtype))
            for one in inputs
        ]
        node = self.onnx.helper.make_node(operation, names, results, **attributes)
        self.nodes.append(node)
        return results[0]

    def constant(self, value: np.ndarray) -> str:
        """Adds an array in its own dtype."""
        name = f"constant_{len(self.constants)}"
        value = np.asarray(value, order="C")
        self.constants.append(self.onnx.numpy_helper.from_array(value, name))
        return name

    def axes(self, *numbers: int) -> str:
        """Adds an array of axis numbers or indices."""
        return self.constant(np.array(numbers, np.int64))

    def value(self, name: str, dtype: DTypeLike, shape: list[str | int]) -> Any:
        """The description of an input or output."""
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.onnx.helper.make_tensor_value_info(name, kind, shape)

    def output(self, name: str, dtype: DTypeLike, *columns: int) -> None:
        """Declares an output."""
        self.outputs.append(self.value(name, dtype, ["rows", *columns]))


def _outputs(graph: Graph, predictor: Predictor) -> None:
    """Adds the scores, and the outputs that follow from them."""
    X, dtype, units = "X", predictor.dtype, predictor.units
    if units is not None:
        mean, rest = map(graph.constant, (units.mean, units.rest))
        if units.fills:
            X = graph("Where", graph("IsNaN", X), mean, X)
        X = graph("Sub", graph("Sub", X, mean), rest)
        to = graph.onnx.helper.np_dtype_to_tensor_dtype(dtype)
        X = graph("Mul", graph("Cast", X, to=to), units.factor)
    parts = [_scores(graph, part, X) for part in predictor.parts]
    scores = parts[0] if len(parts) == 1 else graph("Concat", *parts, axis=1)
    if np.any(predictor.intercept):
        scores = graph("Add", scores, predictor.intercept)
    columns = predictor.num_columns
    if predictor.ranks is not None:
        scores = graph("TopK", scores, graph.axes(columns), axis=1, largest=0)
        scores = graph("Gather", scores, graph.axes(*predictor.ranks.tolist()), axis=1)
    if predictor.exponentiates:
        scores = graph("Exp", scores)
    shape = () if columns == 1 else (columns,)

    def flat(name: str) -> None:
        shaped = graph.axes(-1, *shape)
        graph("Reshape", scores, shaped, name=name)
        graph.output(name, dtype, *shape)

    if predictor.labels is None:
        return flat("variable")
    labels = label_array(predictor.labels)
    if columns == 1:
        best = graph("Greater", graph("Reshape", scores, graph.axes(-1)), 0)
        best = graph("Cast", best, to=graph.onnx.TensorProto.INT64)
    else:
        best = graph("ArgMax", scores, axis=1, keepdims=0)
    graph("Gather", graph.constant(labels), best, name="label", axis=0)
    graph.output("label", labels.dtype)
    flat("scores")
    if predictor.factor is not None:
        each = graph("Mul", scores, predictor.factor)
        if columns == 1:
            each = graph("Concat", graph("Mul", each, 0), each, axis=1)
        graph("Softmax", each, name="probabilities", axis=1)
        graph.output("probabilities", dtype, len(labels))
    return None


def _scores(graph: Graph, part: KernelModel, X: str) -> str:
    """The scores of scaled rows, one column each."""
    gram = _gram(graph, part.kernel, X, np.asarray(part.vectors, np.float64))
    scores = graph("MatMul", gram, part.coefficients)
    return graph("Add", scores, part.bias) if np.any(part.bias) else scores


# `write(graph, kernel, X, Z)` adds `k(X[i], Z[j])` for all pairs, and returns its name.
Writer = Callable[["Graph", Any, str, np.ndarray], str]
_writers: dict[type[Kernel], Writer] = {}


def _writes(*kinds: type[Kernel]) -> Callable[[Writer], Writer]:
    """A decorator for the function that writes kernels of these classes."""

    def decorate(write: Writer) -> Writer:
        _writers.update(dict.fromkeys(kinds, write))
        return write

    return decorate


def _number(value: ArrayLike) -> float:
    return float(np.asarray(value))


def _gram(graph: Graph, kernel: Kernel, X: str, Z: np.ndarray) -> str:
    """`k(X[i], Z[j])` for all pairs."""
    kind = type(kernel)
    if kind not in _writers:
        known = ", ".join(sorted(one.__name__ for one in _writers))
        raise ArgumentError(
            "kernel",
            f"be made of {known} to be written as ONNX",
            f"{kind.__name__}; a file NAME.stablehlo holds any",
        )
    return _writers[kind](graph, kernel, X, Z)


def _self(graph: Graph, kernel: Kernel, X: str) -> str | float:
    """`k(x, x)` of every row, in one column, or a number if it is the same for all."""
    if isinstance(kernel, kernels.Stationary):
        return 1.0
    if isinstance(kernel, kernels.Sum | kernels.Product):
        parts = [_self(graph, part, X) for part in (kernel.left, kernel.right)]
        return graph("Add" if isinstance(kernel, kernels.Sum) else "Mul", *parts)
    if isinstance(kernel, kernels.Mapped):
        return _self(graph, kernel.kernel, _write_mapped(graph, kernel, X))
    if isinstance(kernel, kernels.Normalized):
        known = graph("Greater", _self(graph, kernel.kernel, X), 0)
        return graph("Where", known, 1, 0)
    assert isinstance(kernel, kernels.Linear | kernels.Polynomial | kernels.Sigmoid)
    return _function_of_products(graph, kernel, _squares(graph, X))


def _squares(graph: Graph, X: str) -> str:
    return graph("ReduceSumSquare", X, graph.axes(1), keepdims=1)


@_writes(kernels.Linear, kernels.Polynomial, kernels.Sigmoid)
def _products(graph: Graph, kernel: Any, X: str, Z: np.ndarray) -> str:
    return _function_of_products(graph, kernel, graph("MatMul", X, Z.T))


def _function_of_products(
    graph: Graph,
    kernel: kernels.Linear | kernels.Polynomial | kernels.Sigmoid,
    products: str,
) -> str:
    if isinstance(kernel, kernels.Linear):
        return products
    scaled = graph("Mul", products, _number(kernel.gamma))
    affine = graph("Add", scaled, _number(kernel.coef0))
    if isinstance(kernel, kernels.Sigmoid):
        return graph("Tanh", affine)
    return graph("Pow", affine, _number(kernel.degree))


def _differences(graph: Graph, reduce: str, X: str, Z: np.ndarray) -> str:
    """A norm of all differences, shape `(n, m)`."""
    differences = graph("Sub", graph("Unsqueeze", X, graph.axes(1)), Z[None])
    return graph(reduce, differences, graph.axes(2), keepdims=0)


def _distances(graph: Graph, kernel: Any, X: str, Z: np.ndarray) -> tuple[str, str]:
    """`||x - z||^2`, and `||x||^2 + ||z||^2`, about the mean of the vectors.

    Far from 0, float32 loses the digits of expanded distances; see `budgetjax.RBF`.
    """
    centre = np.mean(Z, axis=0).astype(graph.dtype)
    X, Z = graph("Sub", X, centre), Z - centre
    sums = graph("Add", _squares(graph, X), np.sum(Z * Z, axis=1)[None])
    if kernel.exact:
        return _differences(graph, "ReduceSumSquare", X, Z), sums
    return graph("Max", graph("Add", sums, graph("MatMul", X, -2 * Z.T)), 0), sums


@_writes(kernels.RBF)
def _rbf(graph: Graph, kernel: kernels.RBF, X: str, Z: np.ndarray) -> str:
    distances, _ = _distances(graph, kernel, X, Z)
    return graph("Exp", graph("Mul", distances, -_number(kernel.gamma)))


@_writes(kernels.Laplacian)
def _laplacian(graph: Graph, kernel: kernels.Laplacian, X: str, Z: np.ndarray) -> str:
    distances = _differences(graph, "ReduceL1", X, Z)
    return graph("Exp", graph("Mul", distances, -_number(kernel.gamma)))


@_writes(kernels.Matern)
def _matern(graph: Graph, kernel: kernels.Matern, X: str, Z: np.ndarray) -> str:
    squares, sums = _distances(graph, kernel, X, Z)
    # For equal points a rounding error is left, as in `budgetjax.Matern`.
    rounding = graph("Mul", sums, 4 * float(np.finfo(graph.dtype).eps))
    roots = graph("Where", graph("Greater", squares, rounding), squares, 0)
    factor = (2 * kernel.nu) ** 0.5 / _number(kernel.length_scale)
    s = graph("Mul", graph("Sqrt", roots), factor)
    decay = graph("Exp", graph("Neg", s))
    if kernel.nu == 0.5:
        return decay
    polynomial = graph("Add", s, 1)
    if kernel.nu == 2.5:
        polynomial = graph("Add", polynomial, graph("Div", graph("Mul", s, s), 3))
    return graph("Mul", polynomial, decay)


@_writes(kernels.RationalQuadratic)
def _quadratic(
    graph: Graph, kernel: kernels.RationalQuadratic, X: str, Z: np.ndarray
) -> str:
    squares, _ = _distances(graph, kernel, X, Z)
    alpha = _number(kernel.alpha)
    width = 2 * alpha * _number(kernel.length_scale) ** 2
    return graph("Pow", graph("Add", graph("Div", squares, width), 1), -alpha)


@_writes(kernels.Sum, kernels.Product)
def _both(
    graph: Graph, kernel: kernels.Sum | kernels.Product, X: str, Z: np.ndarray
) -> str:
    parts = [_gram(graph, part, X, Z) for part in (kernel.left, kernel.right)]
    return graph("Add" if isinstance(kernel, kernels.Sum) else "Mul", *parts)


@_writes(kernels.Normalized)
def _write_normalized(
    graph: Graph, kernel: kernels.Normalized, X: str, Z: np.ndarray
) -> str:
    gram = _gram(graph, kernel.kernel, X, Z)
    if isinstance(kernel.kernel, kernels.Stationary):
        return gram
    selves = np.asarray(kernel.kernel.diag(Z.astype(graph.dtype)), np.float64)
    norms = np.where(selves > 0, np.where(selves > 0, selves, 1) ** -0.5, 0)
    own = _self(graph, kernel.kernel, X)
    positive = graph("Greater", own, 0)
    root = graph("Sqrt", graph("Where", positive, own, 1))
    inverse = graph("Where", positive, graph("Reciprocal", root), 0)
    return graph("Mul", graph("Mul", gram, inverse), norms[None])


def _write_mapped(graph: Graph, kernel: kernels.Mapped, X: str) -> str:
    matrix = np.asarray(kernel.matrix)
    return graph("Mul" if matrix.ndim == 1 else "MatMul", X, matrix)


@_writes(kernels.Mapped)
def _mapped_gram(graph: Graph, kernel: kernels.Mapped, X: str, Z: np.ndarray) -> str:
    if not kernel.mapped_vectors:
        matrix = np.asarray(kernel.matrix, np.float64)
        Z = Z * matrix if matrix.ndim == 1 else Z @ matrix
    return _gram(graph, kernel.kernel, _write_mapped(graph, kernel, X), Z)


@_writes(Waves)
def _waves(graph: Graph, kernel: Waves, X: str, Z: np.ndarray) -> str:
    angles = graph("Sub", graph("MatMul", X, Z.T), np.asarray(kernel.phases))
    return graph("Mul", graph("Cos", angles), _number(kernel.amplitude))

"""A predictor as an ONNX graph, for any ONNX runtime; see `export`."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.typing import ArrayLike, DTypeLike

from budgetjax import _checks, encoding
from budgetjax._errors import ArgumentError
from budgetjax.exporting.predictor import Predictor, label_array
from budgetjax.kernels import (
    RBF,
    Kernel,
    Laplacian,
    Linear,
    Mapped,
    Matern,
    Normalized,
    Polynomial,
    Product,
    RationalQuadratic,
    Sigmoid,
    Stationary,
    Sum,
)
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
        name = name or f"{operation}_{len(self.nodes)}"
        names = [
            one if isinstance(one, str) else self.constant(np.asarray(one, self.dtype))
            for one in inputs
        ]
        node = self.onnx.helper.make_node(operation, names, [name], **attributes)
        self.nodes.append(node)
        return name

    def constant(self, value: np.ndarray) -> str:
        """Adds an array in its own dtype."""
        name = f"constant_{len(self.constants)}"
        tensor = self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name)
        # `ascontiguousarray` makes a scalar a row.
        del tensor.dims[:]
        tensor.dims.extend(value.shape)
        self.constants.append(tensor)
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
    X, dtype = _features(graph, predictor), predictor.dtype
    parts = [_scores(graph, part, X) for part in predictor.parts]
    scores = parts[0] if len(parts) == 1 else graph("Concat", *parts, axis=1)
    if np.any(predictor.intercept):
        scores = graph("Add", scores, predictor.intercept)
    columns = predictor.num_columns
    if predictor.ranks is not None:
        scores = _sort_columns(graph, scores, columns)
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


def _features(graph: Graph, predictor: Predictor) -> str:
    """The rows in the form that the models take."""
    X, units = "X", predictor.units
    if units is not None:
        mean, rest = map(graph.constant, (units.mean, units.rest))
        if units.fills:
            X = graph("Where", graph("IsNaN", X), mean, X)
        X = graph("Sub", graph("Sub", X, mean), rest)
        to = graph.onnx.helper.np_dtype_to_tensor_dtype(graph.dtype)
        X = graph("Mul", graph("Cast", X, to=to), units.factor)
    if predictor.encoding is not None:
        X = _codes(graph, predictor.encoding, X, predictor.row_dtype)
    return X


def _codes(graph: Graph, known: encoding.Encoding, v: str, row_dtype: np.dtype) -> str:
    """The features of rows X, from rows in units from the centre; see `Encoding`."""
    column = graph.axes(*known.column.tolist())

    def of_code(rows: str) -> str:
        return graph("Gather", rows, column, axis=1)

    missing = graph("IsNaN", "X")
    v = graph(
        "Clip", graph("Where", missing, 0, v), -encoding.FARTHEST, encoding.FARTHEST
    )
    part = graph("Div", v, encoding.CLIP)
    root = graph("Sqrt", graph("Add", graph("Mul", part, part), 1))
    start, slope, floor, ceiling = encoding.lines(known)
    codes = graph("Mul", graph("Sub", of_code(graph("Div", v, root)), start), slope)
    codes = graph("Min", graph("Max", codes, floor), ceiling)
    is_bin, is_value = known.low < known.high, known.low == known.high
    if not np.all(is_bin):
        missing, to = of_code(missing), graph.onnx.helper.np_dtype_to_tensor_dtype
        unknown = graph("And", missing, graph.constant(known.lacks[known.column]))
        value = graph.constant(known.low.astype(row_dtype))
        is_seen = graph("Equal", of_code("X"), value)
        lacks = graph("And", missing, graph.constant(~is_value))
        flags = graph("Cast", graph("Or", is_seen, lacks), to=to(graph.dtype))
        codes = graph("Where", unknown, 0, codes)
        codes = graph("Where", graph.constant(is_bin), codes, flags)
    return codes if known.map is None else graph("MatMul", codes, known.map)


def _sort_columns(graph: Graph, scores: str, columns: int) -> str:
    """The columns of each row in ascending order."""
    names = [f"sorted_{len(graph.nodes)}", f"order_{len(graph.nodes)}"]
    inputs = [scores, graph.axes(columns)]
    node = graph.onnx.helper.make_node("TopK", inputs, names, axis=1, largest=0)
    graph.nodes.append(node)
    return names[0]


def _scores(graph: Graph, part: KernelModel, X: str) -> str:
    """The scores of scaled rows, one column each."""
    gram = _gram(graph, part.kernel, X, np.asarray(part.vectors, np.float64))
    scores = graph("MatMul", gram, part.coefficients)
    return graph("Add", scores, part.bias) if np.any(part.bias) else scores


# `write(graph, kernel, X, Z)` adds `k(X[i], Z[j])` for all pairs, and returns its name.
Writer = Callable[["Graph", Any, str, np.ndarray], str]
# `write(graph, kernel, products)` does so for a kernel of inner products `x.z` alone.
ProductWriter = Callable[["Graph", Any, str], str]
_writers: dict[type[Kernel], Writer] = {}
_product_writers: dict[type[Kernel], ProductWriter] = {}


def _writes(*kinds: type[Kernel]) -> Callable[[Writer], Writer]:
    """A decorator for the function that writes kernels of these classes."""

    def decorate(write: Writer) -> Writer:
        _writers.update(dict.fromkeys(kinds, write))
        return write

    return decorate


def _writes_products(kind: type[Kernel]) -> Callable[[ProductWriter], ProductWriter]:
    """A decorator for the function that writes such a kernel of inner products."""

    def decorate(write: ProductWriter) -> ProductWriter:
        _product_writers[kind] = write
        return write

    return decorate


def _number(value: ArrayLike) -> float:
    return float(np.asarray(value))


def _gram(graph: Graph, kernel: Kernel, X: str, Z: np.ndarray) -> str:
    """`k(X[i], Z[j])` for all pairs."""
    kind = type(kernel)
    if kind in _product_writers:
        return _product_writers[kind](graph, kernel, graph("MatMul", X, Z.T))
    if kind not in _writers:
        kinds = (*_writers, *_product_writers)
        known = ", ".join(sorted(one.__name__ for one in kinds))
        raise ArgumentError(
            "kernel",
            f"be made of {known} to be written as ONNX",
            f"{kind.__name__}; a file NAME.stablehlo holds any",
        )
    return _writers[kind](graph, kernel, X, Z)


def _self(graph: Graph, kernel: Kernel, X: str) -> str | float:
    """`k(x, x)` of every row, in one column, or a number if it is the same for all."""
    kind = type(kernel)
    if isinstance(kernel, Stationary):
        return 1.0
    if isinstance(kernel, Sum | Product):
        parts = [_self(graph, part, X) for part in (kernel.left, kernel.right)]
        return graph("Add" if isinstance(kernel, Sum) else "Mul", *parts)
    if isinstance(kernel, Mapped):
        return _self(graph, kernel.kernel, _write_mapped(graph, kernel, X))
    if isinstance(kernel, Normalized):
        known = graph("Greater", _self(graph, kernel.kernel, X), 0)
        return graph("Where", known, 1, 0)
    return _product_writers[kind](graph, kernel, _squares(graph, X))


def _squares(graph: Graph, X: str) -> str:
    return graph("ReduceSumSquare", X, graph.axes(1), keepdims=1)


@_writes_products(Linear)
def _linear(graph: Graph, kernel: Linear, products: str) -> str:
    return products


@_writes_products(Polynomial)
def _polynomial(graph: Graph, kernel: Polynomial, products: str) -> str:
    return graph("Pow", _affine(graph, kernel, products), _number(kernel.degree))


@_writes_products(Sigmoid)
def _sigmoid(graph: Graph, kernel: Sigmoid, products: str) -> str:
    return graph("Tanh", _affine(graph, kernel, products))


def _affine(graph: Graph, kernel: Polynomial | Sigmoid, products: str) -> str:
    scaled = graph("Mul", products, _number(kernel.gamma))
    return graph("Add", scaled, _number(kernel.coef0))


def _differences(graph: Graph, X: str, Z: np.ndarray) -> str:
    """All differences, shape `(n, m, d)`."""
    return graph("Sub", graph("Unsqueeze", X, graph.axes(1)), Z[None])


def _distances(graph: Graph, kernel: Any, X: str, Z: np.ndarray) -> tuple[str, str]:
    """`||x - z||^2`, and `||x||^2 + ||z||^2`, about the mean of the vectors.

    Far from 0, float32 loses the digits of expanded distances; see `budgetjax.RBF`.
    """
    centre = np.mean(Z, axis=0).astype(graph.dtype)
    X, Z = graph("Sub", X, centre), Z - centre
    sums = graph("Add", _squares(graph, X), np.sum(Z * Z, axis=1)[None])
    if kernel.exact:
        differences = _differences(graph, X, Z)
        axis = graph.axes(2)
        return graph("ReduceSumSquare", differences, axis, keepdims=0), sums
    expanded = graph("Add", sums, graph("MatMul", X, -2 * Z.T))
    return graph("Max", expanded, 0), sums


@_writes(RBF)
def _rbf(graph: Graph, kernel: RBF, X: str, Z: np.ndarray) -> str:
    distances, _ = _distances(graph, kernel, X, Z)
    return graph("Exp", graph("Mul", distances, -_number(kernel.gamma)))


@_writes(Laplacian)
def _laplacian(graph: Graph, kernel: Laplacian, X: str, Z: np.ndarray) -> str:
    differences = _differences(graph, X, Z)
    distances = graph("ReduceL1", differences, graph.axes(2), keepdims=0)
    return graph("Exp", graph("Mul", distances, -_number(kernel.gamma)))


@_writes(Matern)
def _matern(graph: Graph, kernel: Matern, X: str, Z: np.ndarray) -> str:
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
        third = graph("Div", graph("Mul", s, s), 3)
        polynomial = graph("Add", polynomial, third)
    return graph("Mul", polynomial, decay)


@_writes(RationalQuadratic)
def _quadratic(graph: Graph, kernel: RationalQuadratic, X: str, Z: np.ndarray) -> str:
    squares, _ = _distances(graph, kernel, X, Z)
    alpha = _number(kernel.alpha)
    width = 2 * alpha * _number(kernel.length_scale) ** 2
    base = graph("Add", graph("Div", squares, width), 1)
    return graph("Pow", base, -alpha)


@_writes(Sum, Product)
def _both(graph: Graph, kernel: Sum | Product, X: str, Z: np.ndarray) -> str:
    parts = [_gram(graph, part, X, Z) for part in (kernel.left, kernel.right)]
    return graph("Add" if isinstance(kernel, Sum) else "Mul", *parts)


@_writes(Normalized)
def _write_normalized(graph: Graph, kernel: Normalized, X: str, Z: np.ndarray) -> str:
    gram = _gram(graph, kernel.kernel, X, Z)
    if isinstance(kernel.kernel, Stationary):
        return gram
    selves = np.asarray(kernel.kernel.diag(Z.astype(graph.dtype)), np.float64)
    norms = np.where(selves > 0, 1 / np.sqrt(np.where(selves > 0, selves, 1)), 0)
    own = _self(graph, kernel.kernel, X)
    positive = graph("Greater", own, 0)
    root = graph("Sqrt", graph("Where", positive, own, 1))
    inverse = graph("Where", positive, graph("Reciprocal", root), 0)
    return graph("Mul", graph("Mul", gram, inverse), norms[None])


def _write_mapped(graph: Graph, kernel: Mapped, X: str) -> str:
    matrix = np.asarray(kernel.matrix)
    return graph("Mul" if matrix.ndim == 1 else "MatMul", X, matrix)


@_writes(Mapped)
def _mapped_gram(graph: Graph, kernel: Mapped, X: str, Z: np.ndarray) -> str:
    if not kernel.mapped_vectors:
        matrix = np.asarray(kernel.matrix, np.float64)
        Z = Z * matrix if matrix.ndim == 1 else Z @ matrix
    return _gram(graph, kernel.kernel, _write_mapped(graph, kernel, X), Z)


@_writes(Waves)
def _waves(graph: Graph, kernel: Waves, X: str, Z: np.ndarray) -> str:
    angles = graph("Sub", graph("MatMul", X, Z.T), np.asarray(kernel.phases))
    return graph("Mul", graph("Cos", angles), _number(kernel.amplitude))

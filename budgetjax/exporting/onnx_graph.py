"""A predictor as an ONNX graph, for any ONNX runtime; see `export`.

JAX traces the program of the predictor, and each of its operations becomes one of ONNX,
which needs no code per kernel.
"""

import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, Var
from jax.typing import ArrayLike, DTypeLike

from budgetjax import _checks
from budgetjax._errors import ArgumentError
from budgetjax.exporting.predictor import Predictor, build, label_array

# Versions of 2024: the graph needs nothing newer, and older runtimes read it.
OPSET, IR_VERSION = 21, 10
# Operations of JAX on one number of each array, and their names in ONNX.
ELEMENTWISE = {
    **{"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow"},
    **{"max": "Max", "min": "Min", "neg": "Neg", "abs": "Abs", "sign": "Sign"},
    **{"exp": "Exp", "log": "Log", "sqrt": "Sqrt", "tanh": "Tanh", "erf": "Erf"},
    **{"sin": "Sin", "cos": "Cos", "logistic": "Sigmoid", "floor": "Floor"},
    **{"gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual"},
    **{"eq": "Equal", "and": "And", "or": "Or", "not": "Not"},
    **{"copy": "Identity", "stop_gradient": "Identity"},
}
# Operations that call a program, once.
CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call")
REDUCTIONS = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin"}
# The lengths of axes: that of the first may be the number of rows, which is unknown and
# a symbol of JAX.
Shape = tuple[Any, ...]
# An attribute of an operation.
Size = int | Sequence[int]


def serialize(predictor: Predictor, version: str) -> bytes:
    """The bytes of a checked ONNX model."""
    onnx = _checks.import_optional("onnx")
    graph = Graph(onnx)
    program, results = build(lambda program, X: program.trace(X), predictor), []
    names = graph.translate(program.jaxpr, ["X"])
    found = dict(zip(sorted(program.out_info), names, strict=True))
    if predictor.labels is not None:
        labels = label_array(predictor.labels)
        text = graph.add("Gather", graph.constant(labels), found["label"], axis=0)
        shape = program.out_info["label"].shape
        results.append(graph.output("label", text, labels.dtype, shape))
    for name in ("scores", "probabilities", "variable", "deviation"):
        if name in found:
            shape = program.out_info[name].shape
            results.append(graph.output(name, found[name], predictor.dtype, shape))
    graph.drop_unused()
    (given,) = program.jaxpr.in_avals
    rows = graph.value("X", predictor.row_dtype, given.shape)
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes, "budgetjax", [rows], results, graph.constants
        ),
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
    """A graph under construction.

    An array is known by its name. Its shape may have axes of length 1 where the program
    has broadcast them, since ONNX broadcasts in elementwise operations; `full` makes
    such an array as large as the program has it.
    """

    def __init__(self, onnx: ModuleType):
        self.onnx, self.nodes, self.constants = onnx, [], []
        self.shapes: dict[str, Shape] = {}

    def add(self, operation: str, *inputs: str, results: int = 1, **more: Size) -> str:
        """Adds an operation, and returns the name of its first result."""
        names = [f"{operation}_{len(self.nodes)}_{i}" for i in range(results)]
        node = self.onnx.helper.make_node(operation, inputs, names, **more)
        self.nodes.append(node)
        return names[0]

    def constant(self, value: ArrayLike) -> str:
        """Adds an array in its own dtype."""
        value, name = np.asarray(value, order="C"), f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(value, name))
        self.shapes[name] = value.shape
        return name

    def axes(self, *numbers: int) -> str:
        """Adds an array of axis numbers or lengths."""
        return self.constant(np.array(numbers, np.int64))

    def tensor_dtype(self, dtype: DTypeLike) -> int:
        return self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def value(self, name: str, dtype: DTypeLike, shape: Shape) -> Any:
        """The description of an input or output."""
        kind = self.tensor_dtype(dtype)
        sizes = [size if isinstance(size, int) else str(size) for size in shape]
        return self.onnx.helper.make_tensor_value_info(name, kind, sizes)

    def output(self, name: str, found: str, dtype: DTypeLike, shape: Shape) -> Any:
        """Gives an array the name of an output, and describes it."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [found], [name]))
        return self.value(name, dtype, shape)

    def drop_unused(self) -> None:
        """Drops what no output depends on; a program may compute more."""
        used, nodes = set[str](), []
        for node in reversed(self.nodes):
            if node.op_type == "Identity" or used.intersection(node.output):
                used |= {*node.input}
                nodes.append(node)
        self.nodes = nodes[::-1]
        self.constants = [one for one in self.constants if one.name in used]

    def full(self, name: str, shape: Shape) -> str:
        """The array in the shape of the program."""
        known = self.shapes[name]
        if known == shape:
            return name
        # The length 1 leaves an axis as it is.
        sizes = [size if isinstance(size, int) else 1 for size in shape]
        wanted = self.axes(*sizes)
        if not isinstance(shape[0], int) and shape[0] not in known:
            rows = self.add("Shape", "X", start=0, end=1)
            wanted = self.add("Concat", rows, self.axes(*sizes[1:]), axis=0)
        name = self.add("Expand", name, wanted)
        self.shapes[name] = shape
        return name

    def translate(self, program: Any, inputs: list[str]) -> list[str]:
        """Adds the operations of a program, and returns the names of its results."""
        jaxpr = program.jaxpr
        names = dict(zip(jaxpr.invars, inputs, strict=True))
        names |= zip(jaxpr.constvars, map(self.constant, program.consts), strict=True)

        def read(variable: Var | Literal) -> str:
            is_literal = isinstance(variable, Literal)
            return self.constant(variable.val) if is_literal else names[variable]

        for name, variable in zip(inputs, jaxpr.invars, strict=True):
            self.shapes.setdefault(name, variable.aval.shape)
        for equation in jaxpr.eqns:
            given = [read(variable) for variable in equation.invars]
            names |= zip(equation.outvars, self.equation(equation, given), strict=True)
        found = zip(map(read, jaxpr.outvars), jaxpr.outvars, strict=True)
        return [self.full(name, variable.aval.shape) for name, variable in found]

    def equation(self, equation: Any, given: list[str]) -> list[str]:
        """The names of the results of an operation of JAX."""
        params, aval = equation.params, equation.outvars[0].aval
        kind, shape = equation.primitive.name, aval.shape
        if kind in CALLS:
            return self.translate(params.get("jaxpr", params.get("call_jaxpr")), given)
        name = self.elementwise(kind, params, given)
        if name is not None:
            shapes = (self.shapes[one] for one in given)
            self.shapes[name] = jnp.broadcast_shapes(*shapes)
        elif kind == "broadcast_in_dim":
            name, places = given[0], params["broadcast_dimensions"]
            known = dict(zip(places, self.shapes[name], strict=True))
            if new := [axis for axis in range(len(shape)) if axis not in known]:
                name = self.add("Unsqueeze", name, self.axes(*new))
            self.shapes[name] = tuple(known.get(i, 1) for i in range(len(shape)))
        else:
            whole = zip(given, equation.invars, strict=True)
            whole = [self.full(one, variable.aval.shape) for one, variable in whole]
            name = self.structural(kind, params, whole, shape, aval.dtype)
            self.shapes[name] = shape
        return [name]

    def elementwise(
        self, kind: str, params: Mapping[str, Any], given: list[str]
    ) -> str | None:
        """An operation on one number of each array; None for any other."""
        if kind in ELEMENTWISE:
            return self.add(ELEMENTWISE[kind], *given)
        match kind:
            case "square":
                return self.add("Mul", *given, *given)
            case "log1p":
                one = self.add("CastLike", self.constant(np.int64(1)), *given)
                return self.add("Log", self.add("Add", *given, one))
            case "rsqrt":
                return self.add("Reciprocal", self.add("Sqrt", *given))
            case "is_finite":
                bad = [self.add(test, *given) for test in ("IsNaN", "IsInf")]
                return self.add("Not", self.add("Or", *bad))
            case "ne":
                return self.add("Not", self.add("Equal", *given))
            case "select_n" if len(given) == 3:
                return self.add("Where", given[0], given[2], given[1])
            case "integer_pow":
                return self.add("Pow", *given, self.axes(params["y"]))
            case "convert_element_type":
                return self.add(
                    "Cast", *given, to=self.tensor_dtype(params["new_dtype"])
                )
        return None

    def structural(
        self,
        kind: str,
        params: Mapping[str, Any],
        given: list[str],
        shape: Shape,
        dtype: DTypeLike,
    ) -> str:
        """An operation on whole arrays."""
        before, _, reduced = kind.partition("reduce_")
        if not before and reduced in REDUCTIONS:
            axes = self.axes(*map(int, params["axes"]))
            return self.add(REDUCTIONS[reduced], *given, axes, keepdims=0)
        match kind:
            case "reshape" | "squeeze":
                sizes = [size if isinstance(size, int) else -1 for size in shape]
                return self.add("Reshape", *given, self.axes(*sizes))
            case "transpose":
                return self.add("Transpose", *given, perm=params["permutation"])
            case "concatenate":
                return self.add("Concat", *given, axis=params["dimension"])
            case "slice":
                ends = [
                    size if isinstance(size, int) else np.iinfo(np.int64).max
                    for size in params["limit_indices"]
                ]
                axes = self.axes(*range(len(ends)))
                starts = self.axes(*params["start_indices"])
                return self.add("Slice", *given, starts, self.axes(*ends), axes)
            case "dot_general" if len(shape) == 2:
                contracted, batch = params["dimension_numbers"]
                if not any((*contracted, *batch)):
                    left = self.add("Unsqueeze", given[0], self.axes(1))
                    return self.add("Mul", left, given[1])
                if not any(batch):
                    # A product of two matrices, either of them transposed or not.
                    (left,), (right,) = contracted
                    sides = {"transA": int(left == 0), "transB": int(right == 1)}
                    return self.add("Gemm", *given, **sides)
            case "gather" if params["dimension_numbers"].collapsed_slice_dims == (1,):
                # Columns of a matrix.
                columns = self.add("Squeeze", given[1], self.axes(-1))
                return self.add("Gather", given[0], columns, axis=1)
            case "argmax":
                index = self.add("ArgMax", *given, axis=params["axes"][0], keepdims=0)
                return self.add("Cast", index, to=self.tensor_dtype(dtype))
            case "sort" if len(given) == 1 and isinstance(shape[-1], int):
                last = {"axis": params["dimension"], "largest": 0, "results": 2}
                return self.add("TopK", *given, self.axes(shape[-1]), **last)
        wanted = "be made of operations that ONNX has to be written as ONNX"
        raise ArgumentError("kernel", wanted, f"{kind}; a file NAME.stablehlo has any")

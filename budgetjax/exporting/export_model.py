"""Exports predictors for machines without this package; see `export`."""

import io
import json
import os
import zipfile
from typing import Any

import jax.export

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.exporting import onnx_graph
from budgetjax.exporting.predictor import Predictor, build, label_array, predictor
from budgetjax.saving import model_files

# Where a program of StableHLO can run.
PLATFORMS = ("cpu", "cuda", "tpu")


def _as_stablehlo(predictor: Predictor, version: str) -> bytes:
    """The bytes of a zip archive of `program` and `about.json`."""
    _checks.import_optional("flatbuffers")
    exported = build(
        lambda program, X: jax.export.export(program, platforms=PLATFORMS)(X), predictor
    )
    labels = predictor.labels
    about = {
        "classes": None if labels is None else label_array(labels).tolist(),
        "feature_names": predictor.feature_names,
        "num_features": predictor.num_features,
        "dtype": str(predictor.row_dtype),
        "budgetjax": version,
        "jax": jax.__version__,
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("program", bytes(exported.serialize()))
        made.writestr("about.json", json.dumps(about, indent=1))
    return file.getvalue()


FORMATS = {".onnx": onnx_graph.serialize, ".stablehlo": _as_stablehlo}


@names_errors("export")
def export(
    path: str | os.PathLike[str], model: Any, *, deviation: bool = False
) -> None:
    """Writes a predictor to a file that runs without budgetjax.

    It includes the scaling or encoding of rows, the labels and the calibration. It
    takes raw rows X, shape `(n, num_features)` for any n, and returns, by name:

    - for a classifier `label`, shape `(n,)`; `scores`, as
      `budgetjax.decision_function`; and, if it is calibrated or was trained with the
      logistic loss, `probabilities`, shape `(n, classes)`;
    - for a regressor `variable`, its values, shape `(n,)` or `(n, num_outputs)`, and
      for a one-class model its scores, below 0 for novel rows, shape `(n,)`;
    - with `deviation=True`, `deviation` too, the root of `budgetjax.variance`, in the
      unit and the shape of `variable`.

    All but the last are names of skl2onnx. Rows are not checked: a NaN gives an
    arbitrary result, unless the model encodes it. A call allocates a matrix with n rows
    and one column per support vector, so pass many rows in parts.

    Rows have the dtype of the model, float32 unless it was trained in float64. If the
    model has a scaling, and float32 would round rows by more than 1e-4 of their
    distance from its mean (as for times in milliseconds), they are float64, and the
    mean is subtracted first. The file states the dtype, and rejects others.

    Runtimes such as onnxruntime read a file `NAME.onnx` (opset 21, IR version 10); its
    labels are int64, booleans, float64 or text. The kernel may be your own, if ONNX has
    its operations.

    A file `NAME.stablehlo` needs only JAX, on a CPU, CUDA or a TPU, and supports any
    kernel. It is a zip archive with `program`, written by `jax.export`, whose `label`
    is an index into `classes` in `about.json`:

    ```python
    import json, zipfile, jax.export
    with zipfile.ZipFile("model.stablehlo") as file:
        program = jax.export.deserialize(bytearray(file.read("program")))
        about = json.loads(file.read("about.json"))
    with jax.enable_x64(about["dtype"] == "float64"):
        found = program.call(X.astype(about["dtype"]))
    labels = [about["classes"][i] for i in found["label"]]
    ```

    JAX reads such programs for at least six months after the version that wrote them.

    Args:
      path: the file, `NAME.onnx` or `NAME.stablehlo`, which is replaced if it exists.
      model: a model as for `budgetjax.decision_function`; a fitted estimator of
        `budgetjax.estimators`, also after a `StandardScaler` in a pipeline of
        scikit-learn. For a `BudgetedOneClass`, the values are its scores, below 0 for
        outliers.
      deviation: whether the file says how sure the model is, a regressor that
        `budgetjax.variance` takes. It then has a matrix of B^2 numbers more for B
        support vectors (44 kB for 100), or two for a state of `budgetjax.KRLST`, and
        each row costs O(B^2) more. That of a `budgetjax.Mixture` has to be StableHLO.

    Raises:
      ValueError: if the extension is another; the model is not a single, fitted one;
        labels are neither numbers nor text; the kernel cannot be written as ONNX; or
        the deviation is not known.
      OSError: if the file cannot be written; an existing file is unchanged.
      ImportError: if onnx, or flatbuffers for StableHLO, is not installed.

    Example:
      >>> import pathlib, tempfile
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.onnx"
      >>> state = bj.Perceptron().init(bj.RBF(gamma=1.0), num_features=2, budget=10)
      >>> state = bj.step(state, jnp.array([1.0, 2.0]), 1)
      >>> bj.export(path, state)
      >>> import onnxruntime
      >>> session = onnxruntime.InferenceSession(path)
      >>> rows = np.array([[1.0, 2.0]], np.float32)
      >>> session.run(["label"], {"X": rows})[0].tolist()
      [1]

    References:
      StableHLO by `jax.export`: https://docs.jax.dev/en/latest/export/export.html.
      ONNX: https://onnx.ai/onnx/operators/.
    """
    name = os.fspath(path)
    suffix = os.path.splitext(name)[1].lower()
    if suffix not in FORMATS:
        raise ArgumentError("path", f"end in {' or '.join(FORMATS)}", repr(name))
    deviates = _checks.flag("deviation", deviation)
    data = FORMATS[suffix](predictor(model, deviates), model_files.version())
    model_files.replace(name, [data])

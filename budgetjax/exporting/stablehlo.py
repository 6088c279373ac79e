"""A predictor as a StableHLO program, which needs only JAX; see `export`."""

import io
import json
import zipfile

import jax.export
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from budgetjax import _checks, encoding
from budgetjax.exporting.predictor import Predictor, label_array
from budgetjax.kernels import Mapped
from budgetjax.models import KernelModel

PLATFORMS = ("cpu", "cuda", "tpu")


def serialize(predictor: Predictor, version: str) -> bytes:
    """The bytes of a zip archive of `program` and `about.json`."""
    _checks.import_optional("flatbuffers")
    (rows,) = jax.export.symbolic_shape("rows")
    program = jax.jit(lambda X: _outputs(predictor, X))
    wide = predictor.row_dtype == np.float64
    # Otherwise JAX would cast float64 rows to float32.
    with jax.enable_x64(wide or jax.config.read("jax_enable_x64")):
        shape = rows, predictor.num_features
        given = jax.ShapeDtypeStruct(shape, predictor.row_dtype)
        exported = jax.export.export(program, platforms=PLATFORMS)(given)
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


def _outputs(predictor: Predictor, X: Float[Array, "n d"]) -> dict[str, Array]:
    """The scores and the outputs that follow from them, by name."""
    units = predictor.units
    if predictor.encoding is not None:
        X = encoding.encode(predictor.encoding, X).astype(predictor.dtype)
    elif units is not None:
        if units.fills:
            X = jnp.where(jnp.isnan(X), units.mean[None], X)
        X = X - units.mean[None] - units.rest[None]
        X = X.astype(predictor.dtype) * units.factor[None]
    columns = [_scores(part, X) for part in predictor.parts]
    scores = jnp.concatenate(columns, axis=1) + predictor.intercept[None]
    if predictor.ranks is not None:
        scores = jnp.sort(scores, axis=1)[:, predictor.ranks]
    binary = predictor.num_columns == 1
    flat = scores[:, 0] if binary else scores
    if predictor.labels is None:
        return {"variable": jnp.exp(flat) if predictor.exponentiates else flat}
    best = flat > 0 if binary else jnp.argmax(scores, axis=1)
    found = {"label": best.astype(jnp.int32), "scores": flat}
    if predictor.factor is not None:
        each = jnp.concatenate([0 * scores, scores], axis=1) if binary else scores
        factor = jnp.asarray(predictor.factor, scores.dtype)
        found["probabilities"] = jax.nn.softmax(factor * each, axis=1)
    return found


def _scores(part: KernelModel, X: Float[Array, "n d"]) -> Float[Array, "n columns"]:
    """The scores of scaled rows, centred at the mean of the vectors if allowed.

    Far from 0, float32 loses the digits of distances; see `budgetjax.RBF`.
    """
    kernel, vectors = part.kernel, np.asarray(part.vectors)
    while isinstance(kernel, Mapped) and kernel.mapped_vectors:
        X = jnp.matmul(X, jnp.asarray(kernel.matrix, X.dtype), precision="highest")
        kernel = kernel.kernel
    if kernel.stationary:
        centre = np.mean(vectors, axis=0, dtype=np.float64).astype(vectors.dtype)
        X, vectors = X - centre[None], vectors - centre[None]
    gram = kernel.gram(X, jnp.asarray(vectors))
    scores = jnp.matmul(gram, jnp.asarray(part.coefficients), precision="highest")
    return scores + jnp.asarray(part.bias)[None]

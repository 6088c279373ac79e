"""A predictor as a StableHLO program, which needs only JAX; see `export`."""

import io
import json
import zipfile

import jax.export

from budgetjax import _checks
from budgetjax.exporting.predictor import Predictor, build, label_array

PLATFORMS = ("cpu", "cuda", "tpu")


def serialize(predictor: Predictor, version: str) -> bytes:
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

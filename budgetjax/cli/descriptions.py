"""How reports of a training describe data, columns, kernels and settings."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from budgetjax.cli.reports import with_count
from budgetjax.kernels import RBF, Mapped
from budgetjax.stream.batches import Batches
from budgetjax.tables.encoding import Encoding


def describe_source(source: Batches) -> str:
    """The name of a file, and how many columns it has."""
    return f"{source.name}, {with_count(source.num_features, 'feature')}"


def describe_columns(codes: Encoding | None) -> str:
    """How columns are written."""
    if codes is None:
        return "as they are"
    if codes.num_codes == codes.num_columns:
        return "in units of their quartiles, outliers clipped"
    return f"{codes.num_columns:,}, as {codes.num_codes:,} codes"


def describe_kernel(kernel: Any) -> str:
    """The kernel, without the matrix of a metric."""
    kernel = kernel.kernel if isinstance(kernel, Mapped) else kernel
    if isinstance(kernel, RBF):
        return f"Gaussian, gamma {float(np.asarray(kernel.gamma)):.4g}"
    return repr(kernel)


def describe_settings(settings: Mapping[str, Any]) -> str:
    """The settings after the name of a learner."""
    return "".join(f", {name} {value}" for name, value in settings.items())

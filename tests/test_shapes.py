"""The checker of shapes and types, under which the gate runs all tests."""

import jaxtyping
import numpy as np
import pytest

from budgetjax import _rows


def test_the_checker_is_on(request):
    """Where it is asked for: a text is no number of rows."""
    if not request.config.getoption("jaxtyping_packages"):
        pytest.skip("run without --jaxtyping-packages")
    with pytest.raises(jaxtyping.TypeCheckError, match="'length'"):
        _rows.pad_rows(np.ones((2, 3)), "five")

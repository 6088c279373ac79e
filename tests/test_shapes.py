"""The package under the checker of shapes and types, as the gate runs all tests."""

import importlib
import pkgutil
import sys

import jaxtyping
import numpy as np
import pytest


@pytest.fixture
def checked(request):
    """A second copy of the package, every function of which is checked when called.

    Of the modules that a test needs: each is read and made again.
    """
    if request.config.getoption("jaxtyping_packages"):
        pytest.skip("the first copy is checked, in all tests")

    def of_package():
        return [name for name in sys.modules if name.partition(".")[0] == "budgetjax"]

    before = {name: sys.modules.pop(name) for name in of_package()}
    with jaxtyping.install_import_hook("budgetjax", "beartype.beartype"):
        yield importlib.import_module("budgetjax")
    for name in of_package():
        del sys.modules[name]
    sys.modules.update(before)


@pytest.mark.slow
def test_every_module_can_be_checked(checked):
    """And shapes of all functions are written as the checker reads them."""
    for module in pkgutil.walk_packages(checked.__path__, "budgetjax."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def test_shapes_are_as_written(checked):
    bj = checked
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 3)).astype(np.float32)
    y = np.where(X[:, 0] > 0, 1, -1).astype(np.int32)
    state = bj.Pegasos().init(bj.RBF(0.5), num_features=3, budget=10)
    state, scores = bj.run(state, X, y)
    assert scores.shape == (60,)
    assert bj.predict(bj.refit(state, X, y), X).shape == (60,)
    solution = bj.solve(bj.SMO(bj.RBF(0.5)), X, y)
    assert bj.predict(solution.model, X).shape == (60,)
    second = bj.AROW().init(bj.RBF(0.5), num_features=3, budget=10)
    model = bj.fit_stream(second, [(X, y)])
    assert model.predict(X).shape == (60,)
    # The checker is on: a text is no array.
    with pytest.raises(jaxtyping.TypeCheckError, match="'length'"):
        bj._rows.pad_rows(X, "five")

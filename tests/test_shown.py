"""What is printed of states, models and tables, and under `help`."""

import inspect
import pydoc

import jax
import numpy as np
import pytest

import budgetjax as bj
from budgetjax.online import registry
from budgetjax.solvers.registry import by_name as solvers_by_name


def test_a_state_is_printed_in_one_line():
    kernel = bj.Mapped(bj.RBF(0.123456789), np.ones((784, 3), np.float32))
    state = bj.SGD().init(
        kernel, num_features=784, budget=100, maintenance=bj.Project(), average=True
    )
    text = repr(state)
    assert text.startswith(
        "State(counts=Counts(seen=0, mistakes=0, updates=0), "
        "learner=SGD(loss=hinge, learning_rate=1, "
        "regularization=0), kernel=Mapped(kernel=RBF(gamma=0.123457, exact=False), "
        "matrix=float32[784, 3], mapped_vectors=False), expansion=Expansion(vectors="
        "float32[101, 784], "
    )
    assert "Array(" not in text
    assert "\n" not in text
    model = bj.TableModel(
        state, classes=np.array(["a", "b"]), feature_names=tuple("x" * 784)
    )
    assert repr(model).startswith(f"TableModel(model={text}, scaling=None, ")
    assert "classes=['a', 'b'], feature_names=('x', 'x', 'x', ... 784 in all)" in repr(
        model
    )


def test_traced_and_stacked_values_have_shapes():
    def init(gamma):
        return bj.Perceptron().init(
            bj.RBF(gamma), num_features=2, budget=3, maintenance=bj.RemoveOldest()
        )

    texts = []
    jax.eval_shape(lambda gamma: texts.append(repr(init(gamma))), 1.0)
    assert "RBF(gamma=float32[], exact=False)" in texts[0]
    states = jax.vmap(init)(np.ones(2, np.float32))
    assert "vectors=float32[2, 4, 2]" in repr(states)


def test_a_table_in_a_notebook():
    table = bj.Table(("<gamma>", "error"), ((0.1, 0.25), (1.0, 0.123456)))
    assert table._repr_html_() == (
        "<table><tr><th>&lt;gamma&gt;</th><th>error</th></tr>"
        "<tr><td>0.1</td><td>0.25</td></tr><tr><td>1</td><td>0.1235</td></tr></table>"
    )


def test_a_learner_is_printed_as_it_is_made():
    learner = bj.Forgetron(rule="fixed", phi=0.9)
    assert repr(learner) == "Forgetron(rule='fixed', phi=0.9, radius=None)"
    state = learner.init(bj.RBF(1.0), num_features=2, budget=3)
    assert repr(state.learner) == repr(learner)


@pytest.mark.parametrize("kind", registry.LEARNERS, ids=lambda kind: kind.__name__)
def test_help_and_signature_are_about_the_learner(kind):
    """An editor shows the hyperparameters with their defaults."""
    parameters = inspect.signature(kind).parameters
    defaults = {name: one.default for name, one in parameters.items()}
    assert defaults == kind().get_params()
    text = pydoc.render_doc(kind, renderer=pydoc.plaintext)
    about, methods = text.split("Method resolution order:")
    for name in (f"{kind.__name__}(", *defaults, "Cost:", "Example:", "Differences"):
        assert name in about
    assert "num_features: d, the length of an example." in methods


@pytest.mark.parametrize("name", solvers_by_name())
def test_help_is_about_the_solver(name):
    record = getattr(bj, name)
    text = pydoc.render_doc(record, renderer=pydoc.plaintext)
    assert f"{name}.init(" in text
    assert "Example:" in text
    assert "builtins.tuple" not in text
    # The class keeps its own.
    assert "Attributes:" in type(record).__doc__
    assert repr(record) == f"{type(record).__name__}({name!r})"

"""What is printed of states, models and tables, and under `help`."""

import inspect
import pydoc

import jax
import numpy as np
import pytest

import budgetjax as bj
from budgetjax import registry


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


def test_a_solver_is_printed_as_it_is_made():
    solver = bj.BudgetSVM(bj.RBF(0.5), bj.norms.OneInfinity(20), penalty=2.5)
    assert repr(solver) == (
        "BudgetSVM(tolerance=0.001, seed=0, kernel=RBF(gamma=0.5, exact=False), "
        "norm=OneInfinity(budget=20), penalty=2.5)"
    )
    X = np.array([[0.0], [1.0]])
    bound = bj.solve(solver, X, np.array([-1, 1]), max_steps=1).state.solver
    assert repr(bound) == repr(solver)


@pytest.mark.parametrize("kind", registry.SOLVERS, ids=lambda kind: kind.__name__)
def test_help_and_signature_are_about_the_solver(kind):
    parameters = inspect.signature(kind).parameters
    text = pydoc.render_doc(kind, renderer=pydoc.plaintext)
    about, methods = text.split("Method resolution order:")
    for name in (f"{kind.__name__}(", *parameters, "O(", "Example:"):
        assert name in about
    assert "y: labels, -1 and +1, both present, shape `(n,)`." in methods

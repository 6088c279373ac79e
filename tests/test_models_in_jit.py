"""Every kind of model predicts in a traced program what it predicts outside."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import first_quick
from small_models import network

import budgetjax as bj
from budgetjax.estimators import (
    BudgetedKernelClassifier,
    BudgetedKernelRegressor,
    BudgetedOneClass,
    MPUClassifier,
    SMOClassifier,
)
from budgetjax.refitting import calibration
from budgetjax.tables.scaling import Scaling

pytestmark = pytest.mark.usefixtures("few_passes")

random = np.random.default_rng(0)
X = random.normal(size=(120, 3)).astype(np.float32)
SIGNS = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
CLASSES = (np.argmax(np.abs(X), axis=1)).astype(int)
# Far from 0 and of a unit of their own, so that a lost intercept or unit shows.
NUMBERS = 5000 + 70 * np.sin(X[:, 0]) + 10 * X[:, 1]
PERCEPTRON = bj.Perceptron()
FIXED = {"budget": 20, "gamma": 0.5, "penalty": 1.0, "random_state": 0}


def state(learner=PERCEPTRON, y=SIGNS, **more):
    empty = learner.init(bj.RBF(0.5), num_features=3, budget=20, **more)
    return bj.run(empty, X, y)[0]


def stream(**more):
    width = 12 if "encode" in more else 3
    empty = bj.Perceptron().init(bj.RBF(0.5), num_features=width, budget=20)
    labels = np.where(SIGNS > 0, 7, 3)
    return bj.fit_stream(empty, [(3 * X + 40, labels)], classes=[3, 7], **more)


def encoded(y=NUMBERS):
    # A learned map of codes, which is folded into the encoding.
    fitted = BudgetedKernelRegressor(20, penalty=1.0, encode=4, random_state=0)
    return fitted.fit(X, y).model_


def exponentials():
    fitted = BudgetedKernelRegressor(**FIXED, loss="poisson")
    return fitted.fit(X, np.exp(3 + X[:, 0])).model_


def quantiles(several=True):
    levels = [0.2, 0.8] if several else 0.2
    return BudgetedKernelRegressor(**FIXED, quantile=levels).fit(X, NUMBERS).model_


def outputs():
    y = np.stack([NUMBERS, 0.01 * X[:, 2]], axis=1)
    return BudgetedKernelRegressor(**FIXED).fit(X, y).model_


MODELS = {
    "units": lambda: bj.TableModel(
        state(bj.SGD(), NUMBERS / 5000, num_classes=None), intercept=40.0, unit=70.0
    ),
    "state": state,
    "state of classes": lambda: state(y=CLASSES, num_classes=3),
    "state of Fourier features": lambda: state(bj.Fourier()),
    "logistic state": lambda: state(bj.SGD(loss=bj.losses.logistic)),
    "average": lambda: bj.average_iterates(state(average=True)),
    "refit": lambda: bj.refit(state(), X, SIGNS, calibrate=True),
    "compressed": lambda: bj.compress(state(), budget=5),
    "solution": lambda: bj.solve(bj.SMO(bj.RBF(0.5)), X, SIGNS),
    "kernel model": lambda: bj.solve(bj.SMO(bj.RBF(0.5)), X, SIGNS).model,
    "linear model": lambda: bj.solve(bj.DCD(), X, SIGNS).model,
    "labels of data": lambda: bj.TableModel(
        state(), classes=np.array([3, 7]), intercept=0.3, calibration=2.0
    ),
    "standardised rows": lambda: bj.TableModel(
        state(), Scaling.empty(3).updated(3 * X + 40)
    ),
    "encoded rows": lambda: stream(encode=bj.encoding.fit(3 * X + 40, 4)),
    "regressor": lambda: BudgetedKernelRegressor(**FIXED).fit(X, NUMBERS).model_,
    "regressor of codes": encoded,
    "regressor of outputs": outputs,
    "regressor of logarithms": exponentials,
    "quantile": lambda: quantiles(several=False),
    "quantiles": quantiles,
    "classifier": lambda: BudgetedKernelClassifier(**FIXED).fit(X, CLASSES).model_,
    "classifier of booleans": lambda: (
        BudgetedKernelClassifier(**FIXED).fit(X, SIGNS > 0).model_
    ),
    # An encoding that is an argument has the digits of float32 of its centre; see
    # `encoding.encode`.
    "classifier far from 0": lambda: (
        BudgetedKernelClassifier(**FIXED, encode=False)
        .fit(X + np.float32(1000), CLASSES)
        .model_
    ),
    "one class": lambda: BudgetedOneClass(20, gamma=0.5, random_state=0).fit(X).model_,
    "one class per solver": lambda: SMOClassifier(gamma=0.5).fit(X, CLASSES).model_,
    "linear ones": lambda: MPUClassifier().fit(X, CLASSES).model_,
}
MODELS |= {
    "network": lambda: network(features=3),
    "labels of a network": lambda: bj.TableModel(
        network(features=3), classes=np.array([3, 5, 9]), intercept=0.1, unit=2.0
    ),
    "calibrated network": lambda: bj.calibrate(network(1, 3), X, SIGNS),
}
OFFSETS = {"standardised rows": 40, "encoded rows": 40}


@functools.cache
def made(name):
    """A model, and rows as it has learned them."""
    model = MODELS[name]()
    rows = 3 * X + OFFSETS.get(name, 0) if name in OFFSETS else X
    rows = rows + np.float32(1000) if "far" in name else rows
    rows = rows[:10].astype(np.float32)
    if name == "encoded rows":
        rows[2, 1] = np.nan
    return model, rows


def functions(model):
    yield bj.predict
    yield bj.decision_function
    if not model.is_regressor and calibration.factor_of(model) is not None:
        yield bj.probabilities


def traced(function, model, rows):
    """The results of all ways into a program, by their names."""
    constant = jnp.asarray(rows)

    def closed(rows):
        return function(model, rows)

    yield "closed over", jax.jit(closed)(rows)
    yield "all closed over", jax.jit(lambda: function(model, rows))()
    yield "all of JAX closed over", jax.jit(lambda: function(model, constant))()
    yield "by row", jax.vmap(lambda row: closed(row[None])[0])(rows)
    (many,) = jax.export.symbolic_shape("rows")
    shape = jax.ShapeDtypeStruct((many, 3), jnp.float32)
    yield "exported", jax.export.export(jax.jit(closed))(shape).call(rows)
    single = bj.TableModel.of(model)
    if isinstance(single.scaling, Scaling):
        with pytest.raises(ValueError, match="scaling must have values where a model"):
            jax.jit(function)(model, rows)
        return
    yield "an argument", jax.jit(function)(model, rows)
    stacked = jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * 2), model)
    each = jax.vmap(lambda model: function(model, rows))(stacked)
    yield "stacked", each[1]


@pytest.mark.parametrize("name", first_quick(MODELS))
def test_a_model_predicts_in_a_program_what_it_predicts_outside(name, as_installed):
    model, rows = made(name)
    for function in functions(model):
        expected = np.asarray(function(model, rows))
        # float32 rounds sums of coefficients, and the host adds its terms in float64.
        size = np.max(np.abs(expected.astype(float)))
        for way, found in traced(function, model, rows):
            assert np.shape(found) == expected.shape, way
            np.testing.assert_allclose(
                *(np.asarray(found, float), expected.astype(float)),
                rtol=0,
                atol=1e-5 * size,
                err_msg=f"{function.__name__}, {way}",
            )


def test_labels_of_text_are_refused_in_a_program_and_scores_are_not(as_installed):
    model = bj.TableModel(state(), classes=np.array(["no", "yes"]), calibration=2.0)
    for function in (bj.decision_function, bj.probabilities):
        found = jax.jit(lambda rows, function=function: function(model, rows))(X)
        np.testing.assert_allclose(found, function(model, X), atol=1e-5)
    large = bj.TableModel(state(), classes=np.array([2**40, 2**40 + 1]))
    for one in (model, large):
        with pytest.raises(ValueError, match="must be numbers that JAX holds"):
            jax.jit(lambda rows, one=one: bj.predict(one, rows))(X)

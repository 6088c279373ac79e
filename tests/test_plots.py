"""Pictures: what is drawn is what the models and numbers are."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

import budgetjax as bj
from budgetjax import plots

pytestmark = pytest.mark.usefixtures("plain_loops")

mpl.use("Agg")


@pytest.fixture
def axes():
    return Figure().subplots()


def classifier(features=2, vectors=6, num_classes=3, **labelled):
    """A model of random vectors and coefficients."""
    random = np.random.default_rng(0)
    shape = (vectors, num_classes) if num_classes > 2 else (vectors,)
    return bj.TableModel(
        bj.KernelModel(
            bj.RBF(0.5),
            random.normal(size=(vectors, features)).astype(np.float32),
            random.normal(size=shape).astype(np.float32),
            np.zeros(shape[1:], np.float32),
        ),
        **labelled,
    )


@pytest.mark.parametrize("kind", ["binary", "classes", "values", "outputs"])
def test_progressive_error_against_a_loop(kind):
    random = np.random.default_rng(1)
    scores = random.normal(size=3000 if kind in ("binary", "values") else (3000, 4))
    y = {
        "binary": random.choice([-1, 1], 3000),
        "classes": random.integers(0, 4, 3000),
        "values": random.normal(size=3000),
        "outputs": random.normal(size=(3000, 4)),
    }[kind]
    regression = kind in ("values", "outputs")
    rows, errors = plots.progressive_error(scores, y, regression=regression)
    assert (rows[0], rows[-1]) == (20, 3000)
    assert len(rows) <= 1000
    assert np.all(np.diff(rows) > 0)
    for t, error in zip(rows[::50].tolist(), errors[::50].tolist(), strict=True):
        total = 0.0
        for score, target in zip(scores[:t], y[:t], strict=True):
            if regression:
                total += np.mean((score - target) ** 2)
            elif kind == "binary":
                total += score * target <= 0
            else:
                total += score[target] <= max(np.delete(score, target))
        assert error == pytest.approx(total / t)


def test_progressive_error_counts_ties_as_the_learners_do():
    state = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=5)
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.where(X[:, 0] > 0, 1, -1)
    state, scores = bj.run(state, X, y)
    rows, errors = plots.progressive_error(scores, y)
    assert round(rows[-1] * errors[-1]) == int(state.num_mistakes)


def test_learning_curves(axes):
    curves = {"one": ([10, 20], [0.5, 0.25]), "two": ([10, 20], [0.4, 0.3])}
    plots.learning_curves(curves, axes=axes)
    lines = axes.get_lines()
    np.testing.assert_allclose(lines[0].get_ydata(), [50, 25])
    assert lines[0].get_linestyle() != lines[1].get_linestyle()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [*curves]
    single = Figure().subplots()
    plots.learning_curves({"": ([5, 9], [4.0, 2.25])}, regression=True, axes=single)
    np.testing.assert_allclose(single.get_lines()[0].get_ydata(), [2, 1.5])
    assert single.texts[0].get_text() == "1.5"


def test_decision_regions(axes):
    words = np.array(["a", "b", "c"])
    model = classifier(classes=words, feature_names=("east", "north"))
    X = np.random.default_rng(2).normal(size=(9, 2))
    plots.decision_regions(model, X, model.predict(X), axes=axes)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("east", "north")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [*words]
    shown, dots = axes.collections[-2:]
    np.testing.assert_allclose(shown.get_offsets(), X)
    np.testing.assert_allclose(dots.get_offsets(), model.model.vectors)
    # The area, less that of the smallest, is as the size of the coefficients.
    sizes = np.abs(model.model.coefficients).sum(axis=1)
    areas = dots.get_sizes() - 4
    np.testing.assert_allclose(areas / areas.max(), sizes / sizes.max(), rtol=1e-5)


def test_regions_of_models_without_support_vectors(axes):
    """A linear model, and one model per class."""
    linear = bj.LinearModel(np.array([1, 1], np.float32), np.float32(0))
    plots.decision_regions(linear, np.eye(2), axes=axes)
    _, second, _ = axes.collections[:3]
    # The line that separates the classes.
    ((points,),) = [path.to_polygons(closed_only=False) for path in second.get_paths()]
    np.testing.assert_allclose(points.sum(axis=1), 0, atol=1e-2)
    several = bj.TableModel((linear, linear, linear), classes=np.arange(3))
    plots.decision_regions(several, np.eye(2), axes=Figure().subplots())


def table():
    grid = bj.grid(gamma=[1.0, 2.0], budget=[10, 20, 30], seed=[0, 1])
    gamma, budget, seed = grid.columns
    return grid.table(error=gamma + budget / 10 - seed / 100)


def test_sweep_of_two_hyperparameters(axes):
    plots.sweep(table(), "budget", "gamma", value="error", axes=axes)
    shown = axes.images[0].get_array()
    np.testing.assert_allclose(shown, [[1.99, 2.99, 3.99], [2.99, 3.99, 4.99]])
    assert [text.get_text() for text in axes.texts][:3] == ["1.99", "2.99", "3.99"]
    assert axes.patches[0].get_xy() == (-0.5, -0.5)


def test_sweep_of_one_hyperparameter(axes):
    plots.sweep(table(), "budget", value="error", axes=axes)
    line, best = axes.get_lines()
    np.testing.assert_allclose(line.get_xydata(), [[10, 1.99], [20, 2.99], [30, 3.99]])
    np.testing.assert_allclose(best.get_xydata(), [[10, 1.99]])


def test_accuracy_by_budget(axes):
    curves = {"a": ([10, 40], [[0.5, 0.7], [0.6, 0.9]]), "b": ([10, 40], [0.4, 0.5])}
    plots.accuracy_by_budget(curves, reference={"whole": 0.95}, axes=axes)
    first, second, whole = axes.get_lines()
    np.testing.assert_allclose(first.get_ydata(), [55, 80])
    np.testing.assert_allclose(second.get_ydata(), [40, 50])
    np.testing.assert_allclose(whole.get_ydata(), [95, 95])
    (band,) = axes.collections
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(90)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["10", "40"]


def test_reliability_against_scikit_learn(axes):
    from sklearn.calibration import calibration_curve

    random = np.random.default_rng(3)
    chances = random.dirichlet(np.ones(3), 200)
    classes = np.array(["a", "b", "c"])
    y = random.choice(classes, 200)
    curve = plots.reliability_curve(chances, y, classes, bins=8)
    right = classes[chances.argmax(axis=1)] == y
    confident = chances.max(axis=1)
    share, confidence = calibration_curve(
        right, confident, n_bins=8, strategy="quantile"
    )
    np.testing.assert_allclose(curve, (confidence, share))
    plots.reliability({"model": curve}, axes=axes)
    np.testing.assert_allclose(axes.get_lines()[1].get_xdata(), confidence)


def test_band(axes):
    X = np.linspace(0, 6, 200)[:, None]
    state = bj.KRLST().init(
        bj.RBF(1.0), num_features=1, budget=20, num_classes=None, num_outputs=1
    )
    state, _ = bj.run(state, X, np.sin(X[:, 0]))
    drawn = plots.band(state, X, np.sin(X[:, 0]), level=0.8, axes=axes)
    assert drawn is axes
    dots, line = axes.lines
    np.testing.assert_array_equal(dots.get_xdata(), X[:, 0])
    np.testing.assert_allclose(
        line.get_ydata(), bj.predict(state, line.get_xdata()[:, None])
    )
    (band,) = axes.collections
    ends = np.asarray(bj.predict_interval(state, X[:1], 0.8))[0]
    corners = band.get_paths()[0].vertices
    at_start = corners[corners[:, 0] == 0, 1]
    np.testing.assert_allclose([at_start.min(), at_start.max()], ends, rtol=1e-4)
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["80 % of targets", "predicted"]


def test_support_images(axes):
    model = classifier(features=6, vectors=5)
    plots.support_images(model, (2, 3), axes=axes)
    mosaic = axes.images[0].get_array()
    coefficients, vectors = (
        np.asarray(part) for part in (model.model.coefficients, model.model.vectors)
    )
    own = coefficients.argmax(axis=1)
    for code in range(3):
        members = np.flatnonzero(own == code)
        members = members[np.argsort(-coefficients[members, code])]
        for j, member in enumerate(members):
            image = mosaic[3 * code : 3 * code + 2, 4 * j : 4 * j + 3]
            np.testing.assert_array_equal(image, vectors[member].reshape(2, 3))
        assert np.ma.is_masked(mosaic[3 * code, 4 * len(members)])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["0", "1", "2"]


def test_support_images_of_two_classes(axes):
    model = classifier(features=4, vectors=30, num_classes=2)
    plots.support_images(model, (2, 2), axes=axes)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["-1", "1"]
    positive = int((np.asarray(model.model.coefficients) > 0).sum())
    first, second = axes.get_yticks()
    # As many lines as the images of -1 take, of 8 each.
    assert second - first == 3 * -(-(30 - positive) // 8)


def wrong(call, message):
    return pytest.param(call, message, id=message[:30])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        wrong(
            lambda: plots.progressive_error([1.0], [1, -1]),
            "progressive_error: scores and y must have the same number of rows, at "
            "least 1, got 1 and 2",
        ),
        wrong(
            lambda: plots.decision_regions(classifier(features=3)),
            "decision_regions: model must have 2 features, got 3",
        ),
        wrong(
            lambda: plots.decision_regions(bj.LinearModel(np.ones(2), np.zeros(()))),
            "decision_regions: X must say where to draw for a model without support "
            "vectors, got None",
        ),
        wrong(
            lambda: plots.sweep(table(), "size", value="error"),
            "sweep: table must have a column 'size', got gamma, budget, seed, error",
        ),
        wrong(
            lambda: plots.reliability_curve(np.ones((3, 2)), [0, 1], [0, 1], 1),
            r"reliability_curve: probabilities must have shape \(2, 2\), one row per "
            r"label and one column per class, and at least 1 rows, one per bin, "
            r"got \(3, 2\)",
        ),
        wrong(
            lambda: plots.band(classifier(features=2), np.ones((3, 2))),
            "band: model must have one feature and one output, got 2 features",
        ),
        wrong(
            lambda: plots.support_images(classifier(features=6), (2, 4)),
            "support_images: shape must have one pixel per feature, 6 of them, got "
            "2 x 4",
        ),
    ],
)
def test_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_estimator_is_drawn_as_its_model(axes):
    class Fitted:
        model_ = classifier()

    plots.decision_regions(Fitted(), axes=axes)
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == [str(one) for one in Fitted.model_.class_labels]


@pytest.mark.parametrize("kind", ["values", "binary", "classes", "encoded"])
def test_features_are_mean_scores_of_varied_rows(kind, axes):
    X = np.random.default_rng(3).normal(size=(40, 3))
    if kind == "encoded":
        codes = bj.encoding.fit(X, 4)
        model = classifier(codes.num_codes, num_classes=2, scaling=codes)
    else:
        model = classifier(3, num_classes=3 if kind == "classes" else 2)
    if kind == "values":
        inside = model.model._replace(link=bj.losses.IDENTITY)
        model = model._replace(model=inside, unit=2.0, intercept=5.0)
    model = model._replace(feature_names=("one", "two", "three"))
    label = {"label": 1} if kind == "classes" else {}
    values, scores = plots.partial_dependence(model, X, "two", **label)
    assert (
        values.tolist()
        == np.unique(np.quantile(X[:, 1], np.arange(33) / 32, method="lower")).tolist()
    )
    for value, score in zip(values[::8], scores[::8], strict=True):
        varied = X.copy()
        varied[:, 1] = value
        found = model.decision_function(varied)
        found = found[:, 1] if kind == "classes" else found
        assert score == pytest.approx(np.mean(found), abs=1e-5)
    plots.features(model, X, [1], axes=axes, **label)
    np.testing.assert_array_equal(axes.get_lines()[0].get_ydata(), scores)
    np.testing.assert_array_equal(axes.get_lines()[0].get_xdata(), values)
    assert axes.get_xlabel() == "two"
    assert axes.get_ylabel() == ("mean value" if kind == "values" else "mean score")
    both = plots.features(model, X, axes=Figure().subplots(), **label)
    assert len(both.get_lines()) == 3
    names = [text.get_text() for text in both.get_legend().get_texts()]
    if kind == "encoded":
        shares = bj.encoding.importances(codes, X)
        assert sorted(names) == sorted(
            f"{name}, {100 * share:.0f} %"
            for name, share in zip(model.feature_names, shares, strict=True)
        )
    else:
        assert {*names} == {"one", "two", "three"}


def test_features_of_few_or_missing_values(axes):
    X = np.random.default_rng(3).integers(0, 3, (30, 2)).astype(float)
    X[:5, 0] = np.nan
    codes = bj.encoding.fit(X, 4)
    model = classifier(codes.num_codes, num_classes=2, scaling=codes)
    plots.features(model, X, [0], axes=axes)
    assert axes.get_lines()[0].get_xdata().tolist() == [0, 1, 2]
    says = "^features: column must be a number below 2, as columns have no names, got 2"
    with pytest.raises(ValueError, match=says):
        plots.features(model, X, [2])
    with pytest.raises(ValueError, match=r"^partial_dependence: column must .* 'a'"):
        plots.partial_dependence(model, X, "a")
    with pytest.raises(ValueError, match="X must have values in column 0, got none"):
        plots.partial_dependence(model, np.full((4, 2), np.nan), 0)
    with pytest.raises(ValueError, match="label must be one of 0, 1, 2, got 7"):
        plots.partial_dependence(classifier(2), X[5:], 0, label=7)


def test_regions_of_an_encoded_model_have_no_vectors(axes):
    X = np.random.default_rng(3).normal(size=(40, 2))
    codes = bj.encoding.fit(X, 4)
    model = classifier(codes.num_codes, num_classes=2, scaling=codes)
    plots.decision_regions(model, axes=axes)
    low, high = axes.get_xlim()
    assert low <= codes.centre[0] - 2.5 * codes.unit[0]
    assert high >= codes.centre[0] + 2.5 * codes.unit[0]
    with pytest.raises(ValueError, match="rows as support vectors, got vectors of 8"):
        plots.support_images(model, (1, 2))

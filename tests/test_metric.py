"""A learned metric: its objective, what it gains, and what it refuses."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import budgetjax as bj
from budgetjax.estimators import BudgetedKernelClassifier
from budgetjax.refitting import adam, held_out, metric
from budgetjax.refitting.newton import Basis
from budgetjax.refitting.problem import Problem
from budgetjax.refitting.training_data import Block
from budgetjax.tables.start_map import SHARE, Lines

pytestmark = pytest.mark.usefixtures("plain_loops", "few_passes")
# As users have them.
PASSES = metric.PASSES

# More than a block, so that arrays and batches are the same blocks.
N = 4200


@functools.cache
def stream(n=4500, classes=3):
    """Two features that tell the classes, and six of noise."""
    random = np.random.default_rng(0)
    X = random.normal(size=(n, 8)).astype(np.float32)
    angle = np.arctan2(X[:, 0], X[:, 1]) + np.hypot(X[:, 0], X[:, 1])
    y = np.floor(classes * (angle % (2 * np.pi)) / (2 * np.pi)).astype(np.int32)
    return X, y if classes > 2 else 2 * y - 1


@functools.cache
def learner(classes=3):
    X, y = stream(classes=classes)
    given = {"num_features": 8, "budget": 20, "num_classes": classes}
    state = bj.Perceptron().init(bj.RBF(0.1), **given)
    return bj.run(state, X[:N], y[:N])[0]


@functools.cache
def refitted(learn_metric, classes=3):
    """The learner with such a metric, or with none."""
    X, y = stream(classes=classes)
    return bj.refit(learner(classes), X[:N], y[:N], learn_metric=learn_metric)


@pytest.fixture
def few_steps(monkeypatch):
    """Half of the steps, for what needs no good metric."""
    monkeypatch.setattr(metric, "FEWEST_STEPS", 0)


def accuracy(state, classes=3):
    X, y = stream(classes=classes)
    return np.mean(np.asarray(bj.predict(state, X[N:])) == y[N:])


def objective_of(M, Z, W, X, targets, weights, penalty, prior, rows):
    """The objective, and the root of the Gram matrix and the norm in it."""

    def gram(X, Z):
        return np.exp(-0.3 * np.sum((X[:, None] - Z[None]) ** 2, axis=2))

    X = X * M if M.ndim == 1 else X @ M
    Z = Z if Z.shape[1] < len(M) else Z * M if M.ndim == 1 else Z @ M
    root = np.linalg.inv(np.linalg.cholesky(gram(Z, Z) + np.eye(10)))
    coefficients = root @ W.T
    scores = gram(X, Z) @ coefficients
    logs = scores - np.log(np.sum(np.exp(scores), axis=1, keepdims=True))
    loss = -np.mean(weights * ((0.98 * (targets > 0) + 0.02 / 3) * logs).sum(axis=1))
    norm = np.sum(coefficients * (gram(Z, Z) @ coefficients))
    return loss + (norm / penalty + prior) / (2 * rows), root, norm


# Three columns: one of three bins, which may miss, one of categories, one of a bin.
LINES = Lines.of(
    np.array([0, 0, 0, 0, 1, 1, 1, 2]),
    np.array([-1, 0, 0.5, np.nan, 4, 5, 7, 0]),
    np.array([0, 0.5, 2.5, np.nan, 4, 5, 7, 1]),
)


def changed_map(random, first, change, lines):
    """A map after changes at random and their prior, and both for a program."""
    rates, priors = (
        random.uniform(0.1, 0.5, len(first)),
        random.uniform(1, 3, len(first)),
    )
    moves = (rates * change.T).T
    M, prior = first + moves, np.sum(priors * moves.T**2)
    scales, parts, both = None, None, 0
    if lines is not None:
        # Of 32 lines and the 8 codes.
        parts = random.normal(size=(2, 32))
        both = np.concatenate([parts[0], parts[1, lines.column]])
        prior += np.sum((metric.SCALE_RATE * parts) ** 2)
    if first.ndim == 2:
        scales = random.normal(size=len(first))
        M = np.exp(metric.SCALE_RATE * (scales + both))[:, None] * M
        prior += np.sum((metric.SCALE_RATE * scales) ** 2)
    if lines is not None:
        M = lines.matrix() @ M
    if first.ndim == 2:
        rates, priors = rates[None], priors[None]
    start = metric.Start(*jax.tree.map(jnp.asarray, (first.T, rates, priors, lines)))
    return M, prior, start, metric.Change(change.T, scales, parts)


@pytest.mark.parametrize(
    ("shape", "images", "lines"),
    [
        ((8,), False, None),
        ((8, 3), False, None),
        ((8, 3), True, None),
        ((40, 3), True, LINES),
    ],
)
def test_the_objective_is_that_of_numpy(shape, images, lines, double):
    random = np.random.default_rng(1)
    X, y = stream(64)
    Z, X, W = X[:10].astype(float), X[10:].astype(float), random.normal(size=(3, 10))
    first, change = random.normal(size=shape), random.normal(size=shape)
    weights, penalty, rows = random.uniform(0.5, 2, 54), 4.0, np.float64(54)
    targets = np.where(y[10:, None] == np.arange(3), 1.0, -1.0)
    M, prior, start, change = changed_map(random, first, change, lines)
    scale = 3.0
    Z = Z @ M if images else Z
    expected, root, norm = objective_of(
        M, Z, W, X, targets, weights, penalty, scale**2 * prior, rows
    )

    state = bj.Perceptron().init(
        bj.RBF(0.3),
        num_features=X.shape[1],
        budget=10,
        num_classes=3,
        dtype=jnp.float64,
    )
    # The origin is subtracted from rows; vectors may be images.
    expansion = state.expansion._replace(
        vectors=jnp.asarray(np.vstack([Z, Z[:1]])),
        squares=jnp.asarray(np.sum(np.vstack([Z, Z[:1]]) ** 2, axis=1)),
        ages=state.expansion.ages.at[:10].set(jnp.arange(10, dtype=jnp.int32)),
    )
    basis = Basis(bj.RBF(0.3), expansion, jnp.asarray(np.vstack([root, 0 * root[:1]])))
    units = tuple(map(np.float64, (0.5, 1, scale)))
    # A matrix and its change are transposed.
    given = (expansion.vectors / units[0], W, change)
    parameters = jax.tree.map(jnp.asarray, given)
    rest = rows, np.float64(penalty), None, np.float64(0.02)
    fixed = (basis, units, start, *rest)
    batch = (
        jnp.int32(3),
        jnp.asarray(X),
        jnp.asarray(targets),
        jnp.asarray(weights),
    )
    value, slopes = jax.jit(jax.value_and_grad(metric._objective))(
        parameters, fixed, *batch
    )
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    # A batch of fewer examples than vectors has the same norm in the mean.
    parts = jax.jit(metric._norm_and_scores)
    alone = [parts(parameters, fixed, batch[1][:4], jnp.int32(i))[0] for i in range(11)]
    np.testing.assert_allclose(np.mean(alone), norm, rtol=1e-10)
    # And its slope along a direction is that of differences.
    along = jax.tree.map(lambda p: jnp.asarray(random.normal(size=p.shape)), parameters)

    def at(step):
        after = jax.tree.map(lambda p, way: p + step * way, parameters, along)
        return jax.jit(metric._objective)(after, fixed, *batch)

    slope = sum(jax.tree.leaves(jax.tree.map(jnp.vdot, slopes, along)))
    np.testing.assert_allclose((at(1e-5) - at(-1e-5)) / 2e-5, slope, rtol=1e-6)


def test_slopes_of_codes_are_products_that_xla_computes_quickly():
    """Few features by many codes, as `X^T G` takes seven times as long as `G^T X`."""
    n, codes, rank = 256, 1024, 32
    X, change = np.ones((n, codes), np.float32), np.ones((rank, codes), np.float32)
    rates = np.ones((1, codes), np.float32)
    start = metric.Start(change, rates, rates)

    def slopes(change, X):
        def total(change):
            images = metric.map_rows(X, start.map(metric.Change(change, None, None)))
            return jnp.sum(jnp.exp(images))

        return jax.grad(total)(change)

    text = jax.jit(slopes).lower(change, X).compile().as_text()
    shapes = re.findall(r" = f32\[(\d+),(\d+)\]\S* dot\(", text)
    assert {*shapes} == {(str(n), str(rank)), (str(rank), str(codes))}


def test_features_of_noise_lose_their_weight():
    X, y = stream()
    better = refitted(True)
    assert accuracy(better) > accuracy(refitted(False)) + 0.05
    matrix = np.asarray(better.kernel.matrix)
    lengths = np.linalg.norm(matrix, axis=1)
    assert lengths[:2].min() > lengths[2:].max()
    # Batches are read as the same blocks, and the state goes on learning.
    batches = [(X[:1000], y[:1000]), (X[1000:N], y[1000:N])]
    same = bj.refit(learner(), batches, learn_metric=True)
    np.testing.assert_array_equal(bj.predict(same, X), bj.predict(better, X))
    later, _ = bj.run(better, X[N:], y[N:])
    assert int(later.num_seen) == 4500


def test_a_metric_of_few_numbers(tmp_path, few_steps):
    X, y = stream(classes=2)
    state = refitted("diagonal", 2)
    assert state.kernel.matrix.shape == (8,)
    assert accuracy(state, 2) > accuracy(learner(2), 2) + 0.05
    # Once more goes on from the metric that there is.
    again = bj.refit(state, X[:N], y[:N], learn_metric=True)
    assert again.kernel.matrix.shape == state.kernel.matrix.shape
    bj.save(tmp_path / "model", again)
    loaded = bj.load(tmp_path / "model")
    np.testing.assert_array_equal(bj.predict(loaded, X), bj.predict(again, X))


def some_problem(**fields):
    """A problem without its other fields."""
    return Problem(*[None] * len(Problem._fields))._replace(**fields)


def test_a_map_to_fewer_features_starts_from_principal_directions():
    X, y = stream()
    given = X[:4000] * np.arange(1, 9, dtype=np.float32)
    given[:, 5] = 3
    blocks = lambda: iter([Block(given, y[:4000, None], np.ones(4000))])  # noqa: E731
    problem = some_problem(blocks=blocks, form=2)
    first = metric.init_map(problem, bj.RBF(0.1), np.zeros((1, 8), np.float32))
    # The two features of most variance, and the mean squared distance of all.
    assert set(np.argmax(np.abs(first), axis=0)) == {7, 6}
    variances = [np.var(points, axis=0).sum() for points in (given, given @ first)]
    np.testing.assert_allclose(*variances, rtol=1e-3)
    assert refitted(3).kernel.matrix.shape == (8, 3)
    assert np.all(np.isfinite(bj.decision_function(refitted(3), X)))


def test_entries_of_lines_give_the_map():
    """Of all that do, those of the least squares, with padding or without."""
    matrix = np.random.default_rng(0).normal(size=(8, 3))
    entries = LINES.split(matrix)
    np.testing.assert_allclose(LINES.matrix() @ entries, matrix, atol=1e-12)
    np.testing.assert_allclose(LINES.join(entries.T).T, matrix, atol=1e-6)
    least = np.linalg.pinv(LINES.matrix()) @ matrix
    np.testing.assert_allclose(entries, least, atol=1e-12)
    wide, more = LINES.padded(12, np.float64), np.pad(matrix, ((0, 4), (0, 0)))
    joined = wide.join(wide.split(more).T).T
    np.testing.assert_allclose(joined, more, atol=1e-6)


def test_a_map_of_codes_starts_near_the_line():
    X = np.random.default_rng(0).normal(size=(500, 3))
    X[:, 2] = np.arange(500) % 4
    X[::7, 0] = np.nan
    codes = bj.fit_encoding(X, nominal=[2])
    plain = bj.encoding.fit(X, 0, nominal=[2])
    known = ~np.isnan(X[:, 0])
    lines = Lines.of(codes.column, codes.low, codes.high)
    rows = codes._replace(map=None).apply(X, np.float64)
    slopes = rows @ lines.matrix()[:, :3]
    # The numbers are those of the line, up to a constant; categories have none.
    numbers = plain.apply(X, np.float64)[:, [0, 2]]
    apart = (slopes[:, :2] - numbers)[known]
    np.testing.assert_allclose(np.std(apart, axis=0), 0, atol=1e-6)
    assert np.all(slopes[:, 2] == 0)
    # A missing value counts as the centre, which is 0 of the clipped numbers.
    centre = (slopes[:, 0] + codes.low[0])[~known]
    np.testing.assert_allclose(centre, 0, atol=1e-9)
    # Squared distances are those of the line, the codes' share, and the names.
    found = codes.apply(X, np.float64)
    expected = rows @ lines.matrix()
    totals = [np.var(one, axis=0).sum() for one in (found, expected)]
    np.testing.assert_allclose(*totals, rtol=1e-4)
    bins = np.sum((codes.column == 0) & (codes.low < codes.high))
    np.testing.assert_allclose(lines.share[:bins], SHARE / np.sqrt(bins))


def test_of_many_rows_fewer_are_held_out():
    """They are some of those that were held out before, so no vector is of theirs."""
    rows = np.random.default_rng(0).normal(size=(25_000, 1)).astype(np.float32)
    held = {}
    for count in (8000, len(rows)):
        X, size = rows[:count], 1000
        parts = [
            Block(*[X[i : i + size]] * 2, np.ones(size)) for i in range(0, count, size)
        ]
        problem = some_problem(blocks=functools.partial(iter, parts), seed=0)
        fold = held_out.Fold(problem, *held_out.deal(problem, 0), None, None)
        for each in (fold, fold.with_fewer(count)):
            learn, judge = (
                np.concatenate([block.X[block.weights > 0, 0] for block in read()])
                for read in (each.learn, each.held)
            )
            held[count, each is not fold] = set(judge)
            assert set(learn) | set(judge) == set(X[:, 0])
            assert len(learn) + len(judge) == count
    assert len(held[8000, False]) == 1600
    fifth, fewer = held[len(rows), False], held[len(rows), True]
    assert fewer < fifth
    assert (len(fewer), len(fifth)) == (25 * 67, 5000)


def test_a_metric_is_kept_where_it_is_better():
    X, _ = stream()
    state = learner()
    chosen = refitted("auto").kernel.matrix
    np.testing.assert_array_equal(chosen, refitted(True).kernel.matrix)
    # No mistakes are left to mend, or there are fewer examples than features.
    easy = np.where(X[:, 0] > 0, 2, 0) * (np.abs(X[:, 0]) > 1)
    for rows in (np.flatnonzero(np.abs(X[:N, 0] - 0.5) > 2), np.arange(7)):
        left = bj.refit(state, X[rows], easy[rows], learn_metric="auto")
        assert isinstance(left.kernel, bj.RBF)


def test_real_targets_and_features_far_from_0(few_steps):
    X, _ = stream()
    t = np.sin(2 * X[:, 0]).astype(np.float32)
    state = bj.SGD().init(
        bj.RBF(0.1),
        num_features=8,
        budget=20,
        num_classes=None,
        maintenance=bj.RemoveOldest(),
    )

    def predicted(away=0, unit=1):
        """Of the rows that are not learned, in units of the targets."""
        rows, targets = X + np.float32(away), unit * t[:N]
        run, _ = bj.run(state, rows[:N], targets)
        found = bj.refit(run, rows[:N], targets, loss="squared", learn_metric=True)
        return np.asarray(bj.predict(found, rows[N:])) / unit

    found = predicted()
    assert np.mean((found - t[N:]) ** 2) < 0.5 * np.var(t)
    # The unit of the targets makes no difference.
    np.testing.assert_allclose(predicted(unit=64), found, atol=1e-2)
    assert np.all(np.isfinite(predicted(away=100)))


def test_what_is_no_metric_is_refused(as_installed):
    X, y = stream()
    for given in (0, -1, 9, 1.5, "full", None, [2]):
        with pytest.raises(ValueError, match="refit: learn_metric must be True, False"):
            bj.refit(learner(), X, y, learn_metric=given)
    fourier = bj.Fourier().init(bj.RBF(0.1), num_features=8, budget=20, num_classes=3)
    with pytest.raises(ValueError, match="learn_metric must be False for Fourier"):
        bj.refit(fourier, X, y, learn_metric=True)
    with pytest.raises(ValueError, match="batches that can be read again"):
        bj.refit(learner(), iter([(X, y)]), learn_metric=True)


def test_numbers_that_say_nothing_leave_a_metric_finite(few_steps):
    X, y = stream()
    state = learner()
    broken, constant = X[:N].copy(), X[:N].copy()
    broken[7, 3] = np.nan
    with pytest.raises(ValueError, match="X must be finite, got nan in row 7, col"):
        bj.refit(state, broken, y[:N], learn_metric=True)
    constant[:, 2:] = 1
    for given, labels in ((X[:N], np.full(N, 2)), (constant, y[:N])):
        found = bj.refit(state, given, labels, learn_metric=True)
        assert np.all(np.isfinite(found.kernel.matrix))
        right = np.asarray(bj.predict(found, given)) == labels
        assert np.mean(right) > (0.6 if given is constant else 0.999)


def test_the_default_classifier_learns_a_metric_where_it_is_better(as_installed):
    X, y = stream()
    model = BudgetedKernelClassifier(20, random_state=0, encode=False)
    plain = BudgetedKernelClassifier(
        20, random_state=0, encode=False, learn_metric=False
    )
    assert not hasattr(model, "feature_importances_")
    scores = [each.fit(X[:N], y[:N]).score(X[N:], y[N:]) for each in (model, plain)]
    assert scores[0] > scores[1] + 0.05

    importances = model.feature_importances_
    assert importances.shape == (8,)
    np.testing.assert_allclose(importances.sum(), 1)
    assert importances[:2].min() > importances[2:].max()
    assert not hasattr(plain, "feature_importances_")
    with pytest.raises(AttributeError, match="fit has learned no metric"):
        plain.feature_importances_  # noqa: B018
    with pytest.raises(ValueError, match="Classifier: learn_metric must be"):
        plain.set_params(learn_metric="full").fit(X, y)


def test_a_compact_model_predicts_the_same(tmp_path):
    X, _ = stream()
    model = bj.TableModel(refitted(3), classes=np.array(["a", "b", "c"]))
    small = bj.compact(model)
    assert small.model.vectors.shape == (20, 3)
    for path, each in (("whole", model), ("small", small)):
        bj.save(tmp_path / path, each)
    sizes = [(tmp_path / path).stat().st_size for path in ("small", "whole")]
    assert sizes[0] < 0.6 * sizes[1]
    for each in (small, bj.load(tmp_path / "small"), bj.compact(small)):
        np.testing.assert_array_equal(bj.predict(each, X), bj.predict(model, X))
        np.testing.assert_allclose(
            bj.decision_function(each, X), bj.decision_function(model, X), atol=1e-4
        )
    # Without a map to fewer features the vectors stay what they are.
    assert bj.compact(learner()).vectors.shape == (20, 8)
    with pytest.raises(ValueError, match="support: model must have support vectors in"):
        bj.support(small)
    with pytest.raises(ValueError, match=r"X must have shape \(n, 8\)"):
        bj.predict(small, X[:, :3])


def test_more_rows_have_fewer_passes(monkeypatch):
    monkeypatch.setattr(metric, "PASSES", PASSES)
    rows = (1, 20_000, 40_000, 60_000, 10**6)
    fewest, most = PASSES
    counts = [metric.count_passes(n) for n in rows]
    assert counts[:2] == [most, most]
    assert most > counts[2] > counts[3] > counts[4] == fewest
    noted, run_adam = [], metric.run_adam

    def note(*given, epochs, **more):
        noted.append(epochs)
        return run_adam(*given, epochs=1, **more)

    monkeypatch.setattr(metric, "run_adam", note)
    X, y = stream()
    # Four fifths of the rows in so many steps per pass, or the fewest there are.
    for count, steps in ((N, 14), (200, metric.FEWEST_AT_ONCE)):
        for more in ({}, {"epochs": 30}):
            bj.refit(learner(), X[:count], y[:count], learn_metric=True, **more)
            wanted = metric.FEWEST_STEPS * more.get("epochs", most) / steps
            # Then half of the passes that were best, on all examples.
            assert noted == [np.ceil(wanted), 1]
            noted.clear()


def test_the_rate_rises_before_it_falls():
    """From a solution, the first steps of Adam go the same length in any direction."""
    X = np.random.default_rng(0).normal(size=(256, 4)).astype(np.float32)
    block = Block(X, X[:, :1], np.ones(256, np.float32))
    after = [np.zeros(4)]

    def judge(parameters):
        after.append(np.asarray(parameters))
        return 0.0, None

    adam.run_adam(
        lambda parameters, fixed, first, X, *_: jnp.mean(
            (parameters[None] - X - 9) ** 2
        ),
        np.zeros(4, np.float32),
        None,
        lambda: [block],
        kind=adam.Steps(256, 0.1),
        epochs=500,
        seed=0,
        report=lambda mean: None,
        judge=judge,
    )
    lengths = np.max(np.abs(np.diff(after, axis=0)), axis=1)
    np.testing.assert_allclose(lengths[:20], 0.1 * np.arange(1, 21) / 50, rtol=0.02)


def test_steps_that_fail_on_all_examples_are_undone(monkeypatch):
    X, y = stream()
    run_adam = metric.run_adam

    def fail(*arguments, judge=None, **options):
        found, passes = run_adam(*arguments, judge=judge, **options)
        if judge is None:
            found = jax.tree.map(lambda leaf: leaf + 1000, found)
        return found, passes

    monkeypatch.setattr(metric, "run_adam", fail)
    found = bj.refit(learner(), X[:N], y[:N], learn_metric=True)
    assert accuracy(found) > accuracy(refitted(True)) - 0.02

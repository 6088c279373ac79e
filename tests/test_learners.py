"""What learners and strategies promise beyond their formulas."""

import functools
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compiling import quick_to_compile
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from marks import first_quick, slow
from sklearn.cluster import MiniBatchKMeans
from sklearn.datasets import load_digits

import budgetjax as bj
from budgetjax import _checks, losses
from budgetjax.online import span

pytestmark = pytest.mark.usefixtures("plain_loops")

# Long loops.


def digits(n):
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:n]
    return (X[rows] / 16).astype(np.float32), y[rows].astype(np.int32)


def parity(n):
    X, y = digits(n)
    return X, np.where(y % 2 == 0, 1, -1).astype(np.int32)


def run(learner, X, y, **given):
    """A run over digits, by the loop that compiles soonest."""
    state = learner.init(bj.RBF(0.05), num_features=64, **given)
    return bj.run(state, X, y, block_size=1)


def wide(n):
    """Standardised rows, each twice: ijcnn1 where it is at hand, else generated."""
    folder = os.environ.get("BUDGETJAX_DATA")
    file = pathlib.Path(folder or ".") / "ijcnn1.npz"
    if folder and file.exists():
        with np.load(file) as data:
            X, y = data["X_train"].astype(np.float32), data["y_train"]
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        y = np.where(y == y.max(), 1, -1)
    else:
        random = np.random.default_rng(0)
        X = random.normal(size=(50_000, 22)).astype(np.float32)
        y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    index = np.resize(np.arange(n // 2), n)
    return X[index], y[index].astype(np.int32)


@pytest.mark.parametrize("best", [False, *slow(True)])
@quick_to_compile(False)
def test_projections_stay_accurate_in_float32(best):
    """40,000 updates, every row twice; then against a dense solve in float64."""
    X, y = wide(40_000)
    gamma, budget = 0.05, 100
    state = bj.Perceptron(margin=1e9).init(
        bj.RBF(gamma), num_features=22, budget=budget, maintenance=bj.Project(best=best)
    )
    state, _ = bj.run(state, X, y)
    assert int(state.num_updates) == 40_000
    assert isinstance(state.maintenance, bj.Project)
    kept = state.maintenance.span
    Z = np.asarray(bj.support(state).vectors, np.float64)

    def kernel(A, B):
        return np.exp(-gamma * ((A[:, None] - B[None]) ** 2).sum(axis=2))

    gram = kernel(Z, Z) + span.RIDGE * np.eye(budget)
    root = np.asarray(kept.root, np.float64)[:budget, :budget]
    np.testing.assert_allclose(root @ gram @ root.T, np.eye(budget), atol=1e-2)
    rows = kernel(X[:100].astype(np.float64), Z)
    wanted = np.linalg.solve(gram, rows.T).T

    @jax.vmap
    def refined(row):
        return span.refine(kept, row, span.solve(kept, row), state.expansion.mask)

    given = jax.jit(refined)(np.pad(rows.astype(np.float32), ((0, 0), (0, 1))))
    largest = np.abs(wanted).max(axis=1, keepdims=True)
    assert np.all(np.abs(given[:, :budget] - wanted) <= 1e-3 * largest)


@pytest.mark.parametrize(
    ("learner", "strategy"),
    [(bj.AROW(), None), *slow((bj.Perceptron(), bj.Project()))],
    ids=["arow", "perceptron"],
)
@pytest.mark.parametrize("seed", first_quick(range(3)))
def test_a_smooth_kernel_keeps_its_root(learner, strategy, seed):
    """Errors of the root must not grow from one replacement to the next."""
    budget = 150
    random = np.random.default_rng(seed)
    X = random.normal(size=(5000, 2)).astype(np.float32)
    y = np.sign(X[:, 0] * X[:, 1] + 0.3 * random.normal(size=5000)).astype(int)
    state = learner.init(
        bj.RBF(0.02), num_features=2, budget=budget, maintenance=strategy
    )
    state, _ = bj.run(state, X, y)
    kept = (state.memory or state.maintenance).span
    gram, root = (
        np.asarray(matrix, np.float64)[:budget, :budget]
        for matrix in (kept.gram, kept.root)
    )
    np.testing.assert_allclose(root @ gram @ root.T, np.eye(budget), atol=0.1)


def test_a_forgetron_that_does_not_shrink_removes_the_oldest():
    X, y = parity(300)
    state, scores = run(bj.Forgetron(rule="fixed", phi=1), X, y, budget=20)
    strategy = {"maintenance": bj.RemoveOldest()}
    other, expected = run(bj.Perceptron(), X, y, budget=20, **strategy)
    assert int(state.num_mistakes) > 40
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    for one, two in zip(bj.support(state), bj.support(other), strict=True):
        np.testing.assert_array_equal(one, two)


def test_projectron_without_threshold_is_the_perceptron():
    X, y = digits(200)
    X[100:] = X[:100]  # duplicates are no exception
    given = {"num_classes": 10, "budget": 180}
    state, scores = run(bj.Projectron(threshold=0), X, y, **given)
    # No strategy is needed, and this one is traced soonest.
    other, expected = run(
        *(bj.Perceptron(), X, y), **given, maintenance=bj.RemoveOldest()
    )
    assert 100 < int(state.expansion.num_active) < 180
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    np.testing.assert_array_equal(
        bj.support(state).coefficients, bj.support(other).coefficients
    )


def test_a_full_projectron_goes_on_learning():
    X, y = digits(600)
    learner = bj.Projectron(threshold=0.1)
    state, _ = run(learner, X[:300], y[:300], num_classes=10, budget=50)
    before = bj.support(state)
    state, _ = bj.run(state, X[300:], y[300:], block_size=1)
    after = bj.support(state)
    np.testing.assert_array_equal(before.vectors, after.vectors)
    assert np.any(before.coefficients != after.coefficients)


def test_the_span_of_moved_vectors_of_the_same_class():
    X, y = digits(300)
    learner = bj.Projectron(threshold=0.5, same_class=True)
    state, _ = run(learner, X, y, num_classes=10, budget=50)
    assert state.memory.classes is not None
    # Moved and back again.
    moved = learner.with_vectors(state, 0.9 * state.expansion.vectors)
    back = learner.with_vectors(moved, state.expansion.vectors)
    rows = slice(2 * int(state.expansion.num_active))
    np.testing.assert_allclose(
        back.memory.span.gram[rows, rows], state.memory.span.gram[rows, rows], atol=1e-5
    )
    for one in (moved, back):
        gram, root = (
            np.asarray(matrix, float)[rows, rows]
            for matrix in (one.memory.span.gram, one.memory.span.root)
        )
        unit = np.eye(len(gram))
        np.testing.assert_allclose(root @ gram @ root.T, unit, atol=1e-4)


def test_features_of_moved_vectors():
    """The coefficients stay, and the scores are those of the vectors' new places."""
    X, y = parity(60)
    kernel = bj.RBF(0.05)
    state, _ = run(bj.Nystrom(), X, y, budget=20)

    @jax.jit
    def moved_by(state, factor):
        moved = state.learner.with_vectors(state, factor * state.expansion.vectors)
        return moved, bj.decision_function(moved, X)

    moved, scores = moved_by(state, 0.9)
    vectors, coefficients, mask = map(np.asarray, bj.support(moved))
    expected = np.asarray(bj.support(state).coefficients)
    most = np.abs(expected).max()
    np.testing.assert_allclose(coefficients, expected, atol=5e-3 * most)
    gram = np.asarray(jax.jit(kernel.gram)(X, vectors))[:, mask]
    np.testing.assert_allclose(
        scores, (gram @ coefficients[mask])[:, 0], rtol=1e-3, atol=1e-3
    )
    # What goes on learning are weights of features, `root` times a kernel row.
    root, weights = (
        np.asarray(one) for one in (moved.memory.root, moved.memory.weights)
    )
    np.testing.assert_allclose((root.T @ weights)[:-1], expected, atol=5e-3 * most)


def test_a_forgetron_knows_its_norm_with_another_kernel():
    X, y = parity(60)
    state, _ = run(bj.Forgetron(rule="basic"), X, y, budget=20)
    kernel = bj.RBF(0.2)
    state = jax.jit(bj.with_kernel)(state, kernel)
    vectors, coefficients, _ = map(np.asarray, bj.support(state))
    gram = np.asarray(jax.jit(kernel.gram)(vectors, vectors))
    expected = (coefficients.T @ gram @ coefficients)[0, 0]
    np.testing.assert_allclose(state.memory.squared_norm, expected, rtol=1e-4)


def test_multi_merge_of_two_is_merge():
    X, y = digits(300)
    (one, scores), (other, expected) = (
        run(
            *(bj.Pegasos(regularization=1e-3), X, y),
            num_classes=10,
            budget=30,
            maintenance=strategy,
        )
        for strategy in (bj.MultiMerge(2), bj.Merge())
    )
    # Rows are rounded after the map in one run and before it in the other, and the
    # coefficients are divided by lambda.
    np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(one.expansion.ages, other.expansion.ages)


def test_pegasos_is_gradient_descent():
    """With the hinge loss and the learning rate 1 / (lambda t)."""
    X, y = digits(300)
    strength = 1e-2
    given = {"num_classes": 10, "budget": 40, "maintenance": bj.RemoveOldest()}

    def rate(count):
        return 1 / (strength * (count + 1).astype(jnp.float32))

    descent = bj.SGD(loss=losses.hinge, learning_rate=rate, regularization=strength)
    _, scores = run(descent, X, y, **given)
    _, expected = run(bj.Pegasos(regularization=strength), X, y, **given)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-4 * scale)


def test_a_model_that_shrinks_for_long_stays_finite():
    """Coefficients and scale leave float32's range several times over."""
    X, y = parity(1700)
    learner = bj.SGD(loss=losses.hinge, learning_rate=0.5, regularization=0.1)
    state = learner.init(bj.RBF(0.05), num_features=64, budget=20, average=True)
    state, scores = bj.run(state, X, y)
    assert np.all(np.isfinite(scores))
    for leaf in jax.tree.leaves((state, bj.average_iterates(state))):
        assert np.all(np.isfinite(leaf))
    assert np.mean(np.sign(scores[500:]) == y[500:]) > 0.55


@pytest.mark.parametrize(
    ("learner", "budget", "more"),
    [
        (bj.Pegasos(), 60, {"maintenance": bj.RemoveOldest()}),
        *slow(
            *((bj.Pegasos(), 60, {}), (bj.Nystrom(), 30, {})),
            *((bj.Fourier(), 30, {}), (bj.Perceptron(), 60, {})),
        ),
    ],
    ids=["pegasos", "pegasos-merge", "nystrom", "fourier", "perceptron"],
)
def test_the_average_is_that_of_the_iterates(learner, budget, more):
    X, y = parity(60)
    step = jax.jit(bj.step)
    # Before its first round it is the last iterate.
    for start in (1, 40, 61):
        state = learner.init(
            bj.RBF(0.05), num_features=64, average=start, budget=budget, **more
        )
        iterates, one = [], state
        for x, label in zip(X, y, strict=True):
            one = step(one, x, label)
            iterates.append(bj.decision_function(one, X[:20]))
        state, _ = bj.run(state, X, y)
        expected = np.mean(iterates[min(start, 60) - 1 :], axis=0)
        for given in (one, state):
            actual = bj.decision_function(bj.average_iterates(given), X[:20])
            np.testing.assert_allclose(
                actual, expected, atol=2e-3 * np.abs(expected).max()
            )


@pytest.mark.parametrize("kernel", [bj.RBF(0.3), bj.Laplacian(0.2)])
def test_fourier_features_are_nearly_the_kernel(kernel):
    X = np.random.default_rng(1).normal(size=(30, 4)).astype(np.float32)

    @jax.jit
    def matrices(kernel):
        state = bj.Fourier().init(kernel, num_features=4, budget=20_000)
        features = state.kernel.gram(X, state.expansion.vectors)[:, :-1]
        return features @ features.T, kernel.gram(X, X)

    np.testing.assert_allclose(*matrices(kernel), atol=0.05)


def test_fourier_features_of_a_small_budget_are_the_first_of_a_large_one():
    @functools.partial(jax.jit, static_argnums=(0, 1))
    def init(budget, capacity):
        return bj.Fourier().init(
            bj.RBF(0.3), num_features=4, budget=budget, capacity=capacity, seed=3
        )

    small, large = init(20, 20), init(20, 50)
    # The same draws; a loop of another length is rounded otherwise.
    np.testing.assert_allclose(
        large.expansion.vectors[:20], small.expansion.vectors[:-1], rtol=1e-6
    )
    assert not np.any(large.expansion.mask[20:])


def test_given_vectors_of_nystrom():
    X, y = digits(1200)
    centres = MiniBatchKMeans(50, random_state=0).fit(X).cluster_centers_
    state = bj.Nystrom().init(
        bj.RBF(0.05), num_features=64, budget=50, num_classes=10, vectors=centres
    )
    assert state.memory.root is not None
    gram = np.asarray(jax.jit(bj.RBF(0.05).gram)(centres, centres), np.float64)
    root = np.asarray(state.memory.root, np.float64)[:50, :50]
    inverse = np.linalg.inv(gram + span.RIDGE * np.eye(50))
    np.testing.assert_allclose(
        root.T @ root, inverse, atol=1e-2 * np.abs(inverse).max()
    )
    state, scores = bj.run(state, X, y)
    np.testing.assert_allclose(bj.support(state).vectors, centres, rtol=1e-6)
    assert np.mean(np.argmax(scores[600:], axis=1) == y[600:]) > 0.85


@pytest.mark.parametrize(
    "strategy", [bj.Merge(), *slow(bj.RemoveOldest())], ids=["merge", "oldest"]
)
def test_arow_stays_accurate_in_float32(strategy, double):
    """Some 1,000 moves, and twice as many changes of a covariance.

    A rounding decides whether an example changes the model, and from then on the runs
    have other support vectors: what must agree is how good they are.
    """
    random = np.random.default_rng(0)
    X = random.normal(size=(7000, 2))
    noise = 0.3 * random.normal(size=len(X))
    y = np.where(np.sin(3 * X[:, 0]) + X[:, 1] + noise > 0, 1, -1)
    mistakes = {}
    for dtype in (jnp.float32, jnp.float64):
        state = bj.AROW(moves=20).init(
            bj.RBF(1.0), num_features=2, budget=30, maintenance=strategy, dtype=dtype
        )
        state, _ = bj.run(state, X, y)
        assert int(state.memory.num_moves) > 700
        assert int(state.num_updates) > 1500
        mistakes[dtype] = int(state.num_mistakes)

        active = np.flatnonzero(bj.support(state).mask)
        block = np.ix_(active, active)
        known = np.asarray(state.memory.certainty, np.float64)[block]
        S = np.eye(len(active)) - known
        np.testing.assert_allclose(S, S.T, atol=1e-5)
        eigenvalues = np.linalg.eigvalsh((S + S.T) / 2)
        assert eigenvalues[0] > -1e-4
        assert eigenvalues[-1] < 1 + 1e-4
        Z = np.asarray(state.expansion.vectors, np.float64)[active]
        gram = np.asarray(jax.jit(bj.RBF(1.0).gram)(Z, Z)) + span.RIDGE * np.eye(len(Z))
        root = np.asarray(state.memory.span.root, np.float64)[block]
        np.testing.assert_allclose(root @ gram @ root.T, np.eye(len(Z)), atol=1e-2)
    assert mistakes[jnp.float32] < 1.03 * mistakes[jnp.float64]


def test_arow_without_moves_keeps_the_first_to_enter():
    """Far points, each twice: the second time Pegasos has it right, and AROW not yet.

    Whoever enters later would have to be merged.
    """
    X = 10 * np.repeat(np.arange(40, dtype=np.float32), 2)[:, None]
    y = np.where(np.arange(80) // 2 % 3 == 0, 1, -1)
    state = bj.AROW(moves=0).init(bj.RBF(1.0), num_features=1, budget=7)
    state, _ = bj.run(state, X, y, block_size=1)
    assert int(state.num_updates) == 80
    assert int(state.memory.num_moves) == 7
    np.testing.assert_array_equal(state.expansion.ages[:7], np.arange(1, 15, 2))
    np.testing.assert_array_equal(bj.support(state).vectors, X[:14:2])
    assert not np.any(bj.predict(state, X[:14]) != y[:14])


def test_arow_never_changes_given_vectors():
    X, y = digits(600)
    state, scores = run(bj.AROW(), X, y, budget=40, num_classes=10, vectors=X[:30])
    after = bj.support(state)
    np.testing.assert_array_equal(after.vectors[:30], X[:30])
    assert not np.any(after.vectors[30:])
    np.testing.assert_array_equal(after.mask, np.arange(40) < 30)
    assert int(state.memory.num_moves) == 0
    assert np.mean(np.argmax(scores[300:], axis=1) == y[300:]) > 0.8


def test_losses_are_those_of_optax():
    random = np.random.default_rng(0)
    scores = random.normal(size=(50, 5)).astype(np.float32)
    labels = random.integers(0, 5, 50)
    f, y = scores[:, 0], scores[:, 1]
    binary = random.choice([-1.0, 1.0], 50).astype(np.float32)
    for ours, theirs, *given in (
        (losses.hinge, optax.losses.hinge_loss, f, binary),
        (losses.hinge, optax.losses.multiclass_hinge_loss, scores, labels),
        (
            *(losses.logistic, optax.losses.softmax_cross_entropy_with_integer_labels),
            *(scores, labels),
        ),
        (
            losses.logistic,
            lambda f, y: optax.losses.sigmoid_binary_cross_entropy(f, (y + 1) / 2),
            *(f, binary),
        ),
        (losses.absolute, lambda f, y: abs(f - y), f, y),
        (
            losses.quantile(0.3),
            lambda f, y: jnp.where(f < y, 0.3 * (y - f), 0.7 * (f - y)),
            *(f, y),
        ),
        (
            losses.epsilon_insensitive(0.5),
            lambda f, y: jnp.maximum(abs(f - y) - 0.5, 0),
            *(f, y),
        ),
    ):
        found, expected = (jax.jit(jax.vmap(one))(*given) for one in (ours, theirs))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_only_the_lowest_of_equal_rivals_moves():
    slope = jax.jit(losses.gradient, static_argnums=0)(
        losses.hinge, jnp.zeros(4), jnp.int32(2)
    )
    assert slope.tolist() == [1, 0, -1, 0]


def test_regression_learns_a_quantile():
    random = np.random.default_rng(2)
    X = random.uniform(-1, 1, size=(2500, 1)).astype(np.float32)
    y = (np.sin(3 * X[:, 0]) + random.uniform(-1, 1, 2500)).astype(np.float32)
    state = bj.SGD(
        loss=losses.quantile(0.8), learning_rate=optax.exponential_decay(0.5, 700, 0.5)
    ).init(bj.RBF(2.0), num_features=1, budget=50, num_classes=None, average=1250)
    state, _ = bj.run(state, X, y)
    below = y < bj.decision_function(bj.average_iterates(state), X)
    assert abs(np.mean(below) - 0.8) < 0.05


def test_numbers_of_a_loss_can_be_swept():
    X, y = parity(60)
    given = {"budget": 20, "num_classes": None, "maintenance": bj.RemoveOldest()}

    def scores_of(level):
        learner = bj.SGD(loss=losses.quantile(level), learning_rate=0.3)
        return run(learner, X, y.astype(np.float32), **given)[1]

    levels = np.array([0.2, 0.7], np.float32)
    together = jax.vmap(scores_of)(levels)
    for level, scores in zip(levels, together, strict=True):
        np.testing.assert_allclose(scores, scores_of(float(level)), atol=1e-3)


def test_a_mapped_kernel_learns_what_mapped_rows_teach():
    X = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    matrix = np.array([[1.0, 0.3], [0.0, 0.5], [-0.7, 0.2]], np.float32)
    (mapped, scores), (plain, expected) = (
        bj.run(
            bj.Pegasos().init(kernel, num_features=rows.shape[1], budget=8),
            *(rows, y),
            block_size=1,
        )
        for kernel, rows in (
            (bj.Mapped(bj.RBF(0.8), matrix), X),
            (bj.RBF(0.8), X @ matrix),
        )
    )
    assert int(plain.num_updates) > 20
    np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        bj.support(mapped).vectors @ matrix, bj.support(plain).vectors, atol=1e-4
    )


@pytest.mark.parametrize("make", [jax.random.key, jax.random.PRNGKey])
def test_a_key_is_a_seed(make):
    first, again, other = (_checks.numpy_seed(make(i)) for i in (0, 0, 1))
    assert first == again != other
    with pytest.raises(ValueError, match=r"^seed must be an integer"):
        _checks.numpy_seed(make(0)[None])

    def phases(seed):
        state = bj.Fourier().init(bj.RBF(1.0), num_features=2, budget=4, seed=seed)
        return np.asarray(state.expansion.vectors)

    first = phases(make(0))
    np.testing.assert_array_equal(first, phases(jax.random.key(0)))
    assert not np.any(np.isclose(first[:4], phases(make(1))[:4]))
    given = {"num_features": 2, "budget": 4, "maintenance": bj.RemoveRandom()}
    swept = jax.vmap(lambda key: bj.Perceptron().init(bj.RBF(1.0), seed=key, **given))(
        jax.random.split(jax.random.key(7))
    )
    one, other = np.asarray(swept.maintenance.seed)
    assert one != other
    assert one.dtype == np.int32


# Several devices.

ROWS = PartitionSpec("rows")


def two_devices(axis_type):
    return jax.make_mesh((2,), ("rows",), axis_types=(axis_type,))


def trained(learner, **more):
    return learner.init(bj.RBF(0.1), num_features=64, budget=8, **more)


@pytest.mark.parametrize(
    ("learner", "more"),
    [
        (bj.Perceptron(), {"maintenance": bj.RemoveOldest()}),
        *slow(
            (bj.Perceptron(), {"maintenance": bj.MultiMerge(3)}),
            (bj.Projectron(), {}),
            (bj.AROW(), {}),
            (bj.KRLST(), {"num_classes": None}),
        ),
    ],
    ids=["removal", "merging", "projectron", "arow", "krlst"],
)
def test_a_learner_per_device(learner, more):
    """`run` and `step` inside `jax.shard_map`, which checks types as it traces."""
    X, y = parity(60)
    state = trained(learner, **more)

    def step(X, y):
        return bj.step(state, X[0], y[0]).expansion.coefficients_and_sums

    @jax.jit
    def scores(X, y):
        return bj.decision_function(bj.run(state, X, y)[0], X)

    def on_both(function):
        mesh = two_devices(AxisType.Auto)
        return jax.shard_map(function, mesh=mesh, in_specs=(ROWS, ROWS), out_specs=ROWS)

    jax.eval_shape(on_both(step), X, y)
    jax.eval_shape(on_both(scores), X, y)
    if not isinstance(more.get("maintenance"), bj.RemoveOldest):
        return  # compiling takes long, and the types are all that is special
    halves = [scores(X[:30], y[:30]), scores(X[30:], y[30:])]
    found = jax.jit(on_both(scores))(X, y)
    np.testing.assert_allclose(found, np.concatenate(halves), rtol=1e-4, atol=1e-4)


def test_data_on_a_mesh_with_explicit_axes():
    """As `jax.make_mesh` makes it, from outside and inside `jit`."""
    X, y = parity(60)
    state = trained(bj.Perceptron(), maintenance=bj.RemoveOldest())
    learned, scores = bj.run(state, X, y)
    expected = bj.decision_function(learned, X)

    split = NamedSharding(two_devices(AxisType.Explicit), ROWS)
    data = jax.device_put((X, y), split)

    def learn(X, y):
        learned, scores = bj.run(state, X, y)
        return scores, bj.decision_function(learned, X), bj.predict(learned, X)

    for found in (learn(*data), jax.jit(learn)(*data)):
        np.testing.assert_allclose(found[0], scores, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found[1], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(found[2], np.where(expected > 0, 1, -1))
        assert found[1].sharding == split
    # What they give goes on.
    again = bj.step(bj.run(state, *data)[0], X[0], y[0])
    assert int(again.num_seen) == 61


def test_data_that_move_are_locked_out_where_the_smallest_leaves():
    """As the guide says: old coefficients stay, and distant candidates go at once."""
    random = np.random.default_rng(0)
    X = random.normal(size=(600, 2)).astype(np.float32)
    y = np.where(np.sin(2 * X).sum(axis=1) > 0, 1, -1)
    X[300:] += 30
    ages = {}
    for strategy in (bj.Merge(), bj.RemoveOldest()):
        state = bj.PassiveAggressive().init(
            bj.RBF(1.0), num_features=2, budget=10, maintenance=strategy
        )
        state, _ = bj.run(state, X, y)
        ages[type(strategy)] = np.asarray(state.expansion.ages[:-1])
        assert int(state.num_updates) > 450
    assert np.all(ages[bj.Merge] <= 300)
    assert np.all(ages[bj.RemoveOldest] > 300)

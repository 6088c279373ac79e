"""What the papers prove, and what exact ties promise."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
from compare import kept
from compiling import quick_to_compile
from marks import slow
from reference import maintenance as reference

import budgetjax as bj
from budgetjax import losses
from budgetjax.online.maintenance import merge_position


def separable(n, seed=0):
    """A stream that a known function separates, in the RKHS of a linear kernel."""
    random = np.random.default_rng(seed)
    w = np.array([0.6, -0.8, 0.0, 0.0])
    X = random.normal(size=(n, 4))
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1)
    keep = np.abs(X @ w) > 0.05
    return X[keep], np.sign(X @ w)[keep].astype(np.int32), w


@pytest.mark.parametrize("budget", [1, *slow(10, 83)])
def test_forgetron_invariant_every_round(budget, double):
    """`Q <= 15/32 M`. With phi < 1 it is an equality, so it holds up to rounding."""
    random = np.random.default_rng(1)
    X = random.normal(size=(1000, 3))
    y = np.where(random.random(1000) < 0.5, -1, 1)
    state = bj.Forgetron().init(
        bj.Normalized(bj.Polynomial(degree=5)),
        num_features=3,
        budget=budget,
        dtype=jnp.float64,
    )

    def body(state, example):
        state = bj.step(state, *example)
        return state, state.memory.slack

    state, slack = jax.lax.scan(body, state, (jnp.array(X), jnp.array(y)))
    assert np.all(slack >= -1e-12)
    assert state.num_mistakes > 2 * budget, "the budget was never full"


def test_forgetron_bound(double):
    """Theorem 2, for several comparators on one separable stream."""
    X, y, w = separable(6000)
    budget = 400
    state = bj.Forgetron().init(
        bj.Linear(), num_features=4, budget=budget, dtype=jnp.float64
    )
    state, _ = bj.run(state, X, y)
    mistakes = int(state.num_mistakes)
    largest = bj.bounds.forgetron_norm(budget)
    for norm in np.linspace(0.1, 1, 10) * largest:
        hinge = np.maximum(0, 1 - y * (X @ (norm * w))).sum()
        bound = bj.bounds.forgetron(norm, hinge, budget=budget)
        assert mistakes <= bound == pytest.approx(2 * norm**2 + 4 * hinge)
    assert mistakes < 0.2 * len(y), "the bound should not be all that holds"


def check_basic_rule(phi, grown, budget, radius):
    """The rule itself, by default of the paper's U, and both of its sides were met."""
    paper = np.sqrt((budget + 1) / np.log(budget + 1)) / 4
    U = radius or paper
    fixed = (budget + 1) ** (-1 / (2 * budget + 2))
    np.testing.assert_allclose(phi, np.minimum(fixed, U / grown), rtol=1e-10)
    assert 0 < np.mean(phi < fixed) < 1
    assert bj.bounds.forgetron_norm(budget) == pytest.approx(paper, rel=1e-12)


@pytest.mark.parametrize(
    ("wrong", "rule", "radius"),
    [
        (0.1, "self-tuned", None),
        *slow((0.3, "self-tuned", None), (0.3, "basic", None), (0.3, "basic", 0.5)),
    ],
)
def test_lemmas_of_the_forgetron(wrong, rule, radius, double):
    """Lemma 1 for comparators of all norms allowed, and Lemma 2 with its conditions."""
    X, y, w = separable(5000, seed=1)
    y = np.where(np.random.default_rng(2).random(len(y)) < wrong, -y, y)
    budget, weight = 83, 15 / 32
    state = bj.Forgetron(rule=rule, radius=radius).init(
        bj.Linear(), num_features=4, budget=budget, dtype=jnp.float64
    )

    def model(state):
        vectors, coefficients, mask = bj.support(state)
        return jnp.where(mask, coefficients[:, 0], 0) @ vectors

    def body(state, example):
        x, label = example
        new = bj.step(state, x, label)
        # What entered has the weight phi, since every weight shrinks by it.
        held = new.expansion.mask
        newest = jnp.argmax(jnp.where(held, new.expansion.ages, -1))
        phi = jnp.abs(new.expansion.scale * new.expansion.coefficients[newest, 0])
        erred = new.num_mistakes - state.num_mistakes
        loss = state.memory.slack + weight - new.memory.slack
        grown = jnp.linalg.norm(model(state) + label.astype(x.dtype) * x)
        return new, (erred, phi, loss, grown)

    state, (erred, phi, psi, grown) = jax.lax.scan(
        body, state, (jnp.array(X), jnp.array(y))
    )
    erred = np.asarray(erred) == 1
    phi, psi, grown = (np.asarray(each)[erred] for each in (phi, psi, grown))
    mistakes = len(phi)
    assert mistakes > 5 * budget
    assert np.all((phi > 0) & (phi <= 1))
    assert np.min(phi) < 0.999, "nothing ever shrank"
    # The conditions of Lemma 2: (3), and the one that the paper proves by induction.
    log = np.log(budget + 1)
    assert psi.sum() <= weight * mistakes + 1e-9
    allowed = log / (2 * (budget + 1)) * mistakes
    if rule == "self-tuned":
        assert -np.log(phi).sum() <= allowed
    else:
        check_basic_rule(phi, grown, budget, radius)
    largest = radius or bj.bounds.forgetron_norm(budget)
    for norm in np.linspace(0.1, 1, 4) * largest:
        # Shrinking costs where it takes the model below the norm of the comparator.
        shrunk = phi * grown
        below = np.where(grown <= norm, phi, shrunk / norm)
        shrinking = -np.log(np.where(shrunk < norm, below, 1)).sum()
        assert shrinking <= allowed + 1e-9
        cost = psi.sum() + norm**2 * shrinking
        hinge = np.maximum(0, 1 - y * (X @ (norm * w))).sum()
        assert mistakes <= norm**2 + 2 * hinge + cost + 1e-9
        assert cost <= mistakes / 2


def test_the_bound_of_the_forgetron_does_not_hold_for_unequal_weights(double):
    """A heavy example, forgotten in every turn of a cycle of light ones."""
    budget, turns = 83, 20
    X = np.tile(np.eye(budget + 1), (turns, 1))
    y = np.ones(len(X), np.int32)
    weight = np.where(X[:, 0] == 1, 1.0, 1e-4)
    state = bj.Forgetron().init(
        bj.Linear(), num_features=budget + 1, budget=budget, dtype=jnp.float64
    )
    _, scores = bj.run(state, X, y, weight=weight)
    mistakes = np.sum(weight * (np.asarray(scores) <= 0))
    hinge = np.sum(weight * (1 - X[:, 0]))
    assert 20 < mistakes > 7 * bj.bounds.forgetron(1.0, hinge, budget=budget)


def test_perceptron_bound(double):
    """Theorem 1, on a stream with labels turned; the best norm leaves little room."""
    X, y, w = separable(3000)
    y = np.where(np.random.default_rng(1).random(len(y)) < 0.02, -y, y)
    state = bj.Perceptron().init(
        bj.Linear(),
        num_features=4,
        budget=1500,
        maintenance=bj.Unbudgeted(),
        dtype=jnp.float64,
    )
    state, _ = bj.run(state, X, y)
    norms = np.linspace(0.1, 30, 100)
    losses = [np.maximum(0, 1 - y * (X @ (norm * w))).sum() for norm in norms]
    bounds = [*map(bj.bounds.perceptron, norms, losses)]
    assert int(state.num_mistakes) <= min(bounds) < len(y)
    # That with a root, (D.7) in the paper on SBP, of the same stream in other units.
    roots = [*map(bj.bounds.perceptron_root, norms, losses)]
    assert int(state.num_mistakes) <= min(roots) < min(bounds)
    scaled = bj.bounds.perceptron_root(norms[-1] / 3, losses[-1], radius=3.0)
    assert scaled == pytest.approx(roots[-1])


def test_vectors_that_are_well_classified_leave_and_the_others_are_bounded(double):
    """Remark 3 of the Margin Perceptron with Unlearning: bounds (10) and (17)."""
    X, _, w = separable(6000)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    d = 0.1
    X = X[np.abs(X @ w) >= d]
    y = np.sign(X @ w).astype(np.int32)
    b, gap = 0.5, 1.5
    state = bj.Perceptron(margin=b).init(
        bj.Linear(),
        num_features=4,
        budget=1500,
        maintenance=bj.RemoveLargestMargin(above=b + gap - 1),
        dtype=jnp.float64,
    )
    state, _ = bj.run(state, X, y)
    entered, left = int(state.num_updates), int(state.expansion.num_active)
    gone = entered - left
    assert gone > 10
    of_stream = {"radius": 1.0, "threshold": b}
    assert left <= bj.bounds.mpu_net_updates(d, **of_stream)
    bound = bj.bounds.mpu_hard_margin(d, gap=gap, **of_stream)
    assert entered + gone <= bound < len(y)


def test_what_bounds_do_not_hold_for(as_installed):
    for call, text in (
        (
            lambda: bj.bounds.forgetron(2.0, 1.0, budget=100),
            "norm must be at most 1.17, .* got 2",
        ),
        (lambda: bj.bounds.forgetron(1.0, 1.0, budget=82), "budget must be at least 8"),
        (lambda: bj.bounds.perceptron(-1.0, 1.0), "norm must be a finite number of"),
        (lambda: bj.bounds.perceptron(1.0, np.inf), "loss must be a finite number of"),
        (
            lambda: bj.bounds.perceptron_root(1.0, 1.0, radius=0.0),
            "radius must be a finite number above 0",
        ),
        (
            lambda: bj.bounds.pegasos(1.0, regularization=0.0, num_examples=9),
            "regularization must be a finite number above 0",
        ),
        (
            lambda: bj.bounds.pegasos(1.0, regularization=0.1, num_examples=9.0),
            "num_examples must be an integer",
        ),
        (
            lambda: bj.bounds.mpu_net_updates(0.0, radius=1.0, threshold=1.0),
            "margin must be a finite number above 0",
        ),
        (
            lambda: bj.bounds.mpu_hard_margin(0.1, radius=2.0, threshold=1.0, gap=4.0),
            r"gap must be above radius\*\*2, 4, got 4.0",
        ),
        (
            lambda: bj.bounds.mpu_soft_margin(
                9, max_count=0.5, radius=2.0, threshold=1.0, gap=5.0
            ),
            "max_count must be at least 1, got 0.5",
        ),
    ):
        with pytest.raises(ValueError, match=f"bounds.*: {text}"):
            call()


def learners():
    """Of two classes, with a linear kernel and a budget."""
    for row in registry.ROWS:
        if row.num_classes == 2 and row.name != "perceptron-unbudgeted":
            with contextlib.suppress(ValueError):  # it needs a Gaussian kernel
                jax.eval_shape(functools.partial(row.init, bj.Linear()))
                yield row


@functools.partial(registry.each, rows=registry.firsts(tuple(learners())))
def test_counterexample_stream_errs_every_round(row):
    """The B+1 unit vectors, always one that is not active: section 2 of the paper."""
    largest = 5
    points = jnp.eye(largest + 1)

    @jax.jit
    def run(state):
        def body(state, _):
            expansion = state.expansion
            active = jnp.where(expansion.mask[:, None], expansion.vectors, 0)
            absent = jnp.argmin(jnp.max(active, axis=0))
            score = bj.decision_function(state, points[absent][None])[0]
            there = jnp.max(active[:, absent])
            return bj.step(state, points[absent], 1), (there, score)

        return jax.lax.scan(body, state, length=40)

    for budget in (1, largest):
        state = row.init(
            bj.Linear(), budget=budget, capacity=largest, num_features=largest + 1
        )
        state, (there, scores) = run(state)
        assert not np.any(there), "one of the points is never active"
        assert not np.any(scores)
        assert int(state.num_mistakes) == 40


@pytest.mark.parametrize("num_classes", [2, *slow(4)])
def test_float32_and_float64_remove_the_same_vectors(num_classes, double):
    """Pegasos keeps equal coefficients equal, so ties do not depend on rounding."""
    row = registry.Row(
        "",
        bj.Pegasos(regularization=1e-3),
        {"maintenance": bj.RemoveSmallest()},
        num_classes,
    )
    X, y = row.stream(1000, seed=3)
    single, scores = bj.run(row.init(budget=30), X, y)
    wide, wide_scores = bj.run(row.init(budget=30, dtype=jnp.float64), X, y)
    assert not near_threshold(wide_scores, y), "choose another stream"
    np.testing.assert_array_equal(single.expansion.ages, wide.expansion.ages)
    np.testing.assert_array_equal(
        kept(single).expansion.vectors, kept(wide).expansion.vectors
    )
    np.testing.assert_allclose(
        scores, wide_scores, rtol=1e-4, atol=1e-6 * np.abs(wide_scores).max()
    )


def near_threshold(scores, y):
    """Whether float32 could see another violation than float64."""
    margins = jax.vmap(losses.margin)(
        scores.reshape(len(y), -1),
        jnp.asarray(y, scores.dtype if scores.ndim == 1 else jnp.int32),
    )
    size = np.abs(scores).reshape(len(y), -1).max(axis=1)
    return bool(np.any(np.abs(margins - 1) < 1e-6 * np.maximum(size, 1)))


@pytest.mark.parametrize("num_classes", [2, *slow(4)])
def test_smallest_is_oldest_under_pegasos_and_gaussian(num_classes):
    rows = [
        registry.Row(
            "", bj.Pegasos(regularization=1e-2), {"maintenance": s}, num_classes
        )
        for s in (bj.RemoveSmallest(), bj.RemoveOldest())
    ]
    X, y = rows[0].stream(400)
    states = [row.init(budget=15) for row in rows]
    step = jax.jit(bj.step)
    for x, label in zip(X, y, strict=True):
        states = [step(state, x, label) for state in states]
        smallest, oldest = (state.expansion for state in states)
        np.testing.assert_array_equal(smallest.ages, oldest.ages)
        np.testing.assert_array_equal(smallest.coefficients, oldest.coefficients)


def test_of_equal_pairs_the_oldest_are_merged():
    """Two pairs at one distance, with coefficients of one size, and one far away."""
    X = np.array([[0], [1], [10], [11], [99]], np.float32)
    given = {"maintenance": bj.MergeBestPair()}
    state = bj.Perceptron(margin=9.0).init(
        bj.RBF(0.5), num_features=1, budget=4, **given
    )
    state, _ = bj.run(state, X, np.ones(5, int), block_size=1)
    vectors = np.sort(bj.support(state).vectors[:, 0])
    np.testing.assert_array_equal(vectors[1:], X[2:, 0])
    assert 0 < vectors[0] < 1


def merge_problems():
    """Lengths, angles and distances, the hard ones among them."""
    random = np.random.default_rng(0)
    kappas = np.concatenate(
        [
            1 - 10.0 ** -np.arange(1, 8),
            np.linspace(0.01, 0.99, 15),
            np.exp([-2.0, -1.0, -1.5, -1.99, -2.01]),
            [1.0, 1e-10, 1e-30],
        ]
    )
    lengths = np.array([1, 1 + 1e-7, 1.001, 1.1, 2, 10, 1e3, 1e8])
    angles = np.concatenate([[1, 0.5, 0, -0.5, -1], random.uniform(-1, 1, 2)])
    grid = np.meshgrid(kappas, lengths, angles, indexing="ij")
    return (part.ravel() for part in grid)


place = jax.jit(merge_position.position)


@pytest.mark.parametrize("dtype", ["float32", *slow("float64")])
def test_merge_position_against_a_grid(dtype, double):
    """The objective within 1e-6 of a 10,001-point grid, for every kappa and pair."""
    kappas, ratios, cosines = merge_problems()
    decay = -np.log(kappas)
    problem = (
        jnp.asarray(1, dtype),
        jnp.asarray(ratios**2, dtype),
        jnp.asarray(ratios * cosines, dtype),
        jnp.asarray(decay, dtype),
    )
    h = jax.device_get(place(*problem))
    a_m = np.array([1.0, 0.0])
    for kappa, ratio, cosine, ours in zip(kappas, ratios, cosines, h, strict=True):
        a_n = ratio * np.array([cosine, np.sqrt(1 - cosine**2)])
        best, _ = reference.merge_grid(a_m, a_n, kappa)
        objective = np.sum(
            reference.merged_coefficients(a_m, a_n, kappa, float(ours)) ** 2
        )
        assert objective >= best * (1 - 1e-6)
        assert 0 <= ours <= 0.5


def test_a_merge_is_placed_to_a_rounding_whatever_the_compiler_makes_of_it(double):
    """Where signs agree and kappa is above e^-2, the slope at the root is steep."""
    random = np.random.default_rng(0)
    n = 5000
    r = 1 + random.exponential(size=n) * 10.0 ** random.integers(-4, 2, n)
    c = np.sqrt(r) * random.uniform(0.2, 1, n)
    decay = random.uniform(0.01, 1.5, n)

    for dtype, tolerance in (("float64", 1e-14), ("float32", 1e-6)):
        given = (jnp.asarray(part, dtype) for part in (np.ones(n), r, c, decay))
        with quick_to_compile(False):
            h = np.asarray(place(*given), np.float64)
        x = 1 - 2 * h
        rho = np.exp(-decay * x)
        root = (r - rho**2) / (r + 2 * c * rho + rho**2)
        within = root < 1
        assert np.mean(within) > 0.9
        np.testing.assert_allclose(x[within], root[within], atol=tolerance)


def test_partners_are_ranked_by_losses_that_can_be_had(double):
    """Never below the least loss, and near it; nearest where a merge loses little."""
    kappas, ratios, cosines = merge_problems()
    a_n = ratios[:, None] * np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1)
    a_m = np.array([1.0, 0.0])
    h = reference.merge_line_search(a_m, a_n, kappas)
    least = reference.merge_degradation(a_m, a_n, kappas, h)
    rank = merge_position.least_loss(
        jnp.asarray(1.0),
        jnp.asarray(ratios**2),
        jnp.asarray(ratios * cosines),
        jnp.asarray(kappas),
        jnp.asarray(-np.log(kappas)),
    )
    assert np.all(rank >= least - 1e-9)
    assert np.all(rank <= 1 - kappas**2 + 1e-12)
    near = (kappas > 0.8) & (cosines >= 0)
    np.testing.assert_allclose(rank[near], least[near], atol=1e-5)
    np.testing.assert_allclose(rank, least, atol=0.05)


def test_merge_loss_against_its_definition(double):
    kappas, ratios, cosines = merge_problems()
    for h in (0.0, 0.2, 0.5):
        loss = merge_position.loss(
            jnp.asarray(1.0),
            jnp.asarray(ratios**2),
            jnp.asarray(ratios * cosines),
            jnp.asarray(kappas),
            jnp.asarray(-np.log(kappas)),
            jnp.full(kappas.shape, h),
        )
        p, q = kappas ** ((1 - h) ** 2), kappas ** (h**2)
        whole = 1 + ratios**2 + 2 * ratios * cosines * kappas
        merged = p**2 + 2 * ratios * cosines * p * q + ratios**2 * q**2
        np.testing.assert_allclose(loss, whole - merged, atol=1e-13 * whole.max())
        moderate = ratios < 100
        np.testing.assert_allclose(
            loss[moderate], (whole - merged)[moderate], rtol=1e-9, atol=1e-10
        )

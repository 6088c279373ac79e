"""Linear SVMs without a bias of their own, one pattern at a time.

- MPU: Panagiotakopoulos and Tsampouka, ICML 2010, "The Margin Perceptron with
  Unlearning", Algorithm 1 with the active sets and multiple updates of Section 4.
- DCD: Hsieh, Chang, Lin, Keerthi, Sundararajan, ICML 2008, "A Dual Coordinate Descent
  Method for Large-scale Linear SVM", Algorithm 3.
- Pegasos: Shalev-Shwartz, Singer, Srebro, ICML 2007, Figure 1.

Patterns are z_k = y_k (x_k, rho), where rho is called `augment`. Every weight vector
has the entry of rho at its end, also where rho is 0. The objective is
J(w) = |w|^2 / 2 + C sum_k loss(w.z_k), of the hinge or of its square.
"""

import math
from typing import NamedTuple

import numpy as np


def patterns(X, y, augment=0.0):
    """The z_k, as rows."""
    X, y = np.asarray(X, np.float64), np.asarray(y, np.float64)
    return np.array([y[k] * np.append(X[k], augment) for k in range(len(X))])


def primal(X, y, w, penalty, loss="hinge", augment=0.0):
    """J(w)."""
    slacks = [max(0.0, 1 - w @ z) for z in patterns(X, y, augment)]
    power = {"hinge": 1, "squared_hinge": 2}[loss]
    return w @ w / 2 + penalty * sum(slack**power for slack in slacks)


# ------------------------------------------------------------------------------- MPU


def mpu_parameters(X, penalty, accuracy, augment=0.0, hard_margin=False):
    """Threshold b, gap db and cap I_max for this accuracy before running.

    That is delta of (23), J < (1 + delta) J_opt. For a hard margin it is db / b, so
    that a margin of at least 1 / (1 + accuracy) times the largest is found (11).
    """
    # Above the largest |z_k|^2 (7), or learning and unlearning may alternate for ever.
    gap = 3 * max(x @ x + augment**2 for x in np.asarray(X, np.float64))
    if hard_margin:
        return gap / accuracy, gap, math.inf
    # Remark 4
    cap = math.floor(penalty * gap * (2 + accuracy) / accuracy) + 1
    return cap / penalty, gap, cap


class Objectives(NamedTuple):
    """J(a / b), the dual value of I / b, and by what fraction J may be above J_opt."""

    primal: float
    dual: float
    accuracy: float


class MPU:
    """The state of Algorithm 1: `a`, `I`, `t_plus` and `t_minus`.

    A presentation updates as often as presenting the pattern again and again would.
    """

    def __init__(self, X, y, *, threshold, gap, cap, augment=0.0):
        self.Z = patterns(X, y, augment)
        self.a = np.zeros(self.Z.shape[1])
        self._start([z @ z for z in self.Z], threshold, gap, cap)

    def _start(self, squares, threshold, gap, cap):
        if math.isinf(cap) and min(squares) == 0:
            raise ValueError("a zero pattern has no margin")
        self.squares = squares
        self.threshold, self.gap, self.cap = threshold, gap, cap
        self.I = np.zeros(len(squares), np.int64)
        self.t_plus, self.t_minus = 0, 0

    def response(self, k):
        """a.z_k."""
        return float(self.a @ self.Z[k])

    def squared_norm(self):
        """|a|^2."""
        return float(self.a @ self.a)

    def _move(self, k, m):
        self.a = self.a + m * self.Z[k]
        self.I[k] = self.I[k] + m

    def present(self, k):
        """How often z_k was learned now; below 0, how often it was unlearned."""
        return self._update(k, self.response(k))

    def _update(self, k, p):
        count = int(self.I[k])
        if p <= self.threshold and count < self.cap:
            m = min(self._times(self.threshold - p, k), self.cap - count)
            self.t_plus = self.t_plus + m
        elif count > 0 and p >= self.threshold + self.gap:
            m = -min(self._times(p - self.threshold - self.gap, k), count)
            self.t_minus = self.t_minus - m
        else:
            return 0
        self._move(k, m)
        return m

    def _times(self, excess, k):
        # the response of a zero pattern stays at 0 <= b
        if self.squares[k] == 0:
            return math.inf
        # Section 4
        return math.floor(excess / self.squares[k]) + 1

    def full_pass(self, order):
        """Present these; return the first-level set, in that order."""
        first = []
        for k in order:
            p = self.response(k)
            self._update(k, p)
            if p <= 1.01 * self.threshold or self.I[k] > 0:
                first.append(k)
        return first

    def first_level(self, first):
        """Present the first-level set; return the second-level set, in that order."""
        second = []
        for k in first:
            if self.present(k) != 0 and self.I[k] > 0:
                second.append(k)
        return second

    def second_level(self, second):
        """Present the second-level set until nothing changes, 10 times at most."""
        for _ in range(10):
            before = self.updates()
            for k in second:
                self.present(k)
            if self.updates() == before:
                break

    def cycle(self, order):
        """A full pass and up to 3 rounds; whether the full pass updated anything."""
        start = self.updates()
        first = self.full_pass(order)
        updated = self.updates() > start
        for _ in range(3):
            before = self.updates()
            second = self.first_level(first)
            if self.updates() == before:
                break
            self.second_level(second)
        return updated

    def updates(self):
        """t = t+ + t- (4)."""
        return self.t_plus + self.t_minus

    def _responses(self):
        return [self.response(k) for k in range(len(self.I))]

    def objectives(self):
        """Of a soft margin, w = a / b and C = I_max / b; the accuracy is that of (24).

        While the dual value is not positive nothing is known of J_opt.
        """
        b = self.threshold
        half = self.squared_norm() / b**2 / 2
        hinge = sum(max(0.0, 1 - p / b) for p in self._responses())
        value = half + self.cap / b * hinge
        dual = int(self.I.sum()) / b - half
        return Objectives(value, dual, value / dual - 1 if dual > 0 else math.inf)

    def margin(self):
        """d', the smallest a.z_k / |a|."""
        return min(self._responses()) / math.sqrt(self.squared_norm())

    def fraction(self):
        """At least this part of the largest margin was found, by (12)."""
        learned = self.t_plus - self.t_minus
        return self.margin() * learned / math.sqrt(self.squared_norm())


class KernelMPU(MPU):
    """The same from a matrix of plain k(x_i, x_j): only the counts are kept (6)."""

    def __init__(self, K, y, *, threshold, gap, cap, augment=0.0):
        K, y = np.asarray(K, np.float64), np.asarray(y, np.float64)
        self.Q = np.array([y[k] * y * (K[k] + augment**2) for k in range(len(K))])
        self._start([q[k] for k, q in enumerate(self.Q)], threshold, gap, cap)

    def response(self, k):
        return float(sum(self.I[j] * self.Q[j, k] for j in np.flatnonzero(self.I)))

    def squared_norm(self):
        return float(sum(self.I[k] * self.response(k) for k in np.flatnonzero(self.I)))

    def _move(self, k, m):
        self.I[k] = self.I[k] + m


# ------------------------------------------------------------------------------- DCD


def dcd_constants(penalty, loss):
    """U and D_ii: the dual is min a^T (Q + D) a / 2 - sum a over 0 <= a <= U."""
    return {"hinge": (penalty, 0.0), "squared_hinge": (math.inf, 1 / (2 * penalty))}[
        loss
    ]


def dcd_pass(
    X,
    y,
    alpha,
    w,
    order,
    *,
    upper,
    diagonal,
    shrink=(math.inf, -math.inf),
    augment=0.0,
):
    """Exact steps in the coordinates of `order`, in place in alpha and in w.

    Returns who was not shrunk, in that order, and the largest and the smallest of the
    projected gradients, M and m. One who is shrunk is not updated and counts in neither
    M nor m. `shrink` is (Mbar, mbar) of the pass before.
    """
    Z = patterns(X, y, augment)
    kept, largest, smallest = [], -math.inf, math.inf
    for i in order:
        z = Z[i]
        curvature = z @ z + diagonal
        # (a)
        gradient = w @ z - 1 + diagonal * alpha[i]
        # (b)
        projected = gradient
        if alpha[i] == 0:
            if gradient > shrink[0]:
                continue
            projected = min(gradient, 0.0)
        elif alpha[i] == upper:
            if gradient < shrink[1]:
                continue
            projected = max(gradient, 0.0)
        kept.append(i)
        # (c)
        largest, smallest = max(largest, projected), min(smallest, projected)
        # (d)
        if projected != 0:
            old = float(alpha[i])
            # the gradient of a zero row with no diagonal is -1 everywhere
            target = old - gradient / curvature if curvature > 0 else upper
            alpha[i] = min(max(target, 0.0), upper)
            w += (alpha[i] - old) * z
    return kept, largest, smallest


def dcd_bounds(largest, smallest):
    """(Mbar, mbar) of the next pass, from M and m: step 4 of Algorithm 3."""
    return (
        largest if largest > 0 else math.inf,
        smallest if smallest < 0 else -math.inf,
    )


def dual(X, y, alpha, penalty, loss="hinge", augment=0.0):
    """The dual value of alpha, at most J everywhere."""
    _, diagonal = dcd_constants(penalty, loss)
    w = alpha @ patterns(X, y, augment)
    return np.sum(alpha) - w @ w / 2 - diagonal * (alpha @ alpha) / 2


# --------------------------------------------------------------------------- Pegasos


def pegasos(X, y, regularization, draws, augment=0.0):
    """w after all rows of `draws`, each of them the patterns of one step.

    The objective is lambda |w|^2 / 2 + mean hinge: lambda is 1 / (n C), and its value
    lambda J(w). A pattern drawn twice in a row counts twice.
    """
    Z = patterns(X, y, augment)
    w = np.zeros(Z.shape[1])
    for t, block in enumerate(draws, start=1):
        eta = 1 / (regularization * t)
        violators = [Z[k] for k in block if w @ Z[k] < 1]
        # 1 - eta_t lambda
        w = (1 - 1 / t) * w
        for z in violators:
            w = w + eta / len(block) * z
    return w


# --------------------------------------------------------------------------- Optimum


class Optimum(NamedTuple):
    """The smallest J, to 1e-9 of it, where it is, and the dual's solution."""

    value: float
    w: np.ndarray
    alpha: np.ndarray


def optimum(X, y, penalty, loss="hinge", augment=0.0):
    """By an interior-point method on the dual, for some hundred patterns.

    What it returns is in the box, so that weak duality vouches for it.
    """
    upper, diagonal = dcd_constants(penalty, loss)
    Z = patterns(X, y, augment)
    best, least = None, math.inf
    for alpha in interior_points(Z @ Z.T + diagonal * np.eye(len(Z)), upper):
        w = alpha @ Z
        value = primal(X, y, w, penalty, loss, augment)
        gap = value - dual(X, y, alpha, penalty, loss, augment)
        if gap < least:
            best, least = Optimum(value, w, alpha), gap
        if least <= 1e-11 * value:
            break
    assert least <= 1e-9 * best.value, f"gap of {least} at {best.value}"
    return best


def maximum_margin(X, y, augment=0.0):
    """max_u min_k u.z_k over unit vectors u, of separable patterns."""
    Z = patterns(X, y, augment)
    best, least = 0.0, math.inf
    for alpha in interior_points(Z @ Z.T, math.inf):
        w = alpha @ Z
        # u = w / |w| has the first margin; a.u >= d sum a for the best u bounds it
        found, bound = min(Z @ w) / math.sqrt(w @ w), math.sqrt(w @ w) / sum(alpha)
        if bound - found < least:
            best, least = found, bound - found
        if least <= 1e-11 * bound:
            break
    assert least <= 1e-9 * best, "the patterns are not separable"
    return float(best)


def interior_points(H, upper):
    """Ever better points of min a^T H a / 2 - sum a over 0 < a < upper.

    Newton steps on H a - 1 - s + v = 0 with s_i a_i = v_i (upper - a_i) = mu.
    """
    n = len(H)
    bounds = 2 * n if math.isfinite(upper) else n
    a = np.full(n, upper / 2 if math.isfinite(upper) else 1 / np.trace(H))
    s, v = np.ones(n), np.full(n, float(math.isfinite(upper)))
    room = upper - a
    for _ in range(100):
        above = room @ v if math.isfinite(upper) else 0.0
        mu = 0.1 * (a @ s + above) / bounds
        stiffness = s / a + v / room
        da = np.linalg.solve(H + np.diag(stiffness), 1 - H @ a + mu / a - mu / room)
        ds = mu / a - s - s / a * da
        dv = mu / room - v + v / room * da
        # 0.99 of the way to where the first of them is 0
        step = 1.0
        for values, steps in [(a, da), (s, ds), (room, -da), (v, dv)]:
            falling = steps < 0
            step = min([step, *(-0.99 * values[falling] / steps[falling])])
        a, room = a + step * da, room - step * da
        s, v = s + step * ds, v + step * dv
        yield a

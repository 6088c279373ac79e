"""KRLS-T: a Gaussian process of the support vectors, which learns and forgets.

After Van Vaerenbergh, Lazaro-Gredilla and Santamaria, "Kernel recursive least-squares
tracker for time-varying regression", IEEE TNNLS 23 (2012).

Everything is in values of the process at the support vectors Z: f(Z) has the mean mu
and the covariance Sigma, in units of the power s0 that is learned. An example enters
first, as in the paper, and one vector then leaves.

A support vector's own variance has a ridge, k(z, z) (1 + ridge), and so has that of an
example, but not the product of two vectors, however near they are.
"""

from dataclasses import dataclass

import numpy as np


@dataclass
class Tracked:
    scores: np.ndarray  # (n,) or (n, C): means before every example, also of weight 0
    variances: np.ndarray  # (n,) or (n, C): of its target, with noise
    mistakes: list  # rounds with a score of the wrong sign
    updates: list  # all rounds
    vectors: np.ndarray  # (m, d), by slot
    coefficients: np.ndarray  # (m, C)
    ages: list
    slots: list
    covariance: np.ndarray  # (m, m): of the values at the vectors


class Process:
    """The process, with slots in the order in which they were first filled."""

    def __init__(self, kernel, budget, noise, forgetting, novelty, ridge, factor, C):
        self.kernel, self.budget, self.noise = kernel, budget, noise
        self.kept, self.novelty, self.ridge = 1 - forgetting, novelty, ridge
        self.factor = factor
        self.Z, self.ages = [], []
        self.mu, self.Sigma = np.zeros((0, C)), np.zeros((0, 0))
        self.errors, self.number = np.zeros(C), 0.0

    def products(self):
        """The kernel matrix with its ridge."""
        m = len(self.Z)
        K = np.array([[self.kernel(a, b) for a in self.Z] for b in self.Z])
        return K.reshape(m, m) + self.ridge * np.diag(np.diag(K.reshape(m, m)))

    def at(self, x):
        """Of f(x): weights of f(Z), residual, mean, variance, covariance with f(Z)."""
        k = np.array([self.kernel(z, x) for z in self.Z])
        q = np.linalg.solve(self.products(), k) if self.Z else k
        beyond = (1 + self.ridge) * self.kernel(x, x) - k @ q
        h = self.Sigma @ q
        return q, beyond, q @ self.mu, beyond + q @ h, h

    def predict(self, x):
        """Mean and variance of y."""
        _, _, mean, variance, _ = self.at(x)
        s0 = self.errors / self.number if self.number else np.ones(len(self.errors))
        return mean, s0 * (variance + self.noise)

    def learn(self, x, y, weight, age):
        self.Sigma = self.kept * self.Sigma + (1 - self.kept) * self.products()
        self.mu = np.sqrt(self.kept) * self.mu
        _, beyond, mean, variance, h = self.at(x)
        power = variance + self.noise / weight
        error = y - mean
        self.errors = self.factor * self.errors + error**2 / power
        self.number = self.factor * self.number + 1

        # All values learn, that of x too.
        g = np.append(h, variance)
        mu = np.vstack([self.mu, mean]) + np.outer(g, error / power)
        Sigma = np.block([[self.Sigma, h[:, None]], [h[None], variance]])
        Sigma = Sigma - np.outer(g, g) / power
        self.Z, self.ages = [*self.Z, x], [*self.ages, age]
        if beyond < self.novelty * self.kernel(x, x):
            leaves = len(self.Z) - 1
        elif len(self.Z) > self.budget:
            Q = np.linalg.inv(self.products())
            leaves = int(np.argmin(np.linalg.norm(Q @ mu, axis=1) / np.diag(Q)))
        else:
            leaves = None
        keep = np.arange(len(self.Z))
        if leaves is not None:
            # The example takes the slot of the vector that leaves.
            keep[leaves] = keep[-1]
            keep = keep[:-1]
        self.Z, self.ages = [self.Z[i] for i in keep], [self.ages[i] for i in keep]
        self.mu, self.Sigma = mu[keep], Sigma[np.ix_(keep, keep)]


def run(
    kernel,
    X,
    y,
    *,
    budget,
    noise,
    forgetting=0.0,
    novelty,
    ridge,
    factor=0.99,
    weights=None,
):
    """One pass; `y` has shape (n,), or (n, C) for several outputs."""
    targets = np.asarray(y, np.float64).reshape(len(X), -1)
    process = Process(
        *(kernel, budget, noise, forgetting, novelty, ridge, factor, targets.shape[1])
    )
    weights = np.ones(len(X)) if weights is None else weights
    scores, variances, mistakes, t = [], [], [], 0
    for x, target, weight in zip(X, targets, weights, strict=True):
        score, variance = process.predict(x)
        scores.append(score)
        variances.append(variance)
        if weight == 0:
            continue
        t += 1
        process.learn(x, target, weight, t)
        if not np.min(target * score) > 0:
            mistakes.append(t)
    coefficients = np.linalg.solve(process.products(), process.mu)
    shape = np.shape(y)
    return Tracked(
        np.reshape(scores, shape),
        np.reshape(variances, shape),
        mistakes,
        list(range(1, t + 1)),
        np.array(process.Z),
        coefficients,
        process.ages,
        list(range(len(process.Z))),
        process.Sigma,
    )


def exact(kernel, X, y, rows, noise):
    """Mean and variance of f(rows) of a Gaussian process that has seen all of X."""
    K = np.array([[kernel(a, b) for a in X] for b in X])
    k = np.array([[kernel(a, b) for b in rows] for a in X])
    S = K + noise * np.eye(len(X))
    selves = np.array([kernel(x, x) for x in rows])
    return k.T @ np.linalg.solve(S, y), selves - np.sum(k * np.linalg.solve(S, k), 0)

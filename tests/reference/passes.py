"""One pass of an online learner: its rounds, and what is recorded of them.

Rounds are those with a weight other than 0, counted from 1. An example of weight 0 is
skipped: it has a score but is no round.
"""

from dataclasses import dataclass, field

import numpy as np

from . import support
from .maintenance import insert


@dataclass
class Record:
    scores: np.ndarray  # (n,) or (n, C): f_t(x_t) before the update, every example
    mistakes: list  # rounds with margin <= 0
    updates: list  # rounds in which a candidate wanted in
    vectors: np.ndarray  # (m, d), by slot
    coefficients: np.ndarray  # (m, C), true: any scale is multiplied in
    ages: list  # (m,)
    slots: list  # (m,): those not free, ascending
    averaged: np.ndarray | None = None  # (m, C): the mean of the true coefficients
    slack: list = field(default_factory=list)  # Forgetron: 15/32 M - Q, every round
    moves: int = 0  # AROW: rounds in which Pegasos took the example
    covariance: np.ndarray | None = None  # (m, m): AROW: A, of the coefficients


class Pass:
    """The support vectors of a learner, and what has happened so far.

    With `average_from` the model after every round from that one on is averaged.
    """

    def __init__(
        self,
        kernel,
        X,
        y,
        *,
        budget=np.inf,
        maintenance=None,
        num_classes=2,
        weights=None,
        average_from=None,
    ):
        self.kernel, self.budget, self.maintenance = kernel, budget, maintenance
        self.X, self.y = np.asarray(X, dtype=np.float64), y
        # One column of coefficients for a binary model, and for numbers.
        self.C = num_classes if (num_classes or 2) > 2 else 1
        weights = np.ones(len(X)) if weights is None else weights
        self.weights = np.asarray(weights, dtype=np.float64)
        self.average_from, self.averaged_rounds = average_from, 0
        self.active, self.t = [], 0
        self.scores, self.mistakes, self.updates = [], [], []

    def rounds(self, score=None):
        """x, y and the weight of every round, and its scores before the update."""
        for x, y, weight in zip(self.X, self.y, self.weights, strict=True):
            f = (score or self.unscaled_scores)(x)
            self.scores.append(f)
            if weight == 0:
                continue
            self.t = self.t + 1
            yield x, y, weight, f
            assert len(self.active) <= self.budget

    def unscaled_scores(self, x):
        return support.unscaled_scores(self.kernel, self.active, x, self.C)

    def margin_and_rival(self, f, label):
        """Those of `support`; a mistake is recorded."""
        margin, rival = support.margin_and_rival(f, label)
        if margin <= 0:
            self.mistakes.append(self.t)
        return margin, rival

    def insert(self, x, row):
        """Takes the example in, with these coefficients."""
        sums = None if self.average_from is None else np.zeros(self.C)
        candidate = support.SupportVector(x, row, self.t, sums)
        self.active = insert(
            self.kernel, self.active, candidate, self.budget, self.maintenance
        )

    def add_to_average(self, scale=1.0):
        """The coefficients at the end of a round, times their scale."""
        if self.average_from is not None and self.t >= self.average_from:
            self.averaged_rounds = self.averaged_rounds + 1
            for s in support.occupied(self.active):
                s.sums = s.sums + scale * s.coefficients

    def norm(self, K):
        """||sum_i a_i phi(x_i)|| over all columns; rounding may leave -0."""
        a = support.stack_coefficients(self.active)
        return np.sqrt(max(0.0, ((a @ a.T) * K).sum()))

    def score_array(self):
        """(n,) when binary, (n, C) otherwise."""
        scores = np.array(self.scores)
        return scores[:, 0] if self.C == 1 else scores

    def record(self, scale=1.0, **more):
        """Of the model after the last round; `more` stands for what others compute."""
        everyone = support.occupied(self.active)
        m = len(everyone)
        found = {
            "scores": self.score_array(),
            "mistakes": self.mistakes,
            "updates": self.updates,
            "vectors": np.reshape([s.vector for s in everyone], (m, -1)),
            "coefficients": scale
            * np.reshape([s.coefficients for s in everyone], (m, self.C)),
            "ages": [s.age for s in everyone],
            "slots": [i for i, s in enumerate(self.active) if s is not None],
        }
        if self.averaged_rounds:
            sums = np.reshape([s.sums for s in everyone], (m, self.C))
            found["averaged"] = sums / self.averaged_rounds
        return Record(**found | more)

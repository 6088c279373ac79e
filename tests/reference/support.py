"""Support vectors and the model they make.

A model is a plain list of support vectors; the position in the list is the slot.
A free slot between the others is None; only strategies that merge more than two at
once leave such. A candidate for a model that is not full goes to the first free slot.
"""

from dataclasses import dataclass

import numpy as np


@dataclass
class SupportVector:
    vector: np.ndarray  # (d,)
    coefficients: np.ndarray  # (C,), unscaled; C = 1 when binary
    age: int  # the round in which it was inserted, counted from 1
    # (C,), the sum of its true coefficients over the rounds that are averaged, where
    # a run averages; every strategy maps the sums as it maps the coefficients
    sums: np.ndarray | None = None


def weighted_sum(row, coefficients):
    """sum_j row_j a_j, a row of C numbers; every column summed in slot order."""
    return (row[:, None] * coefficients).sum(axis=0)


def occupied(active):
    """The support vectors of a model, in slot order, without the free slots."""
    return [s for s in active if s is not None]


def stack_vectors(active):
    return np.array([s.vector for s in occupied(active)])


def stack_coefficients(active):
    return np.array([s.coefficients for s in occupied(active)])


def kernel_matrix(kernel, vectors):
    """k(x_i, x_j) of a list of vectors."""
    Z = np.array(vectors)
    return np.array([kernel(z, Z) for z in Z])


def with_ridge(K, ridge):
    """K + ridge diag(K)."""
    return K + ridge * np.diag(np.diag(K))


def unscaled_scores(kernel, active, x, C):
    """sum_j a_j k(x_j, x) with the unscaled coefficients; zero for an empty model."""
    if not occupied(active):
        return np.zeros(C)
    return weighted_sum(kernel(x, stack_vectors(active)), stack_coefficients(active))


def margin_and_rival(scores, label):
    """y f and None, or f^(y) - f^(r) and r = argmax_{i != y} f^(i), lowest index.

    The rival class r is r_t of Wang, Crammer, Vucetic, ICML 2010, eq. (2).
    """
    if len(scores) == 1:
        return label * scores[0], None
    others = scores.copy()
    others[label] = -np.inf
    rival = int(np.argmax(others))  # argmax returns the first of equals
    return scores[label] - scores[rival], rival


def candidate_row(label, rival, C):
    """The coefficients of a candidate: y, or +1 in column y and -1 in column r."""
    row = np.zeros(C)
    if C == 1:
        row[0] = label
    else:
        row[label] = 1.0
        row[rival] = -1.0
    return row


class Gram:
    """The kernel matrix of a list of vectors, remembered between calls.

    Only the rows (and columns) of positions that hold another array object than
    at the last call are computed again.
    """

    def __init__(self):
        self.kernel = None
        self.vectors = []
        self.values = np.zeros((0, 0))

    def __call__(self, kernel, vectors):
        if kernel is not self.kernel:
            self.kernel, self.vectors = kernel, []
        known = min(len(vectors), len(self.vectors))
        values = np.empty((len(vectors), len(vectors)))
        values[:known, :known] = self.values[:known, :known]
        Z = np.array(vectors)
        for i in range(len(vectors)):
            if i >= known or vectors[i] is not self.vectors[i]:
                values[i, :] = kernel(Z[i], Z)
                values[:, i] = values[i, :]
        self.vectors, self.values = list(vectors), values
        return values

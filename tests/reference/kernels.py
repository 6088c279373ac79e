"""Kernels as plain functions: k(x, Z) is the row of k(x, z_i) for the rows of Z.

Each is written with elementwise operations and a sum over the last axis, never
as a matrix product, for three reasons: k(x, z) and k(z, x) are the same number
to the last bit, a value does not depend on the row of Z it stands in, and
k(Z, Z), by broadcasting, is the row of the k(z_i, z_i).
"""

import numpy as np


def linear():
    """<x, z>."""

    def k(x, Z):
        return (Z * x).sum(axis=-1)

    return k


def polynomial(degree, gamma, coef0):
    """(gamma <x, z> + coef0) ** degree."""

    def k(x, Z):
        # np.power and not **, which rounds differently for a single number
        return np.power(gamma * (Z * x).sum(axis=-1) + coef0, degree)

    return k


def rbf(gamma):
    """exp(-gamma ||x - z||^2), from the differences; k(x, x) is exactly 1."""

    def k(x, Z):
        return np.exp(-gamma * ((Z - x) ** 2).sum(axis=-1))

    return k


def laplacian(gamma):
    """exp(-gamma ||x - z||_1)."""

    def k(x, Z):
        return np.exp(-gamma * np.abs(Z - x).sum(axis=-1))

    return k


def sigmoid(gamma, coef0):
    """tanh(gamma <x, z> + coef0); not positive definite."""

    def k(x, Z):
        return np.tanh(gamma * (Z * x).sum(axis=-1) + coef0)

    return k


def normalized(kernel):
    """k(x, z) / sqrt(k(x, x) k(z, z)); the value of (x, x) is exactly 1."""

    def k(x, Z):
        return kernel(x, Z) / np.sqrt(kernel(x, x) * kernel(Z, Z))

    return k

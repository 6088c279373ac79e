"""The multi-class SVM with kernels (Crammer and Singer 2001), solved to its optimum.

    min_w 1/2 sum_c ||w_c||^2 + C sum_i max(0, 1 + max_{r != y_i} w_r x_i - w_{y_i} x_i)

with w_c = sum_i tau_ic x_i, by its dual, one example after the other:

    max_tau sum_i tau_{i,y_i} - 1/2 sum_ij K_ij tau_i . tau_j
    tau_ic <= C [c = y_i], sum_c tau_ic = 0
"""

import numpy as np


def solve(K, y, num_classes, penalty, passes):
    """The matrix tau."""
    labels = np.eye(num_classes)[y]
    tau = np.zeros((len(y), num_classes))
    for _ in range(passes):
        for i in range(len(y)):
            slope = K[i] @ tau - K[i, i] * tau[i] - labels[i]
            most = penalty * labels[i]
            # The sum of min(most, (theta - slope) / K_ii) rises with theta.
            low, high = np.min(slope), np.max(slope + K[i, i] * penalty)
            for _ in range(60):
                theta = (low + high) / 2
                tau[i] = np.minimum(most, (theta - slope) / K[i, i])
                low, high = (low, theta) if np.sum(tau[i]) > 0 else (theta, high)
    return tau


def losses(K, y, tau):
    scores = K @ tau
    own = scores[np.arange(len(y)), y]
    scores[np.arange(len(y)), y] = -np.inf
    return np.maximum(0, 1 + np.max(scores, axis=1) - own)


def primal(K, y, tau, penalty):
    return np.sum(tau * (K @ tau)) / 2 + penalty * np.sum(losses(K, y, tau))


def dual(K, y, tau):
    return np.sum(tau[np.arange(len(y)), y]) - np.sum(tau * (K @ tau)) / 2

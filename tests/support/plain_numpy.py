"""The paper's updates, written down straight from its table: dense vectors, and no state to be lazy about."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from lab.experiments.datasets import Dataset

Floats = npt.NDArray[np.float64]


class Figures(NamedTuple):
    auc: float
    density: float


def dense(dataset: Dataset, rows: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """theta float64[r, features] and labels, the rows in the given order."""
    theta = np.zeros((dataset.rows, dataset.features))
    b = dataset.batch
    for i in range(dataset.rows):
        span = slice(b.row_ptr[i], b.row_ptr[i + 1])
        theta[i, b.hashes[span]] = b.values[span] if b.values.size else 1.0
    return theta[rows], b.labels[rows]


def one_pass(
    theta: Floats,
    labels: Floats,
    family: str,
    implicit: bool,
    gamma: float,
    floor: float,
    l1: float,
) -> Figures:
    """lambda = l1 / T on every round."""
    rounds, size = theta.shape
    x, n, gradients, centred, subgradients = (np.zeros(size) for _ in range(5))
    q_old = np.full(size, floor)
    predictions = []
    for t in range(1, rounds + 1):
        features, y = theta[t - 1], labels[t - 1]
        p = expit(features @ x)
        predictions.append(p)
        n += ((p - y) * features) ** 2
        q = np.maximum(floor, np.sqrt(n) / gamma)
        centred += (q - q_old) * (x if family in ("ftrl", "comid") else 0.0)
        past_exact = family in ("comid", "aogd")
        linear = gradients - centred + (subgradients if past_exact else 0.0)
        penalty = l1 / rounds * (1 if past_exact else t)
        point = _argmin(linear, features, penalty, q)
        r = _root(point, features, y) if implicit else p - y
        x_next = point(r)
        gradients += r * features
        if past_exact:  # phi_t, a subgradient of alpha Psi at x_{t+1}
            subgradients += np.where(q > 0, -(linear + r * features) - q * x_next, 0.0)
        x, q_old = x_next, q
    present = (theta != 0).any(axis=0)
    return Figures(float(roc_auc_score(labels, predictions)), np.count_nonzero(x) / np.count_nonzero(present))


def _argmin(linear: Floats, features: Floats, penalty: float, q: Floats) -> Callable[[float], Floats]:
    """x(r) = argmin of (linear + r features) x + penalty |x|_1 + q x^2 / 2."""

    def point(r: float) -> Floats:
        z = linear + r * features
        excess = np.maximum(np.abs(z) - penalty, 0.0)
        return np.where(q > 0, -np.sign(z) * excess / np.where(q > 0, q, 1.0), 0.0)

    return point


def _root(point: Callable[[float], Floats], features: Floats, y: float) -> float:
    """r = sigmoid(theta . x(r)) - y."""

    def off(r: float) -> float:
        return float(r - (expit(features @ point(r)) - y))

    return float(brentq(off, -1.0, 1.0, xtol=1e-15, rtol=1e-14))

"""Rounds of online learning, seen from outside the kernels, for the tests of what the paper says of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_core.examples.batch import ExampleBatch
from model_core.learning.hyperparameters import AdaptiveRate, GammaRate, Hyperparameters, Rate, ScalarRate
from model_core.learning.rounds import learn_batch
from model_core.learning.state import Discount, Mixture, ModelState

COORDINATES = 8


def curvature(rate: Rate, n: NDArray[np.float64], t: int) -> NDArray[np.float64]:
    """Q_{1:t}."""
    if isinstance(rate, AdaptiveRate):
        return (rate.beta + np.sqrt(n)) / rate.alpha
    if isinstance(rate, GammaRate):
        return np.maximum(rate.floor, np.sqrt(n) / rate.gamma)
    assert isinstance(rate, ScalarRate)
    return np.full(n.size, rate.factor * rate.G * math.sqrt(2 * t) / rate.D)


def residual(margin: float, y: float) -> float:
    """sigmoid(margin) - y, from the smaller of sigmoid(margin) and sigmoid(-margin)."""
    small = math.exp(-abs(margin)) / (1 + math.exp(-abs(margin)))
    return (1 - y) - small if margin > 0 else small - y


def log_loss(margin: float, y: float) -> float:
    """log(1 + e^margin) - y margin."""
    return math.log1p(math.exp(-abs(margin))) + ((1 - y) * margin if margin > 0 else -y * margin)


class Problem(NamedTuple):
    """T examples of COORDINATES features each: theta float64[T, d], labels, weights."""

    theta: NDArray[np.float64]
    labels: list[float]
    weights: list[float]

    def loss(self, x: NDArray[np.float64]) -> float:
        """Of all examples at one x."""
        losses = [log_loss(float(m), y) for m, y in zip(self.theta @ x, self.labels, strict=True)]
        return float(np.dot(losses, self.weights))


class Round(NamedTuple):
    """x_t, x_{t+1} and Q_{1:t}; g, the gradient of f_t at x_t, and g_in, that which enters z; f_t(x_t)."""

    x: NDArray[np.float64]
    x_next: NDArray[np.float64]
    q: NDArray[np.float64]
    g: NDArray[np.float64]
    g_in: NDArray[np.float64]
    loss: float


def random_problem(seed: int, rounds: int = 30) -> Problem:
    """Half of the features are missing in an example; labels follow a random direction, with noise, and a
    quarter of them are between 0 and 1.
    """
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(rounds, COORDINATES)) * (rng.random((rounds, COORDINATES)) < 0.5)
    margins = theta @ rng.normal(size=COORDINATES) + rng.normal(size=rounds)
    weights = rng.choice([0.3, 1.0, 1.0, 5.0], rounds)
    labels = np.where(rng.random(rounds) < 0.25, 1 / (1 + np.exp(-margins)), margins > 0)
    return Problem(theta, labels.tolist(), weights.tolist())


def played(hyper: Hyperparameters, problem: Problem) -> list[Round]:
    """One example after the other through the kernels; weights are read, never taken from z."""
    state, rounds = ModelState.empty(COORDINATES.bit_length() - 1), []
    slots = np.arange(COORDINATES, dtype=np.uint32)
    n, x = np.zeros(COORDINATES), np.zeros(COORDINATES)
    for t, (theta, y, c) in enumerate(zip(*problem, strict=True), start=1):
        one = ExampleBatch.from_encoded([(slots.tolist(), theta.tolist())], [y], [c])
        margin = float(learn_batch(state, hyper, False, 0.0, one).margins[0])
        x_next = state.weights(slots, hyper)
        g = c * residual(margin, y) * theta
        n = n + g**2
        g_in = g if hyper.update == "first_order" else c * residual(float(theta @ x_next), y) * theta
        rounds.append(Round(x, x_next, curvature(hyper.rate, n, t), g, g_in, c * log_loss(margin, y)))
        x = x_next
    return rounds


def discount_of(state: ModelState) -> Discount:
    """The discount of a single model."""
    assert isinstance(state.discount, Discount)
    return state.discount


def mixture_of(state: ModelState) -> Mixture:
    assert isinstance(state.discount, Mixture)
    return state.discount

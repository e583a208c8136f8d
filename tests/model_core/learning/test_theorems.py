"""What the paper proves of the unified update, on random problems.

McMahan, "A Unified View of Regularized Dual Averaging and Mirror Descent with Implicit Updates", with the
errata of docs/mathematics.md.  Steps are judged by the weights that the kernels read and by the gradients of
the losses, not by the kernels' own z.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model_core.learning.hyperparameters import (
    AdaptiveRate,
    Family,
    GammaRate,
    Hyperparameters,
    ScalarRate,
    Update,
)
from model_core.learning.schedules import (
    Constant,
    Custom,
    InvSqrt,
    Once,
    OverT,
    Schedule,
    Xiao,
    alpha_at,
)
from tests.support.rounds import COORDINATES, Problem, Round, log_loss, played, random_problem
from tests.support.schedule_sums import cumulative_alpha

FAMILIES: tuple[Family, ...] = ("ftrl", "rda", "comid", "aogd")
UPDATES: tuple[Update, ...] = ("first_order", "implicit")
seeds = st.integers(0, 2**32 - 1)
rates = st.sampled_from([AdaptiveRate(0.3, 1.0), GammaRate(0.9, 1.5), ScalarRate(2.0, 4.0)])
schedules = st.sampled_from([Constant(), OverT(20), Once(), InvSqrt(), Xiao(2.0), Custom((1.0, 0.5, 0.5))])


def close(actual: NDArray[np.float64], wanted: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(actual, wanted, rtol=1e-9, atol=1e-10)


def assert_in_subdifferential(
    e: NDArray[np.float64], x: NDArray[np.float64], l1: float, box: float | None, scale: NDArray[np.float64]
) -> None:
    """e in the subdifferential of l1 |x|_1 + the indicator of the box, at x."""
    tolerance = 1e-9 * (1.0 + scale)
    beyond = e - l1 * np.sign(x)
    at_box = np.zeros(x.size, bool) if box is None else np.abs(x) >= box * (1 - 1e-12)
    assert np.all(np.abs(e[x == 0]) <= l1 + tolerance[x == 0])
    inside = (x != 0) & ~at_box
    assert np.all(np.abs(beyond[inside]) <= tolerance[inside])
    assert np.all((beyond * np.sign(x))[at_box] >= -tolerance[at_box])
    assert box is None or np.all(np.abs(x) <= box)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=40)
@given(
    seeds,
    rates,
    schedules,
    st.sampled_from([0.0, 0.02, 0.3]),
    st.sampled_from([(0.0, 0.0), (0.5, 0.0), (0.0, 0.1)]),
    st.sampled_from([None, 0.25]),
)
def test_every_step_is_the_optimum_of_the_unified_objective(
    family: Family,
    update: Update,
    seed: int,
    rate: AdaptiveRate | GammaRate | ScalarRate,
    schedule: Schedule,
    l1: float,
    ridges: tuple[float, float],
    box: float | None,
) -> None:
    """Theorems 4 and 7: mirror descent is FTRL whose past penalties are their subgradients at the points met.

    On every round, for every coordinate, also those that the example does not touch, x_{t+1} is optimal for

        g'_{1:t} x + phi_{1:t-1} x + a Psi(x) + l2/2 |x|^2 + 1/2 sum_s |x - yc_s|^2 weighted by Q_s,

    yc_s = x_s (ftrl, comid) or 0 (rda, aogd), and phi = 0, a = A_t (ftrl, rda) or a = alpha_t and phi_s the
    subgradient of alpha_s Psi that was met at x_{s+1} (comid, aogd).
    """
    hyper = Hyperparameters(family, update, rate, schedule, l1, ridges[0], ridges[1], box)
    sums, terms = cumulative_alpha(schedule, 0, 30), schedule.terms()
    linear, scale, q_before = np.zeros(COORDINATES), np.zeros(COORDINATES), np.zeros(COORDINATES)
    for t, step in enumerate(played(hyper, random_problem(seed)), start=1):
        centre = step.x if family in ("ftrl", "comid") else 0.0
        linear = linear + step.g_in - (step.q - q_before) * centre
        rest = -linear - (step.q + hyper.l2) * step.x_next  # has to be a subgradient of a Psi
        keeps_penalties = family in ("ftrl", "rda")
        a = float(sums[t] if keeps_penalties else alpha_at(terms, t))
        scale = scale + np.abs(step.g_in) + np.abs(step.q * step.x_next)
        assert_in_subdifferential(rest - a * hyper.psi_l2 * step.x_next, step.x_next, a * l1, box, scale)
        if not keeps_penalties:
            linear = linear + rest
        q_before = step.q


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("family", ["ftrl", "comid"])
@given(seeds, rates, schedules)
def test_without_penalty_ftrl_proximal_is_gradient_descent(
    family: Family, update: Update, seed: int, rate: AdaptiveRate, schedule: Schedule
) -> None:
    """Corollary 5."""
    x = np.zeros(COORDINATES)
    for step in played(Hyperparameters(family, update, rate, schedule, 0.0), random_problem(seed)):
        x = x - step.g_in / step.q
        close(step.x_next, x)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("family", ["rda", "aogd"])
@given(seeds, rates, schedules)
def test_without_penalty_aogd_is_dual_averaging(
    family: Family, update: Update, seed: int, rate: AdaptiveRate, schedule: Schedule
) -> None:
    """Corollary 8: both are FTRL centred at the origin."""
    gradients = np.zeros(COORDINATES)
    for step in played(Hyperparameters(family, update, rate, schedule, 0.0), random_problem(seed)):
        gradients = gradients + step.g_in
        close(step.x_next, -gradients / step.q)


def best_in_hindsight(problem: Problem, l1: float, box: float) -> NDArray[np.float64]:
    """The minimum of the sum of all losses and l1 |x|_1 over the box, by proximal gradient steps."""
    theta, labels, weights = problem.theta, np.array(problem.labels), np.array(problem.weights)
    rate = 4.0 / float(weights @ (theta**2).sum(axis=1))
    x = np.zeros(COORDINATES)
    for _ in range(2000):
        x = x - rate * theta.T @ (weights * (1 / (1 + np.exp(-theta @ x)) - labels))
        x = np.clip(np.sign(x) * np.maximum(np.abs(x) - rate * l1, 0.0), -box, box)
    return x


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize(
    ("family", "factor", "bound", "l1s"),
    [("ftrl", 1, 1.0, (0.0, 0.1)), ("comid", 1, 1.0, (0.0, 0.1)), ("rda", 2, 0.5, (0.0, 0.1)),
     ("aogd", 2, 0.5, (0.0,))],
)  # fmt: skip
@settings(max_examples=15)
@given(seeds, st.sampled_from([Constant(), InvSqrt(), OverT(30)]), st.sampled_from([0.1, 0.5, 2.0]))
def test_the_regret_is_within_the_bound_of_corollary_1(
    family: Family,
    factor: float,
    bound: float,
    l1s: tuple[float, ...],
    update: Update,
    seed: int,
    schedule: Schedule,
    box: float,
) -> None:
    """Regret <= D G sqrt(2 T) centred at the points, half of it centred at the origin.

    D is the diameter of the box, G bounds the gradients; the scalar rate has factor 1, or 2 about the origin.
    """
    problem = random_problem(seed)
    T, D = len(problem.labels), 2 * box * math.sqrt(COORDINATES)
    G = float((np.array(problem.weights) * np.linalg.norm(problem.theta, axis=1)).max())
    alphas = np.diff(cumulative_alpha(schedule, 0, T))
    for l1 in l1s:
        rounds = played(
            Hyperparameters(family, update, ScalarRate(G, D, factor), schedule, l1, box=box), problem
        )
        paid = sum(
            step.loss + alpha * l1 * np.abs(step.x).sum() for step, alpha in zip(rounds, alphas, strict=True)
        )
        penalty = l1 * float(alphas.sum())
        best = best_in_hindsight(problem, penalty, box)
        regret = paid - problem.loss(best) - penalty * float(np.abs(best).sum())
        assert regret <= bound * D * G * math.sqrt(2 * T)


def advantage(step: Round) -> float:
    """delta_t = 1/2 (g - g') Q_{1:t}^-1 (g - g'), what the implicit update gains on the round."""
    return 0.5 * float(((step.g - step.g_in) ** 2 / step.q).sum())


@pytest.mark.parametrize("family", ["ftrl", "comid"])
@settings(max_examples=40)
@given(seeds, rates)
def test_an_implicit_step_beats_its_first_order_bound_by_delta(
    family: Family, seed: int, rate: AdaptiveRate
) -> None:
    """Lemma 11, with delta as it should read: >= 0, and > 0 exactly where the two gradients differ."""
    rounds = played(Hyperparameters(family, "implicit", rate, l1=0.0), random_problem(seed))
    for step in rounds:
        moved = step.x - step.x_next
        gained = float(step.g @ moved - 0.5 * (step.q * moved) @ moved)
        bound = 0.5 * float((step.g**2 / step.q).sum())
        assert gained == pytest.approx(bound - advantage(step), rel=1e-8, abs=1e-10)
        assert np.all(np.abs(step.g_in) <= np.abs(step.g))
        assert (advantage(step) > 0.0) == bool(np.any(step.g_in != step.g))
    assert sum(map(advantage, rounds)) > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("update", UPDATES)
@settings(max_examples=40)
@given(seeds, rates)
def test_the_regret_is_within_the_bound_of_theorem_2(update: Update, seed: int, rate: AdaptiveRate) -> None:
    """Regret(x) <= sum_t of 1/2 |x - x_t|^2 weighted by Q_t, + 1/2 g_t Q_{1:t}^-1 g_t - delta_t."""
    problem = random_problem(seed)
    rounds = played(Hyperparameters("ftrl", update, rate, l1=0.0), problem)
    rng = np.random.default_rng(seed)
    points = [
        *rng.normal(size=(10, COORDINATES)),
        np.zeros(COORDINATES),
        best_in_hindsight(problem, 0.0, 3.0),
    ]
    for x in points:
        bound, q_before = 0.0, np.zeros(COORDINATES)
        for step in rounds:
            bound += 0.5 * float((step.q - q_before) @ (x - step.x) ** 2)
            bound += 0.5 * float((step.g**2 / step.q).sum()) - advantage(step)
            q_before = step.q
        assert sum(step.loss for step in rounds) - problem.loss(x) <= bound + 1e-9


@pytest.mark.parametrize("rate", [0.1, 1.0, 10.0, 1e3, 1e6])
def test_a_first_order_step_may_overshoot_an_implicit_one_not(rate: float) -> None:
    """The paper's example, with log loss: one feature, one click, x_1 = 0, any learning rate."""
    problem = Problem(np.eye(1, COORDINATES), [1], [1.0])
    first_order = Hyperparameters(rate=GammaRate(1e6, 1.0 / rate), l1=0.0)
    (implicit,) = played(replace(first_order, update="implicit"), problem)
    (first,) = played(first_order, problem)

    def objective(step: Round) -> float:
        """f_1(x) + 1/2 Q |x - x_1|^2, which the step is to make small."""
        x = float(step.x_next[0])
        return log_loss(x, 1) + 0.5 * x * x / rate

    assert first.x_next[0] == pytest.approx(rate / 2, rel=1e-12)
    assert objective(implicit) < min(log_loss(0.0, 1), objective(first))
    assert (objective(first) > log_loss(0.0, 1)) == (rate > 5)
    assert 0.0 < implicit.x_next[0] < first.x_next[0]

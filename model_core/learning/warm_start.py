"""The state of a model that begins with weights which were learned elsewhere.

A weight is read as x = prox(z, Q(n) + l2 + A_t psi_l2, A_t l1), and n alone sets the rate at which the next
examples move it.  So n says how much evidence the weight stands for, and z is then the number that is read as
the weight: the paper's z for ftrl and rda under the same name, the point for comid and aogd.
"""

import numpy as np
from numpy.typing import NDArray

from model_core.errors import InvalidInput
from model_core.learning.hyperparameters import Hyperparameters
from model_core.learning.schedules import alpha_sum
from model_core.learning.state import ModelState
from model_core.learning.update import coefficients


def evidence_of(count: NDArray[np.float64], click_rate: float) -> NDArray[np.float64]:
    """n float64[k] of features that were in so many examples, with the value 1, when their model was learned.

    A calibrated prediction p has the gradient p - y, whose square has the mean p (1 - p) over the labels y.
    """
    return count * (click_rate * (1.0 - click_rate))


def add_in_slots(
    slots: NDArray[np.uint32], weights: NDArray[np.float64], n: NDArray[np.float64]
) -> tuple[NDArray[np.uint32], NDArray[np.float64], NDArray[np.float64]]:
    """Features float64[k] in slots uint32[k] as slots, each once and ascending, with one weight and n each.

    Features that share a slot have the mean of their weights by n (the plain mean where that is 0): the
    minimum of the sum of their quadratic losses.  Their n add up.
    """
    order = np.argsort(slots, kind="stable")
    each, first, counts = np.unique(slots[order], return_index=True, return_counts=True)
    if each.size == slots.size:
        return each, weights[order], n[order]
    total = np.add.reduceat(n[order], first)
    by_n = np.add.reduceat((weights * n)[order], first) / np.where(total > 0.0, total, 1.0)
    plain = np.add.reduceat(weights[order], first) / counts
    alone = weights[order][first]
    return each, np.where(counts == 1, alone, np.where(total > 0.0, by_n, plain)), total


def set_weights(
    state: ModelState,
    hyper: Hyperparameters,
    rounds: int,
    slots: NDArray[np.uint32],
    weights: NDArray[np.float64],
    n: NDArray[np.float64],
) -> None:
    """Make an empty state one of so many rounds (at least 1) that reads these weights float64[k] in slots
    uint32[k], with n float64[k]; the slot of the bias is read without penalty.  All experts of a mixture get
    them, each with the z of its own rate and l1.

    A weight is read to the rounding of z: within 2^-52 (|z| / curvature + |w|).
    Raises InvalidInput, with the position in slots as its path, for a weight that no z is read as.
    """
    assert rounds >= 1  # before the first round no penalty is in force
    state.t = rounds
    experts, penalised = hyper.experts, slots != state.size
    rows = np.hstack([np.zeros((slots.size, len(experts))), np.repeat(n[:, np.newaxis], len(experts), 1)])
    state.apply_rows(slots, rows)
    curvatures = state.readings_of_experts(slots, hyper)[1]
    for column, expert in enumerate(experts):
        c = coefficients(expert, False, 0.0)
        alpha = alpha_sum(c.schedule, rounds)
        total = curvatures[column] + np.where(penalised, c.l2 + alpha * c.psi_l2, 0.0)
        _check(weights, total, penalised, c.box)
        z = total * np.abs(weights) + np.where(penalised, alpha * c.l1, 0.0)
        rows[:, column] = np.where(weights == 0.0, 0.0, np.copysign(z, -weights))
    state.apply_rows(slots, rows)


def _check(
    weights: NDArray[np.float64], total: NDArray[np.float64], penalised: NDArray[np.bool_], box: float
) -> None:
    beyond = penalised & (np.abs(weights) > box)
    if beyond.any():
        i = int(np.argmax(beyond))
        raise InvalidInput((i,), f"the weight {weights[i]:g} is outside the model's box of {box:g}")
    unknown = (total == 0.0) & (weights != 0.0)
    if unknown.any():
        i = int(np.argmax(unknown))
        raise InvalidInput((i,), "a count above 0 is needed: with beta 0, no evidence means the weight 0")

"""Rounds of a mixture: K experts, each an FTRL-Proximal of its own, and the weights of their Bayes mixture.

With w_k the weights (at first 1/K), m_k the margins of the experts and f_k their losses at the label y,

    margin m = log(sum of w_k sigmoid(m_k)) - log(sum of w_k sigmoid(-m_k))
    w_k'     = w_k e^(-(c_t / C_t) f_k), normalised                     C_t: the largest c so far, or 1
    w_k      = (1 - share) w_k' + share / K

Each expert learns from its own margin, as a single model would, to the last bit.  Four share a register.
Where float64 does not hold a factor, everything is computed from logarithms: in the tails of the sigmoid, and
without a share, when an expert may weigh arbitrarily little and yet be the best later.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from model_core.kernels.compiled import inlined_kernel, kernel
from model_core.kernels.fours import abs4, load4, spread4, sqrt4, store4, where_positive
from model_core.kernels.numerics import exp, log1p, log_loss, sigmoid
from model_core.learning.rows import (
    CHANGED,
    ROUNDS_A_SEARCH,
    SEEN,
    drop_faded_of_mixture,
    fold_rows,
    prefetch_marks,
    prefetch_wide_rows,
)
from model_core.learning.step import (
    FIRST_EXAMPLES,
    Features,
    Prior,
    Scratch,
    gather,
    offset_from,
    prior_after,
    scratch_for,
)
from model_core.learning.update import (
    BETA,
    BY_SECONDS,
    DISCOUNT,
    HALF_LIVES,
    INVERSE_ALPHA,
    L1,
    NEVER,
    MixtureTerms,
    faded,
)

_SMALLEST = 1e-290  # of a sum of products that have lost no digits
_FROM_Z, _FROM_N, _TO_Z, _TO_N = range(4)


class Room(NamedTuple):
    """Room for the coordinates of one example in all lanes.

    z, n, q, x float64[c, lanes]: state, curvature and weight of each coordinate; z_new, n_new: the state
        after the round.
    units float64[4, lanes]: what z and n of a row are multiplied by, and the inverses.
    margins, residuals float64[1, lanes].  products float64[lanes].
    chances float64[2, lanes]: the probability that each expert gives to label 0 and to label 1.
    """

    z: NDArray[np.float64]
    n: NDArray[np.float64]
    q: NDArray[np.float64]
    x: NDArray[np.float64]
    z_new: NDArray[np.float64]
    n_new: NDArray[np.float64]
    units: NDArray[np.float64]
    margins: NDArray[np.float64]
    residuals: NDArray[np.float64]
    chances: NDArray[np.float64]
    products: NDArray[np.float64]


@njit(nogil=True, cache=True, error_model="numpy")
def predict_mixture(
    rows: NDArray[np.float64],
    experts: int,
    table: NDArray[np.float64],
    l2: float,
    psi_l2: float,
    box: float,
    bias: bool,
    offset: float,
    forgets: int,
    drop_below: float,
    share: float,
    clicks: float,
    others: float,
    clicked: float,
    learned: int,
    scales: NDArray[np.float64],
    weights_of_experts: NDArray[np.float64],
    log_weights: NDArray[np.float64],
    row_ptr: NDArray[np.int64],
    hashes: NDArray[np.uint32],
    values: NDArray[np.float64],
    as_probability: bool,
) -> NDArray[np.float64]:
    """float64[r]: margins, or their sigmoids."""
    m = MixtureTerms(experts, table, l2, psi_l2, box, bias, offset, forgets, drop_below, share)
    prior = Prior(clicks, others, clicked, learned)
    features = Features(row_ptr, hashes, values)
    s = scratch_for(row_ptr, 0)
    room = _room(s, rows.shape[1] // 2)
    _set_units(room.units, scales)
    log_offset = offset_from(prior)
    out = np.empty(row_ptr.size - 1)
    prefetch_wide_rows(features, 0, rows)
    for i in range(out.size):
        prefetch_wide_rows(features, i + 1, rows)
        k = gather(features, i, rows.shape[0] - 1, m, s)
        _read_margins(rows, m, log_offset, s, room, k)
        margin = _mixed(room.margins[0], room.chances, weights_of_experts, log_weights)
        out[i] = sigmoid(margin) if as_probability else margin
    return out


@njit(nogil=True, cache=True, error_model="numpy")
def learn_mixture(
    rows: NDArray[np.float64],
    marks: NDArray[np.uint8],
    changed: NDArray[np.uint32],
    changes: int,
    features_seen: int,
    experts: int,
    table: NDArray[np.float64],
    l2: float,
    psi_l2: float,
    box: float,
    bias: bool,
    offset: float,
    forgets: int,
    drop_below: float,
    share: float,
    t: int,
    scales: NDArray[np.float64],
    folds: NDArray[np.int64],
    weights_of_experts: NDArray[np.float64],
    log_weights: NDArray[np.float64],
    largest: float,
    time: int,
    clicks: float,
    others: float,
    clicked: float,
    learned: int,
    dropped: int,
    row_ptr: NDArray[np.int64],
    hashes: NDArray[np.uint32],
    values: NDArray[np.float64],
    labels: NDArray[np.float64],
    weights: NDArray[np.float64],
    event_times: NDArray[np.int64],
    margins: NDArray[np.float64],
    skipped: NDArray[np.uint8],
) -> tuple[int, int, float, int, Prior, int]:
    """Changes scales, folds and both forms of the weights in place; returns changes, features_seen, largest,
    time, prior and dropped.
    """
    m = MixtureTerms(experts, table, l2, psi_l2, box, bias, offset, forgets, drop_below, share)
    prior = Prior(clicks, others, clicked, learned)
    features = Features(row_ptr, hashes, values)
    s = scratch_for(row_ptr, 0)
    room = _room(s, rows.shape[1] // 2)
    _set_units(room.units, scales)
    log_offset = offset_from(prior)
    prefetch_wide_rows(features, 0, rows)
    for i in range(margins.size):
        k = gather(features, i, rows.shape[0] - 1, m, s)
        if m.forgets != NEVER:
            time = _forget(rows, marks, m, scales, folds, time, event_times[i] if event_times.size else -1)
            _set_units(room.units, scales)
        _read_margins(rows, m, log_offset, s, room, k)
        prefetch_wide_rows(features, i + 1, rows)
        prefetch_marks(features, i + 1, marks)
        margins[i] = _mixed(room.margins[0], room.chances, weights_of_experts, log_weights)
        weight = weights[i] if weights.size else 1.0
        if _step(m, s, room, k, labels[i], weight):
            changes, features_seen = _store(rows, marks, changed, changes, features_seen, s, room, k)
            largest = max(largest, weight)
            _weigh(weights_of_experts, log_weights, room, labels[i], weight / largest, m.share)
            if prior.learned < FIRST_EXAMPLES:
                prior = prior_after(prior, labels[i], weight)
                log_offset = offset_from(prior)
        else:
            skipped[i] = 1
        t += 1
        if m.drop_below > 0.0 and t % ROUNDS_A_SEARCH == 0:
            changes, gone = drop_faded_of_mixture(rows, marks, changed, changes, m, t, scales)
            features_seen -= gone
            dropped += gone
    if m.share > 0.0:
        _set_logs(log_weights, weights_of_experts)
    return changes, features_seen, largest, time, prior, dropped


@njit(cache=True)
def _room(s: Scratch, lanes: int) -> Room:
    f = np.empty((6, s.slots.size, lanes))
    margins, residuals = np.zeros((1, lanes)), np.zeros((1, lanes))
    chances, products, units = np.zeros((2, lanes)), np.zeros(lanes), np.ones((4, lanes))
    return Room(f[0], f[1], f[2], f[3], f[4], f[5], units, margins, residuals, chances, products)


@kernel
def _set_units(units: NDArray[np.float64], scales: NDArray[np.float64]) -> None:
    for e in range(scales.size):
        inverse = 1.0 / scales[e]
        units[_FROM_Z, e] = scales[e]
        units[_FROM_N, e] = scales[e] * scales[e]
        units[_TO_Z, e] = inverse
        units[_TO_N, e] = inverse * inverse


@kernel
def _forget(
    rows: NDArray[np.float64],
    marks: NDArray[np.uint8],
    m: MixtureTerms,
    scales: NDArray[np.float64],
    folds: NDArray[np.int64],
    time: int,
    now: int,
) -> int:
    """Discount all evidence before a round at `now`, as `discounted` does; returns the newest time."""
    passed = 0
    if m.forgets == BY_SECONDS and now > time:
        if time >= 0:
            passed = now - time
        time = now
    for e in range(m.experts):
        scales[e], due = faded(scales[e] * m.table[DISCOUNT, e], passed * m.table[HALF_LIVES, e])
        if due:
            fold_rows(rows, marks, e, due)
            folds[e] += due
    return time


@inlined_kernel
def _read_margins(
    rows: NDArray[np.float64], m: MixtureTerms, offset: float, s: Scratch, room: Room, k: int
) -> None:
    """Fill room.margins; leaves state, curvature and weight of every coordinate in room."""
    lanes = rows.shape[1] // 2
    zero = spread4(0.0)
    l2, psi_l2, box = spread4(m.l2), spread4(m.psi_l2), spread4(m.box)
    for b in range(0, lanes, 4):
        inverse_alpha, beta = load4(m.table, INVERSE_ALPHA, b), load4(m.table, BETA, b)
        l1 = load4(m.table, L1, b)
        from_z, from_n = load4(room.units, _FROM_Z, b), load4(room.units, _FROM_N, b)
        margins = spread4(m.offset + offset)
        for j in range(k):
            slot = s.slots[j]
            z, n = load4(rows, slot, b) * from_z, load4(rows, slot, lanes + b) * from_n
            q = (beta + sqrt4(n)) * inverse_alpha
            # As prox does: 0 where |z| <= l1 or nothing is known, else within the box.  The bias is free.
            free = m.bias and j == 0
            excess, total = abs4(z), q
            if not free:
                excess, total = excess - l1, q + l2 + psi_l2
            x = excess / total
            if not free:
                x = where_positive(x - box, box, x)
            x = where_positive(excess, where_positive(total, x, zero), zero)
            x = where_positive(z, zero - x, x)
            store4(room.z, j, b, z)
            store4(room.n, j, b, n)
            store4(room.q, j, b, q)
            store4(room.x, j, b, x)
            margins = margins + spread4(s.theta[j]) * x
        store4(room.margins, 0, b, margins)


@inlined_kernel
def _step(m: MixtureTerms, s: Scratch, room: Room, k: int, label: float, weight: float) -> bool:
    """Round t of every expert: fills room.z_new and room.n_new, in the units of rows, and tests whether all
    of it is finite.
    """
    finite = weight >= 0.0 and 0.0 <= label <= 1.0
    for e in range(m.experts):
        finite &= abs(room.margins[0, e]) < math.inf
        room.residuals[0, e] = weight * ((1.0 - label) * room.chances[1, e] - label * room.chances[0, e])
    for b in range(0, room.z.shape[1], 4):
        inverse_alpha, beta = load4(m.table, INVERSE_ALPHA, b), load4(m.table, BETA, b)
        to_z, to_n = load4(room.units, _TO_Z, b), load4(room.units, _TO_N, b)
        residuals = load4(room.residuals, 0, b)
        differences = spread4(0.0)  # of numbers with themselves: NaN where one is not finite
        for j in range(k):
            g = residuals * spread4(s.theta[j])
            n_new = load4(room.n, j, b) + g * g
            q_new = (beta + sqrt4(n_new)) * inverse_alpha
            z_new = load4(room.z, j, b) - (q_new - load4(room.q, j, b)) * load4(room.x, j, b)
            z_new, n_new = (z_new + g) * to_z, n_new * to_n
            differences = differences + (z_new - z_new) + (n_new - n_new)
            store4(room.z_new, j, b, z_new)
            store4(room.n_new, j, b, n_new)
        store4(room.residuals, 0, b, differences)
    for e in range(m.experts):
        finite &= room.residuals[0, e] == 0.0
    return finite


@inlined_kernel
def _store(
    rows: NDArray[np.float64],
    marks: NDArray[np.uint8],
    changed: NDArray[np.uint32],
    changes: int,
    features_seen: int,
    s: Scratch,
    room: Room,
    k: int,
) -> tuple[int, int]:
    """Keep the new state of every coordinate, and mark it."""
    lanes = rows.shape[1] // 2
    for j in range(k):
        slot = s.slots[j]
        for b in range(0, lanes, 4):
            store4(rows, slot, b, load4(room.z_new, j, b))
            store4(rows, slot, lanes + b, load4(room.n_new, j, b))
        mark = marks[slot]
        if mark != SEEN | CHANGED:
            if not mark & SEEN and slot != rows.shape[0] - 1:
                features_seen += 1
            if not mark & CHANGED:
                changed[changes] = slot
                changes += 1
            marks[slot] = SEEN | CHANGED
    return changes, features_seen


@njit(nogil=True, cache=True, error_model="numpy")
def mixed_margins(
    margins: NDArray[np.float64], weights: NDArray[np.float64], log_weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """float64[r]: the margins of a mixture whose experts have the margins float64[r, K]."""
    out, chances = np.empty(margins.shape[0]), np.empty((2, weights.size))
    for i in range(out.size):
        out[i] = _mixed(margins[i], chances, weights, log_weights)
    return out


@inlined_kernel
def _mixed(
    margins: NDArray[np.float64],
    chances: NDArray[np.float64],
    weights: NDArray[np.float64],
    log_weights: NDArray[np.float64],
) -> float:
    """The margin of the mixture; leaves what each expert gives to both labels in chances float64[2, ...]."""
    no, yes = 0.0, 0.0
    for e in range(weights.size):
        power = exp(-abs(margins[e]))
        rare, common = power / (1.0 + power), 1.0 / (1.0 + power)
        chances[0, e], chances[1, e] = (rare, common) if margins[e] >= 0.0 else (common, rare)
        no += weights[e] * chances[0, e]
        yes += weights[e] * chances[1, e]
    if not min(no, yes) > _SMALLEST:
        return _log_sum(log_weights, margins, 1.0, 1.0) - _log_sum(log_weights, margins, 0.0, 1.0)
    return log1p((yes - no) / no) if yes > no else -log1p((no - yes) / yes)


@inlined_kernel
def _weigh(
    weights: NDArray[np.float64],
    log_weights: NDArray[np.float64],
    room: Room,
    label: float,
    rate: float,
    share: float,
) -> None:
    """Weigh the experts by what they gave to the label, and spread a share of the weights evenly again."""
    margins, products, total = room.margins[0], room.products, 0.0
    if rate == 1.0 and (label == 0.0 or label == 1.0):
        for e in range(weights.size):
            products[e] = weights[e] * room.chances[int(label), e]
            total += products[e]
    else:
        for e in range(weights.size):
            products[e] = weights[e] * exp(-rate * log_loss(margins[e], label))
            total += products[e]
    if share == 0.0 or total < _SMALLEST:
        if share > 0.0:
            _set_logs(log_weights, weights)
        log_total = _log_sum(log_weights, margins, label, rate)
        for e in range(weights.size):
            log_weights[e] -= rate * log_loss(margins[e], label) + log_total
            products[e] = exp(log_weights[e])
        total = 1.0
    for e in range(weights.size):
        weights[e] = (1.0 - share) * (products[e] / total) + share / weights.size


@kernel
def _log_sum(
    log_weights: NDArray[np.float64], margins: NDArray[np.float64], label: float, rate: float
) -> float:
    """log of the sum of w_k e^(-rate loss_k)."""
    largest = -math.inf
    for e in range(log_weights.size):
        largest = max(largest, log_weights[e] - rate * log_loss(margins[e], label))
    total = 0.0
    for e in range(log_weights.size):
        total += exp(log_weights[e] - rate * log_loss(margins[e], label) - largest)
    return largest + log1p(total - 1.0)


@kernel
def _set_logs(log_weights: NDArray[np.float64], weights: NDArray[np.float64]) -> None:
    for e in range(weights.size):
        log_weights[e] = -log1p(1.0 / weights[e] - 1.0)  # to the last digits also of small weights

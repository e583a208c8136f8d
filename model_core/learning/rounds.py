"""Prediction and learning: the rounds of online learning, one example after the other.

    margin m = offset + theta . x_t        read with the state after t - 1 rounds (progressive prediction)
    r0       = weight (sigmoid(m) - y)
    n'       = n + (r0 theta)^2            and with it the learning rate of round t
    z'       by the family's line of the table; x_{t+1} is read from (z', n') when it is needed

A model that forgets discounts z and n of all features first, so the margin is read from what is left.  One
whose prior probability is taken from its log counts the first examples, each after it was predicted.

A model that drops features looks, at the end of each round, at a few slots for those that have faded.

A mixture plays the rounds of all its experts, and predicts their mean (mixture.py).

The result of a batch is, bit for bit, that of its examples one by one: nothing is carried between them but
the state, and every sum has one order.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from model_core.examples.batch import ExampleBatch
from model_core.kernels.compiled import inlined_kernel
from model_core.kernels.fours import load4, store_pairs4
from model_core.kernels.numerics import log_losses, sigmoid, sigmoids
from model_core.learning.hyperparameters import Expert, Hyperparameters, MixtureRate
from model_core.learning.rows import (
    CHANGED,
    ROUNDS_A_SEARCH,
    SEEN,
    clear,
    drop_faded,
    fold_rows,
    fold_stored,
    prefetch_marked_rows,
    prefetch_rows,
)
from model_core.learning.state import Discount, Mixture, ModelState
from model_core.learning.step import (
    FIRST_EXAMPLES,
    N_NEW,
    Z_NEW,
    Features,
    Prior,
    Scratch,
    gather,
    gather_untouched,
    offset_from,
    prior_after,
    read_margin,
    scratch_for,
    step,
)
from model_core.learning.update import (
    NEVER,
    Coefficients,
    Terms,
    coefficients,
    discounted,
    psi_in_force,
    units_of,
)


class Learned(NamedTuple):
    """margins float64[r], before each example's update; skipped uint8[r].

    skipped is 1 where the update would not have been finite, the weight is no number >= 0 or the label none
    from 0 to 1.  Such an example is a round like any other, but it changes and marks no feature, and its
    margin may be inf or NaN.
    """

    margins: NDArray[np.float64]
    skipped: NDArray[np.uint8]


def predict_batch(
    state: ModelState, hyper: Hyperparameters, bias: bool, offset: float, batch: ExampleBatch
) -> NDArray[np.float64]:
    """Margins float64[r], read at the state's t.  offset: the logit of a fixed prior probability, or 0."""
    return margins_with(state, coefficients(hyper, bias, offset), batch)


def margins_with(state: ModelState, c: Terms, batch: ExampleBatch) -> NDArray[np.float64]:
    """Predict with given coefficients: looking them up takes a sixth of the time of one small prediction."""
    return _predictions(state, c, batch, False)


def probabilities_with(state: ModelState, c: Terms, batch: ExampleBatch) -> NDArray[np.float64]:
    """Probabilities float64[r]: the sigmoids of margins_with."""
    return _predictions(state, c, batch, True)


def _predictions(
    state: ModelState, c: Terms, batch: ExampleBatch, as_probability: bool
) -> NDArray[np.float64]:
    evidence = state.discount
    examples: tuple[Any, ...] = (batch.row_ptr, batch.hashes, batch.values, as_probability)
    if not isinstance(evidence, Mixture):
        return _predict(state.rows, c, evidence.prior, state.t, evidence.scale, *examples)
    from model_core.learning.mixture import predict_mixture  # other models start without it

    experts: tuple[Any, ...] = (*evidence.prior, evidence.scales, evidence.weights, evidence.log_weights)
    return predict_mixture(state.rows, *c, *experts, *examples)


def learn_batch(
    state: ModelState, hyper: Hyperparameters, bias: bool, offset: float, batch: ExampleBatch
) -> Learned:
    """Play one round per example, in order, and change the state in place.

    For a model that forgets by seconds, no time passes before an example without a time.
    """
    c = coefficients(hyper, bias, offset)
    learned = Learned(np.empty(len(batch)), np.zeros(len(batch), np.uint8))
    mixture = state.discount if isinstance(state.discount, Mixture) else None
    untouched = state.features_seen if mixture is None and c.dense else 0
    drops = len(batch) if c.drop_below > 0.0 else 0
    state.make_room_for_changes(batch.hashes.size + 1 + untouched, drops)
    terms: Any = (c,) if mixture is None else c
    tables: tuple[Any, ...] = (
        *(state.rows, state.marks, state.changed, state.changes, state.features_seen),
        *terms,
    )
    examples: tuple[Any, ...] = (
        *(batch.row_ptr, batch.hashes, batch.values, batch.labels, batch.weights, batch.event_times),
        *learned,
    )
    if mixture is not None:
        features_seen = _learn_as_mixture(state, mixture, tables, examples)
    else:
        evidence: tuple[Any, ...] = (state.t, state.discount)
        learned_rounds = _learn(*tables, *evidence, *examples)
        state.changes, features_seen = learned_rounds[:2]
        state.discount = Discount(*learned_rounds[2:])
    state.now_seen(features_seen)
    state.t += len(batch)
    return learned


def _learn_as_mixture(
    state: ModelState, before: Mixture, tables: tuple[Any, ...], examples: tuple[Any, ...]
) -> int:
    """Returns how many features were seen."""
    from model_core.learning.mixture import learn_mixture

    scales, folds = before.scales.copy(), before.folds.copy()
    weights, log_weights = before.weights.copy(), before.log_weights.copy()
    shared: Any = (before.largest, before.time, *before.prior, before.dropped)
    evidence: tuple[Any, ...] = (state.t, scales, folds, weights, log_weights, *shared)
    state.changes, features_seen, *shared = learn_mixture(*tables, *evidence, *examples)
    state.discount = Mixture(scales, folds, weights, log_weights, *shared)
    return features_seen


def warm_up() -> None:
    """Compile every kernel of prediction, learning and records on a tiny model, or load it from the cache."""
    _warm_up(Hyperparameters())
    fold_stored(np.zeros((1, 2)), np.ones((1, 1), np.int64))


def warm_up_mixture() -> None:
    """Do the same for a mixture."""
    from model_core.learning.mixture import mixed_margins

    _warm_up(Hyperparameters(rate=MixtureRate((Expert(), Expert()))))
    mixed_margins(np.zeros((1, 2)), np.ones(2), np.zeros(2))


def _warm_up(hyper: Hyperparameters) -> None:
    batch = ExampleBatch.from_encoded([([1], None)], [1])
    batch = ExampleBatch.from_bytes(batch.to_bytes()).slice(0, 1)
    state = ModelState.empty(1, len(hyper.experts))
    margins = learn_batch(state, hyper, True, 0.0, batch).margins
    predict_batch(state, hyper, True, 0.0, batch)
    changes = state.take_changed()
    state.apply_rows(*changes)
    state.weights(changes.slots, hyper)
    state.nonzero(hyper)
    fold_rows(state.rows, state.marks, 0, 1)
    clear(state.rows, state.marks, state.changed[:0])
    sigmoids(margins)
    log_losses(margins, batch.labels)


@njit(nogil=True, cache=True, error_model="numpy")
def _predict(
    rows: NDArray[np.float64],
    c: Coefficients,
    prior: Prior,
    t: int,
    scale: float,
    row_ptr: NDArray[np.int64],
    hashes: NDArray[np.uint32],
    values: NDArray[np.float64],
    as_probability: bool,
) -> NDArray[np.float64]:
    features = Features(row_ptr, hashes, values)
    s = scratch_for(row_ptr, 0)
    out = np.empty(row_ptr.size - 1)
    offset, psi, units = offset_from(prior), psi_in_force(c, t), units_of(scale)
    for i in range(out.size):
        prefetch_rows(features, i + 1, rows)
        k = gather(features, i, rows.shape[0] - 1, c, s)
        margin = read_margin(rows, c, offset, psi, units, s, k)
        out[i] = sigmoid(margin) if as_probability else margin
    return out


@njit(nogil=True, cache=True, error_model="numpy")
def _learn(
    rows: NDArray[np.float64],
    marks: NDArray[np.uint8],
    changed: NDArray[np.uint32],
    changes: int,
    features_seen: int,
    c: Coefficients,
    t: int,
    discount: Discount,
    row_ptr: NDArray[np.int64],
    hashes: NDArray[np.uint32],
    values: NDArray[np.float64],
    labels: NDArray[np.float64],
    weights: NDArray[np.float64],
    event_times: NDArray[np.int64],
    margins: NDArray[np.float64],
    skipped: NDArray[np.uint8],
) -> tuple[int, int, float, int, int, Prior, int]:
    """Returns changes and features_seen, then the fields of the discount."""
    features = Features(row_ptr, hashes, values)
    size = rows.shape[0] - 1
    s = scratch_for(row_ptr, size if c.dense else 0)
    scale, folds, time, prior = discount.scale, discount.folds, discount.time, discount.prior
    dropped = 0
    offset, psi, units = offset_from(prior), psi_in_force(c, t), units_of(scale)
    for i in range(margins.size):
        t += 1
        k = gather(features, i, size, c, s)
        if c.dense:
            k = gather_untouched(marks, i, s, k)
        if c.forgets != NEVER:
            scale, due, time = discounted(c, scale, time, event_times[i] if event_times.size else -1)
            units = units_of(scale)
            if due:
                fold_rows(rows, marks, 0, due)
                folds += due
        margins[i] = read_margin(rows, c, offset, psi, units, s, k)
        prefetch_marked_rows(features, i + 1, rows, marks)
        psi_next = psi_in_force(c, t)
        weight = weights[i] if weights.size else 1.0
        if step(c, offset, t, psi_next, units, s, k, margins[i], labels[i], weight):
            changes, features_seen = _store(rows, marks, changed, changes, features_seen, s, k)
            if prior.learned < FIRST_EXAMPLES:
                prior = prior_after(prior, labels[i], weight)
                offset = offset_from(prior)
        else:
            skipped[i] = 1
        if c.drop_below > 0.0 and t % ROUNDS_A_SEARCH == 0:
            changes, gone = drop_faded(rows, marks, changed, changes, c, t, units)
            dropped += gone
        psi = psi_next
    return changes, features_seen - dropped, scale, folds, time, prior, discount.dropped + dropped


@inlined_kernel
def _store(
    rows: NDArray[np.float64],
    marks: NDArray[np.uint8],
    changed: NDArray[np.uint32],
    changes: int,
    features_seen: int,
    s: Scratch,
    k: int,
) -> tuple[int, int]:
    """Keep the new state of every coordinate in s, and mark it."""
    whole = k & ~3
    for j in range(0, whole, 4):
        store_pairs4(rows, s.slots, j, load4(s.table, Z_NEW, j), load4(s.table, N_NEW, j))
    for j in range(whole, k):
        rows[s.slots[j], 0] = s.z_new[j]
        rows[s.slots[j], 1] = s.n_new[j]
    for j in range(k):
        slot = s.slots[j]
        mark = marks[slot]
        if mark != SEEN | CHANGED:
            if not mark & SEEN and slot != rows.shape[0] - 1:
                features_seen += 1
            if not mark & CHANGED:
                changed[changes] = slot
                changes += 1
            marks[slot] = SEEN | CHANGED
    return changes, features_seen

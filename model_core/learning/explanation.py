"""Explanation of a prediction: the part of each feature in the margin."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from mmh3 import mmh3_32_uintdigest as murmur
from numpy.typing import NDArray

from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract, Limits
from model_core.hashing.encoder import Encoded, FeatureEncoder
from model_core.kernels.numerics import sigmoids
from model_core.learning.hyperparameters import Hyperparameters
from model_core.learning.rounds import predict_batch
from model_core.learning.state import Mixture, ModelState

BIAS = "bias"


class NamedHash(int):
    """The hash of a feature, together with the text that was hashed."""

    name: str


class Part(NamedTuple):
    """One feature of an example.

    name: the text that is hashed, as `site=news`; hash and slot are None for the bias alone.
    contribution: value times weight.  learning_rate: 1 / Q_{1:t}, inf where nothing is known of the slot and
        the rate has no bound.  z, n: the slot's state, discounted where the model forgets.
    Of a mixture, weight, learning_rate, z and n are the means of its experts by their weights.
    """

    name: str
    hash: int | None
    slot: int | None
    value: float
    weight: float
    contribution: float
    learning_rate: float
    z: float
    n: float


class SharedSlot(NamedTuple):
    """A slot in which several features of one example meet: their values add up, and share its weight."""

    slot: int
    names: list[str]
    value: float
    contribution: float


class ExpertMargin(NamedTuple):
    """What one expert of a mixture predicts, and how much it weighs."""

    weight: float
    margin: float
    probability: float


class Explanation(NamedTuple):
    """A prediction, taken apart.

    margin: offset + contributions, summed in the order of `parts`, those of a shared slot as one where its
        first feature stands: to the last bit what predict_batch answers.
    mixing: what a mixture adds to that sum, since the mean of its experts' probabilities is not the
        probability of their mean margin; experts: their margins.  0 and empty for other models.
    uncertainty: the sum of learning rate times |value|, which bounds how far one example whose gradients are
        at most 1 moves the margin (McMahan et al. 2013, section 6.2).  It is large where little was learned.
    """

    margin: float
    probability: float
    offset: float
    uncertainty: float
    parts: list[Part]
    shared_slots: list[SharedSlot]
    mixing: float = 0.0
    experts: tuple[ExpertMargin, ...] = ()


def naming_encoder(contract: HashContract, limits: Limits) -> FeatureEncoder:
    """One that makes each hash a NamedHash, and all else as every other of this contract."""
    return FeatureEncoder(contract, limits, hash_text=_named_hash)


def explain(
    state: ModelState, hyper: Hyperparameters, contract: HashContract, encoded: Encoded
) -> Explanation:
    """Explain the prediction for one example at the state's t; `encoded` by a naming_encoder."""
    parts = _parts(state, hyper, contract, encoded)
    coordinates = _coordinates(parts)
    batch = ExampleBatch.from_encoded([encoded])
    margins = predict_batch(state, hyper, contract.bias, contract.prior_offset, batch)
    offset = contract.prior_offset + state.offset
    experts = _experts(state, hyper, offset, coordinates)
    mixing = 0.0
    if experts:
        mixing = float(margins[0]) - _margin(offset, [value * part.weight for part, _, value in coordinates])
    return Explanation(
        float(margins[0]),
        float(sigmoids(margins)[0]),
        offset,
        sum((part.learning_rate * abs(value) for part, _, value in coordinates if value != 0.0), 0.0),
        parts,
        [
            SharedSlot(part.slot, names, value, value * part.weight)
            for part, names, value in coordinates
            if part.slot is not None and len(names) > 1
        ],
        mixing,
        experts,
    )


def _experts(
    state: ModelState,
    hyper: Hyperparameters,
    offset: float,
    coordinates: Sequence[tuple[Part, list[str], float]],
) -> tuple[ExpertMargin, ...]:
    """None but those of a mixture."""
    if not isinstance(state.discount, Mixture):
        return ()
    slots = [state.size if part.slot is None else part.slot for part, *_ in coordinates]
    weights, _ = state.readings_of_experts(np.array(slots, np.uint32), hyper)
    values = [value for *_, value in coordinates]
    margins = np.array(
        [_margin(offset, [v * x for v, x in zip(values, own, strict=True)]) for own in weights.tolist()]
    )
    each = zip(state.discount.weights.tolist(), margins.tolist(), sigmoids(margins).tolist(), strict=True)
    return tuple(ExpertMargin(*one) for one in each)


def _margin(offset: float, contributions: Sequence[float]) -> float:
    """Offset and contributions, added as the kernels add them."""
    margin = offset
    for contribution in contributions:
        margin += contribution
    return margin


def _parts(state: ModelState, hyper: Hyperparameters, contract: HashContract, encoded: Encoded) -> list[Part]:
    """The bias, if any, and the features in their order."""
    hashes: list[int | None] = [*([None] if contract.bias else []), *encoded.hashes]
    values = [*([1.0] if contract.bias else []), *(encoded.values or [1.0] * len(encoded.hashes))]
    slots = [state.size if h is None else int(h) % state.size for h in hashes]
    at = np.array(slots, np.uint32)
    weights, curvatures = state.readings(at, hyper).tolist()
    rows: list[list[float]] = _mean_rows(state, at).tolist()
    return [
        Part(
            BIAS if h is None else _name_of(h),
            None if h is None else int(h),
            None if h is None else slot,
            value,
            weight,
            value * weight,
            1.0 / curvature if curvature > 0.0 else math.inf,
            z,
            n,
        )
        for h, slot, value, weight, curvature, (z, n) in zip(
            hashes, slots, values, weights, curvatures, rows, strict=True
        )
    ]


def _mean_rows(state: ModelState, slots: NDArray[np.uint32]) -> NDArray[np.float64]:
    """float64[k, 2]: z and n, discounted; of a mixture, the means by weight."""
    rows, discount = state.rows_at(slots), state.discount
    if not isinstance(discount, Mixture):
        return rows * (discount.scale, discount.scale * discount.scale)
    scales, weights = discount.scales, discount.weights
    z, n = np.hsplit(rows, 2)
    return np.stack([(z * scales * weights).sum(axis=1), (n * scales * scales * weights).sum(axis=1)], axis=1)


def _coordinates(parts: Sequence[Part]) -> list[tuple[Part, list[str], float]]:
    """First feature, names and summed value of each slot, as the kernels gather them: zeros vanish."""
    found: dict[int | None, tuple[Part, list[str], float]] = {}
    for part in parts:
        if part.value != 0.0:
            first, names, value = found.get(part.slot, (part, [], 0.0))
            found[part.slot] = first, [*names, part.name], value + part.value
    return list(found.values())


def _named_hash(text: bytes, seed: int) -> NamedHash:
    named = NamedHash(murmur(text, seed))
    named.name = text.decode()
    return named


def _name_of(feature_hash: int) -> str:
    assert isinstance(feature_hash, NamedHash)
    return feature_hash.name

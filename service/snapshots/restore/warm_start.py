"""Creation of a model that begins with the weights of another learner, read from a file."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from model_core.errors import InvalidInput
from model_core.kernels.numerics import sigmoids
from model_core.learning.state import ModelState
from model_core.learning.warm_start import add_in_slots, evidence_of, set_weights
from service.models.config.model import ModelConfig
from service.models.feature_names import note_first_names, weighted
from service.models.replica import Replica
from service.parsing.files.weights import WeightLine, Weights, WeightsFile
from service.snapshots.restore.create import create_with_snapshot
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.channel import Channel
from service.storage.records import LOG_START, ModelKeys

DEFAULT_COUNT = 100.0


@dataclass(frozen=True)
class Evidence:
    """The evidence that the weights of a file stand for, where it does not say.

    click_rate: of the examples that they were learned from; None: that of the bias alone.
    count: of examples that each feature was in.
    """

    click_rate: float | None = None
    count: float = DEFAULT_COUNT


@dataclass(frozen=True, eq=False)
class WarmStart:
    """A model that does not exist yet.

    weights: how many the file has. sharing: how many features are not alone in their slot. without_evidence:
    how many weights stand for the default count.
    """

    config: ModelConfig
    state: ModelState
    weights: int
    sharing: int
    without_evidence: int


def config_for(body: Mapping[str, Any], weights: Weights | None = None) -> ModelConfig:
    """Return the configuration of a model that hashes as the weights need: numbers as they are, names whose
    values are numbers as categories, crosses declared, and no offset but the bias.

    `body`: as of a PUT; what it says of a name's type stays. `weights`: None where they are not read yet.
    Raises InvalidInput.
    """
    hashing = {"numeric": "raw", "prior_probability": None, **body.get("hashing", {})}
    if hashing["prior_probability"] is not None:
        detail = "must be null for a model that begins with weights: their bias is the offset"
        raise InvalidInput(("hashing", "prior_probability"), detail)
    config = ModelConfig.from_json({**body, "hashing": hashing})
    if weights is None:
        return config
    declared = config.hashing
    types = dict.fromkeys(weights.categories, "category") | dict(declared.types)
    hashing["types"] = {name: kind for name, kind in types.items() if name not in declared.transforms}
    known = [list(cross) for cross in declared.crosses]
    hashing["crosses"] = known + [list(cross) for cross in weights.crosses if list(cross) not in known]
    return ModelConfig.from_json({**body, "hashing": hashing})


def warm_start(file: WeightsFile, weights: Weights, config: ModelConfig, evidence: Evidence) -> WarmStart:
    """Build the state whose predictions are those of the weights. Raises BadWeights."""
    bias, size = weights.bias, config.hashing.size
    if bias is not None and not config.hashing.bias:
        raise file.failure("bad_name", "the model's hash contract has no bias", bias.number)
    own_slots = weights.hashes & np.uint32(size - 1)
    counts = np.where(np.isnan(weights.counts), evidence.count, weights.counts)
    of_bias = 1.0 if bias is None or math.isnan(bias.seen) else bias.seen
    examples = max(file.examples, math.ceil(counts.max(initial=max(of_bias, 1.0))))
    click_rate = _click_rate(evidence, bias)
    n = np.where(np.isnan(weights.n), evidence_of(counts, click_rate), weights.n)
    slots, x, n = add_in_slots(own_slots, weights.weights, n)
    if bias is not None:
        slots, x = np.append(slots, np.uint32(size)), np.append(x, bias.weight)
        n = np.append(n, _evidence_of_bias(bias, examples, click_rate))
    state = config.empty_state()
    try:
        set_weights(state, config.hyper, examples, slots, x, n)
    except InvalidInput as wrong:
        (i,) = wrong.path
        (at,) = np.flatnonzero(own_slots == slots[int(i)])[:1]
        raise file.failure("bad_weight", wrong.detail, int(weights.lines[at])) from None
    return WarmStart(
        config,
        state,
        own_slots.size + (bias is not None),
        _sharing(own_slots),
        int(np.count_nonzero(np.isnan(weights.counts) & np.isnan(weights.n))),
    )


def _click_rate(evidence: Evidence, bias: WeightLine | None) -> float:
    if evidence.click_rate is not None:
        return evidence.click_rate
    return float(sigmoids(np.array([0.0 if bias is None else bias.weight]))[0])


def _evidence_of_bias(bias: WeightLine, examples: int, click_rate: float) -> float:
    """Return n of the bias, which is in every example unless its line says otherwise."""
    if not math.isnan(bias.n):
        return bias.n
    count = examples if math.isnan(bias.seen) else bias.seen
    return float(evidence_of(np.array([count]), click_rate)[0])


def _sharing(slots: npt.NDArray[np.uint32]) -> int:
    """Count the features that are not alone in their slot."""
    _, counts = np.unique(slots, return_counts=True)
    return int(counts[counts > 1].sum())


async def create_warm(
    channel: Channel,
    store: SnapshotStore,
    name: str,
    start: WarmStart,
    source: str,
    names: Mapping[str, float],
) -> None:
    """Create the model, all of it or nothing, with a first snapshot from which `ftrl rebuild` verifies it.

    `names`: of features, to be noted, with their evidence. Raises what create_with_snapshot raises.
    """
    keys = ModelKeys(name, secrets.token_hex(8))
    replica = Replica(
        keys,
        start.config,
        start.state,
        generation=0,
        token=secrets.token_bytes(8),
        commit=0,
        skipped=0,
        applied=LOG_START,
        applied_number=0,
        position=LOG_START,
    )
    await create_with_snapshot(channel, store, name, start.config, replica, f"import of {source}")
    in_order = {name: 1.0 + math.log2(1.0 + evidence) for name, evidence in names.items()}
    await note_first_names(channel, name, weighted(in_order))

"""A new model that begins with what another has learned."""

from __future__ import annotations

from dataclasses import replace

from model_core.hyperparameters import Hyperparameters
from service.errors import ModelExists, UnknownModel
from service.redis_client import Channel
from service.replica import ModelGone, load_replica
from service.snapshots.creating import check_memory, create_filled
from service.snapshots.fitting import check_family

NO_SNAPSHOT = ""


async def clone(channel: Channel, source: str, name: str, hyper: Hyperparameters | None) -> None:
    """Of one commit of the source. Raises UnknownModel, ModelExists, SnapshotMismatch, ServerFull,
    ContractMismatch, StateUnavailable, and what Channel.call raises.
    """
    try:
        replica = await load_replica(channel, source)
    except ModelGone:
        raise UnknownModel(source) from None
    config = replica.config
    if hyper is not None:
        check_family(config, hyper, f"The model {source!r}")
        config = replace(config, hyper=hyper)
    state = replica.state
    await check_memory(channel, state.features_seen)
    if not await create_filled(channel, name, config, state, NO_SNAPSHOT):
        raise ModelExists(f"Model {name!r} exists already; delete it first, or take another name.")

"""A model that begins with a state that was learned elsewhere: it is there as a whole, or not at all."""

from __future__ import annotations

import contextlib

from redis.exceptions import ResponseError

from model_core.state import ModelState
from service.alias_names import check_free, take_back_claim
from service.bulk_load import NO_ROOM, PATIENCE_SECONDS, PatientChannel, fill
from service.errors import ServerFull, StateUnavailable
from service.model_config import ModelConfig
from service.models import new_meta
from service.redis_client import CONNECTION_FAILURES, Channel, create_model_filled
from service.redis_keys import MODELS, ModelKeys, alias_key
from service.server_health import parsed_info

BYTES_A_SLOT = 100


async def create_filled(
    channel: Channel, name: str, config: ModelConfig, state: ModelState, base: str
) -> bool:
    """Creates the model unless it is there; says whether it did. `base`: the snapshot that it begins with,
    empty where its snapshots have none.

    Raises StateUnavailable where it may have created it, as it may have when cancelled; where it has not
    AliasConflict, ServerFull, StateUnavailable, and what Channel.call raises.
    """
    await check_free(channel, name)
    meta = new_meta(config) | {"t": state.t, "base": base, "base_applied": "0-0", "base_number": 0}
    keys = ModelKeys(name, str(meta["incarnation"]))
    server = PatientChannel(channel, PATIENCE_SECONDS)
    filled, slots = keys.state(0), state.seen_slots()
    try:
        await fill(server, filled, state, slots)
    except BaseException:
        await server.discard(filled)
        raise
    arguments = (
        *(keys.meta, filled, len(slots), alias_key(name)),
        *("incarnation", keys.incarnation),
        *(part for field in meta.items() for part in field if field[0] != "incarnation"),
    )
    while (status := await _create(server, *arguments)) == b"CLAIMED":
        try:
            await take_back_claim(channel, name)
        except BaseException:
            await server.discard(filled)
            raise
    if status == b"CREATED":
        with contextlib.suppress(*CONNECTION_FAILURES, ResponseError):  # the index is repaired anyway
            await channel.call("SADD", MODELS, name)
        return True
    await server.discard(filled)
    if status == b"EXISTS":
        return False
    raise StateUnavailable(f"Redis lost part of the state of {name!r}, which was not created. Try again.")


async def _create(server: PatientChannel, *arguments: str | bytes | int) -> bytes:
    try:
        return bytes((await server.run(create_model_filled, *arguments))[0])
    except StateUnavailable as away:
        raise StateUnavailable(
            f"{away.detail} Whether the model was created is not known; the list of models tells."
        ) from away


async def check_memory(channel: Channel, slots: int) -> None:
    """Raises ServerFull where a state of so many slots would not fit beside all there is."""
    info = parsed_info(await channel.call("INFO", "memory"))
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if limit and used + slots * BYTES_A_SLOT > limit:
        raise ServerFull(NO_ROOM)

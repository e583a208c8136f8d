"""A whole state at once: filled in chunks beside the old one, then switched to in one step."""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt

from model_core.state import ModelState
from service.errors import ServiceError
from service.redis_client import Channel, switch_generation
from service.replica import Replica

SLOTS_A_CHUNK = 5_000
UNFINISHED_EXPIRES_SECONDS = 3600


class ModelMoved(ServiceError):
    """The model learned or was replaced while the new state was being filled; the old one stays."""

    status = 409
    title = "Model changed meanwhile"


async def bulk_load(channel: Channel, base: Replica, state: ModelState) -> None:
    """Makes `state` the model's, provided that it is still at the commit of `base`. Examples that wait in
    the log are learned on top of it.

    Raises ModelMoved, and what Channel.call raises. A filling that does not finish expires.
    """
    keys = base.keys
    generation = int(await channel.call("HINCRBY", keys.meta, "generations", 1))
    filled = keys.state(generation)
    slots = state.seen_slots()
    for start in range(0, len(slots), SLOTS_A_CHUNK):
        await channel.call("HSET", filled, *_fields(slots[start : start + SLOTS_A_CHUNK], state))
        await channel.call("EXPIRE", filled, UNFINISHED_EXPIRES_SECONDS)
    switched = await switch_generation(
        channel,
        *(keys.meta, keys.state(base.generation), filled, keys.commits),
        *(keys.incarnation, base.generation, base.token, secrets.token_bytes(8), generation, state.t),
    )
    if not switched:
        await channel.call("UNLINK", filled)
        raise ModelMoved(
            f"Model {keys.model!r} changed while its new state was being loaded;"
            " stop its updates, then try again."
        )


def _fields(slots: npt.NDArray[np.uint32], state: ModelState) -> list[bytes]:
    packed, rows = slots.astype("<u4").tobytes(), state.rows[slots].astype("<f8").tobytes()
    return [
        part for i in range(len(slots)) for part in (packed[4 * i : 4 * i + 4], rows[16 * i : 16 * i + 16])
    ]

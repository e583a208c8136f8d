"""Replaces the whole state of a model: fills the new one in chunks, then switches to it in one step."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from redis.exceptions import ResponseError

from model_core.learning.state import ModelState
from service.errors import Conflict, ServerFull, StateUnavailable
from service.models.replica import Replica
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, Backoff, out_of_memory_as_server_full
from service.storage.records import SLOTS_A_CHUNK, changed_records
from service.storage.scripts.models import Switch, fill_state, new_generation, switch_generation

UNFINISHED_EXPIRES_SECONDS = 3600
PATIENCE_SECONDS = 60.0
BYTES_PER_SLOT, BYTES_PER_EXPERT = 100, 24  # in Redis, with what a hash adds; of experts, beyond the first
NO_ROOM = (
    "Redis is at its memory limit, and a new state has to fit beside the old one (up to 100 bytes a feature,"
    " and 24 more for each expert of a mixture). The model stays as it was; raise the server's maxmemory,"
    " then try again."
)


_T = TypeVar("_T")


class ModelMoved(Conflict):
    """The model learned or was replaced while the new state was being made; the old one stays."""

    code = "model_moved"
    title = "Model changed meanwhile"

    def __init__(self, model: str) -> None:
        super().__init__(
            f"Model {model!r} learned or was replaced while its new state was being made. That state is"
            " dropped; stop the model's updates, then try again."
        )


async def bulk_load(
    channel: Channel,
    base: Replica,
    state: ModelState,
    patience_seconds: float = PATIENCE_SECONDS,
    *,
    keep_evaluation: bool = False,
) -> None:
    """Makes `state` the state of the model if it is still at the commit of `base`. Pending examples of the
    log are learned on top of it. Waits for a server that is down, at most `patience_seconds` per call.
    `keep_evaluation`: the evaluation continues instead of starting again with the state.

    Raises ModelMoved, ServerFull, StateUnavailable, ResponseError. A filling that is given up is removed, or
    expires.
    """
    keys = base.keys
    server = PatientChannel(channel, patience_seconds)
    generation = await server.run(lambda channel: new_generation(channel, keys, base.token))
    if not generation:
        raise ModelMoved(keys.model)
    filled = keys.state(generation)
    try:
        slots = state.seen_slots()
        await fill(server, filled, state, slots)
    except BaseException:
        await server.discard(filled)
        raise
    status = await _switch(server, base, generation, state, len(slots), keep_evaluation)
    if status is Switch.SWITCHED:
        return
    await server.discard(filled)
    if status is Switch.MOVED:
        raise ModelMoved(keys.model)
    raise StateUnavailable("Redis lost part of the new state; the model stays as it was. Try again.")


async def fill(server: PatientChannel, filled: str, state: ModelState, slots: npt.NDArray[np.uint32]) -> int:
    """Puts the rows of these slots into a key that is not read yet, without those that have no feature any
    more; any chunk may be sent twice. Returns the number of slots in it; 0 where none was given.
    """
    held = 0
    for start in range(0, len(slots), SLOTS_A_CHUNK):
        chunk = slots[start : start + SLOTS_A_CHUNK]
        there, rows, dropped = state.changes_at(chunk)
        put = partial(
            fill_state,
            filled=filled,
            expires_seconds=UNFINISHED_EXPIRES_SECONDS,
            changed=changed_records(there, rows, state.discount),
            dropped=dropped.astype("<u4").tobytes(),
        )
        held = await server.run(put)
    return held


async def _switch(
    server: PatientChannel,
    base: Replica,
    generation: int,
    state: ModelState,
    slots: int,
    keep_evaluation: bool,
) -> Switch:
    """Raises StateUnavailable if the switch may have happened: the filled key must not be removed then."""
    switch = partial(
        switch_generation,
        keys=base.keys,
        generation=base.generation,
        token=base.token,
        new_generation=generation,
        new_token=secrets.token_bytes(8),
        t=state.t,
        discount=state.discount.text(),
        slots=slots,
        keep_evaluation=keep_evaluation,
    )
    try:
        return await server.run(switch)
    except StateUnavailable as away:
        unknown = "The new state may or may not be in use: check the revision of the model."
        raise StateUnavailable(f"{away.detail} {unknown}") from away


class PatientChannel:
    """Repeats scripts that may run twice until the server answers."""

    def __init__(self, channel: Channel, patience_seconds: float) -> None:
        self._channel = channel
        self._patience_seconds = patience_seconds

    async def run(self, script: Callable[[Channel], Awaitable[_T]]) -> _T:
        """Raises ServerFull, StateUnavailable once patience is at its end, and any other ResponseError."""
        give_up = time.monotonic() + self._patience_seconds
        backoff = Backoff()
        while True:
            try:
                with out_of_memory_as_server_full(NO_ROOM):
                    return await script(self._channel)
            except CONNECTION_FAILURES as failure:
                if backoff.outlasts(give_up):
                    raise StateUnavailable(f"Redis does not answer: {failure}.") from failure
            await backoff.pause()

    async def discard(self, key: str) -> None:
        """Removes a key that expires anyway."""
        with contextlib.suppress(*CONNECTION_FAILURES, ResponseError):
            await self._channel.call("UNLINK", key)


async def check_memory(channel: Channel, slots: int, experts: int = 1) -> None:
    """Raise ServerFull if a state of so many slots does not fit into the server's memory limit."""
    info = await channel.info("memory")
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if limit and used + slots * (BYTES_PER_SLOT + (experts - 1) * BYTES_PER_EXPERT) > limit:
        raise ServerFull(NO_ROOM)

"""The one step in which a filled state becomes the model's, or is refused and changes nothing."""

from __future__ import annotations

import secrets

from service.bulk_load import PatientChannel
from service.errors import StateUnavailable
from service.redis_client import switch_to_restored
from service.snapshots.errors import LogIncomplete, RestoreConflict
from service.snapshots.replaying import Replay
from service.snapshots.restoration import Restoration


async def switch(
    server: PatientChannel, restoration: Restoration, generation: int, replay: Replay, slots: int
) -> None:
    """`generation`, of that many slots, is what the snapshot and `replay` made.

    Raises RestoreConflict, LogIncomplete, StateUnavailable. What was filled is removed where it is certain
    that the model does not use it.
    """
    keys, meta, header = restoration.keys, restoration.meta, restoration.snapshot.header
    learned: tuple[str, str | int] = ("", "")
    base: tuple[str, str | int] = ("", "")
    if restoration.plan.replay_log:
        base = (header.applied, header.applied_number)
        learned = (str(replay.applied), replay.number)
    filled = keys.state(generation)
    try:
        status, *told = await server.run(
            switch_to_restored,
            *(keys.meta, keys.state(meta.generation), filled, keys.commits, keys.log),
            *(keys.incarnation, meta.generation, secrets.token_bytes(8), generation),
            *(replay.state.t, slots, restoration.config.canonical(), restoration.entry.id, *base, *learned),
            int(restoration.plan.instead_of is not None),
        )
    except StateUnavailable as away:
        unknown = "Whether the snapshot was restored is not known; the model's revision tells."
        raise StateUnavailable(f"{away.detail} {unknown}") from away
    if status != b"SWITCHED":
        await server.discard(filled)
        raise _refusal(restoration.plan.model, status, told)


def _refusal(model: str, status: bytes, told: list[bytes]) -> Exception:
    if status == b"MOVED":
        return RestoreConflict(
            f"Model {model!r} was restored, replaced or deleted by somebody else meanwhile. This restore"
            " changed nothing."
        )
    if status == b"TRIMMED":
        first = told[0].decode() or "nothing"
        return LogIncomplete(f"The log was trimmed meanwhile; it goes on with {first}. Nothing was changed.")
    return StateUnavailable("Redis lost part of the restored state; the model stays as it was. Try again.")

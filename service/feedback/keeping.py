"""Keeping predictions at a server that may have just come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.evaluation.slice_names import SliceName
from service.feedback.waiting import Waiting
from service.redis_client import CONNECTION_FAILURES, Channel, was_cut


async def keep_waiting(
    waiting: Waiting,
    channel: Channel,
    entries: Sequence[bytes],
    names: Mapping[int, SliceName],
    look: bool,
) -> str:
    """A letter for each prediction, as Waiting.log says it. Tried again where the connection ended under the
    call, as at a restart, and then with a look, since they may be kept already.

    Raises what Waiting.log raises.
    """
    try:
        return await _attempt(waiting, channel, entries, names, look)
    except CONNECTION_FAILURES as failure:
        if not was_cut(failure):
            raise
        return await _attempt(waiting, channel, entries, names, look=True)


async def _attempt(
    waiting: Waiting,
    channel: Channel,
    entries: Sequence[bytes],
    names: Mapping[int, SliceName],
    look: bool,
) -> str:
    if names:
        await waiting.note_slices(channel, names)
    return await waiting.log(channel, entries, look)

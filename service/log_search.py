"""Where in the example log the example is that a caller knows by an id."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from model_core.errors import FormatError
from model_core.examples import ExampleBatch
from service.errors import CommandFailure
from service.event_ids import event_digest
from service.feedback.identity import packed_id
from service.log_reading import examples_of
from service.redis_client import Channel
from service.redis_keys import LogEntry, Meta, ModelKeys
from service.replica import gone_is_unknown, read_meta

ENTRIES_A_LOOK = 100


async def find_examples(channel: Channel, model: str, identifier: str) -> list[str]:
    """A line for each example of a logged prediction of that id, or of that event id.

    Raises UnknownModel, and CommandFailure where there is none.
    """
    with gone_is_unknown():
        meta = await read_meta(channel, model)
    wanted = {packed_id(identifier), event_digest(identifier)}
    keys = ModelKeys(model, meta.incarnation)
    lines = [line async for entry in _entries(channel, keys) for line in _found(entry, wanted, meta)]
    if not lines:
        raise CommandFailure(f"the log of {model} has no example of {identifier!r}, not any more or not yet")
    return lines


def _found(entry: LogEntry, wanted: set[bytes], meta: Meta) -> Iterator[str]:
    try:
        batch = examples_of(entry)
    except FormatError:
        return
    state = "learned" if entry.id <= meta.applied else "waits to be learned"
    for k in range(len(batch)):
        if not wanted.isdisjoint(_ids(batch, k)):
            weight = batch.weights[k] if batch.weights.size else 1
            number = (entry.first_number or 0) + k
            yield f"{entry.id}  example {number}  label {batch.labels[k]}  weight {weight:g}  {state}"


def _ids(batch: ExampleBatch, k: int) -> list[bytes]:
    return [ids[k] for ids in (batch.prediction_ids, batch.event_ids) if ids is not None]


async def _entries(channel: Channel, keys: ModelKeys) -> AsyncIterator[LogEntry]:
    after = "-"
    while found := await channel.call("XRANGE", keys.log, after, "+", "COUNT", ENTRIES_A_LOOK):
        for entry, fields in found:
            yield LogEntry.parse(entry, fields)
        after = f"({found[-1][0].decode()}"

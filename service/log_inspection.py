"""An operator's view of the example log, and the way past an entry that no learner can read."""

from __future__ import annotations

import secrets

from model_core.errors import FormatError
from model_core.examples import ExampleBatch
from service.errors import UnknownModel
from service.redis_client import Channel, commit_learned
from service.redis_keys import LOG_START, LogEntry, LogId, Meta, ModelKeys
from service.replica import ModelGone, read_meta
from service.serving import CommandFailure


async def describe_log(channel: Channel, model: str, start: str | None, count: int) -> list[str]:
    """Lines for people. Raises UnknownModel, CommandFailure."""
    meta = await _meta(channel, model)
    keys = ModelKeys(model, meta.incarnation)
    first = f"({meta.applied}" if start is None else str(_log_id(start))
    found = await channel.call("XRANGE", keys.log, first, "+", "COUNT", count)
    length = await channel.call("XLEN", keys.log)
    lines = [
        f"model {model}: {length} entries; learned through {meta.applied}, {meta.backlog} examples wait",
    ]
    for entry_id, fields in found:
        entry = LogEntry.parse(entry_id, fields)
        lines.append(f"{entry.id}  examples {entry.first_number}..{_last(entry)}  {_content(entry)}")
    return lines


async def skip_through(channel: Channel, model: str, entry: str) -> int:
    """How many examples were left out. Raises UnknownModel, CommandFailure."""
    target = _log_id(entry)
    while True:
        meta = await _meta(channel, model)
        if target <= meta.applied:
            raise CommandFailure(f"the log of {model} is learned through {meta.applied} already")
        keys = ModelKeys(model, meta.incarnation)
        following = await channel.call("XRANGE", keys.log, f"({target}", "+", "COUNT", 1)
        number = LogEntry.parse(*following[0]).first_number if following else meta.appended
        status, *_ = await commit_learned(channel, *_skipping(keys, meta, target, number))
        if status == b"COMMITTED":
            return number - meta.applied_number


def _skipping(keys: ModelKeys, meta: Meta, target: LogId, number: int) -> list[str | bytes | int | float]:
    """Arguments of a commit that changes no slot and moves on in the log; it trims nothing."""
    return [
        *(keys.meta, keys.state(meta.generation), keys.commits, keys.log),
        *(meta.incarnation, meta.generation, meta.token, secrets.token_bytes(8)),
        *(str(target), number, meta.t, meta.commit + 1, meta.skipped),
        *(b"", b"", b"", b""),
        *(str(LOG_START), str(LOG_START), 10**15),
    ]


async def _meta(channel: Channel, model: str) -> Meta:
    try:
        return await read_meta(channel, model)
    except ModelGone:
        raise UnknownModel(model) from None


def _log_id(text: str) -> LogId:
    try:
        return LogId.parse(text)
    except ValueError:
        raise CommandFailure(f"{text!r} is no log entry's id; it looks like 1700000000000-0") from None


def _last(entry: LogEntry) -> int:
    return entry.first_number + len(entry.records) - 1


def _content(entry: LogEntry) -> str:
    try:
        batch = ExampleBatch.from_records(entry.records)
    except FormatError as wrong:
        return f"UNREADABLE: {wrong}"
    return f"{int(batch.labels.sum())} clicks, {len(batch.hashes)} features"

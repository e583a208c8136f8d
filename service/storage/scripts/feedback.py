"""Logs predictions, exposes and labels them, and closes what is due."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from service.storage.channel import Channel, Script
from service.storage.records import LogId, ModelKeys

_CLOSING = ("clock", "backlog", "log_writer", "waiting", "waiting_changes", "closing")
_LOG = Script("log_predictions", after=("clock", "waiting", "waiting_changes"))
_LOG_NEW = Script("log_new_predictions", after=("clock", "waiting"))
_EXPOSE = Script("expose", after=_CLOSING)
_LABEL = Script("label", after=_CLOSING)
_SWEEP = Script("sweep", after=_CLOSING)
_CHANGE = Script("change_feedback")
_COUNT_UNKNOWN = Script("count_unknown")

_NO_DELAY = "-1"


class IncarnationGone(Exception):
    """There is no such incarnation of the model."""


class FeedbackChanged(Exception):
    """Other feedback settings are in force: `feedback` and `config` of the model's meta. Nothing was done."""

    def __init__(self, feedback: bytes, config: bytes) -> None:
        super().__init__(feedback)
        self.feedback = feedback
        self.config = config


class BacklogFull(Exception):
    """The log has no room for these labels: so many examples, of so many bytes, are there to learn. Nothing
    was taken.
    """

    def __init__(self, examples: int, size: int) -> None:
        super().__init__(examples, size)
        self.examples = examples
        self.bytes = size


class Terms(NamedTuple):
    """The keys and arguments that all scripts of pending predictions begin with, packed once."""

    keys: tuple[str, ...]
    arguments: tuple[bytes, ...]


class LogOutcome(Enum):
    """The outcome of logging a prediction."""

    LOGGED = "L"
    REPEATED = "S"
    """It was logged before, with the same features."""
    CONFLICT = "X"
    """Its id was logged before, with other features."""
    NO_ROOM = "F"
    """The pending predictions use all the bytes that the model's feedback settings allow."""


class Exposure(Enum):
    """The outcome of exposing a prediction."""

    SHOWN = "S"
    ALREADY_SHOWN = "A"
    UNKNOWN = "U"


class LabelOutcome(Enum):
    """The outcome of a label."""

    JOINED = "J"
    """It is learned from here on."""
    JOINED_LATE = "P"
    """Its window is over, and it is learned all the same."""
    PENDING = "W"
    """It is learned at the end of its window."""
    AWAITS_IMPRESSION = "G"
    SAMPLED_OUT = "N"
    """It joined its prediction, and the sampling of negatives left the example out."""
    LATE = "T"
    REPEATED = "D"
    REPEATED_UNSHOWN = "E"
    """It is repeated, and awaits its impression."""
    CONFLICT = "C"
    """Another label came first."""
    UNKNOWN = "U"


_LOG_OUTCOMES = {ord(one.value): one for one in LogOutcome}
_EXPOSURES = {ord(one.value): one for one in Exposure}
_LABEL_OUTCOMES = {one.value: one for one in LabelOutcome}


class Labelled(NamedTuple):
    """The outcome of one label. `place`: its log entry and the offset in that, if known.
    `delay`: seconds since the prediction was shown, None if it was not, or is closed.
    """

    outcome: LabelOutcome
    place: tuple[LogId, int] | None
    delay: float | None


class Sweep(NamedTuple):
    """`more`: whether there is more to close now. `oldest_ms`: the age of the oldest open impression.
    `pending`: how many predictions are unshown, labelled early, open and closed. `counts`: how many ever, by
    outcome.
    """

    more: bool
    bytes: int
    oldest_ms: int
    pending: list[int]
    counts: dict[str, int]


def terms(
    keys: ModelKeys,
    *,
    unshown_seconds: float,
    grace_seconds: float,
    window_seconds: float,
    late_seconds: float,
    max_bytes: int,
    learn_at: str,
    late: str,
    negative_sample_rate: float,
    max_backlog: int,
    max_entry_bytes: int,
    max_entry_examples: int,
    max_backlog_bytes: int,
    feedback: bytes,
) -> Terms:
    """Packs what waiting.lua begins with. `feedback`: that of the meta from which these settings are."""
    arguments: tuple[str | int | float, ...] = (
        *(keys.incarnation, keys.due_prefix, unshown_seconds, grace_seconds, window_seconds, late_seconds),
        *(max_bytes, learn_at, late, negative_sample_rate),
        *(max_backlog, max_entry_bytes, max_entry_examples, max_backlog_bytes),
    )
    return Terms(
        (keys.meta, keys.log, keys.feedback, keys.slices, keys.impressions_prefix),
        (*(str(one).encode() for one in arguments), feedback),
    )


async def log_predictions(
    channel: Channel, terms: Terms, kind: str, entries: Iterable[bytes], *, look_up: bool
) -> list[LogOutcome]:
    """Logs predictions: key, value, key, ...

    `kind`: "i" if a prediction is an impression, else "u". `look_up`: whether some may have been logged.
    """
    script = _LOG if look_up else _LOG_NEW
    (letters,) = await _run(script, channel, terms, kind, *entries)
    return [_LOG_OUTCOMES[letter] for letter in letters]


async def expose_predictions(channel: Channel, terms: Terms, keys: Sequence[bytes]) -> list[Exposure]:
    """Begins the windows of predictions."""
    (letters,) = await _run(_EXPOSE, channel, terms, *keys)
    return [_EXPOSURES[letter] for letter in letters]


async def label_predictions(channel: Channel, terms: Terms, labels: Iterable[bytes]) -> list[Labelled]:
    """Takes labels: key, label (see waiting.lua), weight (float64), key, ... Raises BacklogFull."""
    (answers,) = await _run(_LABEL, channel, terms, *labels)
    return [_labelled(answer) for answer in answers]


async def sweep_predictions(channel: Channel, terms: Terms, max_closed: int) -> Sweep:
    """Closes what is due, up to that many impressions."""
    more, size, oldest, *rest = await _run(_SWEEP, channel, terms, max_closed)
    pending, counts = rest[:4], rest[4:]
    named = {name.decode(): int(count) for name, count in zip(counts[::2], counts[1::2], strict=True)}
    return Sweep(bool(more), size, oldest, pending, named)


async def change_feedback(
    channel: Channel, keys: ModelKeys, *, expected: bytes, new: bytes, longer: Mapping[str, int]
) -> bool:
    """Changes how labels are awaited; False if the feedback is not `expected`, or the model is gone.

    `longer`: by how many seconds each kind of predictions (see waiting.lua) waits longer.
    """
    changed = await _CHANGE(
        channel,
        (keys.meta, keys.feedback),
        *(keys.incarnation, expected, new, keys.due_prefix),
        *(part for kind_and_seconds in longer.items() for part in kind_and_seconds),
    )
    return bool(changed == 1)


async def count_unknown(channel: Channel, keys: ModelKeys, number: int) -> bool:
    """Counts labels and impressions of unknown predictions; False if the model is gone."""
    return bool(await _COUNT_UNKNOWN(channel, (keys.meta, keys.feedback), keys.incarnation, number))


async def _run(script: Script, channel: Channel, terms: Terms, *own: str | bytes | int) -> list[Any]:
    """Raises IncarnationGone, FeedbackChanged, BacklogFull, and what Channel.call raises."""
    rest: list[Any]
    status, *rest = await script(channel, terms.keys, *terms.arguments, *own)
    if status == b"CHANGED":
        raise FeedbackChanged(*rest)
    if status == b"GONE":
        raise IncarnationGone
    if status == b"FULL":
        raise BacklogFull(*map(int, rest))
    return rest


def _labelled(answer: bytes) -> Labelled:
    letter, position, delay = answer.decode().split("|")
    entry, _, offset = position.rpartition(":")
    place = (LogId.parse(entry), int(offset)) if position else None
    return Labelled(_LABEL_OUTCOMES[letter], place, None if delay == _NO_DELAY else int(delay) / 1000)

"""The predictions of one model that wait in Redis, and what can happen to them: one script each."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from model_core.example_records import HEADER_BYTES
from service.errors import LogFull
from service.evaluation.slice_names import MOST_VALUES_A_FEATURE, SliceName, pack_names
from service.example_log import MOST_ENTRY_BYTES, MOST_ENTRY_EXAMPLES
from service.feedback.config import FeedbackConfig
from service.redis_client import (
    Channel,
    Script,
    expose_predictions,
    label_predictions,
    log_predictions,
    note_slices,
    sweep_predictions,
)
from service.redis_keys import WAITING_HEAD, LogId, ModelKeys
from service.replica import ModelGone
from service.settings import Settings

STAGES = ("unshown", "early", "open", "closed")
"""Where a prediction waits: to be shown, for that with a label already, for its label, to be forgotten."""

_PREFIX_BYTES = 4
_WEIGHT = struct.Struct("<d")


class Label(NamedTuple):
    """A label for the prediction of a key."""

    key: bytes
    label: int
    weight: float


class Labelled(NamedTuple):
    """What became of a label. `letter`: as label.lua says it. `place`: its log entry and offset, where known.
    `delay`: seconds since it was shown, None where it was not, or is closed.
    """

    letter: str
    place: tuple[LogId, int] | None
    delay: float | None


class Swept(NamedTuple):
    """What a sweep left. `waiting`: how many at each of STAGES. `counts`: how many ever, by fate."""

    more: bool
    bytes: int
    oldest_seconds: float
    waiting: dict[str, int]
    counts: dict[str, int]


class Waiting:
    """Every method raises ModelGone where this incarnation of the model is no more, and what Channel.call
    raises.
    """

    def __init__(self, keys: ModelKeys, config: FeedbackConfig, settings: Settings) -> None:
        self._keys = keys
        self._kind = "i" if config.exposure == "on_predict" else "u"
        self._common: tuple[str | bytes | int | float, ...] = (
            *(keys.meta, keys.log, keys.feedback, keys.slices),
            *(keys.incarnation, keys.impressions_prefix),
            *(config.unshown_seconds, config.grace_seconds, config.window_seconds, config.late_seconds),
            *(config.max_bytes, config.learn_at, config.late, config.negative_sample_rate),
            *(settings.backlog_limit_examples, MOST_ENTRY_BYTES, MOST_ENTRY_EXAMPLES),
        )

    async def log(self, channel: Channel, predictions: Sequence[tuple[bytes, bytes]], look: bool) -> str:
        """A letter as log_predictions.lua says for each (key, value); `look`: whether some may be known."""
        flat = [part for pair in predictions for part in pair]
        (letters,) = await self._run(log_predictions, channel, self._kind, int(look), *flat)
        return str(letters, "ascii")

    async def note_slices(self, channel: Channel, names: Mapping[int, SliceName]) -> None:
        """Values of sliced features, before predictions that have them are kept."""
        keys = self._keys
        await note_slices(
            channel, *(keys.slices, keys.meta, keys.incarnation, pack_names(names), MOST_VALUES_A_FEATURE)
        )

    async def expose(self, channel: Channel, keys: Sequence[bytes]) -> str:
        """A letter as expose.lua says for each key."""
        (letters,) = await self._run(expose_predictions, channel, *keys)
        return str(letters, "ascii")

    async def label(self, channel: Channel, labels: Sequence[Label]) -> list[Labelled]:
        """Raises LogFull where nothing was taken."""
        flat = [part for one in labels for part in (one.key, one.label, _WEIGHT.pack(one.weight))]
        (answers,) = await self._run(label_predictions, channel, *flat)
        return [_labelled(answer) for answer in answers]

    async def sweep(self, channel: Channel, most: int) -> Swept:
        more, size, oldest, *rest = await self._run(sweep_predictions, channel, most)
        stages, counts = rest[: len(STAGES)], rest[len(STAGES) :]
        named = {name.decode(): int(count) for name, count in zip(counts[::2], counts[1::2], strict=True)}
        return Swept(bool(more), size, oldest / 1000, dict(zip(STAGES, stages, strict=True)), named)

    async def _run(self, script: Script, channel: Channel, *own: str | bytes | int) -> list[Any]:
        reply: list[Any] = await script(channel, *self._common, *own)
        status, *rest = reply
        if status == b"GONE":
            raise ModelGone(self._keys.model)
        if status == b"FULL":
            raise LogFull(f"{int(rest[0])} examples wait to be learned; no label was taken")
        return rest


def key_of(prediction_id: bytes) -> bytes:
    """Under which a prediction waits: 12 of the 16 bytes of its id."""
    return prediction_id[_PREFIX_BYTES:]


def value_of(prediction_id: bytes, generation: int, commit: int, margin: float, record: bytes) -> bytes:
    """`record`: of the example alone, without label, weight, time or ids."""
    prefix = prediction_id[:_PREFIX_BYTES]
    head = WAITING_HEAD.pack(b"-", 0, generation & 0xFFFF, commit & 0xFFFFFFFF, margin, prefix)
    return head + record[1:2] + record[HEADER_BYTES:]


def _labelled(answer: bytes) -> Labelled:
    letter, position, delay = answer.decode().split("|")
    entry, _, offset = position.rpartition(":")
    place = (LogId.parse(entry), int(offset)) if position else None
    return Labelled(letter, place, int(delay) / 1000 if delay != "-1" else None)

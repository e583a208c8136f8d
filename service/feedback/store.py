"""The pending predictions of one model in Redis, and one function for each thing that can happen to them."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from model_core.examples.batch import ExampleBatch
from model_core.examples.records import HEADER_BYTES
from service.errors import LogFull
from service.example_log.stream import MAX_ENTRY_BYTES, MAX_ENTRY_EXAMPLES, full_backlog
from service.models.config.model import feedback_in_force
from service.models.config.sections import FeedbackConfig
from service.models.evaluation.slices import MAX_VALUES_PER_FEATURE, SliceName, pack_names
from service.models.replica import ModelGone
from service.settings.groups import LogSettings
from service.storage.channel import Channel
from service.storage.records import WAITING_HEAD, ModelKeys
from service.storage.scripts.feedback import (
    BacklogFull,
    Exposure,
    FeedbackChanged,
    IncarnationGone,
    Labelled,
    LogOutcome,
    Terms,
    expose_predictions,
    label_predictions,
    log_predictions,
    sweep_predictions,
    terms,
)
from service.storage.scripts.log import note_slices

STAGES = ("unshown", "early", "open", "closed")
"""Stages of a prediction: not shown yet; not shown yet but labelled; awaiting its label; closed."""

_KEY_FROM, _PREFIX, _HASH_BYTES = 6, slice(2, 6), 4
_NO_FLAGS = b"\0"
_F64 = struct.Struct("<d")


_T = TypeVar("_T")


class Label(NamedTuple):
    """A label for the prediction of a key."""

    key: bytes
    label: float
    weight: float

    @property
    def packed_label(self) -> bytes:
        """The label as the scripts take it, see waiting.lua."""
        if 0.0 < self.label < 1.0:
            return b"s" + _F64.pack(self.label)
        return b"1" if self.label else b"0"


class Swept(NamedTuple):
    """The state after a sweep. `more`: more predictions are due now. `pending`: the number at each of STAGES.
    `counts`: totals by outcome.
    """

    more: bool
    bytes: int
    oldest_seconds: float
    pending: dict[str, int]
    counts: dict[str, int]


class PendingStore:
    """Every method raises ModelGone where this incarnation of the model is no more, ContractMismatch where
    its `feedback` was changed to what this version does not know, and what Channel.call raises.

    `config`: how labels are waited for, as the server said last; `stored`: see Meta.feedback. Every script
    compares that, so that all processes do as the server says from one moment on.
    """

    def __init__(
        self, keys: ModelKeys, config: FeedbackConfig, settings: LogSettings, stored: bytes = b""
    ) -> None:
        self._keys = keys
        self._settings = settings
        self._kind = "i" if config.exposure == "on_predict" else "u"  # which never changes in place
        self._take(config, stored)

    def _take(self, config: FeedbackConfig, stored: bytes) -> None:
        self.config, self.stored = config, stored
        keys, settings = self._keys, self._settings
        self._terms = terms(
            keys,
            unshown_seconds=config.unshown_seconds,
            grace_seconds=config.grace_seconds,
            window_seconds=config.window_seconds,
            late_seconds=config.late_seconds,
            max_bytes=config.max_bytes,
            learn_at=config.learn_at,
            late=config.late,
            negative_sample_rate=config.negative_sample_rate,
            max_backlog=settings.backlog_limit_examples,
            max_entry_bytes=MAX_ENTRY_BYTES,
            max_entry_examples=MAX_ENTRY_EXAMPLES,
            max_backlog_bytes=int(settings.backlog_limit_bytes),
            feedback=stored,
        )

    async def log(self, channel: Channel, entries: Sequence[bytes], check: bool) -> list[LogOutcome]:
        """Logs predictions given as key, value, key, ...; `check`: some may be known."""
        return await self._run(
            lambda terms: log_predictions(channel, terms, self._kind, entries, look_up=check)
        )

    async def note_slices(self, channel: Channel, names: Mapping[int, SliceName]) -> None:
        """Stores values of sliced features, before predictions that have them are logged."""
        await note_slices(channel, self._keys, pack_names(names), MAX_VALUES_PER_FEATURE)

    async def expose(self, channel: Channel, keys: Sequence[bytes]) -> list[Exposure]:
        """Records that predictions were shown."""
        return await self._run(lambda terms: expose_predictions(channel, terms, keys))

    async def label(self, channel: Channel, labels: Sequence[Label]) -> list[Labelled]:
        """Raises LogFull if no label was accepted."""
        flat = [part for one in labels for part in (one.key, one.packed_label, _F64.pack(one.weight))]
        return await self._run(lambda terms: label_predictions(channel, terms, flat))

    async def sweep(self, channel: Channel, max_closed: int) -> Swept:
        swept = await self._run(lambda terms: sweep_predictions(channel, terms, max_closed))
        pending = dict(zip(STAGES, swept.pending, strict=True))
        return Swept(swept.more, swept.bytes, swept.oldest_ms / 1000, pending, swept.counts)

    async def _run(self, script: Callable[[Terms], Awaitable[_T]]) -> _T:
        while True:
            try:
                return await script(self._terms)
            except FeedbackChanged as changed:
                config = feedback_in_force(self._keys.model, changed.config, changed.feedback)
                self._take(config, changed.feedback)
            except IncarnationGone:
                raise ModelGone(self._keys.model) from None
            except BacklogFull as full:
                why = full_backlog(full.examples, full.bytes, self._settings)
                raise LogFull(f"{why}; send the same labels again later") from None


def key_of(prediction_id: bytes) -> bytes:
    """The key of a pending prediction: the last 10 of the 16 bytes of its id."""
    return prediction_id[_KEY_FROM:]


def entries_of(
    ids: Sequence[bytes],
    batch: ExampleBatch,
    margins: npt.NDArray[np.float64],
    commit: int,
    token: bytes,
) -> list[bytes]:
    """Key, value, key, value, ... of predictions from the state of that commit number and token."""
    entries: list[bytes] = []
    for one, margin, features in zip(ids, margins.tolist(), _features_of(batch), strict=True):
        head = WAITING_HEAD.pack(commit & 0xFFFF, token, margin, one[_PREFIX])
        entries += (one[_KEY_FROM:], head + features)
    return entries


def _features_of(batch: ExampleBatch) -> list[bytes]:
    """Flags and features of each prediction as in a record; anything that a request says about a label is
    left out.
    """
    if batch.values.size:
        plain = ExampleBatch(batch.row_ptr, batch.hashes, batch.values, np.zeros(len(batch)))
        return [record[1:2] + record[HEADER_BYTES:] for record in plain.to_records()]
    hashes = batch.hashes.astype("<u4", copy=False).tobytes()
    if len(batch) == 1:
        return [_NO_FLAGS + hashes]
    bounds = pairwise((_HASH_BYTES * batch.row_ptr).tolist())
    return [_NO_FLAGS + hashes[start:stop] for start, stop in bounds]

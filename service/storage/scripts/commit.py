"""Commits what was learned, writes it into the state behind, and reads what belongs to a commit."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from service.storage.channel import Channel, Script
from service.storage.records import (
    FORMAT_VERSION,
    LOG_START,
    Checkpoint,
    Commit,
    LogId,
    ModelKeys,
    bytes_of,
    mapping_of,
    pack_entries,
)

FOREVER_MS = 2**52

_COMMIT = Script("commit", after=("clock", "backlog", "log_ids", "log_entry", "hash_fields"))
_CHECKPOINT = Script("checkpoint", after=("hash_fields", "drop_slots"))
_EVALUATION = Script("evaluation")
_FIGURES = Script("figures")


class Trims(NamedTuple):
    """Limits of what a commit removes: commits and log entries before these ids, and applied log entries that
    are older than that. Commits since the last checkpoint stay in any case.
    """

    commits_from: LogId = LOG_START
    log_from: LogId = LOG_START
    log_milliseconds: int = FOREVER_MS


class CommitStatus(Enum):
    COMMITTED = b"COMMITTED"
    CONFLICT = b"CONFLICT"
    """The model is not what the learner started from."""
    LOST = b"LOST"
    """What was learned is not what the log holds."""


class CommitReply(NamedTuple):
    """`position`: in the commits stream, if COMMITTED. `token`: the current one, if CONFLICT."""

    status: CommitStatus
    position: LogId = LOG_START
    token: bytes = b""


class StoredEvaluation(NamedTuple):
    """The fields of ``evaluation`` and of ``slices``."""

    fields: dict[bytes, bytes]
    slices: dict[bytes, bytes]


async def commit_learned(
    channel: Channel,
    keys: ModelKeys,
    generation: int,
    commit: Commit,
    trims: Trims = Trims(),  # noqa: B008  immutable
    digest: str = "",
    written: bytes = b"",
    deleted: bytes = b"",
    learned_bytes: int = 0,
    follows: bool = False,
) -> CommitReply:
    """Commits if the model is still at `commit.previous_token`, so that a commit may be sent again.

    `digest`: that of the entry that was learned last, if any was. `written`, `deleted`: fields of
    ``evaluation``, as layout.Changes has them. `learned_bytes`: of the records that were learned. `follows`:
    they are in the log of another model; the caller has made sure that it holds them.
    """
    status, *rest = await _COMMIT(
        channel,
        (keys.meta, keys.commits, keys.log, keys.evaluation),
        *(keys.incarnation, generation, commit.previous_token, commit.token),
        *(str(commit.applied), commit.applied_number, commit.t, commit.number, commit.skipped_total),
        *(bytes_of(commit.changed), pack_entries(commit.entries)),
        *(commit.margins.tobytes(), commit.skipped.tobytes()),
        *(str(trims.commits_from), str(trims.log_from), trims.log_milliseconds),
        *(digest, commit.discount.text(), learned_bytes, FORMAT_VERSION),
        *(commit.dropped.astype("<u4").tobytes(), int(follows), deleted, memoryview(written)),
    )
    outcome = CommitStatus(status)
    if outcome is CommitStatus.COMMITTED:
        return CommitReply(outcome, position=LogId.parse(rest[0]))
    return CommitReply(outcome, token=rest[0] if outcome is CommitStatus.CONFLICT else b"")


async def write_behind(
    channel: Channel,
    keys: ModelKeys,
    generation: int,
    token: bytes,
    slots: npt.NDArray[np.void],
    dropped: bytes,
    complete: Checkpoint | None,
    *,
    previous: bytes,
    name: bytes,
) -> bool:
    """Writes slots (changed_type), as of the commit that `token` names, into the state, and removes those
    that were dropped (uint32); False if the model has moved on, or what was written last is not `previous`
    (Meta.written). `name`: of this. `complete`: the commit through which the state then has all that changed.
    """
    position, through = (str(complete.position), complete.token) if complete else ("", b"")
    return bool(
        await _CHECKPOINT(
            channel,
            (keys.meta, keys.state(generation)),
            *(keys.incarnation, generation, token, bytes_of(slots), dropped),
            *(position, through, previous, name),
        )
    )


async def read_evaluation(channel: Channel, keys: ModelKeys, token: bytes) -> StoredEvaluation | None:
    """Reads the evaluation that belongs to a commit; None if the model has moved on."""
    found = await _EVALUATION(channel, (keys.meta, keys.evaluation, keys.slices), keys.incarnation, token)
    return StoredEvaluation(*map(mapping_of, found)) if found else None


async def store_figures(
    channel: Channel, keys: ModelKeys, token: bytes, figures: Mapping[bytes, bytes]
) -> bool:
    """Stores figures for readers; False if the model has moved on."""
    return bool(
        await _FIGURES(
            channel,
            (keys.meta, keys.evaluation),
            *(keys.incarnation, token),
            *chain.from_iterable(figures.items()),
        )
    )

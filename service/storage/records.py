"""Every name of a model or key and every byte layout of what is stored in Redis, in one place.

Each key of model M carries the hash tag ``{M}``: one model is one cluster slot, so its commits are atomic.
All but ``meta``, ``learner``, ``lost``, ``deleted`` and ``alias`` carry the model's incarnation too, so that
nothing of a deleted model is ever taken for its successor's.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from model_core.learning.rows import fold_stored
from model_core.learning.state import NO_SLOTS, NOTHING_FORGOTTEN, Evidence, parse_evidence
from service.errors import InvalidModelName

MODEL_NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_NAME = re.compile(MODEL_NAME_PATTERN[1:-1])


def checked_name(name: str) -> str:
    """Raises InvalidModelName."""
    if _NAME.fullmatch(name) is None:
        raise InvalidModelName(name)
    return name


MODELS = "ftrl:models"

ALIASES = "ftrl:aliases"
"""A hash: alias -> the model that it means; alias/model -> until when (Unix seconds) predictions that this
model, which it meant before, has logged may be pending; ALIAS_CHANGES -> the number of the last change;
ALIAS_SINCE + alias -> when it came to mean its model (microseconds).
"""

ALIAS_CHANGES = "/changes"

ALIAS_SINCE = "/since/"

META_PATTERN = "ftrl:{*}:meta"

PROBE = "ftrl:{-}:probe"
"""A key that never exists; `-` is no name of a model."""

DELETION_REMEMBERED_SECONDS = 30 * 24 * 3600

WAITING_SHARDS = 8

_WAITING = "waiting-2:"
"""The number changes with the layout of pending predictions in waiting.lua, so that none is misread."""


def meta_key(model: str) -> str:
    return f"ftrl:{{{model}}}:meta"


def lease_key(model: str) -> str:
    return f"ftrl:{{{model}}}:learner"


def alias_key(name: str) -> str:
    """Marks the name as that of an alias, and so of no model."""
    return f"ftrl:{{{name}}}:alias"


def probe_key(name: str) -> str:
    """A key that never exists, at which a write that changes nothing is tried."""
    return f"ftrl:{{{name}}}:probe"


def lost_key(model: str) -> str:
    """Says, as a sentence, that the server has lost the model, until it is created or deleted."""
    return f"ftrl:{{{model}}}:lost"


def deleted_key(model: str) -> str:
    """The last incarnation that a client deleted, for DELETION_REMEMBERED_SECONDS."""
    return f"ftrl:{{{model}}}:deleted"


@dataclass(frozen=True, slots=True)
class ModelKeys:
    """The keys of one incarnation of a model."""

    model: str
    incarnation: str

    @property
    def meta(self) -> str:
        return meta_key(self.model)

    @property
    def lease(self) -> str:
        return lease_key(self.model)

    @property
    def log(self) -> str:
        return self._of_incarnation("log")

    @property
    def commits(self) -> str:
        return self._of_incarnation("commits")

    @property
    def evaluation(self) -> str:
        return self._of_incarnation("evaluation")

    @property
    def history(self) -> tuple[str, str]:
        """Streams of the figures of each moment, by seconds and by minutes."""
        return self._of_incarnation("history:seconds"), self._of_incarnation("history:minutes")

    @property
    def marks(self) -> str:
        """A stream of what happened to the model."""
        return self._of_incarnation("marks")

    @property
    def marks_seen(self) -> str:
        """A string: on what the next marks follow."""
        return self._of_incarnation("marks:seen")

    @property
    def snapshot_requests(self) -> str:
        """A list in which the learner finds the requests for snapshots."""
        return self._of_incarnation("snapshot-requests")

    def snapshot_reply(self, request: str) -> str:
        """A list in which the process that made the request finds the reply."""
        return self._of_incarnation(f"snapshot-reply:{request}")

    @property
    def slices(self) -> str:
        return self._of_incarnation("slices")

    @property
    def followers(self) -> str:
        """A hash: challenger -> its Follower, while it learns this log."""
        return self._of_incarnation("followers")

    @property
    def names(self) -> str:
        """A sorted set of the names of the most seen features."""
        return self._of_incarnation("names")

    @property
    def promotions(self) -> str:
        """A stream: the Promotion of each challenger that took the place of this model."""
        return self._of_incarnation("promotions")

    @property
    def events_prefix(self) -> str:
        """A prefix, which the scripts complete with the hour (Unix time / 3600) of the bucket."""
        return self._of_incarnation("events:")

    @property
    def feedback(self) -> str:
        """A hash: the number of pending predictions, their bytes, and totals by outcome."""
        return self._of_incarnation(f"{_WAITING}index")

    @property
    def impressions_prefix(self) -> str:
        """A prefix, which the scripts complete with the shard of the pending predictions."""
        return self._of_incarnation(f"{_WAITING}impressions:")

    @property
    def impressions(self) -> list[str]:
        """The hashes of pending predictions."""
        return [f"{self.impressions_prefix}{shard}" for shard in range(WAITING_SHARDS)]

    @property
    def due_prefix(self) -> str:
        """A prefix, which the scripts complete with the kind of predictions and when they are due, in Unix
        seconds.
        """
        return self._of_incarnation(f"{_WAITING}due:")

    @property
    def state_prefix(self) -> str:
        return self._of_incarnation("state:")

    def state(self, generation: int) -> str:
        return f"{self.state_prefix}{generation}"

    def _of_incarnation(self, part: str) -> str:
        return f"ftrl:{{{self.model}}}:{self.incarnation}:{part}"


FORMAT_VERSION = 3
READABLE_FORMATS = (1, 2, FORMAT_VERSION)
"""In format 1 each commit wrote the state, so that there was no ``checkpoint``. Up to format 2 an entry of
the log had a field for each example.
"""

SLOTS_A_CHUNK = 250
"""How many slots a script writes into a state at most. While the server grows the table of a hash, each write
moves several other fields; while it has a fork, as when it rewrites its append-only file, each copies pages.
So a slot takes 2 us as a rule, and up to 40 at worst.
"""

_SLOT_TAG = 0xA4  # MessagePack's string of 4 bytes
_SHORT_TAG, _LONG_TAG, _LONGEST_SHORT = 0xA0, 0xD9, 31  # of up to 31 bytes, and of more, whose length follows


@lru_cache
def changed_type(experts: int = 1, folded: bool = False) -> np.dtype[np.void]:
    """One changed slot as commits carry it: two MessagePack strings, the field of ``state`` (4 bytes) and its
    value, z and n (16 bytes for one model, and for each expert of a mixture: all z, then all n). The server's
    Lua takes these apart in C, a third faster than out of a bare blob.

    `folded`: rows were folded (Discount): 4 bytes more for each expert, how often they were when this one was
    written. A fold changes no stored row; readers fold those that were written before it.
    """
    tags = len(_row_tags(experts, folded))
    return np.dtype([("slot_tag", "u1"), ("slot", "<u4"), ("row_tag", "u1", (tags,)), *_row(experts, folded)])


def _row(experts: int, folded: bool) -> list[tuple[str, str, tuple[int]]]:
    return [("row", "<f8", (2 * experts,)), *([("folds", "<u4", (experts,))] if folded else [])]


def _row_tags(experts: int, folded: bool) -> list[int]:
    size = np.dtype(_row(experts, folded)).itemsize
    return [_SHORT_TAG | size] if size <= _LONGEST_SHORT else [_LONG_TAG, size]


PROGRESSIVE, SERVED, SLICES = b"p", b"s", b"l"
"""Prefixes of the fields of ``evaluation``, by what they evaluate: predictions just before learning,
predictions as they were served, the slices of the former.
"""

COMPARISON = b"comparison"
"""The field of ``evaluation`` that compares a challenger with its champion."""

FIGURES, SLICE_FIGURES, SHORT_SLICE_FIGURES = b"figures", b"figures:slices", b"figures:slices:short"
"""Fields of ``evaluation`` that are derived from the others, as JSON for readers: all but slices; slices; the
part of these that the dashboard shows.
"""

FIGURES_OF_SLICES = frozenset((SLICE_FIGURES, SHORT_SLICE_FIGURES))

_LEARNED_ENTRY = struct.Struct("<QQI")
"""Log id (milliseconds, sequence) and how many examples of it a commit learned."""

WAITING_HEAD = struct.Struct("<H4sd4s")
"""A newly logged prediction: commit number (its low bits) and token (its first bytes) of the state that was
read, margin, the 4 bytes of its id before those that are the field; its flags and features follow.
The script puts its stage and the time before.
"""

WAITING_IMPRESSIONS, WAITING_UNSHOWN = b"=i", (b"=u", b"=g")
"""Fields of ``feedback``: the numbers of impressions whose windows have not ended, and of predictions that
are not shown yet, without a label and with one.
"""


def mapping_of(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """The dict of a reply or an entry that is a list of field, value, ..."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


class LogId(NamedTuple):
    """A stream id; tuples of integers order as Redis orders ids."""

    milliseconds: int
    sequence: int

    @classmethod
    def parse(cls, text: bytes | str) -> LogId:
        milliseconds, _, sequence = (text.decode() if isinstance(text, bytes) else text).partition("-")
        return cls(int(milliseconds), int(sequence or 0))

    def before(self) -> LogId:
        """The id just before this one."""
        if self.sequence:
            return LogId(self.milliseconds, self.sequence - 1)
        return LogId(self.milliseconds - 1, 2**64 - 1)

    def __str__(self) -> str:
        return f"{self.milliseconds}-{self.sequence}"


LOG_START = LogId(0, 0)


class Checkpoint(NamedTuple):
    """A commit, by its place in the commits stream and its token: no row in ``state`` is older."""

    position: LogId
    token: bytes


@dataclass(frozen=True, slots=True)
class Follows:
    """What makes a model a challenger: the champion whose log it learns, by name and incarnation. `start`:
    where it began: `state`, `now`, `log`, or a snapshot of the champion.
    """

    model: str
    incarnation: str
    start: str

    @classmethod
    def parse(cls, stored: bytes) -> Follows | None:
        """None of nothing: a model that has a log of its own."""
        if not stored:
            return None
        fields = json.loads(stored)
        return cls(fields["model"], fields["incarnation"], fields["start"])

    def packed(self) -> str:
        fields = {"model": self.model, "incarnation": self.incarnation, "start": self.start}
        return json.dumps(fields, separators=(",", ":"))

    @property
    def keys(self) -> ModelKeys:
        """Those of the champion."""
        return ModelKeys(self.model, self.incarnation)


class Follower(NamedTuple):
    """A challenger, as it reports to its champion: its incarnation, the entry that it has learned the log
    through, and when that was, in milliseconds since 1970.
    """

    incarnation: str
    applied: LogId
    milliseconds: int

    @classmethod
    def parse(cls, stored: bytes) -> Follower:
        incarnation, applied, milliseconds = stored.decode().split()
        return cls(incarnation, LogId.parse(applied), int(milliseconds))

    def packed(self) -> str:
        return f"{self.incarnation} {self.applied} {self.milliseconds}"


def parse_ranges(stored: bytes) -> Iterator[range]:
    """Ranges of numbers, stored as `first:end,` one after the other."""
    for part in stored.decode().split(",")[:-1]:
        first, end = part.split(":")
        yield range(int(first), int(end))


@dataclass(frozen=True, slots=True)
class Meta:
    """The hash ``meta``, decoded. ``applied_number`` counts log examples behind ``applied``, also skipped
    ones. What is learned through ``evaluated`` was evaluated before, and is learned again after a restore.
    ``feedback`` is in force in place of that section of ``config``; empty where it was never changed.
    ``discount``: of a model that has forgotten something, or is a mixture; else not stored, or empty.
    ``checkpoint``: None, stored as nothing or as an empty position, where ``state`` is that of the last
    commit. ``written``: names what was written into ``state`` last, behind the commits; empty where that was
    nothing. ``follows``: of a challenger, whose log is that of another model; ``applied`` and
    ``applied_number`` are positions in that one then, and ``learned_digest`` the digest of its entry there.
    ``left_out``: the numbers of the examples that an operator had this model skip. ``promote_after``: for
    how many examples a challenger has to stay better until it is promoted automatically; None: never.
    """

    incarnation: str
    generation: int
    token: bytes
    config: str
    fingerprint: str
    format_version: int
    applied: LogId
    applied_number: int
    appended: int
    t: int
    commit: int
    skipped: int
    evaluated: LogId
    feedback: bytes
    discount: Evidence = NOTHING_FORGOTTEN
    checkpoint: Checkpoint | None = None
    written: bytes = b""
    follows: Follows | None = None
    learned_digest: str = ""
    left_out: tuple[range, ...] = ()
    promote_after: int | None = None

    @classmethod
    def parse(cls, fields: dict[bytes, bytes]) -> Meta:
        return cls(
            incarnation=fields[b"incarnation"].decode(),
            generation=int(fields[b"generation"]),
            token=fields[b"token"],
            config=fields[b"config"].decode(),
            fingerprint=fields[b"fingerprint"].decode(),
            format_version=int(fields[b"format"]),
            applied=LogId.parse(fields[b"applied"]),
            applied_number=int(fields[b"applied_number"]),
            appended=int(fields[b"appended"]),
            t=int(fields[b"t"]),
            commit=int(fields[b"commit"]),
            skipped=int(fields[b"skipped"]),
            evaluated=LogId.parse(fields.get(b"evaluated", b"0-0")),
            feedback=fields.get(b"feedback", b""),
            discount=parse_evidence(fields.get(b"discount", b"").decode()),
            checkpoint=_checkpoint_of(fields),
            written=fields.get(b"written", b""),
            follows=Follows.parse(fields.get(b"follows", b"")),
            learned_digest=fields.get(b"learned_digest", b"").decode(),
            left_out=tuple(parse_ranges(fields.get(b"left_out", b""))),
            promote_after=int(fields[b"promote_after"]) if fields.get(b"promote_after") else None,
        )

    @property
    def revision(self) -> str:
        return revision(self.incarnation, self.generation, self.commit, mark_of(self.token))

    def log_keys(self, model: str) -> ModelKeys:
        """Those of the model whose log this one, of that name, learns."""
        return self.follows.keys if self.follows else ModelKeys(model, self.incarnation)

    @property
    def backlog(self) -> int:
        """Examples appended and not yet learned."""
        return self.appended - self.applied_number


def _checkpoint_of(fields: dict[bytes, bytes]) -> Checkpoint | None:
    position = fields.get(b"checkpoint")
    return Checkpoint(LogId.parse(position), fields[b"checkpoint_token"]) if position else None


def revision(incarnation: str, generation: int, commit: int, mark: str) -> str:
    """Identifies the state that a prediction used; never repeats, thanks to the mark. Numbers repeat if a
    server loses commits and the processes that knew of them have ended. Only old snapshots have no mark.
    """
    numbered = f"{incarnation[:8]}-{generation}-{commit}"
    return f"{numbered}-{mark}" if mark else numbered


def mark_of(token: bytes) -> str:
    """The mark of the commit that the token names, 8 characters."""
    return token[:4].hex()


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the example log. ``first_number`` is the dense number of its first example, None where the
    entry is none that this service wrote. ``examples``: how many; ``records``: theirs, one after another.
    ``slices``: how long the hash of that name was, where it has grown since the entry before, else 0.
    """

    id: LogId
    first_number: int | None
    examples: int
    records: bytes
    slices: int = 0

    @property
    def digest(self) -> str:
        """Identifies what it holds: a server that has lost it may have another one under its id."""
        return hashlib.sha1(self.records, usedforsecurity=False).hexdigest()

    @classmethod
    def parse(cls, entry_id: bytes, fields: list[bytes]) -> LogEntry:
        """``fields`` as in log_writer.lua; versions before had an ``e`` for each example, and no ``c``."""
        records: list[bytes] = []
        numbers: dict[bytes, int] = {}
        for name, value in zip(fields[::2], fields[1::2], strict=True):
            if name == b"e":
                records.append(value)
            elif value.isdigit():
                numbers[name] = int(value)
        return cls(
            LogId.parse(entry_id),
            numbers.get(b"n") if fields[:1] == [b"n"] else None,
            numbers.get(b"c", len(records)),
            b"".join(records),
            numbers.get(b"s", 0),
        )


class LearnedEntry(NamedTuple):
    id: LogId
    examples: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of the commits stream.

    ``changed``: the slots that changed with their absolute rows (dtype changed_type); ``entries``: the log
    entries it learned, in order; ``margins`` float64 and ``skipped`` uint8: per example of these, in order.
    ``dropped`` uint32: the slots whose features were dropped; left out where there are none.
    A reset names a new generation and carries nothing else: readers load again.
    """

    previous_token: bytes
    token: bytes
    number: int
    t: int
    applied: LogId
    applied_number: int
    skipped_total: int
    changed: npt.NDArray[np.void]
    entries: list[LearnedEntry]
    margins: npt.NDArray[np.float64]
    skipped: npt.NDArray[np.uint8]
    reset: bool = False
    discount: Evidence = NOTHING_FORGOTTEN
    dropped: npt.NDArray[np.uint32] = field(default_factory=lambda: NO_SLOTS)

    @property
    def slots_bytes(self) -> int:
        """What it says of slots."""
        return self.changed.nbytes + self.dropped.nbytes

    @classmethod
    def parse(cls, fields: list[bytes]) -> Commit:
        value = mapping_of(fields)
        discount = parse_evidence(value.get(b"discount", b"").decode())
        return cls(
            previous_token=value[b"previous"],
            token=value[b"token"],
            number=int(value[b"commit"]),
            t=int(value[b"t"]),
            applied=LogId.parse(value[b"applied"]),
            applied_number=int(value[b"applied_number"]),
            skipped_total=int(value[b"skipped_total"]),
            changed=np.frombuffer(value[b"changed"], changed_type(discount.experts, discount.folded)),
            entries=unpack_entries(value[b"entries"]),
            margins=np.frombuffer(value[b"margins"], dtype="<f8"),
            skipped=np.frombuffer(value[b"skipped"], dtype=np.uint8),
            reset=b"reset" in value,
            discount=discount,
            dropped=np.frombuffer(value.get(b"dropped", b""), "<u4").astype(np.uint32),
        )


def pack_entries(entries: list[LearnedEntry]) -> bytes:
    return b"".join(_LEARNED_ENTRY.pack(*entry.id, entry.examples) for entry in entries)


def unpack_entries(packed: bytes) -> list[LearnedEntry]:
    return [
        LearnedEntry(LogId(milliseconds, sequence), count)
        for milliseconds, sequence, count in _LEARNED_ENTRY.iter_unpack(packed)
    ]


def changed_records(
    slots: npt.NDArray[np.uint32], rows: npt.NDArray[np.float64], discount: Evidence = NOTHING_FORGOTTEN
) -> npt.NDArray[np.void]:
    """slots uint32[k] and their rows float64[k, 2 K] as k records of changed_type."""
    changed = np.empty(len(slots), changed_type(discount.experts, discount.folded))
    changed["slot_tag"], changed["row_tag"] = _SLOT_TAG, _row_tags(discount.experts, discount.folded)
    if discount.folded:
        changed["folds"] = discount.folds
    changed["slot"], changed["row"] = slots, rows
    return changed


def bytes_of(changed: npt.NDArray[np.void]) -> memoryview:
    """Returns the bytes of records of changed_type without a copy."""
    return changed.view(np.uint8).data


def stored_rows(values: Sequence[bytes], discount: Evidence = NOTHING_FORGOTTEN) -> npt.NDArray[np.float64]:
    """float64[k, 2 K] of values of ``state``, as they are after the folds of `discount`. One that was written
    later, while the state is read, is left as it is: the commit that wrote it is still to be applied.
    """
    joined, experts = b"".join(values), discount.experts
    plain, folded = (np.dtype(_row(experts, also_folds)) for also_folds in (False, True))
    if not discount.folded and len(joined) == plain.itemsize * len(values):
        return np.frombuffer(joined, "<f8").reshape(-1, 2 * experts)
    records = np.frombuffer(b"".join(value.ljust(folded.itemsize, b"\0") for value in values), folded)
    return folded_rows(records, discount)


def rows_of(changed: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """float64[k, 2 K] of records of changed_type."""
    return np.array(changed["row"])


def folded_rows(changed: npt.NDArray[np.void], discount: Evidence) -> npt.NDArray[np.float64]:
    """float64[k, 2 K] of records of changed_type, as they are after the folds of a later discount."""
    rows = rows_of(changed)
    if discount.folded:
        folds = np.zeros((len(rows), discount.experts), np.int64)
        folds += discount.folds
        if "folds" in (changed.dtype.names or ()):
            folds -= changed["folds"]
        fold_stored(rows, folds)
    return rows

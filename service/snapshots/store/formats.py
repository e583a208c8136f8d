"""The files of the snapshot store: snapshots, which model a snapshot fits, and what left the example log.

A snapshot's file holds the bytes of `model_core.snapshot` through zstd, which stores as it is what would not
shrink. What left the log is in segments:

    MODEL/log-INCARNATION/FIRST-END-ID.log.zst    examples FIRST to END - 1 (dense numbers, 20 digits); the id
                                                  of the last entry

A segment is a sha256 (32 bytes) of what follows it, then zstd of entries: id (two u64), the number of fields
(u32), and each field as u32 length and bytes, all little-endian.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, NamedTuple, cast

import zstandard

from model_core.errors import FormatError
from model_core.learning.hyperparameters import Hyperparameters
from model_core.snapshot import Read, Snapshot, SnapshotHeader, decode, decode_header
from service.errors import DamagedLogSegment, SnapshotMismatch
from service.models.config.model import ModelConfig, read_config
from service.models.replica import Replica
from service.snapshots.store.objects import ObjectStore, store_answers
from service.storage.records import LOG_START, LogEntry, LogId, revision

SUFFIX = ".safetensors.zst"
LEVEL = 3
_MAGIC = b"\x28\xb5\x2f\xfd"


def write_snapshot(snapshot: Snapshot, file: BinaryIO) -> None:
    """Write a snapshot as a stream. Raises OSError."""
    with zstandard.ZstdCompressor(LEVEL).stream_writer(file, closefd=False) as out:
        for piece in snapshot.encode():
            out.write(piece)


def read_snapshot(file: BinaryIO) -> Snapshot:
    """Read a file with or without zstd, and verify its checksum. Raises FormatError, OSError."""
    try:
        return decode(_reader(file))
    except zstandard.ZstdError as wrong:
        raise FormatError(f"it is torn or altered ({wrong})") from wrong


def read_header(file: BinaryIO) -> SnapshotHeader:
    """Read the header only, without verifying the checksum. Raises FormatError, OSError."""
    try:
        return decode_header(_reader(file))
    except zstandard.ZstdError as wrong:
        raise FormatError(f"it is torn or altered ({wrong})") from wrong


def revision_of(header: SnapshotHeader) -> str:
    return revision(header.incarnation, header.generation, header.commit, header.mark)


def config_of(header: SnapshotHeader) -> ModelConfig:
    """Return the configuration in a snapshot. Raises SnapshotMismatch if this version does not support it."""
    return read_config(header.config, header.fingerprint, "The snapshot", SnapshotMismatch)


def restored_config(header: SnapshotHeader, model: ModelConfig, hyper: Hyperparameters | None) -> ModelConfig:
    """Return the model's configuration with the snapshot's or other hyperparameters.

    Raises SnapshotMismatch.
    """
    config = config_of(header)
    if config.hashing.fingerprint != model.hashing.fingerprint:
        raise SnapshotMismatch(
            f"The snapshot was hashed under the contract {config.hashing.fingerprint}, the model hashes under"
            f" {model.hashing.fingerprint}: its weights would mean other features."
        )
    if config.hashing.prior_probability != model.hashing.prior_probability:
        raise SnapshotMismatch(
            f"The snapshot learned with prior_probability {config.hashing.prior_probability}, the model has"
            f" {model.hashing.prior_probability}: its weights would mean other probabilities."
        )
    check_family(config, model.hyper)
    if hyper is not None:
        check_family(config, hyper)
    return replace(model, hyper=hyper or config.hyper)


def is_of_state(header: SnapshotHeader, replica: Replica) -> bool:
    """Return whether the snapshot was taken of the replica's state or of an earlier one, with no restore
    since.
    """
    return (header.incarnation, header.generation) == (replica.keys.incarnation, replica.generation)


def check_family(config: ModelConfig, hyper: Hyperparameters, what: str = "The snapshot") -> None:
    """Raise SnapshotMismatch if the families, or the numbers of experts, differ."""
    if config.hyper.family != hyper.family:
        raise SnapshotMismatch(
            f"{what} is of the family {config.hyper.family!r}, which keeps other numbers than"
            f" {hyper.family!r} does."
        )
    had, wanted = config.hyper.number_of_experts, hyper.number_of_experts
    if had != wanted:
        raise SnapshotMismatch(
            f"{what} has {_experts(had)} in hyper.rate, and {_experts(wanted)} cannot go on from it: create a"
            " new model, and have it learn the examples."
        )


def _experts(number: int) -> str:
    return "a single model" if number == 1 else f"a mixture of {number} experts"


def _reader(file: BinaryIO) -> Read:
    start = file.read(len(_MAGIC))
    file.seek(0)
    source = file
    if start == _MAGIC:
        source = cast(BinaryIO, zstandard.ZstdDecompressor().stream_reader(file, closefd=False))

    def read(size: int) -> bytes:
        pieces = []
        while size > 0 and (piece := source.read(size)):
            pieces.append(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    return read


_NAME = re.compile(r"(\d{20})-(\d{20})-(\d+)-(\d+)\.log\.zst")
_FOLDER = "log-"
_ENTRY = struct.Struct("<QQI")
_LENGTH = struct.Struct("<I")
_DIGEST_BYTES = 32


class RawEntry(NamedTuple):
    """A log entry in its form in Redis."""

    id: LogId
    fields: list[bytes]


@dataclass(frozen=True, order=True)
class Segment:
    """Examples `first` to `end` - 1; `last_entry`: the id of the last log entry."""

    first: int
    end: int
    last_entry: LogId

    @property
    def name(self) -> str:
        return f"{self.first:020d}-{self.end:020d}-{self.last_entry}.log.zst"


class LogArchive:
    """The archived log of one incarnation of a model. All methods block, and raise StoreUnavailable."""

    def __init__(self, store: ObjectStore, model: str, incarnation: str) -> None:
        self._store = store
        self._model = model
        self._incarnation = incarnation
        self._prefix = f"{model}/{_FOLDER}{incarnation}/"

    def segments(self) -> list[Segment]:
        """Oldest first."""
        with store_answers("list"):
            names = self._store.names(self._prefix)
        found = (_NAME.fullmatch(name) for name in names)
        return sorted(
            Segment(int(m[1]), int(m[2]), LogId(int(m[3]), int(m[4]))) for m in found if m is not None
        )

    def write(self, first: int, end: int, entries: Sequence[RawEntry]) -> Segment:
        segment = Segment(first, end, entries[-1].id)
        packed = zstandard.ZstdCompressor(LEVEL).compress(b"".join(map(_packed, entries)))
        with store_answers("write to"):
            self._store.put(
                self._prefix + segment.name,
                lambda file: file.write(hashlib.sha256(packed).digest() + packed),
            )
        return segment

    def remove(self, segment: Segment) -> None:
        with store_answers("delete from"):
            self._store.remove(self._prefix + segment.name)

    def remove_others(self, before: int) -> None:
        """Remove the segments of other incarnations that ended before that time, in milliseconds: a log is
        replayed only for its own incarnation.
        """
        with store_answers("list"):
            folders = self._store.folders(f"{self._model}/")
        for folder in folders:
            incarnation = folder.removeprefix(_FOLDER)
            if incarnation not in (folder, self._incarnation):
                other = LogArchive(self._store, self._model, incarnation)
                for segment in other.segments():
                    if segment.last_entry.milliseconds < before:
                        other.remove(segment)

    def entries_from(self, number: int) -> list[LogEntry]:
        """Return the entries from the one that begins with this example to the end of its segment; none if no
        segment holds it. Raises DamagedLogSegment.
        """
        for segment in self.segments():
            if segment.first <= number < segment.end:
                found = (LogEntry.parse(str(raw.id).encode(), raw.fields) for raw in self._read(segment))
                return [e for e in found if e.first_number is not None and e.first_number >= number]
        return []

    def reaches_back_from(self, number: int) -> int:
        """Return the first example from which segments reach this one without a gap."""
        for segment in reversed(self.segments()):
            if segment.first < number <= segment.end:
                number = segment.first
        return number

    def _read(self, segment: Segment) -> Iterator[RawEntry]:
        with store_answers("read"), self._store.open(self._prefix + segment.name) as file:
            sealed = file.read()
        digest, packed = sealed[:_DIGEST_BYTES], sealed[_DIGEST_BYTES:]
        if hashlib.sha256(packed).digest() != digest:
            raise DamagedLogSegment(
                f"Log segment {segment.name} is not what was written: its checksum differs."
            )
        return _unpacked(zstandard.ZstdDecompressor().decompress(packed))


def _packed(entry: RawEntry) -> bytes:
    fields = (part for field in entry.fields for part in (_LENGTH.pack(len(field)), field))
    return b"".join([_ENTRY.pack(*entry.id, len(entry.fields)), *fields])


def _unpacked(data: bytes) -> Iterator[RawEntry]:
    at = 0
    while at < len(data):
        milliseconds, sequence, count = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        fields = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size + length
            fields.append(data[at - length : at])
        yield RawEntry(LogId(milliseconds, sequence), fields)


NO_SEGMENT = Segment(0, 0, LOG_START)

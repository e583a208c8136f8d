"""The catalogue of snapshots: list, read, write, tag, delete and describe those of each model in the store.

    MODEL/ID.safetensors.zst     ID: the UTC time and the revision; names sort by the order of writing
    MODEL/ID.tag.TAG             empty: the snapshot has that tag
    MODEL/ID.leaving             empty: the snapshot is being deleted, unless it has a tag

A tag is an object of its own beside the snapshot: setting it is one small put, which is atomic in every
store. A tag in the name would require a copy of the whole file, one in the header a new checksum. Retention
sets a mark and then checks for tags; tagging checks for the mark afterwards. If both happen at once, one sees
the other, so a snapshot whose tag was acknowledged is never deleted.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from model_core.errors import FormatError, InvalidInput
from model_core.snapshot import Snapshot, SnapshotHeader
from service.errors import DamagedSnapshot, SnapshotLeaving, UnknownSnapshot
from service.settings.groups import SnapshotSettings
from service.snapshots.store.formats import (
    SUFFIX,
    LogArchive,
    read_header,
    read_snapshot,
    revision_of,
    write_snapshot,
)
from service.snapshots.store.objects import ABANDONED_SECONDS, ObjectStore, open_store, store_answers
from service.storage.records import ModelKeys

GOOD = "good"
NEWEST = "newest"
BEFORE_RESTORE = "before restore"
"""Reason of what a restore saves; it is never `newest`, or a second restore would undo the first."""
TAG_PATTERN = "^[a-z0-9][a-z0-9_-]{0,31}$"
_TIME = "%Y%m%dT%H%M%S%fZ"
_TIME_LENGTH = len("20240501T120000000000Z")
_TAG = ".tag."
LEAVING = ".leaving"
ABANDONED = timedelta(seconds=ABANDONED_SECONDS)


@dataclass(frozen=True)
class Entry:
    """One snapshot, as its name and tags describe it; `bytes`: the size of its file."""

    id: str
    tags: tuple[str, ...]
    bytes: int

    @property
    def written(self) -> datetime:
        """Time in its name, which increases from snapshot to snapshot even if the clock was set back."""
        return _written(self.id)

    @property
    def revision(self) -> str:
        """That of the state that was saved."""
        return self.id.partition("-")[2]


class Catalogue:
    """The snapshots of one model. All methods block, and raise StoreUnavailable if the store fails."""

    def __init__(self, store: ObjectStore, model: str) -> None:
        self.model = model
        self._store = store

    def log_archive(self, keys: ModelKeys) -> LogArchive:
        """Return the archive of the log of a model in the same store."""
        return LogArchive(self._store, keys.model, keys.incarnation)

    def entries(self) -> list[Entry]:
        """Oldest first."""
        return _entries_of(self._names())

    def find(self, wanted: str) -> Entry:
        """Find a snapshot by its id, by a tag (the newest that has it), or "newest", which excludes those
        that restores saved.

        Raises UnknownSnapshot.
        """
        for entry in reversed(self.entries()):
            if wanted in (entry.id, *entry.tags) or (wanted == NEWEST and not self._is_of_a_restore(entry)):
                return entry
        raise UnknownSnapshot(self.model, wanted)

    def _is_of_a_restore(self, entry: Entry) -> bool:
        try:
            return self.header(entry).reason == BEFORE_RESTORE
        except DamagedSnapshot:  # reported when it is read
            return False

    def header(self, entry: Entry) -> SnapshotHeader:
        """Read the header. Raises DamagedSnapshot, though only `load` verifies the checksum, and
        UnknownSnapshot if it was deleted meanwhile.
        """
        with self._reading(entry), self._store.open(self._file(entry.id)) as file:
            return read_header(file)

    def load(self, entry: Entry) -> Snapshot:
        """Read it all. Raises DamagedSnapshot, and UnknownSnapshot if it was deleted meanwhile."""
        with self._reading(entry), self._store.open(self._file(entry.id)) as file:
            return read_snapshot(file)

    def write(self, snapshot: Snapshot, tags: Sequence[str] = ()) -> Entry:
        """Write a snapshot, its tags first, so that retention cannot delete it in between."""
        named = revision_of(snapshot.header)
        entry = Entry(f"{self._next_time()}-{named}", tuple(sorted(tags)), 0)
        for tag in tags:
            self._put(self._tag(entry.id, checked_tag(tag)))
        with store_answers("write to"):
            size = self._store.put(self._file(entry.id), lambda file: write_snapshot(snapshot, file))
        return Entry(entry.id, entry.tags, size)

    def tag(self, entry: Entry, tag: str) -> None:
        """Set a tag. Raises SnapshotLeaving if the snapshot was deleted meanwhile, or is about to be."""
        name = self._tag(entry.id, checked_tag(tag))
        self._put(name)
        names = self._names()
        gone = f"{entry.id}{SUFFIX}" not in names
        if gone or f"{entry.id}{LEAVING}" in names:
            self._remove(name)
            raise SnapshotLeaving(self.model, entry.id, gone=gone)

    def untag(self, entry: Entry, tag: str) -> None:
        self._remove(self._tag(entry.id, checked_tag(tag)))

    def delete(self, entry: Entry) -> None:
        self._remove(self._file(entry.id), *(self._tag(entry.id, tag) for tag in entry.tags))

    def retain(self, count: int, needed: str | None = None) -> list[Entry]:
        """Delete all untagged snapshots but the newest `count` and `needed`, and leftovers of killed
        processes. Return the deleted snapshots.
        """
        names = self._names()
        untagged = [entry for entry in _entries_of(names) if not entry.tags and entry.id != needed]
        superfluous = untagged[: max(0, len(untagged) - count)]
        self._remove(*(f"{self.model}/{name}" for name in _leftovers(names, superfluous)))
        return [entry for entry in superfluous if self._delete_unless_tagged(entry)]

    def _delete_unless_tagged(self, entry: Entry) -> bool:
        mark = f"{self.model}/{entry.id}{LEAVING}"
        self._put(mark)
        tagged = any(found.id == entry.id and found.tags for found in self.entries())
        if not tagged:
            self.delete(entry)
        self._remove(mark)
        return not tagged

    def _next_time(self) -> str:
        """Return the time, or just after the newest snapshot if that is later: otherwise, after the clock was
        set back, retention would take the newest for the oldest.
        """
        now = datetime.now(UTC)
        entries = self.entries()
        if entries:
            now = max(now, entries[-1].written + timedelta(microseconds=1))
        return now.strftime(_TIME)

    def _names(self) -> dict[str, int]:
        with store_answers("list"):
            return self._store.names(f"{self.model}/")

    def _put(self, name: str) -> None:
        with store_answers("write to"):
            self._store.put(name, lambda _: None)

    def _remove(self, *names: str) -> None:
        with store_answers("delete from"):
            for name in names:
                self._store.remove(name)

    @contextlib.contextmanager
    def _reading(self, entry: Entry) -> Iterator[None]:
        try:
            with store_answers("read"), self._unless_deleted(entry):
                yield
        except FormatError as wrong:
            raise DamagedSnapshot(f"Snapshot {entry.id} of model {self.model!r}: {wrong}.") from wrong

    @contextlib.contextmanager
    def _unless_deleted(self, entry: Entry) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:  # deleted after it was listed: the store works
            raise UnknownSnapshot(self.model, entry.id) from None

    def _file(self, snapshot: str) -> str:
        return f"{self.model}/{snapshot}{SUFFIX}"

    def _tag(self, snapshot: str, tag: str) -> str:
        return f"{self.model}/{snapshot}{_TAG}{tag}"


class SnapshotStore:
    """The store that the settings name, opened when it is first used. `retained`: untagged snapshots per
    model.
    """

    def __init__(self, settings: SnapshotSettings) -> None:
        self.retained = settings.snapshots_kept
        self._url = settings.snapshot_store
        self._lock = threading.Lock()
        self._store: ObjectStore | None = None

    def of(self, model: str) -> Catalogue:
        """Return the snapshots of one model. Blocks. Raises UnusableStore."""
        return Catalogue(self._opened(), model)

    def log_archive(self, model: str, incarnation: str) -> LogArchive:
        """Return the archive of one model's log. Blocks. Raises UnusableStore."""
        return LogArchive(self._opened(), model, incarnation)

    def _opened(self) -> ObjectStore:
        with self._lock:
            if self._store is None:
                self._store = open_store(self._url)
        return self._store


def description_of(entry: Entry, header: SnapshotHeader) -> dict[str, Any]:
    """Describe a snapshot, as the HTTP API and the commands do."""
    return {
        "id": entry.id,
        "model": header.model,
        "tags": list(entry.tags),
        "time": header.time,
        "reason": header.reason,
        "revision": revision_of(header),
        "applied": header.applied,
        "applied_number": header.applied_number,
        "t": header.t,
        "features_seen": header.features_seen,
        "nonzero": header.nonzero,
        "density": header.density,
        "bytes": entry.bytes,
        "fingerprint": header.fingerprint,
        "config": dict(header.config),
        "evaluation": None if header.figures is None else dict(header.figures),
    }


def list_readable(catalogue: Catalogue) -> tuple[list[dict[str, Any]], list[str]]:
    """Return descriptions of the readable snapshots, oldest first, and error texts of the others."""
    found: list[dict[str, Any]] = []
    damaged: list[str] = []
    for entry in catalogue.entries():
        try:
            found.append(description_of(entry, catalogue.header(entry)))
        except DamagedSnapshot as wrong:
            damaged.append(wrong.detail)
        except UnknownSnapshot:  # deleted meanwhile
            continue
    return found, damaged


def checked_tag(tag: str) -> str:
    """Return the tag if it is valid. Raises InvalidInput."""
    if re.fullmatch(TAG_PATTERN[1:-1], tag) is None or tag == NEWEST:
        raise InvalidInput(
            ("tag",),
            f"a tag is 1 to 32 of a-z, 0-9, - and _, begins with a letter or a digit, and is not {NEWEST!r}",
        )
    return tag


def _entries_of(names: Mapping[str, int]) -> list[Entry]:
    """Oldest first."""
    tags: dict[str, list[str]] = {}
    for name in names:
        snapshot, found, tag = name.partition(_TAG)
        if found:
            tags.setdefault(snapshot, []).append(tag)
    ids = {name.removesuffix(SUFFIX): size for name, size in names.items() if name.endswith(SUFFIX)}
    return [
        Entry(found, tuple(sorted(tags.get(found, ()))), ids[found]) for found in sorted(ids) if _is_id(found)
    ]


def _leftovers(names: Mapping[str, int], leaving: Sequence[Entry]) -> Iterator[str]:
    """Yield what killed processes left: marks of snapshots that are not being deleted, and tags without a
    snapshot. Tags are written before their snapshot, so only old ones are known to have none.
    """
    there = {entry.id: entry.written for entry in _entries_of(names)}
    old = max(there.values(), default=datetime.min.replace(tzinfo=UTC) + ABANDONED) - ABANDONED
    marked = {entry.id for entry in leaving}
    for name in names:
        snapshot, is_tag, _ = name.partition(_TAG)
        orphan = is_tag and _is_id(snapshot) and snapshot not in there and _written(snapshot) < old
        if orphan or (name.endswith(LEAVING) and name.removesuffix(LEAVING) not in marked):
            yield name


def _written(snapshot: str) -> datetime:
    return datetime.strptime(snapshot[:_TIME_LENGTH], _TIME).replace(tzinfo=UTC)


def _is_id(text: str) -> bool:
    return re.fullmatch(r"\d{8}T\d{12}Z-[0-9a-f]+-\d+-\d+(-[0-9a-f]{8})?", text) is not None

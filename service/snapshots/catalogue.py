"""The snapshots of one model in a store: listed, read, written, tagged, deleted.

    MODEL/ID.safetensors.zst     ID: the UTC time and the revision; names sort by the order of writing
    MODEL/ID.tag.TAG             empty: the snapshot has that tag

A tag is an object of its own beside the snapshot: to set it is one small put, atomic in every store, where a
tag in the name would have to copy the whole file, and one in the header would change what the checksum seals.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from model_core.errors import FormatError, InvalidInput
from model_core.snapshot import Snapshot, SnapshotHeader
from service.redis_keys import revision
from service.snapshots.errors import DamagedSnapshot, StoreUnavailable, UnknownSnapshot
from service.snapshots.files import SUFFIX, read_header, read_snapshot, write_snapshot
from service.snapshots.log_archive import LogArchive
from service.snapshots.object_store import ObjectStore, store_failures

GOOD = "good"
NEWEST = "newest"
TAG_PATTERN = "^[a-z0-9][a-z0-9_-]{0,31}$"
_TIME = "%Y%m%dT%H%M%S%fZ"
_TIME_LENGTH = len("20240501T120000000000Z")
_TAG = ".tag."


@dataclass(frozen=True)
class Entry:
    """One snapshot as its name and its tags tell it; `bytes`: the size of its file."""

    id: str
    tags: tuple[str, ...]
    bytes: int

    @property
    def written(self) -> datetime:
        """By its name: never before that of an older one, whatever the clock said."""
        return datetime.strptime(self.id[:_TIME_LENGTH], _TIME).replace(tzinfo=UTC)


class Catalogue:
    """All methods block, for as long as the store takes. They raise StoreUnavailable where it fails."""

    def __init__(self, store: ObjectStore, model: str) -> None:
        self.model = model
        self._store = store

    def log_archive(self, incarnation: str) -> LogArchive:
        """What left the log of that incarnation of the model."""
        return LogArchive(self._store, self.model, incarnation)

    def entries(self) -> list[Entry]:
        """Oldest first."""
        with _translated("list"):
            names = self._store.names(f"{self.model}/")
        tags: dict[str, list[str]] = {}
        for name in names:
            snapshot, found, tag = name.partition(_TAG)
            if found:
                tags.setdefault(snapshot, []).append(tag)
        return [
            Entry(name.removesuffix(SUFFIX), tuple(sorted(tags.get(name.removesuffix(SUFFIX), ()))), size)
            for name, size in sorted(names.items())
            if name.endswith(SUFFIX) and _is_id(name.removesuffix(SUFFIX))
        ]

    def find(self, wanted: str) -> Entry:
        """By its id, by a tag (the newest that has it), or "newest". Raises UnknownSnapshot."""
        for entry in reversed(self.entries()):
            if wanted in (entry.id, NEWEST, *entry.tags):
                return entry
        raise UnknownSnapshot(self.model, wanted)

    def header(self, entry: Entry) -> SnapshotHeader:
        """Raises DamagedSnapshot, though only `load` verifies the checksum."""
        with self._reading(entry), self._store.open(self._file(entry.id)) as file:
            return read_header(file)

    def load(self, entry: Entry) -> Snapshot:
        """Raises DamagedSnapshot."""
        with self._reading(entry), self._store.open(self._file(entry.id)) as file:
            return read_snapshot(file)

    def write(self, snapshot: Snapshot, tags: Sequence[str] = ()) -> Entry:
        """The tags first, so that no retention can come between."""
        header = snapshot.header
        named = revision(header.incarnation, header.generation, header.commit)
        entry = Entry(f"{self._next_time()}-{named}", tuple(sorted(tags)), 0)
        for tag in tags:
            self.tag(entry, tag)
        with _translated("write to"):
            size = self._store.put(self._file(entry.id), lambda file: write_snapshot(snapshot, file))
        return Entry(entry.id, entry.tags, size)

    def tag(self, entry: Entry, tag: str) -> None:
        with _translated("write to"):
            self._store.put(self._tag(entry.id, checked_tag(tag)), lambda _: None)

    def untag(self, entry: Entry, tag: str) -> None:
        with _translated("delete from"):
            self._store.remove(self._tag(entry.id, checked_tag(tag)))

    def delete(self, entry: Entry) -> None:
        with _translated("delete from"):
            self._store.remove(self._file(entry.id))
            for tag in entry.tags:
                self._store.remove(self._tag(entry.id, tag))

    def retain(self, count: int, needed: str | None = None) -> list[Entry]:
        """Deletes those without a tag but the newest `count` and `needed`; returns what it deleted."""
        untagged = [entry for entry in self.entries() if not entry.tags and entry.id != needed]
        superfluous = untagged[: max(0, len(untagged) - count)]
        for entry in superfluous:
            self.delete(entry)
        return superfluous

    def _next_time(self) -> str:
        """The time, or just after the newest snapshot where that seems to come from the future: had the clock
        been set back, retention would take the newest for the oldest.
        """
        now = datetime.now(UTC)
        entries = self.entries()
        if entries:
            now = max(now, entries[-1].written + timedelta(microseconds=1))
        return now.strftime(_TIME)

    @contextlib.contextmanager
    def _reading(self, entry: Entry) -> Iterator[None]:
        try:
            with _translated("read"):
                yield
        except FormatError as wrong:
            raise DamagedSnapshot(f"Snapshot {entry.id} of model {self.model!r}: {wrong}.") from wrong

    def _file(self, snapshot: str) -> str:
        return f"{self.model}/{snapshot}{SUFFIX}"

    def _tag(self, snapshot: str, tag: str) -> str:
        return f"{self.model}/{snapshot}{_TAG}{tag}"


def checked_tag(tag: str) -> str:
    """Raises InvalidInput."""
    if re.fullmatch(TAG_PATTERN[1:-1], tag) is None or tag == NEWEST:
        raise InvalidInput(
            ("tag",), f"a tag is 1 to 32 of a-z, 0-9, - and _, begins with no sign, and is not {NEWEST!r}"
        )
    return tag


def _is_id(text: str) -> bool:
    return re.fullmatch(r"\d{8}T\d{12}Z-[0-9a-f]+-\d+-\d+", text) is not None


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as gone:
        raise StoreUnavailable(f"It is not in the snapshot store any more: {gone}.") from gone
    except (*store_failures(),) as failure:
        raise StoreUnavailable(f"Cannot {what} the snapshot store: {failure}.") from failure

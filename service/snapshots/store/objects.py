"""Object stores in a directory or at any URL that fsspec supports; objects are never written in part."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

import fsspec
from fsspec.spec import AbstractBufferedFile

from service.errors import ServiceError, StoreUnavailable
from service.runtime.files import store_failures

PARTIAL = ".partial-"
"""Prefix of the names of unfinished files, which are never read."""

Write = Callable[[BinaryIO], object]

ABANDONED_SECONDS = 3600
PART_BYTES = 8 * 1024 * 1024
_S3_OPTIONS = {"config_kwargs": {"connect_timeout": 5, "read_timeout": 60, "retries": {"max_attempts": 2}}}


class UnusableStore(ServiceError):
    """The setting names a snapshot store that this installation cannot use."""

    code = "unusable_store"
    title = "Snapshot store cannot be used"


@contextlib.contextmanager
def store_answers(what: str) -> Iterator[None]:
    """Raise StoreUnavailable if the store fails to `what`: "read", "write to" and so on."""
    try:
        yield
    except FileNotFoundError as gone:
        raise StoreUnavailable(f"It is no longer in the snapshot store: {gone}.") from gone
    except (*store_failures(),) as failure:
        raise StoreUnavailable(f"Cannot {what} the snapshot store: {failure}.") from failure


class ObjectStore(ABC):
    """All methods block, and raise one of `store_failures()`, or FileNotFoundError if there is no such
    object.

    A name may have parts, separated by slashes. Readers see complete objects, as last put.
    """

    @abstractmethod
    def names(self, prefix: str) -> dict[str, int]:
        """Return the names directly under a prefix, without it, and their sizes in bytes."""

    @abstractmethod
    def folders(self, prefix: str) -> list[str]:
        """Return the folders directly under a prefix; some may be empty."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO: ...

    @abstractmethod
    def put(self, name: str, write: Write) -> int:
        """Store what `write` writes to the file it is given; return the size."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""


class DirectoryStore(ObjectStore):
    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, prefix: str) -> dict[str, int]:
        try:
            entries = list(os.scandir(self._root / prefix))
        except FileNotFoundError:
            return {}
        sizes = {}
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # another process may delete it meanwhile
                if entry.is_file() and not entry.name.startswith("."):
                    sizes[entry.name] = entry.stat().st_size
        return sizes

    def folders(self, prefix: str) -> list[str]:
        try:
            return [entry.name for entry in os.scandir(self._root / prefix) if entry.is_dir()]
        except FileNotFoundError:
            return []

    def open(self, name: str) -> BinaryIO:
        return (self._root / name).open("rb")

    def put(self, name: str, write: Write) -> int:
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        self._remove_abandoned(target.parent)
        return write_whole_with(target, write)

    def remove(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)

    @staticmethod
    def _remove_abandoned(directory: Path) -> None:
        """Remove partial files of killed processes."""
        for partial in directory.glob(f"{PARTIAL}*"):
            with contextlib.suppress(FileNotFoundError):  # another process may have finished it
                if time.time() - partial.stat().st_mtime > ABANDONED_SECONDS:
                    partial.unlink()


class RemoteStore(ObjectStore):
    """A put is streamed in parts of PART_BYTES, with no more than one in memory and none on disk. Object
    stores show an object once all of its parts are there.
    """

    def __init__(self, url: str) -> None:
        options: dict[str, Any] = _S3_OPTIONS if url.startswith(("s3://", "s3a://")) else {}
        try:
            self._files, self._root = fsspec.core.url_to_fs(
                url, use_listings_cache=False, skip_instance_cache=True, **options
            )
        except (ImportError, ValueError) as unknown:
            raise UnusableStore(f"FTRL_SNAPSHOTS cannot be used: {unknown}") from unknown

    def names(self, prefix: str) -> dict[str, int]:
        return {
            _last_part(entry): int(entry["size"] or 0)
            for entry in self._entries(prefix)
            if entry["type"] == "file"
        }

    def folders(self, prefix: str) -> list[str]:
        return [_last_part(entry) for entry in self._entries(prefix) if entry["type"] == "directory"]

    def _entries(self, prefix: str) -> list[dict[str, Any]]:
        place = f"{self._root}/{prefix}".rstrip("/")
        try:
            found: list[dict[str, Any]] = self._files.ls(place, detail=True, refresh=True)
        except FileNotFoundError:
            return []
        return found

    def open(self, name: str) -> BinaryIO:
        file: BinaryIO = self._files.open(f"{self._root}/{name}", "rb")
        return file

    def put(self, name: str, write: Write) -> int:
        file = self._files.open(f"{self._root}/{name}", "wb", block_size=PART_BYTES)
        try:
            write(cast(BinaryIO, file))
            size: int = file.tell()
            file.close()
        except BaseException:
            self._abandon(name, file)
            raise
        return size

    def _abandon(self, name: str, file: Any) -> None:
        """Discard the upload: closing the file would complete it."""
        with contextlib.suppress(*store_failures()):
            if isinstance(file, AbstractBufferedFile):
                file.closed = True
                file.discard()
            else:
                file.close()
                self.remove(name)

    def remove(self, name: str) -> None:
        try:
            self._files.rm_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return


def _last_part(entry: dict[str, Any]) -> str:
    return str(entry["name"]).rstrip("/").rpartition("/")[2]


def open_store(url: str) -> ObjectStore:
    """Open the store at a path or URL. Raises UnusableStore."""
    parts = urlsplit(url)
    if len(parts.scheme) > 1 and parts.scheme != "file":
        return RemoteStore(url)
    return DirectoryStore(Path(parts.path if parts.scheme == "file" else url).expanduser().absolute())


def write_whole(target: Path, content: bytes) -> None:
    """Replaces the content of a file atomically. Raises OSError."""
    write_whole_with(target, lambda file: file.write(content))


def write_whole_with(target: Path, write: Callable[[BinaryIO], object]) -> int:
    """Replaces a file atomically by one that `write` fills; returns its size in bytes. The directory must
    exist. Raises OSError.
    """
    partial = target.parent / f"{PARTIAL}{secrets.token_hex(8)}"
    try:
        with partial.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)
    return size


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

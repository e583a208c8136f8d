"""File locks, and files that are replaced as a whole.

The kernel releases a lock when the last process that holds it ends, for whatever reason.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def lock(path: Path, operation: int) -> BinaryIO:
    """The open lock file, once `operation` (of fcntl.flock) has been granted; closing it releases the lock.

    Processes that inherit its file descriptor hold the lock, too. Raises BlockingIOError with LOCK_NB.
    """
    file = path.open("ab")
    try:
        fcntl.flock(file, operation)
    except BaseException:
        file.close()
        raise
    return file


def try_lock(path: Path) -> BinaryIO | None:
    """An exclusive lock, or None if the file is locked already, exclusively or not."""
    try:
        return lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


PARTIAL = ".partial-"
"""Prefix of the names of unfinished files, which are never read."""


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

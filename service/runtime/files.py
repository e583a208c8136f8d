"""File locks, and what stores of files raise.

The kernel releases a lock when the last process that holds it ends, for whatever reason.
"""

from __future__ import annotations

import fcntl
import sys
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


def store_failures() -> tuple[type[Exception], ...]:
    """Return what a failing store of fsspec raises; some exceptions of the S3 client are not OSErrors."""
    botocore = sys.modules.get("botocore.exceptions")
    return (OSError,) if botocore is None else (OSError, botocore.BotoCoreError)

"""Files that are there as a whole or not at all, whoever is killed meanwhile."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".partial-"
"""How the names of those begin that were not finished; nobody reads them."""


def write_whole(target: Path, content: bytes) -> None:
    """As `write_whole_with`."""
    write_whole_with(target, lambda file: file.write(content))


def write_whole_with(target: Path, write: Callable[[BinaryIO], object]) -> int:
    """Replaces the file at once with what `write` writes to the file that it is given; returns its size. Its
    directory is there. Raises OSError.
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

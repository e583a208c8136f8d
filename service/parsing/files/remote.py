"""Files at URLs, in any store that fsspec supports."""

from __future__ import annotations

from typing import Any, BinaryIO, cast

import fsspec

from service.parsing.files.source import UnreadableFile
from service.runtime.files import store_failures


def open_url(url: str) -> tuple[BinaryIO, int | None]:
    """Return the file, opened, and its size in bytes if the store reports it. Raises UnreadableFile."""
    files, path = _store_of(url)
    try:
        opened = files.open(path, "rb")
        return cast(BinaryIO, opened), getattr(opened, "size", None)
    except (*store_failures(),) as failure:
        raise UnreadableFile(f"{url}: {_reason(failure)}") from failure


def urls_of(pattern: str) -> list[str]:
    """The URLs that a pattern matches, in the order of their names. Raises UnreadableFile."""
    files, path = _store_of(pattern)
    try:
        return [str(files.unstrip_protocol(name)) for name in sorted(files.glob(path))]
    except (*store_failures(),) as failure:
        raise UnreadableFile(f"{pattern}: {_reason(failure)}") from failure


def _store_of(url: str) -> tuple[Any, str]:
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as unknown:
        extra = ": pip install 'ftrl-service[s3]'" if url.startswith(("s3://", "s3a://")) else ""
        raise UnreadableFile(f"{url}: {unknown}{extra}") from unknown
    return found


def _reason(failure: Exception) -> str:
    return "no such file" if isinstance(failure, FileNotFoundError) else str(failure) or repr(failure)

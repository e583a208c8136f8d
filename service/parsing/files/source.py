"""Opens and decompresses files of examples, and tracks the progress of reading them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, cast

_LONGEST_LINE = 64 * 2**20
_BOM = b"\xef\xbb\xbf"
_READ_BYTES = 2**18
_DECOMPRESSORS: dict[str, Callable[[BinaryIO], IO[bytes]]] = {
    ".gz": lambda raw: cast(IO[bytes], gzip.GzipFile(fileobj=raw)),
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
}


class UnreadableFile(Exception):
    """The file as a whole cannot be read, whatever its single lines are."""


class TextSource:
    """Bytes of a path (`.gz`, `.xz` and `.bz2` decompressed), of `-` for standard input, or of an open file.

    size: of the file as it is stored, in bytes; None if unknown.
    longest_line: in bytes; a file with a longer line is hardly text, and must not fill the memory.
    """

    def __init__(self, source: str | Path | BinaryIO, longest_line: int = _LONGEST_LINE) -> None:
        self._longest_line = longest_line
        self.size: int | None = None
        self._opened: list[IO[bytes]] = []
        if isinstance(source, str | Path) and str(source) != "-":
            self.name = str(source)
            self._raw = self._open(Path(source))
        else:
            self.name = "standard input" if isinstance(source, str | Path) else "the file"
            self._raw = _standard_input() if isinstance(source, str | Path) else source
        self._delivered = 0
        self._text = self._decompressed(Path(self.name).suffix)

    def __enter__(self) -> TextSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for opened in reversed(self._opened):
            opened.close()

    @property
    def bytes_read(self) -> int:
        """Bytes of the file, as it is stored, that were read."""
        return self._delivered if self.size is None else self._raw.tell()

    def read(self, count: int) -> bytes:
        """Return at most `count` bytes of text, b"" at the end. Raises UnreadableFile."""
        try:
            data = self._text.read(count)
            if self._delivered == 0 and data.startswith(_BOM):
                data = data.removeprefix(_BOM) or self._text.read(count)
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
            raise UnreadableFile(f"{self.name}: {error}") from error
        self._delivered += len(data)
        return data

    def lines(self) -> Iterator[bytes]:
        """Yield the lines, each with its newline. Raises UnreadableFile."""
        rest = b""
        while data := self.read(_READ_BYTES):
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield line + b"\n"
            self.check_length(rest)
        if rest:
            yield rest

    def check_length(self, unfinished_line: bytes) -> None:
        """Raise UnreadableFile if a line is longer than the longest allowed."""
        if len(unfinished_line) > self._longest_line:
            raise UnreadableFile(f"{self.name}: a line of over {self._longest_line} bytes; is this text?")

    def _open(self, path: Path) -> BinaryIO:
        if path.suffix == ".zst":
            raise UnreadableFile(f"{path}: zstd is not supported: pipe it, `zstd -dc {path} | ftrl replay -`")
        try:
            raw = path.open("rb")
        except OSError as error:
            raise UnreadableFile(f"{path}: {error.strerror}") from error
        self._opened.append(raw)
        if raw.seekable():
            self.size = path.stat().st_size
        return raw

    def _decompressed(self, suffix: str) -> IO[bytes]:
        if suffix not in _DECOMPRESSORS:
            return self._raw
        text = _DECOMPRESSORS[suffix](self._raw)
        self._opened.append(text)
        return text


def _standard_input() -> BinaryIO:
    """Open a reader of its own: Python cannot exit while a thread waits in that of `sys.stdin`."""
    return os.fdopen(sys.stdin.fileno(), "rb", closefd=False)

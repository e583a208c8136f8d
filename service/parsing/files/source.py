"""Opens and decompresses files of examples, one after the other, and tracks the progress of reading them."""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import lzma
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, cast

_LONGEST_LINE = 64 * 2**20
_BOM = b"\xef\xbb\xbf"
_READ_BYTES = 2**18
_LONGEST_BEGINNING = 7
STANDARD_INPUT = "-"


def _zstd(raw: BinaryIO) -> IO[bytes]:
    from service.parsing.files.zstd import ZstdFile

    return cast(IO[bytes], io.BufferedReader(ZstdFile(raw), _READ_BYTES))


_DECOMPRESSORS: dict[str, Callable[[BinaryIO], IO[bytes]]] = {
    ".gz": lambda raw: cast(IO[bytes], gzip.GzipFile(fileobj=raw)),
    ".xz": lzma.LZMAFile,
    ".lzma": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
    ".zst": _zstd,
}
_OTHER_ARCHIVES = {
    ".zip": "unzip -p",
    ".7z": "7z x -so",
    ".z": "gzip -dc",
    ".lz4": "lz4 -dc",
    ".br": "brotli -dc",
}
"""Commands that write the text of files that are not decompressed here to their standard output."""
_BEGINNINGS = {
    b"\x1f\x8b": ("gzip data", "pipe it, `gzip -dc {} | ftrl replay -`, or name it .gz"),
    b"\xfd7zXZ\0": ("xz data", "pipe it, `xz -dc {} | ftrl replay -`, or name it .xz"),
    b"BZh91AY": ("bzip2 data", "pipe it, `bzip2 -dc {} | ftrl replay -`, or name it .bz2"),
    b"\x28\xb5\x2f\xfd": ("zstd data", "pipe it, `zstd -dc {} | ftrl replay -`, or name it .zst"),
    b"PK\x03\x04": ("a zip archive", "pipe it, `unzip -p {} | ftrl replay -`"),
    b"PAR1\x15": ("a Parquet file", "give --format parquet, or name it .parquet"),
    b"ARROW1\0": ("an Arrow file", "give --format arrow, or name it .arrow"),
    b"\xff\xfe": ("UTF-16 text", "pipe it, `iconv -f utf-16 -t utf-8 {} | ftrl replay -`"),
    b"\xfe\xff": ("UTF-16 text", "pipe it, `iconv -f utf-16 -t utf-8 {} | ftrl replay -`"),
}
"""First bytes that no text has, what they mean and what to do."""
_ARCHIVE_BEGINNINGS = {
    ".gz": b"\x1f\x8b",
    ".xz": b"\xfd7zXZ\0",
    ".lzma": b"\x5d\0\0",
    ".bz2": b"BZh",
    ".zst": b"\x28\xb5\x2f\xfd",
}


class UnreadableFile(Exception):
    """The file as a whole cannot be read, whatever its single lines are."""


class TextSource:
    """Bytes of a path or a URL (decompressed by its suffix), of `-` for standard input, or of an open file.

    size: of the file as it is stored, in bytes; None if unknown.
    longest_line: in bytes; a file with a longer line is hardly text, and must not fill the memory.
    """

    def __init__(self, source: str | Path | BinaryIO, longest_line: int = _LONGEST_LINE) -> None:
        self._longest_line = longest_line
        self.size: int | None = None
        self._opened: list[IO[bytes]] = []
        if isinstance(source, str | Path) and str(source) != STANDARD_INPUT:
            self.name = str(source)
            self._raw = self._open_url(self.name) if is_url(self.name) else self._open(Path(source))
        else:
            self.name = "standard input" if isinstance(source, str | Path) else "the file"
            self._raw = cast(BinaryIO, _StandardInput()) if isinstance(source, str | Path) else source
        self._delivered = 0
        self._text = self._decompressed(Path(self.name).suffix.lower())

    def __enter__(self) -> TextSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for opened in reversed(self._opened):
            opened.close()

    @property
    def binary(self) -> IO[bytes]:
        """The file, decompressed, for formats that are no text; not to be mixed with `read`."""
        return self._text

    @property
    def bytes_read(self) -> int:
        """Bytes of the file, as it is stored, that were read."""
        return self._delivered if self.size is None else self._raw.tell()

    def read(self, count: int) -> bytes:
        """Return at most `count` bytes of text, b"" at the end. Raises UnreadableFile."""
        is_start = self._delivered == 0
        data = self._read(count)
        if is_start:
            while data and len(data) < min(count, _LONGEST_BEGINNING):  # a pipe may deliver byte by byte
                more = self._read(count - len(data))
                if not more:
                    break
                data += more
            self._refuse_other_files(data)
            data = data.removeprefix(_BOM) or self._read(count)
        self._delivered += len(data)
        return data

    def _read(self, count: int) -> bytes:
        try:
            return self._text.read(count)
        except EOFError as error:
            raise UnreadableFile(
                f"{self.name}: the archive is cut off after {self._delivered:,} bytes of text:"
                " get or make it again"
            ) from error
        except (*_failures(),) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise UnreadableFile(f"{self.name}: {error.strerror}") from error
            suffix = Path(self.name).suffix.lower()
            foreign = self._delivered == 0 and not self._begins_as_archive(suffix)
            what = f"no {suffix} archive, though its name says so" if foreign else "a damaged archive"
            raise UnreadableFile(
                f"{self.name}: {what} ({error}): rename the file, or get or make it again"
            ) from error

    def _begins_as_archive(self, suffix: str) -> bool:
        """Test the first bytes of the file as it is stored; True if they can no longer be read."""
        if not self._raw.seekable():
            return True
        self._raw.seek(0)
        expected = _ARCHIVE_BEGINNINGS.get(suffix, b"")
        return self._raw.read(len(expected)) == expected

    def _refuse_other_files(self, beginning: bytes) -> None:
        """Raise UnreadableFile for what is certainly not UTF-8 text with newlines, and say what it is."""
        for mark, (what, remedy) in _BEGINNINGS.items():
            if beginning.startswith(mark):
                raise UnreadableFile(f"{self.name}: this is {what}: {remedy.format(self.name)}")
        if b"\n" not in beginning and b"\r" in beginning.rstrip(b"\r\t "):
            remedy = f"`tr '\\r' '\\n' < {self.name} | ftrl replay -`"
            raise UnreadableFile(f"{self.name}: its lines end with \\r alone: convert them, {remedy}")

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
        self._refuse_other_archives(path)
        try:
            raw = path.open("rb")
        except OSError as error:
            raise UnreadableFile(f"{path}: {error.strerror}") from error
        self._opened.append(raw)
        if raw.seekable():
            self.size = path.stat().st_size
        return raw

    def _open_url(self, url: str) -> BinaryIO:
        from service.parsing.files.remote import open_url

        self._refuse_other_archives(Path(url))
        raw, self.size = open_url(url)
        self._opened.append(raw)
        return raw

    def _refuse_other_archives(self, path: Path) -> None:
        if (command := _OTHER_ARCHIVES.get(path.suffix.lower())) is not None:
            raise UnreadableFile(
                f"{path}: {path.suffix} is not supported: pipe it, `{command} {path} | ftrl replay -`"
            )

    def _decompressed(self, suffix: str) -> IO[bytes]:
        if suffix not in _DECOMPRESSORS:
            return self._raw
        text = _DECOMPRESSORS[suffix](self._raw)
        self._opened.append(text)
        return text


class _StandardInput(io.FileIO):
    """A reader of its own: Python cannot exit while a thread waits in that of `sys.stdin`. It has no buffer:
    one that waits for more than there is would not notice a Ctrl-C that came just before.
    """

    def __init__(self) -> None:
        super().__init__(sys.stdin.fileno(), closefd=False)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return so many bytes, fewer only at the end."""
        if size is None or size < 0:
            return self.readall()
        pieces = []
        while size > 0 and (piece := super().read(size)):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


class InputFiles:
    """The files of one log, read one after the other: an iterable of them, each opened when its turn comes.

    name: what messages call the log. size: of all files as they are stored, in bytes; None if unknown.
    """

    def __init__(self, first: str | Path | BinaryIO | TextSource, *later: str | Path) -> None:
        """Open the first file. Raises UnreadableFile, also for a later one that does not exist."""
        self._later = later
        self._read_before = 0
        sizes = [_size_of(file) for file in later]
        self._current = first if isinstance(first, TextSource) else TextSource(first)
        self.name = f"{self._current.name} and {len(later)} more" if later else self._current.name
        known = [size for size in (self._current.size, *sizes) if size is not None]
        self.size = sum(known) if len(known) == len(self) else None

    def __len__(self) -> int:
        return 1 + len(self._later)

    def __iter__(self) -> Iterator[TextSource]:
        """Yield each file, open, to be read to its end. Raises UnreadableFile."""
        yield self._current
        for file in self._later:
            self._read_before = self.bytes_read
            self._current.__exit__(None, None, None)
            self._current = TextSource(file)
            yield self._current

    def __enter__(self) -> InputFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._current.__exit__(None, None, None)

    @property
    def bytes_read(self) -> int:
        """Bytes of all files, as they are stored, that were read."""
        return self._read_before + self._current.bytes_read


def files_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return the files that the words of a command line name, in their order; a pattern stands for those that
    it matches, in the order of their names.

    Raises UnreadableFile.
    """
    files = [file for word in words for file in _matching(word)]
    if STANDARD_INPUT in files and len(files) > 1:
        raise UnreadableFile("standard input (`-`) cannot be combined with files")
    return tuple(files)


def is_url(file: str) -> bool:
    """Test for the scheme of a URL before the path."""
    return "://" in file


def _matching(word: str) -> list[str]:
    if not glob.has_magic(word) or (not is_url(word) and Path(word).exists()):
        return [word]
    if is_url(word):
        from service.parsing.files.remote import urls_of

        found = urls_of(word)
    else:
        found = sorted(glob.glob(word, recursive=True))  # noqa: PTH207 (Path.glob takes no absolute pattern)
    if not found:
        raise UnreadableFile(f"no file matches {word}")
    return found


def _size_of(file: str | Path) -> int | None:
    if is_url(str(file)):
        with TextSource(file) as source:
            return source.size
    try:
        found = Path(file).stat()
    except OSError as error:
        raise UnreadableFile(f"{file}: {error.strerror}") from error
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _failures() -> tuple[type[Exception], ...]:
    """Exceptions of files, stores and archives."""
    from service.runtime.files import store_failures

    return (*store_failures(), lzma.LZMAError, zlib.error)

"""Streams of text: cut into lines as the pieces come, and read by a reader of the format."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple, Protocol

from model_core.errors import InvalidInput
from service.models.registry import OpenModel
from service.parsing.streams.groups import GROUP_LINES, BadLine, Group, OpenNow, StreamOptions, bad_line


class Lines(NamedTuple):
    """Consecutive lines without their newlines; the first has the number `first`, counted from 1.

    too_long: the numbers of those that were too long; their texts are empty.
    """

    first: int
    texts: list[bytes]
    too_long: list[int]


class LineCutter:
    """Cuts pieces of a text into lines of at most `longest` bytes, at most GROUP_LINES at a time."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._next = 1
        self._rest = bytearray()
        self._drops = False  # until the next newline: the line is too long

    def cut(self, data: bytes) -> Iterator[Lines]:
        """Yield the lines that `data` completes."""
        stop = data.rfind(b"\n")
        if stop < 0:
            self._append(data)
            return
        texts = data[:stop].split(b"\n")
        self._append(texts[0])
        texts[0] = bytes(self._rest)
        too_long = {0} if self._drops else set()
        self._rest.clear()
        self._drops = False
        self._append(data[stop + 1 :])
        yield from self._numbered(texts, too_long)

    def finish(self) -> Iterator[Lines]:
        """Yield the last line, if it has no newline."""
        if self._rest or self._drops:
            yield from self._numbered([bytes(self._rest)], {0} if self._drops else set())

    def _append(self, data: bytes) -> None:
        if not self._drops:
            self._rest += data
            if len(self._rest) > self._longest:
                self._rest.clear()
                self._drops = True

    def _numbered(self, texts: list[bytes], too_long: set[int]) -> Iterator[Lines]:
        if sum(map(len, texts)) > self._longest:
            too_long |= {i for i, text in enumerate(texts) if len(text) > self._longest}
            texts = [b"" if i in too_long else text for i, text in enumerate(texts)]
        for start in range(0, len(texts), GROUP_LINES):
            stop = start + GROUP_LINES
            first = self._next
            of_these = sorted(first + i - start for i in too_long if start <= i < stop)
            yield Lines(first, texts[start:stop], of_these)
            self._next += len(texts[start:stop])


class LineReader(Protocol):
    """Reads lines of one format for one model."""

    async def read(self, lines: Lines) -> Group: ...


class LineFormat(NamedTuple):
    """A StreamFormat of lines. `reader_of` makes what reads them for one model."""

    media_types: tuple[str, ...]
    reader_of: Callable[[OpenModel, StreamOptions], LineReader]

    def check(self) -> None:
        """Needs nothing that is not always installed."""

    def read(
        self, pieces: AsyncIterator[bytes], open_now: OpenNow, options: StreamOptions
    ) -> AsyncIterator[Group]:
        return _read_lines(pieces, open_now, options, self.reader_of)


async def _read_lines(
    pieces: AsyncIterator[bytes],
    open_now: OpenNow,
    options: StreamOptions,
    reader_of: Callable[[OpenModel, StreamOptions], LineReader],
) -> AsyncIterator[Group]:
    """Yield the lines of a text in groups, as they come, and at last one without a newline."""
    longest = int(options.limits.max_update_body_bytes)
    cutter = LineCutter(longest)
    readers: dict[OpenModel, LineReader] = {}

    async def read(lines: Lines) -> Group:
        model = await open_now()
        if model not in readers:  # the first, or an alias was switched
            readers.clear()
            readers[model] = reader_of(model, options)
        group = await readers[model].read(lines)
        too_long = [_too_long(line, longest) for line in lines.too_long]
        group.bad_lines = sorted([*group.bad_lines, *too_long], key=lambda bad: bad.line)
        return group

    async for piece in pieces:
        for lines in cutter.cut(piece):
            yield await read(lines)
    for lines in cutter.finish():
        yield await read(lines)


def _too_long(line: int, longest: int) -> BadLine:
    detail = f"a line has at most {longest} bytes (FTRL_MAX_UPDATE_BODY_BYTES)"
    return bad_line(line, InvalidInput((), detail, "wrong_length"))

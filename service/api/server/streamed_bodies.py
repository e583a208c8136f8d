"""Bodies of requests that are read while they arrive, for minutes or days, in bounded memory."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator
from typing import Protocol

from starlette.types import Message, Receive, Scope

from service.api.server.content_encoding import MAX_WINDOW_BYTES, not_of, unsupported
from service.api.server.front_door import ClientLeft
from service.errors import SlowBody
from service.runtime.tasks import cancel_all

PIECE_BYTES = 1 << 21
"""Max size of what is read ahead of a body, and about that of what is unpacked at a time."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP_STEP_BYTES = 1 << 14  # what follows a member is copied
_LONGEST_MATCH = 1 << 10  # of deflate: 258 bytes
_ZSTD_STEP_BYTES = 1 << 7  # a block of 4 bytes may become 128 KiB, and the library has no other bound


class BodyStopped(Exception):
    """No more of a body is taken, although there may be more."""


class Unpacker(Protocol):
    """Unpacks a body step by step."""

    def unpack(self, data: bytes) -> tuple[bytes, bytes]:
        """Return at most about PIECE_BYTES of text, and the data that is not unpacked yet.

        Raises InvalidInput.
        """

    def check_end(self) -> None:
        """Raise InvalidInput unless the data ends where the coding does."""


class StreamedBody:
    """The pieces of one body, unpacked. No more of it is read from the connection than PIECE_BYTES ahead.

    `ended`: the client has sent all of it, or has left. `left`: it has disconnected before.
    """

    def __init__(self, receive: Receive, unpacker: Unpacker | None, idle_seconds: float) -> None:
        self.ended = self.left = False
        self._receive = receive
        self._unpacker = unpacker
        self._idle_seconds = idle_seconds
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._stopped = False
        self._changed = asyncio.Condition()
        self._receiving = asyncio.create_task(self._receive_all())

    def stop(self) -> None:
        """Take no more of the body: `pieces` raises BodyStopped, and what arrives is dropped."""
        if not self._stopped:
            self._stopped = True
            self._waking = asyncio.create_task(self._wake())

    def check(self) -> None:
        """Raise ClientLeft or BodyStopped if no more is to be read, also of what has arrived."""
        if self.left:
            raise ClientLeft
        if self._stopped:
            raise BodyStopped

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the text as it comes, without a byte order mark, until its end.

        Raises ClientLeft, BodyStopped, SlowBody if nothing comes for `idle_seconds`, and InvalidInput for
        data that is not of the coding.
        """
        is_first = True
        async for piece in self._unpacked():
            text = piece.removeprefix(_BYTE_ORDER_MARK) if is_first else piece
            is_first = False
            if text:
                yield text

    async def dropped(self, seconds: float) -> None:
        """Wait, at most so long, until the client has sent the rest or has left."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self.ended)

    async def close(self) -> None:
        await cancel_all([self._receiving])

    async def _unpacked(self) -> AsyncIterator[bytes]:
        unpacker = self._unpacker
        while data := await self._next():
            if unpacker is None:
                yield data
                continue
            while data:
                self.check()
                text, data = await asyncio.to_thread(unpacker.unpack, data)
                yield text
        if unpacker is not None:
            unpacker.check_end()

    async def _next(self) -> bytes:
        """What has come since; empty at the end."""
        async with self._changed:
            try:
                async with asyncio.timeout(self._idle_seconds):
                    await self._changed.wait_for(lambda: self._pieces or self.ended or self._stopped)
            except TimeoutError:
                raise SlowBody(f"Nothing came for {self._idle_seconds:g} s.") from None
            self.check()
            data = b"".join(self._pieces)
            self._pieces, self._bytes = [], 0
            self._changed.notify_all()
            return data

    async def _receive_all(self) -> None:
        while not self.ended:
            await self._add(await self._receive())

    async def _add(self, message: Message) -> None:
        async with self._changed:
            if message["type"] != "http.request":
                self.left = self.ended = True
            elif not self._stopped and (body := message.get("body", b"")):
                self._pieces.append(body)
                self._bytes += len(body)
            self.ended = self.ended or not message.get("more_body", False)
            self._changed.notify_all()
            if not self.ended:
                await self._changed.wait_for(lambda: self._stopped or self._bytes < PIECE_BYTES)

    async def _wake(self) -> None:
        async with self._changed:
            self._pieces, self._bytes = [], 0
            self._changed.notify_all()


def stream_unpacker_of(scope: Scope) -> Unpacker | None:
    """Return what unpacks the body that the headers announce. Raises UnsupportedContentEncoding."""
    given = [value.strip().lower() for name, value in scope["headers"] if name == b"content-encoding"]
    coding = b", ".join(given)
    if coding in (b"", b"identity"):
        return None
    if coding in (b"gzip", b"x-gzip"):
        return _Gunzip()
    if coding == b"zstd":
        return _Unzstd()
    raise unsupported(coding)


class _Gunzip:
    """gzip of any number of members (RFC 1952)."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._is_between = True

    def unpack(self, data: bytes) -> tuple[bytes, bytes]:
        pieces: list[bytes] = []
        room, start = PIECE_BYTES, 0
        while start < len(data) and room > 0:
            step = data[start : start + _GZIP_STEP_BYTES]
            member = self._member
            try:
                text = member.decompress(step, room)
                if len(text) == room and not member.unconsumed_tail:  # the end of a match may be left
                    text += member.decompress(b"", _LONGEST_MATCH)
            except zlib.error:
                raise not_of("gzip") from None
            pieces.append(text)
            room -= len(text)
            start += len(step) - len(member.unused_data or member.unconsumed_tail)
            self._is_between = member.eof
            if member.eof:
                self._member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        return b"".join(pieces), data[start:]

    def check_end(self) -> None:
        if not self._is_between:
            raise not_of("gzip")


class _Unzstd:
    """zstd of any number of frames (RFC 8878)."""

    def __init__(self) -> None:
        from zstandard import ZstdDecompressor

        self._decompressor = ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        self._frame = self._decompressor.decompressobj()
        self._is_between = True

    def unpack(self, data: bytes) -> tuple[bytes, bytes]:
        from zstandard import ZstdError

        pieces: list[bytes] = []
        size = start = 0
        while start < len(data) and size < PIECE_BYTES:
            step = data[start : start + _ZSTD_STEP_BYTES]
            start += len(step)
            try:
                pieces.append(self._frame.decompress(step))
            except ZstdError:
                raise not_of("zstd") from None
            size += len(pieces[-1])
            self._is_between = self._frame.eof
            if self._frame.eof:
                start -= len(self._frame.unused_data)
                self._frame = self._decompressor.decompressobj()
        return b"".join(pieces), data[start:]

    def check_end(self) -> None:
        if not self._is_between:
            raise not_of("zstd")

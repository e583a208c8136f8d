"""A JSON caller that costs little, so that hundreds fit beside the service on a small machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

FAILURES = (OSError, EOFError)
"""What a call raises whose service is away or goes away before it has answered."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


class Caller:
    """One connection, opened when first needed and again after a failure; calls must not overlap."""

    def __init__(self) -> None:
        self._address: tuple[str | None, int | None] = (None, None)
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, url: str, body: Any, seconds: float = 20.0) -> Answer:
        """Raises one of FAILURES."""
        parts = urlsplit(url)
        content = json.dumps(body).encode()
        head = f"POST {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        try:
            async with asyncio.timeout(seconds):
                writer = await self._connected(parts.hostname, parts.port)
                writer.write(head.encode() + content)
                answer = await self._answer()
        except BaseException:
            self.close()
            raise
        if answer.headers.get("connection") == "close":
            self.close()
        return answer

    async def _connected(self, host: str | None, port: int | None) -> asyncio.StreamWriter:
        if self._writer is None or self._address != (host, port):
            self.close()
            self._reader, self._writer = await asyncio.open_connection(host, port)
            self._address = (host, port)
        return self._writer

    async def _answer(self) -> Answer:
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = [line.split(":", 1) for line in lines[1:] if line]
        headers = {name.lower(): value.strip() for name, value in fields}
        content = await self._reader.readexactly(int(headers["content-length"]))
        return Answer(int(lines[0].split()[1]), headers, json.loads(content))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


@contextlib.asynccontextmanager
async def caller() -> AsyncIterator[Caller]:
    made = Caller()
    try:
        yield made
    finally:
        made.close()
        await asyncio.sleep(0)  # the socket is closed on the loop's next turn

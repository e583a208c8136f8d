"""Streams server-sent events to one listener, until it disconnects or the feed ends."""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.api.dashboard.feed import Feed, Listener
from service.api.server.front_door import ClientLeft
from service.runtime.tasks import cancel_all, first_to_end

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # otherwise nginx would buffer it
}
AGAIN_MILLISECONDS = 2000


class EventStream(Response):
    """Counts as a listener from its first byte to its last. Raises StreamRefused before the first."""

    def __init__(self, feed: Feed, model: str) -> None:
        super().__init__(headers=HEADERS)
        self._feed = feed
        self._model = model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        with self._feed.listen(self._model) as listener:
            leaving = asyncio.create_task(_until_gone(receive))
            try:
                await first_to_end(self._send(listener, send), leaving)
            except ClientLeft:
                pass
            finally:
                await cancel_all([leaving])

    async def _send(self, listener: Listener, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._raw_headers()})
        await send(_part(b"retry: %d\n\n" % AGAIN_MILLISECONDS))
        async for events in listener:
            await send(_part(events))
        await send(_part(b"", more=False))

    def _raw_headers(self) -> list[tuple[bytes, bytes]]:
        return [(name, value) for name, value in self.raw_headers if name != b"content-length"]


def _part(body: bytes, *, more: bool = True) -> dict[str, object]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def _until_gone(receive: Receive) -> None:
    """Raises ClientLeft."""
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientLeft

"""uvicorn's server, which can end streams when it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn


class HttpServer(uvicorn.Server):
    """Calls `on_stop` before it waits for the replies that have begun.

    uvicorn tells an application of its end only after that wait, and a stream would make it last for the
    whole of the grace.
    """

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stop = on_stop

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)

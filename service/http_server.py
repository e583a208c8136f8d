"""uvicorn's server, which says when it answers, and can end streams when it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn


class HttpServer(uvicorn.Server):
    """Calls `on_start` when it answers, and `on_stop` before it waits for the replies that have begun.

    uvicorn tells an application of its end only after that wait, and a stream would make it last for the
    whole of the grace.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        on_stop: Callable[[], None],
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config)
        self._on_stop = on_stop
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)

"""The listeners to the live figures of each model, and the events that each is to be sent next.

A listener holds at most one event of each kind, the newest: one that reads slowly misses some, and costs no
memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from typing import Protocol

from service.errors import StreamRefused
from service.runtime.tasks import for_ever

EVERY_SECONDS = 1.0
LAST = "gone"
"""The kind of event after which a stream ends."""

Events = Mapping[str, bytes]
"""Events by kind, each complete in the format of server-sent events."""


class Source(Protocol):
    """Source of the events; `sample` returns the new ones of each model."""

    async def sample(self, models: Collection[str]) -> Mapping[str, Events]: ...

    async def close(self) -> None: ...


class Listener:
    """One open stream."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._pending: dict[str, bytes] = {}
        self._something = asyncio.Event()
        self._ended = False

    def offer(self, events: Events) -> None:
        self._pending.update(events)
        self._ended = self._ended or LAST in events
        self._something.set()

    def end(self) -> None:
        self._ended = True
        self._something.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """All pending events, joined; ends after the event `gone`, and when the service stops."""
        while self._pending or not self._ended:
            await self._something.wait()
            self._something.clear()
            ready, self._pending = b"".join(self._pending.values()), {}
            if ready:
                yield ready


class Feed:
    """Samples once a second while there are listeners, for all of them together."""

    def __init__(self, open_source: Callable[[], Source], limit: int) -> None:
        self._open_source = open_source
        self._limit = limit
        self._listeners: set[Listener] = set()
        self._newest: dict[str, dict[str, bytes]] = {}
        self._task: asyncio.Task[None] | None = None
        self._new_listener = asyncio.Event()
        self._stopping = False

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @contextlib.contextmanager
    def listen(self, model: str) -> Iterator[Listener]:
        """Raises StreamRefused."""
        if self._stopping:
            raise StreamRefused("This process is being stopped.", retry_after_seconds=1)
        if len(self._listeners) >= self._limit:
            raise StreamRefused(f"{self._limit} pages are connected to this process (FTRL_MAX_LIVE_STREAMS).")
        listener = Listener(model)
        self._welcome(listener)
        try:
            yield listener
        finally:
            self._leave(listener)

    def stop(self) -> None:
        """End all streams permanently: the service stops only after all its replies have ended."""
        self._stopping = True
        for listener in self._listeners:
            listener.end()

    def _welcome(self, listener: Listener) -> None:
        self._listeners.add(listener)
        if self._task is None:
            self._task = asyncio.create_task(for_ever(self._run), name="dashboard sampling")
        if listener.model in self._newest:
            listener.offer(self._newest[listener.model])
        else:
            self._new_listener.set()

    def _leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task, self._newest = None, {}

    async def _run(self) -> None:
        source = self._open_source()
        try:
            while True:
                began = asyncio.get_running_loop().time()
                self._new_listener.clear()
                models = {listener.model for listener in self._listeners}
                self._publish(models, await source.sample(models))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(began + EVERY_SECONDS):
                        await self._new_listener.wait()
        finally:
            await source.close()

    def _publish(self, models: Collection[str], news: Mapping[str, Events]) -> None:
        self._newest = {model: self._newest.get(model, {}) | dict(news.get(model, {})) for model in models}
        for listener in self._listeners:
            listener.offer(news.get(listener.model, {}))
        for model in models:
            if LAST in self._newest[model]:  # a later listener is sent a fresh one
                del self._newest[model]

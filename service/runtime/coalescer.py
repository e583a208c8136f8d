"""Requests that arrive while a call to Redis is under way share the next one."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from service.errors import StateUnavailable
from service.runtime.tasks import cancel_all

log = logging.getLogger(__name__)

STOPPING = "The service is stopping."

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Asked(Generic[Request, Answer]):
    """A request, what it counts of one call, and whoever waits for its answer, if anybody does."""

    __slots__ = ("_answered", "request", "size")

    def __init__(self, request: Request, size: int, answered: asyncio.Future[Answer] | None) -> None:
        self.request = request
        self.size = size
        self._answered = answered

    @property
    def waits(self) -> bool:
        """Not where nobody ever did, or has left, or was answered."""
        return self._answered is not None and not self._answered.done()

    def answer(self, answer: Answer) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(answer)

    def refuse(self, failure: Exception) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(failure)


class Coalescer(Generic[Request, Answer]):
    """`answer` gets the requests that go together and answers each; what it raises is raised to those left.
    `most`: what their sizes may come to. `linger_seconds`: before each call, for more to come.
    """

    def __init__(
        self,
        answer: Callable[[list[Asked[Request, Answer]]], Awaitable[None]],
        most: int,
        linger_seconds: float = 0.0,
    ) -> None:
        self._answer = answer
        self._most = most
        self.linger_seconds = linger_seconds
        self._waiting: deque[Asked[Request, Answer]] = deque()
        self._working: asyncio.Task[None] | None = None

    def submit(self, request: Request, size: int = 1) -> asyncio.Future[Answer]:
        """The answer. It raises what the call raised; StateUnavailable where this was closed."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._enqueue(Asked(request, size, answered))
        return answered

    def submit_soon(self, request: Request, size: int = 1) -> None:
        """Nobody waits for the answer."""
        self._enqueue(Asked(request, size, None))

    def _enqueue(self, asked: Asked[Request, Answer]) -> None:
        self._waiting.append(asked)
        if self._working is None:
            self._working = asyncio.create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._waiting:
                if self.linger_seconds:
                    await asyncio.sleep(self.linger_seconds)
                await self._answer_together(self._next())
        finally:
            self._working = None

    async def _answer_together(self, together: list[Asked[Request, Answer]]) -> None:
        try:
            await self._answer(together)
        except asyncio.CancelledError:
            _refuse(together, StateUnavailable(STOPPING))
            raise
        except Exception as failure:  # whatever it is, those who asked are told
            if not any(asked.waits for asked in together):
                log.exception("what nobody waits for failed")
            _refuse(together, failure)

    def _next(self) -> list[Asked[Request, Answer]]:
        waiting = self._waiting
        together = [waiting.popleft()]
        size = together[0].size
        while waiting and (size := size + waiting[0].size) <= self._most:
            together.append(waiting.popleft())
        return together

    async def drain(self, seconds: float) -> None:
        """Waits until all is answered, at most so long."""
        if self._working is not None:
            await asyncio.wait([self._working], timeout=seconds)

    async def close(self, refusal: Exception | None = None) -> None:
        """Calls off the call that is under way; those whose turn has not come raise `refusal`."""
        if self._working is not None:
            await cancel_all([self._working])
        _refuse(self._waiting, refusal or StateUnavailable(STOPPING))
        self._waiting.clear()


def _refuse(asked: Iterable[Asked[Request, Answer]], failure: Exception) -> None:
    for one in asked:
        one.refuse(failure)

"""Requests that arrive in a burst, or while a call to Redis is under way, share the next one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from service.errors import StateUnavailable
from service.runtime.tasks import cancel_all

log = logging.getLogger(__name__)

STOPPING = "The service is stopping."
MAX_ROUNDS = 32
"""A call is delayed by so many rounds of two turns of the event loop, if each brings more requests,"""
GATHER_SECONDS = 0.003
"""and by no further one after this time. A call itself takes the processor as long as several requests."""
LARGE_SHARE = 1 / 16
"""A call with this share of its max size is large."""

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Asked(Generic[Request, Answer]):
    """A request, how much of one call it takes, how long it may wait for others, and the future of its
    answer, None where the caller wants no answer.
    """

    __slots__ = ("_answered", "linger_seconds", "request", "size")

    def __init__(
        self, request: Request, size: int, linger_seconds: float, answered: asyncio.Future[Answer] | None
    ) -> None:
        self.request = request
        self.size = size
        self.linger_seconds = linger_seconds
        self._answered = answered

    @property
    def waits(self) -> bool:
        """False where no answer was wanted, the caller has left, or there is an answer."""
        return self._answered is not None and not self._answered.done()

    def answer(self, answer: Answer) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(answer)

    def refuse(self, failure: Exception) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(failure)


class Coalescer(Generic[Request, Answer]):
    """`answer` gets the requests that go together and answers each; what it raises is raised to those left.
    `max_size`: the limit of the sum of their sizes.
    """

    def __init__(
        self, answer: Callable[[list[Asked[Request, Answer]]], Awaitable[None]], max_size: int
    ) -> None:
        self._answer = answer
        self._max_size = max_size
        self._pending: deque[Asked[Request, Answer]] = deque()
        self._working: asyncio.Task[None] | None = None

    def submit(self, request: Request, size: int = 1) -> asyncio.Future[Answer]:
        """The answer. It raises what the call raised; StateUnavailable where this was closed."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._enqueue(Asked(request, size, 0.0, answered))
        return answered

    def submit_soon(self, request: Request, size: int = 1, linger_seconds: float = 0.0) -> None:
        """Submits a request whose answer is not wanted. Its call may be delayed by `linger_seconds`, for more
        requests to share it.
        """
        self._enqueue(Asked(request, size, linger_seconds, None))

    def _enqueue(self, asked: Asked[Request, Answer]) -> None:
        self._pending.append(asked)
        if self._working is None:
            self._working = asyncio.create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._pending:
                if linger_seconds := self._pending[-1].linger_seconds:
                    await asyncio.sleep(linger_seconds)
                await self._gather()
                await self._answer_together(self._next())
        finally:
            self._working = None

    async def _gather(self) -> None:
        """Go on with the event loop as long as it brings more requests, so that those of a burst share a call
        and not only those of one turn. A call that is large already is not delayed.
        """
        until = time.monotonic() + GATHER_SECONDS
        for _ in range(MAX_ROUNDS):
            before = len(self._pending)
            if sum(asked.size for asked in self._pending) >= self._max_size * LARGE_SHARE:
                return
            await asyncio.sleep(0)  # in one turn the loop reads from connections, in the next it parses
            await asyncio.sleep(0)
            if len(self._pending) == before or time.monotonic() > until:
                return

    async def _answer_together(self, together: list[Asked[Request, Answer]]) -> None:
        try:
            await self._answer(together)
        except asyncio.CancelledError:
            _refuse(together, StateUnavailable(STOPPING))
            raise
        except Exception as failure:  # any failure is raised to the callers
            if not any(asked.waits for asked in together):
                log.exception("a call whose answer is not awaited failed")
            _refuse(together, failure)

    def _next(self) -> list[Asked[Request, Answer]]:
        pending = self._pending
        together = [pending.popleft()]
        size = together[0].size
        while pending and (size := size + pending[0].size) <= self._max_size:
            together.append(pending.popleft())
        return together

    async def drain(self, seconds: float) -> None:
        """Waits until all requests are answered, at most so many seconds."""
        if self._working is not None:
            await asyncio.wait([self._working], timeout=seconds)

    async def close(self, refusal: Exception | None = None) -> None:
        """Cancels the call that is under way; the requests still in the queue raise `refusal`."""
        if self._working is not None:
            await cancel_all([self._working])
        _refuse(self._pending, refusal or StateUnavailable(STOPPING))
        self._pending.clear()


def _refuse(asked: Iterable[Asked[Request, Answer]], failure: Exception) -> None:
    for one in asked:
        one.refuse(failure)

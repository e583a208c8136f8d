"""Requests that arrive while a call to Redis is under way share the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from service.errors import StateUnavailable
from service.tasks import cancel_all

STOPPING = "The service is stopping."

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Asked(Generic[Request, Answer]):
    """A request, and whoever waits for its answer, if anybody does."""

    __slots__ = ("_answered", "request")

    def __init__(self, request: Request, answered: asyncio.Future[Answer] | None) -> None:
        self.request = request
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
    `size_of` a request: in what `most` of one call is counted.
    """

    def __init__(
        self,
        answer: Callable[[list[Asked[Request, Answer]]], Awaitable[None]],
        size_of: Callable[[Request], int],
        most: int,
    ) -> None:
        self._answer = answer
        self._size_of = size_of
        self._most = most
        self._waiting: deque[Asked[Request, Answer]] = deque()
        self._working: asyncio.Task[None] | None = None

    async def submit(self, request: Request) -> Answer:
        """Raises what the call raised; StateUnavailable where this was closed."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._enqueue(Asked(request, answered))
        return await answered

    def submit_soon(self, request: Request) -> None:
        """Nobody waits for the answer."""
        self._enqueue(Asked(request, None))

    def _enqueue(self, asked: Asked[Request, Answer]) -> None:
        self._waiting.append(asked)
        if self._working is None:
            self._working = asyncio.create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._answer_together(self._next())
        finally:
            self._working = None

    async def _answer_together(self, together: list[Asked[Request, Answer]]) -> None:
        try:
            await self._answer(together)
        except asyncio.CancelledError:
            _refuse(together, StateUnavailable(STOPPING))
            raise
        except Exception as failure:  # noqa: BLE001  whatever it is, those who asked are told
            _refuse(together, failure)

    def _next(self) -> list[Asked[Request, Answer]]:
        together = [self._waiting.popleft()]
        size = self._size_of(together[0].request)
        while self._waiting and (size := size + self._size_of(self._waiting[0].request)) <= self._most:
            together.append(self._waiting.popleft())
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

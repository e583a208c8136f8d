"""Requests that arrive while a call to Redis is under way share the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

from service.errors import StateUnavailable
from service.tasks import cancel_all

STOPPING = "The service is stopping."

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Coalescer(Generic[Request, Answer]):
    """`answer` gets the requests that go together, and gives for each what it returns, or an exception to be
    raised; what it raises itself, all of them raise. It may catch that it is called off, and answer still.
    `size_of` a request: in what `most` of one call is counted.
    """

    def __init__(
        self,
        answer: Callable[[list[Request]], Awaitable[Sequence[Answer | Exception]]],
        size_of: Callable[[Request], int],
        most: int,
    ) -> None:
        self._answer = answer
        self._size_of = size_of
        self._most = most
        self._waiting: deque[tuple[Request, asyncio.Future[Answer] | None]] = deque()
        self._working: asyncio.Task[None] | None = None

    async def submit(self, request: Request) -> Answer:
        """Raises what the call raised; StateUnavailable where this was closed."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._enqueue(request, answered)
        return await answered

    def submit_soon(self, request: Request) -> None:
        """Nobody waits for the answer."""
        self._enqueue(request, None)

    def _enqueue(self, request: Request, answered: asyncio.Future[Answer] | None) -> None:
        self._waiting.append((request, answered))
        if self._working is None:
            self._working = asyncio.create_task(self._work())

    async def _work(self) -> None:
        this = asyncio.current_task()
        assert this is not None
        try:
            while self._waiting and not this.cancelling():
                requests, futures = self._next()
                _resolve(futures, await self._answers(requests))
        finally:
            self._working = None

    async def _answers(self, requests: list[Request]) -> Sequence[Answer | Exception]:
        try:
            return await self._answer(requests)
        except asyncio.CancelledError:
            return [StateUnavailable(STOPPING)] * len(requests)
        except Exception as failure:  # noqa: BLE001  whatever it is, those who asked are told
            return [failure] * len(requests)

    def _next(self) -> tuple[list[Request], list[asyncio.Future[Answer] | None]]:
        together = [self._waiting.popleft()]
        count = self._size_of(together[0][0])
        while self._waiting and count + self._size_of(self._waiting[0][0]) <= self._most:
            together.append(self._waiting.popleft())
            count += self._size_of(together[-1][0])
        return [request for request, _ in together], [future for _, future in together]

    async def drain(self, seconds: float) -> None:
        """Waits until all is answered, at most so long."""
        if self._working is not None:
            await asyncio.wait([self._working], timeout=seconds)

    async def close(self, refusal: Exception | None = None) -> None:
        """Calls off the call that is under way; those whose turn has not come raise `refusal`."""
        if self._working is not None:
            await cancel_all([self._working])
        refusal = refusal or StateUnavailable(STOPPING)
        _resolve([future for _, future in self._waiting], [refusal] * len(self._waiting))
        self._waiting.clear()


def _resolve(futures: Sequence[asyncio.Future[Answer] | None], answers: Iterable[Answer | Exception]) -> None:
    for future, answer in zip(futures, answers, strict=True):
        if future is None or future.done():  # nobody asked, or whoever did has left
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

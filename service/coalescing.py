"""Requests that arrive while a call to Redis is under way share the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from service.errors import StateUnavailable
from service.tasks import cancel_all

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Coalescer(Generic[Request, Answer]):
    """`answer` gets the requests that go together, and gives for each what it returns, or an exception to be
    raised. `size_of` a request: in what `most` of one call is counted.
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
        self._waiting: deque[tuple[Request, asyncio.Future[Answer]]] = deque()
        self._working: asyncio.Task[None] | None = None

    async def submit(self, request: Request) -> Answer:
        """Raises what the call raised; StateUnavailable where this was closed."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answered))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await answered

    async def _work(self) -> None:
        try:
            while self._waiting:
                requests, futures = self._next()
                together = asyncio.ensure_future(self._answer(requests))
                try:
                    await asyncio.wait([together])
                finally:  # also where this is called off: nobody may be left without an answer
                    await cancel_all([together])
                    _resolve(futures, _answers_of(together, len(futures)))
        finally:
            self._working = None

    def _next(self) -> tuple[list[Request], list[asyncio.Future[Answer]]]:
        together = [self._waiting.popleft()]
        count = self._size_of(together[0][0])
        while self._waiting and count + self._size_of(self._waiting[0][0]) <= self._most:
            together.append(self._waiting.popleft())
            count += self._size_of(together[-1][0])
        return [request for request, _ in together], [future for _, future in together]

    async def close(self) -> None:
        if self._working is not None:
            await cancel_all([self._working])
        futures = [future for _, future in self._waiting]
        _resolve(futures, [StateUnavailable("The service is stopping.")] * len(futures))


def _resolve(futures: Sequence[asyncio.Future[Answer]], answers: Iterable[Answer | BaseException]) -> None:
    for future, answer in zip(futures, answers, strict=True):
        if future.done():  # whoever asked has left
            continue
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _answers_of(call: asyncio.Future[Any], count: int) -> Sequence[Any]:
    if call.cancelled():
        return [StateUnavailable("The service is stopping.")] * count
    failure = call.exception()
    answers: Sequence[Any] = [failure] * count if failure is not None else call.result()
    return answers

"""Clients that send updates over HTTP until each is acknowledged."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self

from service.errors import LOST
from service.models.config.model import DEFAULT_MODEL
from tests.support.caller import FAILURES, Caller, caller
from tests.support.waiting import until

ACKNOWLEDGED = (200, 202)
TRY_AGAIN = (429, 503)
PAUSE_SECONDS = 0.05
LONGEST_SECONDS = 40


def example(event: int, prefix: str = "event") -> dict[str, Any]:
    """The body of an example: the same for the same event, with some features in common with others."""
    return {
        "features": {"user": f"u{event % 97}", "ad": f"a{event % 13}", "hour": event % 24, "n": f"x{event}"},
        "label": int(event % 7 == 0),
        "event_id": f"{prefix}-{event}",
    }


class Load:
    """`async with Load([url, ...]) as load:` keeps `clients` of them busy until its end, but for a rest after
    each request.

    A client whose request fails or is answered 429 or 503 tries again with the same event ids at the next
    address; or, with `insistent=False`, stops. Any answer that is neither an acknowledgement nor such an
    invitation fails the test.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        clients: int = 6,
        examples: int = 5,
        insistent: bool = True,
        model: str = DEFAULT_MODEL,
        first: int = 0,
        make: Callable[[int], dict[str, Any]] = example,
        rest_seconds: float = 0.0,
    ) -> None:
        self.acknowledged: list[str] = []
        self.answered_lost: list[str] = []  # event ids, before their retries were acknowledged
        self.answers: Counter[int | str] = Counter()
        self._urls = urls  # the caller's own list: it may change, as its processes do
        self._path = f"/models/{model}/update"
        self._clients = clients
        self._examples = examples
        self._insistent = insistent
        self._make = make
        self._rest_seconds = rest_seconds
        self._events = itertools.count(first)
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._client(number)) for number in range(self._clients)]
        return self

    async def __aexit__(self, kind: object, *exception: object) -> None:
        """Every client finishes its request first, unless the test has failed already."""
        self._stopping = True
        if kind is not None:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=kind is not None)

    async def more(self, count: int, seconds: float = 60) -> None:
        """Waits until this many more examples are acknowledged."""
        goal = len(self.acknowledged) + count

        def reached() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return len(self.acknowledged) >= goal

        await until(reached, f"{count} more examples are acknowledged", seconds)

    async def _client(self, number: int) -> None:
        async with caller() as service:
            while not self._stopping:
                bodies = [self._make(event) for event in itertools.islice(self._events, self._examples)]
                if not await self._send(service, bodies, number):
                    return
                await asyncio.sleep(self._rest_seconds)

    async def _send(self, service: Caller, bodies: list[dict[str, Any]], attempt: int) -> bool:
        async with asyncio.timeout(LONGEST_SECONDS):
            while not await self._attempt(service, self._urls[attempt % len(self._urls)], bodies):
                if not self._insistent:
                    return False
                await asyncio.sleep(PAUSE_SECONDS)
                attempt += 1
        self.acknowledged += [str(one["event_id"]) for one in bodies]
        return True

    async def _attempt(self, service: Caller, url: str, bodies: list[dict[str, Any]]) -> bool:
        try:
            answer = await service.post(url + self._path, {"examples": bodies})
        except FAILURES:
            self.answers["no answer"] += 1
            return False
        self.answers[answer.status] += 1
        assert answer.status in ACKNOWLEDGED + TRY_AGAIN, answer.body
        if answer.status not in ACKNOWLEDGED:
            assert answer.headers["retry-after"]
            if answer.body["detail"].startswith(LOST):
                self.answered_lost += [str(one["event_id"]) for one in bodies]
            return False
        results = answer.body["results"]
        assert [one["event_id"] for one in results] == [one["event_id"] for one in bodies]
        return True

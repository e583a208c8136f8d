"""The asynchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Self, TypeVar

import httpx

from ftrl_client import calls
from ftrl_client.calls import Call
from ftrl_client.exchange import Exchange, Pause, headers_of
from ftrl_client.messages import Example, Features, Instance, Label, Prediction, Update

T = TypeVar("T")


class AsyncClient:
    """Like `Client`, for asyncio; may be shared by tasks."""

    def __init__(
        self,
        url: str = "http://localhost:8000",
        *,
        model: str = "default",
        token: str | None = None,
        timeout: float = 10.0,
        retry_seconds: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.model = model
        self._retry_seconds = retry_seconds
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers_of(token), timeout=timeout, transport=transport
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def predict(
        self, features: Features, *, id: str | None = None, log: bool | None = None
    ) -> Prediction:
        """Predict one. `log`: whether the prediction awaits its label; None leaves that to the model."""
        predictions = await self.predict_many([Instance(features, id)], log=log)
        return predictions[0]

    async def predict_many(
        self,
        instances: Iterable[Instance | Features],
        *,
        context: Features | None = None,
        log: bool | None = None,
    ) -> list[Prediction]:
        """Predict candidates in order, from one state; `context` has the features that they share."""
        return await self._run(calls.predict(self.model, instances, context, log))

    async def impressions(self, ids: Iterable[str]) -> dict[str, str]:
        """Report which logged predictions were shown; "shown", "duplicate" or "unknown" by id."""
        return await self._run(calls.impressions(self.model, ids))

    async def update(self, example: Example | Label, *, wait: bool = True) -> Update:
        """Learn an example, or label a logged prediction; with `wait` False answered before it is learned."""
        return await self._run(calls.update_one(self.model, example, wait=wait))

    async def update_many(self, examples: Iterable[Example | Label], *, wait: bool = True) -> list[Update]:
        """Learn examples and labels in order, 500 in a request.

        If a request fails, those before it are learned; sending all of the same examples again is safe.
        """
        results: list[Update] = []
        for batch in calls.batches(examples):
            done = await self._run(calls.update(self.model, batch, wait=wait))
            results += done
        return results

    async def stream(self, examples: Iterable[Example | Label]) -> AsyncIterator[Update]:
        """Learn examples and labels in order, 2,000 in a request, and yield the outcome of each.

        An invalid one does not keep the others from being learned. While the service cannot take more, it
        holds up the request. To be called for logs: an example is sent when a request is full.
        """
        for batch in calls.batches(examples, calls.STREAM_SIZE):
            for update in await self._run(calls.stream(self.model, batch)):
                yield update

    async def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call any path of the API; `path` may have a query.

        After a lost reply or a 503, only GET, PUT and updates to which the refusal gave ids are sent again.
        """
        return await self._run(calls.plain(method, path, body))

    async def _run(self, call: Call[T]) -> T:
        exchange = Exchange(call, self._retry_seconds)
        while True:
            try:
                reply = await self._http.request(
                    exchange.call.method, exchange.call.path, **exchange.call.content
                )
            except httpx.RequestError as failure:
                outcome: T | Pause = exchange.after_failure(failure)
            else:
                outcome = exchange.after_reply(reply)
            if not isinstance(outcome, Pause):
                return outcome
            await asyncio.sleep(outcome.seconds)

"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar

import httpx

from ftrl_client import calls
from ftrl_client.calls import Call
from ftrl_client.exchange import Exchange, Pause, headers_of
from ftrl_client.messages import Example, Features, Instance, Label, Prediction, Update

T = TypeVar("T")


class Client:
    """Calls of one model, over connections that are reused; may be shared by threads.

    url: the address of the service. token: a bearer token, if the service requires one; ValueError if it
    cannot be one. timeout: of one attempt, in seconds. retry_seconds: for how long a call is repeated that
    the service could not take (429, 503, 507) or whose reply was lost; 0 is never. transport: another one of
    httpx.

    Every call raises `Problem` for a reply with an error status, and `NoReply` if there was none.
    """

    def __init__(
        self,
        url: str = "http://localhost:8000",
        *,
        model: str = "default",
        token: str | None = None,
        timeout: float = 10.0,
        retry_seconds: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.model = model
        self._retry_seconds = retry_seconds
        self._http = httpx.Client(
            base_url=url, headers=headers_of(token), timeout=timeout, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def predict(self, features: Features, *, id: str | None = None, log: bool | None = None) -> Prediction:
        """Predict one. `log`: whether the prediction awaits its label; None leaves that to the model."""
        return self.predict_many([Instance(features, id)], log=log)[0]

    def predict_many(
        self,
        instances: Iterable[Instance | Features],
        *,
        context: Features | None = None,
        log: bool | None = None,
    ) -> list[Prediction]:
        """Predict candidates in order, from one state; `context` has the features that they share."""
        return self._run(calls.predict(self.model, instances, context, log))

    def impressions(self, ids: Iterable[str]) -> dict[str, str]:
        """Report which logged predictions were shown; "shown", "duplicate" or "unknown" by id."""
        return self._run(calls.impressions(self.model, ids))

    def update(self, example: Example | Label, *, wait: bool = True) -> Update:
        """Learn an example, or label a logged prediction; with `wait` False answered before it is learned."""
        return self._run(calls.update_one(self.model, example, wait=wait))

    def update_many(self, examples: Iterable[Example | Label], *, wait: bool = True) -> list[Update]:
        """Learn examples and labels in order, 500 in a request.

        If a request fails, those before it are learned; sending all of the same examples again is safe.
        """
        results: list[Update] = []
        for batch in calls.batches(examples):
            done = self._run(calls.update(self.model, batch, wait=wait))
            results += done
        return results

    def stream(self, examples: Iterable[Example | Label]) -> Iterator[Update]:
        """Learn examples and labels in order, 2,000 in a request, and yield the outcome of each.

        An invalid one does not keep the others from being learned. While the service cannot take more, it
        holds up the request. To be called for logs: an example is sent when a request is full.
        """
        for batch in calls.batches(examples, calls.STREAM_SIZE):
            yield from self._run(calls.stream(self.model, batch))

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call any path of the API; `path` may have a query.

        After a lost reply or a 503, only GET, PUT and updates to which the refusal gave ids are sent again.
        """
        return self._run(calls.plain(method, path, body))

    def _run(self, call: Call[T]) -> T:
        exchange = Exchange(call, self._retry_seconds)
        while True:
            try:
                reply = self._http.request(exchange.call.method, exchange.call.path, **exchange.call.content)
            except httpx.RequestError as failure:
                outcome: T | Pause = exchange.after_failure(failure)
            else:
                outcome = exchange.after_reply(reply)
            if not isinstance(outcome, Pause):
                return outcome
            time.sleep(outcome.seconds)

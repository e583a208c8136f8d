"""Sends what happens in a world to a service, at a set rate, and notes what it answers."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from service.service_client import TIMEOUT_SECONDS, Refused, ServiceClient
from service.serving import CommandFailure
from service.simulation.figures import Record
from service.simulation.pool import Pool, pool_of
from service.simulation.world import Impression, World

PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 0.1
CLIENTS = 4
MOST_UNDER_WAY = 64
EXPLORE = 0.2  # share of impressions that show any candidate instead of the best predicted


@dataclass(frozen=True)
class Habits:
    """How people click: the mean delay in seconds, the shares of clicks that are lost and sent twice."""

    delay_seconds: float
    lost: float
    repeated: float


class Answer(NamedTuple):
    """What a request was answered, `seconds` after the simulation began, at which attempt (from 1).

    `status`: of predict "logged" or "not_logged", of impressions and update as the service says it.
    """

    seconds: float
    verb: str
    status: str
    attempt: int


class Traffic:
    """One run against one model. Everything that fails is sent again under the same ids, after `timeout`
    seconds without an answer, too.
    """

    def __init__(
        self,
        urls: Sequence[str],
        model: str,
        world: World,
        habits: Habits,
        run: str,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self.record = Record()
        self.answers: dict[
            str, list[Answer]
        ] = {}  # by the id of the prediction, of those that were to be shown
        self._urls = urls  # the caller's own: it may change, as its processes do
        self._path = f"/models/{model}"
        self._world = world
        self._habits = habits
        self._run = run
        self._timeout = timeout
        self._clicks: list[tuple[float, int, str]] = []  # when to send, a number to tell them apart, id
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._local = threading.local()
        self._clients: list[ServiceClient] = []
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def send(self, rate: float, seconds: float, shock_after: float) -> None:
        """Impressions for that long, then the clicks that are still to come. Raises CommandFailure."""
        self._began = time.monotonic()
        shocked = False
        with pool_of(CLIENTS, MOST_UNDER_WAY) as pool:
            for number in itertools.count():
                due = number / rate
                if due >= seconds:
                    break
                if not shocked and due >= shock_after:
                    self._world.shock()
                    shocked = True
                self._wait_until(due, pool)
                pool.submit(self._impression, self._world.next())
            while self._clicks or pool.busy:
                self._wait_until(self.elapsed + PAUSE_SECONDS, pool)
        for client in self._clients:
            client.close()

    def _wait_until(self, moment: float, pool: Pool) -> None:
        """Sends the clicks that are due meanwhile."""
        while True:
            for identifier in self._due_clicks():
                pool.submit(self._click, identifier)
            left = moment - self.elapsed
            if left <= 0:
                return
            time.sleep(min(left, PAUSE_SECONDS / 10))

    def _due_clicks(self) -> list[str]:
        with self._lock:
            due = []
            while self._clicks and self._clicks[0][0] <= self.elapsed:
                due.append(heapq.heappop(self._clicks)[2])
            return due

    def _impression(self, impression: Impression) -> None:
        ids = [f"{self._run}-{impression.number}-{k}" for k in range(len(impression.candidates))]
        seconds = self.elapsed
        instances = [
            {"features": features, "id": i} for features, i in zip(impression.candidates, ids, strict=True)
        ]
        body = {"context": impression.context, "instances": instances, "log": True}
        reply, attempt = self._call("predict", body)
        predicted = np.array([one["probability"] for one in reply["predictions"]])
        shown = _choice(impression, predicted)
        with self._lock:
            self.record.add(seconds, predicted, impression.probabilities, shown)
            self.record.events["predictions"] += len(ids)
            self.record.events["not_logged"] += 0 if reply["logged"] else len(ids)
        self._note(ids[shown], "predict", "logged" if reply["logged"] else "not_logged", attempt)
        if self._expose(ids[shown]) and impression.chances.click < impression.probabilities[shown]:
            self._plan_click(impression, ids[shown])

    def _expose(self, identifier: str) -> bool:
        """Whether the service knows that it was shown."""
        reply, attempt = self._call("impressions", {"ids": [identifier]})
        status = reply["results"][0]["status"]
        self._note(identifier, "impressions", status, attempt)
        known = bool(status != "unknown")
        with self._lock:
            self.record.events["impressions"] += known
        return known

    def _plan_click(self, impression: Impression, identifier: str) -> None:
        chances, habits, now = impression.chances, self._habits, self.elapsed
        with self._lock:
            self.record.events["clicks"] += 1
            if chances.lost < habits.lost:
                self.record.events["clicks_lost_by_clients"] += 1
                return
            delays = [chances.delay]
            if chances.repeated < habits.repeated:
                self.record.events["clicks_sent_twice"] += 1
                delays.append(chances.second_delay)
            for delay in delays:
                due = now + habits.delay_seconds * delay
                heapq.heappush(self._clicks, (due, next(self._numbers), identifier))

    def _click(self, identifier: str) -> None:
        attempt = 0
        try:
            reply, attempt = self._call("update", {"id": identifier, "label": 1})
            status = reply["status"]
        except Refused as refusal:
            if refusal.status not in (404, 409):
                raise
            status = {404: "unknown", 409: "conflict"}[refusal.status]
        self._note(identifier, "update", status, attempt)
        with self._lock:
            self.record.events[f"click_{status}"] += 1

    def _note(self, identifier: str, verb: str, status: str, attempt: int) -> None:
        with self._lock:
            answers = self.answers.setdefault(identifier, [])
            answers.append(Answer(round(self.elapsed, 3), verb, status, attempt))

    def _call(self, verb: str, body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """The reply and at which attempt it came, also through broken connections: every request here may be
        sent twice.
        """
        give_up = time.monotonic() + PATIENCE_SECONDS
        path = f"{self._path}/{verb}" + ("?wait=false" if verb == "update" else "")
        attempt = 1
        while True:
            try:
                return self._client().call("POST", path, body), attempt
            except CommandFailure as failure:
                if isinstance(failure, Refused) and failure.status not in (429, 503):
                    raise
                if time.monotonic() > give_up:
                    raise
                time.sleep(self._turn_elsewhere(failure))
            attempt += 1

    def _turn_elsewhere(self, failure: CommandFailure) -> float:
        """How long to wait before the next address is tried."""
        self._local.attempts = getattr(self._local, "attempts", 0) + 1
        self._local.client = None
        with self._lock:
            self.record.events["retries"] += 1
        return failure.retry_after if isinstance(failure, Refused) else PAUSE_SECONDS

    def _client(self) -> ServiceClient:
        """This thread's own."""
        if getattr(self._local, "client", None) is None:
            attempts: int = getattr(self._local, "attempts", 0)
            url = self._urls[attempts % len(self._urls)]
            self._local.client = ServiceClient(url, patience_seconds=0, timeout_seconds=self._timeout)
            with self._lock:
                self._clients.append(self._local.client)
        client: ServiceClient = self._local.client
        return client


def _choice(impression: Impression, predicted: np.typing.NDArray[np.float64]) -> int:
    chances = impression.chances
    if chances.explore < EXPLORE:
        return int(chances.pick * predicted.size)
    return int(predicted.argmax())

"""Sends the events of a world to a service at a fixed rate, and records the replies."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lab.simulation.figures import Record
from lab.simulation.pool import Pool, pool_of
from lab.simulation.world import Impression, World
from service.cli.http_client import TIMEOUT_SECONDS, Refused, ServiceClient
from service.errors import CommandFailure

PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 0.1
CLIENTS = 4
MAX_UNDER_WAY = 64
EXPLORE = 0.2  # share of impressions that show any candidate instead of the best predicted


@dataclass(frozen=True)
class Habits:
    """Click behaviour: the mean delay in seconds, the shares of clicks that are lost, sent twice, and sent
    before their impression is reported. `retried`: the share of impressions of which each request
    is sent again although it was answered, as by a client that did not receive the reply.
    """

    delay_seconds: float
    lost: float
    repeated: float
    early: float = 0.0
    retried: float = 0.0


class Answer(NamedTuple):
    """Reply to a request, `seconds` after the simulation began, and its attempt (from 1).

    `status`: of predict "logged" or "not_logged", of impressions and update as in the reply.
    """

    seconds: float
    verb: str
    status: str
    attempt: int


class Traffic:
    """One run against one model. A request that fails, or has no reply within `timeout` seconds, is sent
    again with the same ids.
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
        ] = {}  # by prediction id, of the predictions that were to be shown
        self._urls = urls  # not copied: the caller may change it when processes start or stop
        self._path = f"/models/{model}"
        self._world = world
        self._habits = habits
        self._run = run
        self._timeout = timeout
        self._clicks: list[tuple[float, int, str, bool]] = []  # due time, tie-breaking number, id, twice
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._local = threading.local()
        self._clients: list[ServiceClient] = []
        self.ending = False  # once set, no more impressions are sent
        self._began = time.monotonic()
        self.shock_seconds = self.sent_seconds = 0.0  # time until the shock, and until the last impression

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def send(self, rate: float, seconds: float, shock_after: float) -> None:
        """Send impressions for `seconds`, then the pending clicks. Raises CommandFailure."""
        self._began = time.monotonic()
        self.shock_seconds = math.inf
        with pool_of(CLIENTS, MAX_UNDER_WAY) as pool:
            for number in itertools.count():
                due = number / rate
                if due >= seconds or self.ending:
                    break
                self._wait_until(due, pool)
                if due >= shock_after and math.isinf(self.shock_seconds):
                    self._world.shock()
                    self.shock_seconds = self.elapsed
                pool.submit(self._impression, self._world.next(), self.elapsed)
            self.sent_seconds = self.elapsed
            while self._clicks or pool.busy:
                self._wait_until(self.elapsed + PAUSE_SECONDS, pool)
        for client in self._clients:
            client.close()

    def _wait_until(self, moment: float, pool: Pool) -> None:
        """Sends the clicks that are due meanwhile."""
        while True:
            for identifier, twice in self._due_clicks():
                pool.submit(self._click, identifier, twice)
            left = moment - self.elapsed
            if left <= 0:
                return
            time.sleep(min(left, PAUSE_SECONDS / 10))

    def _due_clicks(self) -> list[tuple[str, bool]]:
        with self._lock:
            due = []
            while self._clicks and self._clicks[0][0] <= self.elapsed:
                due.append(heapq.heappop(self._clicks)[2:])
            return due

    def _impression(self, impression: Impression, seconds: float) -> None:
        ids = [f"{self._run}-{impression.number}-{k}" for k in range(len(impression.candidates))]
        instances = [
            {"features": features, "id": i} for features, i in zip(impression.candidates, ids, strict=True)
        ]
        body = {"context": impression.context, "instances": instances, "log": True}
        twice = impression.chances.retried < self._habits.retried
        reply, attempt = self._call("predict", body, twice)
        predicted = np.array([one["probability"] for one in reply["predictions"]])
        shown = _choice(impression, predicted)
        kept = [one.get("logged", reply["logged"]) for one in reply["predictions"]]
        with self._lock:
            self.record.add(seconds, predicted, impression.probabilities, shown)
            self.record.events["predictions"] += len(ids)
            self.record.events["not_logged"] += kept.count(False)
        self._note(ids[shown], "predict", "logged" if kept[shown] else "not_logged", attempt)
        delays = self._delays(impression, shown)
        early = impression.chances.early < self._habits.early
        if early and delays:
            self._count("clicks_early")
            self._click(ids[shown], twice)
            delays = delays[1:]
        if self._expose(ids[shown], twice):
            self._plan_clicks(ids[shown], delays, twice)

    def _delays(self, impression: Impression, shown: int) -> list[float]:
        """Delays, in mean delays, after which a click is sent: none, one or two."""
        chances, habits = impression.chances, self._habits
        if chances.click >= impression.probabilities[shown]:
            return []
        self._count("clicks")
        if chances.lost < habits.lost:
            self._count("clicks_lost_by_clients")
            return []
        if chances.repeated < habits.repeated:
            self._count("clicks_sent_twice")
            return [chances.delay, chances.second_delay]
        return [chances.delay]

    def _expose(self, identifier: str, twice: bool) -> bool:
        """Report the impression; return whether the service knows the prediction."""
        reply, attempt = self._call("impressions", {"ids": [identifier]}, twice)
        status = reply["results"][0]["status"]
        self._note(identifier, "impressions", status, attempt)
        if status == "unknown":
            return False
        self._count("impressions")
        return True

    def _plan_clicks(self, identifier: str, delays: Sequence[float], twice: bool) -> None:
        now = self.elapsed
        with self._lock:
            for delay in delays:
                due = now + self._habits.delay_seconds * delay
                heapq.heappush(self._clicks, (due, next(self._numbers), identifier, twice))

    def _click(self, identifier: str, twice: bool) -> None:
        attempt = 0
        try:
            reply, attempt = self._call("update", {"id": identifier, "label": 1}, twice)
            status = reply["status"]
        except Refused as refusal:
            if refusal.status not in (404, 409):
                raise
            status = {404: "unknown", 409: "conflict"}[refusal.status]
        self._note(identifier, "update", status, attempt)
        self._count(f"click_{status}")

    def _count(self, event: str) -> None:
        with self._lock:
            self.record.events[event] += 1

    def _note(self, identifier: str, verb: str, status: str, attempt: int) -> None:
        with self._lock:
            answers = self.answers.setdefault(identifier, [])
            answers.append(Answer(round(self.elapsed, 3), verb, status, attempt))

    def _call(self, verb: str, body: dict[str, Any], twice: bool) -> tuple[dict[str, Any], int]:
        """The first reply and its attempt; broken connections are retried."""
        answer = self._until_answered(verb, body)
        if twice:
            self._count("sent_again")
            self._until_answered(verb, body)
        return answer

    def _until_answered(self, verb: str, body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        give_up = time.monotonic() + PATIENCE_SECONDS
        path = f"{self._path}/{verb}" + ("?wait=false" if verb == "update" else "")
        attempt = 1
        while True:
            try:
                return self._client().call("POST", path, body), attempt
            except CommandFailure as failure:
                final = isinstance(failure, Refused) and not failure.is_temporary
                if final or time.monotonic() > give_up:
                    raise
                time.sleep(self._turn_elsewhere(failure))
            attempt += 1

    def _turn_elsewhere(self, failure: CommandFailure) -> float:
        """Switch to the next address; return the seconds to wait before it is tried."""
        self._local.attempts = getattr(self._local, "attempts", 0) + 1
        self._local.client = None
        self._count("retries")
        return failure.retry_after if isinstance(failure, Refused) else PAUSE_SECONDS

    def _client(self) -> ServiceClient:
        """The client of this thread."""
        if getattr(self._local, "client", None) is None:
            attempts: int = getattr(self._local, "attempts", 0)
            url = self._urls[attempts % len(self._urls)]
            self._local.client = ServiceClient(url, retry_seconds=0, timeout_seconds=self._timeout)
            with self._lock:
                self._clients.append(self._local.client)
        client: ServiceClient = self._local.client
        return client


def _choice(impression: Impression, predicted: np.typing.NDArray[np.float64]) -> int:
    chances = impression.chances
    if chances.explore < EXPLORE:
        return int(chances.pick * predicted.size)
    return int(predicted.argmax())

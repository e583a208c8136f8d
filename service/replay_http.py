"""`ftrl replay --url`: a file as update requests to a running service, in order."""

from __future__ import annotations

import http.client
import json
import math
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from model_core.contract import HashContract
from model_core.text_problems import LineError
from service.readers import read_rows
from service.replay import ReplayPlan, ReplaySummary, Tally
from service.rows import Row
from service.serving import CommandFailure
from service.text_sources import TextSource

EXAMPLES_A_REQUEST = 500
PATIENCE_SECONDS = 60.0
TIMEOUT_SECONDS = 30.0


def replay_over_http(plan: ReplayPlan, url: str) -> ReplaySummary:
    """Raises CommandFailure, UnreadableFile."""
    service = _Service(url)
    path = f"/models/{quote(plan.model, safe='')}"
    if plan.configures or not service.has(path):
        service.call("PUT", path, plan.config_body)
    contract = HashContract.from_json(service.call("GET", path)["hashing"])
    with TextSource(plan.file) as source, Tally(plan, source) as tally:
        rows = _good_rows(tally, read_rows(source, plan.file_format, contract, plan.options))
        while batch := list(islice(rows, EXAMPLES_A_REQUEST)):
            results = service.update(f"{path}/update", [_example(row) for row in batch])
            _count(tally, batch, results, source.bytes_read)
    described = service.call("GET", path)
    return tally.summary(described["features_seen"], described["nonzero"])


def _good_rows(tally: Tally, items: Iterator[Row | LineError]) -> Iterator[Row]:
    for item in items:
        if isinstance(item, LineError):
            tally.bad_line(item)
        else:
            yield item


def _example(row: Row) -> dict[str, Any]:
    example: dict[str, Any] = {"features": row.features, "label": row.label}
    if row.weight != 1.0:
        example["weight"] = row.weight
    if row.event_id is not None:
        example["event_id"] = row.event_id
    if row.event_time_ms is not None:
        example["event_time"] = row.event_time_ms / 1000
    return example


def _count(tally: Tally, rows: list[Row], results: list[dict[str, Any]], bytes_read: int) -> None:
    learned = [
        (_margin(result["loss"], row.label), row.label, row.weight)
        for row, result in zip(rows, results, strict=True)
        if result["status"] in ("learned", "skipped") and result["loss"] is not None
    ]
    margins, labels, weights = zip(*learned, strict=True) if learned else ((), (), ())
    tally.learned(np.array(margins, float), np.array(labels, np.uint8), np.array(weights, float), bytes_read)


def _margin(loss: float, label: int) -> float:
    """The margin behind a log loss, to full precision also where the probability rounds to 0 or 1."""
    if loss > 700.0:
        return -loss if label else loss
    margin = -math.log(math.expm1(loss)) if loss > 0.0 else 745.0
    return margin if label else -margin


class _Service:
    """One connection, kept. What is refused for now is tried again, under the event ids of the refusal."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "//" in url else f"//{url}")
        if parts.scheme not in ("", "http", "https") or not parts.hostname:
            raise CommandFailure(f"{url} is not the http:// or https:// address of a service")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
        self._base = parts.path.rstrip("/")
        self._url = url

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """The decoded reply. Raises CommandFailure on any status but 2xx."""
        status, reply, _ = self._once(method, path, body)
        if status >= 300:
            raise CommandFailure(f"{method} {path}: {reply.get('detail', status)}")
        return reply

    def has(self, path: str) -> bool:
        """Whether there is anything at this path; any other failure shows at the next call."""
        return self._once("GET", path, None)[0] != 404

    def update(self, path: str, examples: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Results in order of the examples. Raises CommandFailure once patience is at its end."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            status, reply, retry_after = self._once("POST", path, {"examples": examples})
            if status < 300:
                results: list[dict[str, Any]] = reply["results"]
                return results
            if status not in (429, 503) or time.monotonic() > give_up:
                raise CommandFailure(f"POST {path}: {reply.get('detail', status)}")
            for example, event_id in zip(examples, reply.get("event_ids", ()), strict=False):
                example["event_id"] = event_id
            time.sleep(retry_after)

    def _once(self, method: str, path: str, body: object) -> tuple[int, dict[str, Any], float]:
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, self._base + path, data, {"Content-Type": "application/json"})
            reply = self._connection.getresponse()
            text = reply.read()
        except (OSError, http.client.HTTPException) as failure:
            unknown = "; whether the last request was learned is not known" if method == "POST" else ""
            raise CommandFailure(f"{self._url} does not answer ({failure}){unknown}") from failure
        try:
            decoded = json.loads(text)
        except ValueError:
            raise CommandFailure(f"{self._url} is no ftrl service: it answers {text[:80]!r}") from None
        return reply.status, decoded, float(reply.headers.get("Retry-After", "1"))

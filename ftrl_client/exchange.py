"""The outcome of an attempt: a result, a pause before the next attempt, or an error."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import httpx

from ftrl_client.calls import NDJSON, Call
from ftrl_client.errors import FtrlError, NoReply, Problem

T = TypeVar("T")
TEMPORARY = (429, 503, 507)
"""Statuses of a service that may accept the same request later."""
OUTCOME_UNKNOWN = 503
"""The one of these after which the request may have taken effect."""
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 2.0


def headers_of(token: str | None) -> dict[str, str]:
    """Raises ValueError, without the token in it: it is a secret."""
    token = (token or "").strip()
    if not token:
        return {}
    if not token.isascii() or not token.isprintable():
        raise ValueError("a token is one line of printable ASCII")
    return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True)
class Pause:
    seconds: float


class Exchange(Generic[T]):
    """The attempts of one call, until `retry_seconds` have passed. `call`: what the next attempt sends."""

    def __init__(self, call: Call[T], retry_seconds: float) -> None:
        self.call = call
        self._deadline = time.monotonic() + retry_seconds
        self._pause = FIRST_PAUSE_SECONDS

    def after_reply(self, reply: httpx.Response) -> T | Pause:
        """Raises Problem, FtrlError."""
        document = self._document(reply)
        is_stream = reply.is_success and reply.headers.get("Content-Type") == NDJSON
        if is_stream and (failure := _failure_of(document)) is not None:
            pause = self._pause_within_deadline(None)
            if pause is not None:
                return pause
            raise Problem(str(self.call), reply.status_code, failure)
        if reply.is_success:
            try:
                return self.call.read(document)
            except (KeyError, TypeError) as unread:
                raise self._foreign(reply) from unread
        retry_after = _seconds(reply.headers.get("Retry-After"))
        if reply.status_code in TEMPORARY:
            if event_ids := document.get("event_ids"):
                self.call = self.call.with_event_ids(event_ids)
            may_have_happened = reply.status_code == OUTCOME_UNKNOWN
            pause = self._pause_within_deadline(retry_after)
            if pause is not None and (self.call.repeatable or not may_have_happened):
                return pause
        raise Problem(str(self.call), reply.status_code, document, retry_after)

    def after_failure(self, failure: httpx.RequestError) -> Pause:
        """Raises NoReply."""
        may_have_arrived = not isinstance(failure, NOT_SENT)
        hopeless = isinstance(failure, httpx.UnsupportedProtocol)
        if not hopeless and (self.call.repeatable or not may_have_arrived):
            pause = self._pause_within_deadline(None)
            if pause is not None:
                return pause
        raise NoReply(f"{self.call}: no reply ({str(failure) or type(failure).__name__})") from failure

    def _pause_within_deadline(self, retry_after: float | None) -> Pause | None:
        seconds = retry_after
        if seconds is None:
            seconds = self._pause * random.uniform(0.5, 1.0)
            self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS)
        return Pause(seconds) if time.monotonic() + seconds <= self._deadline else None

    def _document(self, reply: httpx.Response) -> dict[str, Any]:
        if not reply.content:
            return {}
        try:
            if reply.headers.get("Content-Type") == NDJSON:
                return {"lines": [json.loads(line) for line in reply.content.splitlines()]}
            document = json.loads(reply.content)
        except ValueError:
            document = None
        if isinstance(document, dict):
            return document
        if reply.is_success:
            raise self._foreign(reply)
        return {}  # of a proxy, whose status says enough

    def _foreign(self, reply: httpx.Response) -> FtrlError:
        return FtrlError(f"{self.call}: this is not the reply of an ftrl service: {reply.content[:80]!r}")


def _failure_of(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the line of a stream's reply that says that some lines, or the rest, are to be sent again."""
    lines = document.get("lines", [])
    for line in lines:
        if "unavailable" in line.get("statuses", {}) and "end" not in line:
            return dict(line)
    if lines and lines[-1].get("end") != "complete":
        return dict(lines[-1])
    return None


def _seconds(retry_after: str | None) -> float | None:
    """None for a date, too, which the service never sends."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else None

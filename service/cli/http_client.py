"""A running service as a command calls it: one connection, and patience with what is refused for now."""

from __future__ import annotations

import http.client
import json
import os
import re
import time
from typing import Any
from urllib.parse import urlsplit

from service.errors import CommandFailure

PATIENCE_SECONDS = 60.0
TIMEOUT_SECONDS = 30.0
IDLE_SECONDS = 5.0
TOKEN = "FTRL_TOKEN"
"""Environment variable with the bearer token that commands send."""
FOR_NOW = (429, 503, 507)
"""Statuses of what may go well a moment later: a server at its memory limit, too, may get room."""
_PLACE = re.compile(r"examples\[(\d+)\]\.?(.*)")


class Refused(CommandFailure):
    """A reply other than success; `reply` is its problem document (RFC 9457)."""

    def __init__(self, call: str, status: int, reply: dict[str, Any], retry_after: float) -> None:
        """`retry_after`: in seconds, of a status that says to come again."""
        super().__init__(f"{call}: {reply.get('detail', f'status {status}')}")
        self.status = status
        self.retry_after = retry_after
        self._errors: list[dict[str, str]] = reply.get("errors", [])

    @property
    def too_many(self) -> bool:
        """Whether an update had more examples than the service takes at once."""
        return any(error["path"] == "examples" for error in self._errors)

    @property
    def too_large(self) -> bool:
        """Whether parts of an update might be taken."""
        return self.status == 413 or self.too_many

    def wrong_examples(self) -> dict[int, str]:
        """What is wrong with which examples of an update, by position; empty where that was not it."""
        found: dict[int, str] = {}
        for error in self._errors:
            place = _PLACE.fullmatch(error["path"])
            if place is not None:
                reason = f"{place[2]}: {error['detail']}" if place[2] else error["detail"]
                found.setdefault(int(place[1]), reason)
        return found


class ServiceClient:
    """What is refused FOR_NOW is asked again, until patience ends. A broken connection is a failure, so
    one that was idle is opened anew: the service may have closed it.
    """

    def __init__(
        self,
        url: str,
        patience_seconds: float = PATIENCE_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """Raises CommandFailure."""
        parts = urlsplit(url if "//" in url else f"//{url}")
        try:
            port = parts.port
        except ValueError:
            port = 0
        if parts.scheme not in ("", "http", "https") or not parts.hostname or port == 0:
            raise CommandFailure(f"{url} is not the http:// or https:// address of a service")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, port, timeout=timeout_seconds)
        token = os.environ.get(TOKEN, "").strip()
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._base = parts.path.rstrip("/")
        self._url = url
        self._patience_seconds = patience_seconds
        self._idle_seconds = idle_seconds
        self._used = 0.0

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The decoded reply. `body` takes over the event ids under which a refusal says to try again.

        Raises Refused on any status but 2xx, CommandFailure where no service answers.
        """
        give_up = time.monotonic() + self._patience_seconds
        while True:
            status, reply, pause = self._once(method, path, body)
            if status < 300:
                return reply
            if status not in FOR_NOW or time.monotonic() + pause > give_up:
                raise Refused(f"{method} {path}", status, reply, pause)
            if body is not None:
                _name_events(body.get("examples", []), reply.get("event_ids", []))
            time.sleep(pause)

    def _once(self, method: str, path: str, body: object) -> tuple[int, dict[str, Any], float]:
        data = None if body is None else json.dumps(body)
        if time.monotonic() - self._used > self._idle_seconds:
            self._connection.close()
        try:
            self._connection.request(method, self._base + path, data, self._headers)
            reply = self._connection.getresponse()
            text = reply.read()
        except (OSError, http.client.HTTPException) as failure:
            updates = path.endswith("/update")
            unknown = "; whether the last request was learned is not known" if updates else ""
            raise CommandFailure(f"no ftrl service answers at {self._url} ({failure}){unknown}") from failure
        self._used = time.monotonic()
        decoded = {} if reply.status == 204 else self._decoded(text)
        return reply.status, decoded, _seconds(reply.headers.get("Retry-After"))

    def _decoded(self, text: bytes) -> dict[str, Any]:
        try:
            decoded = json.loads(text)
        except ValueError:
            decoded = None
        if not isinstance(decoded, dict):
            raise CommandFailure(f"{self._url} is no ftrl service: it answers {text[:80]!r}")
        return decoded

    def close(self) -> None:
        self._connection.close()


def _name_events(examples: list[dict[str, Any]], event_ids: list[str]) -> None:
    for example, event_id in zip(examples, event_ids, strict=False):
        example["event_id"] = event_id


def _seconds(retry_after: str | None) -> float:
    """Of the header; a date, which ours never is, counts as a second."""
    return float(retry_after) if retry_after and retry_after.isdecimal() else 1.0

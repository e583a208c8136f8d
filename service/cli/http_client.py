"""The client of a running service that commands use: one connection, and retries of temporary refusals."""

from __future__ import annotations

import json
import os
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from service.errors import CommandFailure

RETRY_SECONDS = 60.0
TIMEOUT_SECONDS = 30.0
IDLE_SECONDS = 5.0
TOKEN = "FTRL_TOKEN"
"""Environment variable with the bearer token that commands send."""
TEMPORARY = (429, 503, 507)
"""Statuses of requests that may succeed when they are repeated: a server at its memory limit may get room."""
_HINTS = dict.fromkeys((401, 403), f" Commands send the token in {TOKEN}.")
_EXAMPLE_PATH = re.compile(r"examples\[(\d+)\]\.?(.*)")


class Refused(CommandFailure):
    """A reply with an error status; `reply` is its problem document (RFC 9457)."""

    def __init__(self, call: str, status: int, reply: dict[str, Any], retry_after: float) -> None:
        """`retry_after`: seconds to wait before the request is repeated, if the status is TEMPORARY."""
        detail = reply.get("detail", f"status {status}")
        super().__init__(f"{call}: {detail}{_HINTS.get(status, '')}")
        self.status = status
        self.retry_after = retry_after
        self._errors: list[dict[str, str]] = reply.get("errors", [])

    @property
    def too_many(self) -> bool:
        """Return whether an update had more examples than the service accepts in one request."""
        return any(error["path"] == "examples" for error in self._errors)

    @property
    def too_large(self) -> bool:
        """Return whether the parts of an update may be accepted."""
        return self.status == 413 or self.too_many

    def invalid_examples(self) -> dict[int, str]:
        """Return the error of each invalid example of an update, by position."""
        found: dict[int, str] = {}
        for error in self._errors:
            place = _EXAMPLE_PATH.fullmatch(error["path"])
            if place is not None:
                reason = f"{place[2]}: {error['detail']}" if place[2] else error["detail"]
                found.setdefault(int(place[1]), reason)
        return found


class ServiceClient:
    """Repeats a request with a TEMPORARY status, but not one whose connection failed.

    A connection that was idle for `idle_seconds` is replaced: the service may have closed it.
    """

    def __init__(
        self,
        url: str,
        retry_seconds: float = RETRY_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """Raises CommandFailure."""
        self._url = url
        self._retry_seconds = retry_seconds
        address = _address(url)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        token = os.environ.get(TOKEN, "").strip()
        if not token.isascii() or not token.isprintable():
            raise CommandFailure(f"{TOKEN} has no token: one is a line of printable ASCII")
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx.Client(
            base_url=address,
            headers=headers,
            timeout=timeout_seconds,
            limits=httpx.Limits(keepalive_expiry=idle_seconds),
            trust_env=False,  # neither a proxy nor .netrc stands between a command and its service
            verify=_tls(address),
        )

    def call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        query: Mapping[str, str | int] | None = None,
        accepts: Sequence[int] = (),
    ) -> dict[str, Any]:
        """Return the decoded reply. The event ids of a temporary refusal are put into `body`. `accepts`:
        statuses whose reply is no problem.

        Raises Refused on any status but 2xx, CommandFailure if no service answers.
        """
        deadline = time.monotonic() + self._retry_seconds
        while True:
            status, reply, pause = self._once(method, path, body, query)
            if status < 300 or status in accepts:
                return reply
            if status not in TEMPORARY or time.monotonic() + pause > deadline:
                raise Refused(f"{method} {self._url.rstrip('/')}{path}", status, reply, pause)
            if body is not None:
                _assign_event_ids(body.get("examples", []), reply.get("event_ids", []))
            time.sleep(pause)

    def _once(
        self, method: str, path: str, body: object, query: Mapping[str, str | int] | None
    ) -> tuple[int, dict[str, Any], float]:
        content = None if body is None else json.dumps(body)
        try:
            reply = self._client.request(method, path, content=content, params=query)
        except httpx.RequestError as failure:
            unknown = (
                "; whether the last request was learned is not known" if path.endswith("/update") else ""
            )
            raise CommandFailure(
                f"no ftrl service answers at {self._url} ({failure}): start it, or give its address with"
                f" --url{unknown}"
            ) from failure
        decoded = {} if reply.status_code == httpx.codes.NO_CONTENT else self._decoded(reply.content)
        return reply.status_code, decoded, _seconds(reply.headers.get("Retry-After"))

    def _decoded(self, text: bytes) -> dict[str, Any]:
        try:
            decoded = json.loads(text)
        except ValueError:
            decoded = None
        if not isinstance(decoded, dict):
            raise CommandFailure(f"{self._url} is not an ftrl service: it answers {text[:80]!r}")
        return decoded

    def close(self) -> None:
        self._client.close()


def _address(url: str) -> httpx.URL:
    """Parse the address of a service; http:// may be left out. Raises CommandFailure."""
    try:
        address = httpx.URL(url if "//" in url else f"http://{url}")
    except httpx.InvalidURL:
        address = httpx.URL()
    port = 1 if address.port is None else address.port
    if address.scheme not in ("http", "https") or not address.host or not 0 < port < 1 << 16:
        raise CommandFailure(f"{url} is not the http:// or https:// address of a service")
    return address


def _tls(address: httpx.URL) -> ssl.SSLContext:
    """Trust the certificates of the system, which take time to load, if the service is called over TLS."""
    return (
        ssl.create_default_context() if address.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )


def _assign_event_ids(examples: list[dict[str, Any]], event_ids: list[str]) -> None:
    for example, event_id in zip(examples, event_ids, strict=False):
        example["event_id"] = event_id


def _seconds(retry_after: str | None) -> float:
    """Parse the header; a date, which this service never sends, counts as one second."""
    return float(retry_after) if retry_after and retry_after.isdecimal() else 1.0

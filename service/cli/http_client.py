"""The client of a running service that commands use."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from ftrl_client import Client, FtrlError, NoReply, Problem
from ftrl_client.exchange import TEMPORARY
from service.errors import CommandFailure

RETRY_SECONDS = 60.0
TIMEOUT_SECONDS = 30.0
IDLE_SECONDS = 5.0
TOKEN = "FTRL_TOKEN"
"""Environment variable with the bearer token that commands send."""
_HINTS = dict.fromkeys((401, 403), f" Commands send the token in {TOKEN}.")
_EXAMPLE_PATH = re.compile(r"examples\[(\d+)\]\.?(.*)")


class Refused(CommandFailure):
    """A reply with an error status. `retry_after`: seconds to wait before a temporary one is repeated."""

    def __init__(self, call: str, problem: Problem) -> None:
        super().__init__(f"{call}: {problem.detail}{_HINTS.get(problem.status, '')}")
        self.status = problem.status
        self.retry_after = 1.0 if problem.retry_after is None else problem.retry_after
        self._errors = problem.errors

    @property
    def is_temporary(self) -> bool:
        """Return whether the same request may succeed later."""
        return self.status in TEMPORARY

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
    """The client of `ftrl_client`, whose errors are CommandFailure.

    A connection that was idle for `idle_seconds` is replaced: the service may have closed it.
    """

    def __init__(
        self,
        url: str,
        retry_seconds: float = RETRY_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """`retry_seconds`: for how long a request is repeated that a service refuses for now, or that did not
        reach it. Raises CommandFailure.
        """
        self._url = url
        address = _address(url)
        transport = httpx.HTTPTransport(
            verify=_tls(address),
            limits=httpx.Limits(keepalive_expiry=idle_seconds),
            trust_env=False,  # neither a proxy nor .netrc stands between a command and its service
        )
        try:
            self._client = Client(
                str(address),
                token=os.environ.get(TOKEN),
                timeout=timeout_seconds,
                retry_seconds=retry_seconds,
                transport=transport,
            )
        except ValueError as wrong:
            raise CommandFailure(f"{TOKEN}: {wrong}") from None

    def call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        query: Mapping[str, str | int] | None = None,
        accepts: Sequence[int] = (),
    ) -> dict[str, Any]:
        """Return the decoded reply. `accepts`: statuses whose reply is no problem.

        Raises Refused on any status but 2xx, CommandFailure if no service answers.
        """
        target = f"{path}?{httpx.QueryParams(query)}" if query else path
        try:
            return self._client.request(method, target, body)
        except Problem as problem:
            if problem.status in accepts:
                return dict(problem.document)
            raise Refused(f"{method} {self._url.rstrip('/')}{path}", problem) from problem
        except NoReply as failure:
            unknown = (
                "; whether the last request was learned is not known" if path.endswith("/update") else ""
            )
            raise CommandFailure(
                f"no ftrl service answers at {self._url} ({failure.__cause__}): start it, or give its address"
                f" with --url{unknown}"
            ) from failure
        except FtrlError as foreign:
            raise CommandFailure(f"{self._url} is not an ftrl service: {foreign}") from foreign

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

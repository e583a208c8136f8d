"""Errors of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class FtrlError(Exception):
    """Every error of a call."""


class NoReply(FtrlError):
    """The service could not be reached, or its reply did not arrive; `__cause__` is the error of httpx.

    An update may have been learned. Sending the same `Example` or `Label` again is safe.
    """


class Problem(FtrlError):
    """A reply with an error status, as a problem document (RFC 9457).

    status: the HTTP status. code: its stable name, such as "unknown_model"; empty if the reply has none, as
    one of a proxy. title, detail: what is wrong, and what to do. errors: the `path` and `detail` of each
    invalid part of the body. document: all members. retry_after: the seconds after which the service asks to
    be called again; None if it does not say.
    """

    def __init__(
        self, call: str, status: int, document: Mapping[str, Any], retry_after: float | None = None
    ) -> None:
        self.status = status
        self.retry_after = retry_after
        self.document = document
        self.code: str = document.get("code", "")
        self.title: str = document.get("title", "")
        self.detail: str = document.get("detail", f"status {status}")
        self.errors: list[dict[str, str]] = document.get("errors", [])
        super().__init__(f"{call}: {self.detail}" + (f" ({self.code})" if self.code else ""))

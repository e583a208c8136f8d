"""What every refusal has in common."""

from __future__ import annotations

import json
from typing import Any

import httpx


def problem(reply: httpx.Response, status: int, path: str | None = None, *words: str) -> dict[str, Any]:
    """Asserts that the reply is a problem of that status, and that an error at `path` mentions the words."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = json.loads(reply.text, parse_constant=_refuse)
    assert document["status"] == status
    assert {"type", "title", "detail", "instance"} <= document.keys()
    if path is not None:
        [error] = document["errors"]
        assert error["path"] == path
        for word in words:
            assert word in error["detail"], error
    return document


def _refuse(constant: str) -> float:
    raise AssertionError(f"{constant} is not JSON")

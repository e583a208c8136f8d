"""What every error reply has in common."""

from __future__ import annotations

import json
from typing import Any

import httpx

PROBLEM_MEMBERS = {"type", "code", "title", "status", "detail", "instance"}


def problem(reply: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Return the problem document of this status and code that the reply is."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = json.loads(reply.text, parse_constant=_refuse)
    assert document.keys() >= PROBLEM_MEMBERS
    assert (document["status"], document["code"]) == (status, code), document
    return document


def invalid(reply: httpx.Response, path: str, code: str) -> str:
    """Return the text of the only error of a request that is not valid, which is this one."""
    [error] = problem(reply, 422, "unprocessable")["errors"]
    assert (error["path"], error["code"]) == (path, code), error
    text: str = error["detail"]
    assert text
    return text


def _refuse(constant: str) -> float:
    raise AssertionError(f"{constant} is not JSON")

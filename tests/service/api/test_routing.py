"""What is not a route, what is not allowed on it, and what goes wrong inside."""

from __future__ import annotations

import logging
import socket

import httpx
import pytest

from service.api.problems import problem_of
from tests.service.api.conftest import ApiFactory
from tests.support.problem_replies import problem
from tests.support.servers import ServerProcess


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/predict/", "/models/default/nothing", "/models//predict", "/models/a%2Fb/predict"],
)
def test_what_is_not_there_is_a_problem(api: httpx.Client, path: str) -> None:
    document = problem(api.post(path, json={}), 404, "not_found")
    assert document["type"] == "about:blank"
    assert document["detail"] == f"There is no path {httpx.URL(path).path!r} on this port."


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/predict", {"POST"}),
        ("PUT", "/update", {"POST"}),
        ("OPTIONS", "/predict", {"POST"}),
        ("HEAD", "/models/default/predict", {"POST"}),
        ("PATCH", "/models/default/update", {"POST"}),
        ("POST", "/livez", {"GET", "HEAD"}),
        ("POST", "/", {"GET", "HEAD"}),
        ("POST", "/models/default", {"GET", "PUT", "PATCH", "DELETE"}),
    ],
)
def test_a_wrong_method_gets_the_allowed_ones(
    api: httpx.Client, method: str, path: str, allowed: set[str]
) -> None:
    reply = api.request(method, path)
    assert reply.status_code == 405
    assert set(reply.headers["allow"].split(", ")) == allowed
    if method != "HEAD":
        detail = problem(reply, 405, "method_not_allowed")["detail"]
        assert detail == f"{path!r} takes {reply.headers['allow']} only."


def test_a_path_is_quoted_in_the_instance(api: httpx.Client) -> None:
    assert problem(api.get("/näh"), 404, "not_found")["instance"] == "/n%C3%A4h"


def test_problems_have_a_type_of_their_own(api: httpx.Client) -> None:
    document = problem(api.get("/models/nobody"), 404, "unknown_model")
    assert document["type"] == "urn:ftrl-service:unknown-model"


def test_an_unexpected_failure_is_logged_and_not_revealed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        found = problem_of(RuntimeError("secret"), "/predict")
    document = problem(
        httpx.Response(found.status, content=found.body, headers=found.raw_headers()), 500, "internal_error"
    )
    assert "secret" not in found.body.decode()
    [record] = caplog.records
    assert document["incident"] in record.getMessage()
    assert record.exc_info is not None
    assert "secret" in str(record.exc_info[1])


def test_a_crash_in_a_route_of_fastapi_is_an_incident_too(start_api, valkey) -> None:
    api = start_api(valkey)

    @api.app.api.get("/crash")
    async def crash() -> None:
        raise RuntimeError("secret")

    document = problem(api.client.get("/crash"), 500, "internal_error")
    assert document["incident"]
    assert "secret" not in document["detail"]


@pytest.mark.parametrize(
    ("request_", "status", "afterwards"),
    [
        (b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", b"200", b""),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", b"200", b"\r\n"),
        (b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n", b"415", b"body"),
    ],
    ids=["a reply", "a reply, then an empty line", "a refusal, then the body"],
)
def test_an_idle_connection_is_closed_after_the_time_that_is_set(
    valkey: ServerProcess, start_api: ApiFactory, request_: bytes, status: bytes, afterwards: bytes
) -> None:
    api = start_api(valkey, keep_alive_seconds=1)
    with socket.create_connection(("127.0.0.1", api.port), timeout=30) as connection:
        connection.sendall(request_)
        reply = connection.recv(65536)
        connection.sendall(afterwards)
        while piece := connection.recv(65536):  # until it is closed, or else TimeoutError
            reply += piece
    assert reply.startswith(b"HTTP/1.1 %b " % status)

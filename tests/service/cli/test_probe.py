"""The health check of a container."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest


@contextmanager
def answering(status: int) -> Iterator[int]:
    """The port of a server that says so of its readiness, and 404 elsewhere."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_port
        server.shutdown()


def probe(*words: str, **variables: str) -> int:
    command = [sys.executable, "-m", "service.cli.probe", *words]
    return subprocess.run(
        ["env", *(f"{k}={v}" for k, v in variables.items()), *command], check=False
    ).returncode


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_a_container_is_as_healthy_as_its_process_is_ready(status: int, code: int) -> None:
    with answering(status) as port:
        assert probe(str(port)) == code
        assert probe(FTRL_PORT=str(port)) == code
        assert probe(FTRL_HEALTH_PORT=str(port), FTRL_PORT="1") == code


def test_a_process_that_does_not_listen_is_not_healthy() -> None:
    with answering(200) as port:
        pass
    assert probe(str(port)) == 1

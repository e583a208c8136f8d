"""The real application on a real port and a real server, in a thread of the test process."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from service.api.server.uvicorn_server import server_of
from service.app import create_app
from service.settings import Settings
from tests.conftest import PATIENT
from tests.support.servers import ServerProcess

ApiFactory = Callable[..., "LiveApi"]


class LiveApi:
    """An API process's worth on the production server, with a learner by default, until `stop()`."""

    def __init__(self, settings: Settings, *, run_learner: bool = True) -> None:
        self.settings = settings
        self.app = create_app(settings, run_learner=run_learner)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._started = threading.Event()
        self.client = httpx.Client(base_url=self.url, timeout=30)
        self._server = server_of(
            self.app.entry, settings, self.app.phase.stop_soon, self.app.end_streams, self._started.set
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self.listener]}, daemon=True
        )

    def start(self) -> Self:
        self._thread.start()
        while not self._started.wait(0.01):
            assert self._thread.is_alive(), "the application did not start"
        return self

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive(), "the application did not stop"
        self.client.close()
        self.listener.close()

    def raw(self, data: bytes, timeout: float = 60.0) -> bytes:
        """Everything that the server answers to these bytes until it closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            reply = b""
            with contextlib.suppress(TimeoutError):
                while piece := connection.recv(65536):
                    reply += piece
            return reply


@pytest.fixture(scope="session")
def live_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveApi]:
    """Shared by all tests of HTTP; use `api`, and models of your own where it matters what was learned."""
    server = ServerProcess(appendonly=False).start()
    settings = Settings(redis_url=server.url, data_dir=tmp_path_factory.mktemp("data"), **PATIENT)
    api = LiveApi(settings).start()
    yield api
    api.stop()
    server.remove()


@pytest.fixture
def api(live_api: LiveApi) -> httpx.Client:
    return live_api.client


@pytest.fixture
def start_api(tmp_path: Path) -> Iterator[ApiFactory]:
    """`start_api(server, run_learner=..., **settings)` for an application of the test's own."""
    started: list[LiveApi] = []

    def start(server: ServerProcess, *, run_learner: bool = True, **settings: Any) -> LiveApi:
        values: dict[str, Any] = {"redis_url": server.url, "data_dir": tmp_path / "data"} | PATIENT
        started.append(LiveApi(Settings(**(values | settings)), run_learner=run_learner).start())
        return started[-1]

    yield start
    for api in started:
        api.stop()


@pytest.fixture
def model(api: httpx.Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """The path of a small model of the test's own."""
    path = f"/models/{abs(hash(request.node.nodeid)):x}"
    small = {"hyper": {"l1": 0}, "hashing": {"bits": 12}}
    api.put(path, json=small).raise_for_status()
    yield path
    api.delete(path)

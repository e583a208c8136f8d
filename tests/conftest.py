"""Fixtures for everybody: real servers, settings that point to them, no FTRL_ variables from outside."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from service.kernel_cache import choose_kernel_cache
from service.settings import Settings
from tests.servers import ServerProcess

ServerFactory = Callable[..., ServerProcess]
SettingsFactory = Callable[..., Settings]
Report = Callable[[str], None]
REPORTED = pytest.StashKey[list[str]]()

choose_kernel_cache()

# Kernels compile on first use, so the time of one example says nothing. CI draws the same examples always.
hypothesis.settings.register_profile("ftrl", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("ftrl")


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    """`report("...")`: a line at the end of the run, for figures that its reader wants to see."""
    lines = request.config.stash.setdefault(REPORTED, [])
    return lambda line: lines.append(f"{request.node.name}: {line}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := config.stash.get(REPORTED, []):
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(lines))


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("FTRL_") and n != "FTRL_DATA"]:
        monkeypatch.delenv(name)


@pytest.fixture
def server_factory() -> Iterator[ServerFactory]:
    """Makes and starts servers, with the arguments of ServerProcess; all are removed after the test."""
    servers: list[ServerProcess] = []

    def make(*args: Any, start: bool = True, **kwargs: Any) -> ServerProcess:
        server = ServerProcess(*args, **kwargs)
        servers.append(server)
        return server.start() if start else server

    yield make
    for server in servers:
        server.remove()


@pytest.fixture
def fresh_valkey(server_factory: ServerFactory) -> ServerProcess:
    """A bundled server of the test's own, to kill, pause or configure."""
    return server_factory()


@pytest.fixture(scope="session")
def session_valkey() -> Iterator[ServerProcess]:
    """One bundled server for the whole run; use `valkey`, which empties it first."""
    server = ServerProcess(appendonly=False).start()
    yield server
    server.remove()


@pytest.fixture
def valkey(session_valkey: ServerProcess) -> ServerProcess:
    """An empty bundled server, shared by all tests: not to be killed, paused or configured."""
    with session_valkey.client() as client:
        client.flushall()
    return session_valkey


@pytest.fixture(params=["valkey", "redis"])
def any_server(request: pytest.FixtureRequest, server_factory: ServerFactory) -> ServerProcess:
    """A server of the test's own, the bundled Valkey and then the system's redis-server."""
    return server_factory(kind=request.param)


@pytest.fixture
def make_settings(tmp_path: Path) -> SettingsFactory:
    """`make_settings(server, **overrides)`: settings for that server, or for an embedded one without it."""

    def make(server: ServerProcess | None = None, **overrides: Any) -> Settings:
        values: dict[str, Any] = {"data_dir": tmp_path / "data", "port": 0}
        if server is not None:
            values["redis_url"] = server.url
        return Settings(**(values | overrides))

    return make

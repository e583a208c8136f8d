"""Fixtures for all tests: real servers, settings that point to them, no FTRL_ variables from outside."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from service.runtime.kernels import choose_kernel_cache
from service.settings import Settings
from tests.support.servers import ServerProcess

ServerFactory = Callable[..., ServerProcess]
SettingsFactory = Callable[..., Settings]
Report = Callable[[str], None]
FIGURE = "figure"
PATIENT: dict[str, Any] = {"redis_timeout_seconds": 4, "update_timeout_seconds": 20}
"""Time-outs that a busy machine does not reach."""

choose_kernel_cache()

# A run in the background of a shell or under nohup ignores these, and so would every process that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)

# Kernels compile on first use and machines are busy, so the time that an example takes means nothing.
# CI always draws the same examples.
hypothesis.settings.register_profile(
    "ftrl",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("ftrl")


def pytest_itemcollected(item: pytest.Item) -> None:
    """schemathesis distinguishes its tests by their names, which since pytest 9.2 are not in their ids."""
    if item.name not in item.nodeid:
        item._id = item.id.with_params(item.name.partition("[")[2].removesuffix("]"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """pytest-xdist would run one of several tests with the same id and silently drop the others."""
    twice = [nodeid for nodeid, count in Counter(item.nodeid for item in items).items() if count > 1]
    if twice:
        raise pytest.UsageError(f"tests of the same id: {twice}")


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    """`report("...")`: a line at the end of the run, for figures worth reading."""
    return lambda line: request.node.user_properties.append((FIGURE, f"{request.node.name}: {line}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # Properties of a test come from whichever process ran it; the last report of a test has all of them.
    ended = [
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "teardown"
    ]
    lines = [line for report in ended for name, line in report.user_properties if name == FIGURE]
    if lines:
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(str(line) for line in lines))


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
        client.config_set("maxmemory", 0)  # a test that failed may have left a limit
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
        values: dict[str, Any] = {"data_dir": tmp_path / "data", "port": 0, "checkpoint_seconds": 1} | PATIENT
        if server is not None:
            values["redis_url"] = server.url
        return Settings(**(values | overrides))

    return make

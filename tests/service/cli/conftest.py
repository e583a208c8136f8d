"""A server, and a service on it, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.processes import ServiceProcess
from tests.support.servers import ServerProcess


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    server = ServerProcess(appendonly=False).start()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def service(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    service = ServiceProcess("serve", server.url, tmp_path_factory.mktemp("service"))
    try:
        service.wait_until_ready()
        yield service
    finally:
        service.remove()

"""Service processes for the tests of faults."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.conftest import ServerFactory
from tests.support.chaos import Service
from tests.support.processes import Launch, launcher
from tests.support.proxy import Proxy
from tests.support.steered import Steered, steered_processes


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """`launch("api", url, **settings)`: a process of the test's own, not yet ready."""
    with launcher(tmp_path) as launch:
        yield launch


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_processes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Steered]:
    async with steered_processes(tmp_path_factory.mktemp("steered")) as processes:
        yield processes


@pytest_asyncio.fixture(loop_scope="module")
async def steered(shared_processes: Steered, request: pytest.FixtureRequest) -> AsyncIterator[Steered]:
    """Processes shared by the tests of a module, with a model of the test's own."""
    name = f"m{abs(hash(request.node.nodeid)):x}"
    async with shared_processes.with_model(name, {"hashing": {"bits": 14}}) as processes:
        yield processes


@pytest.fixture
async def service(server_factory: ServerFactory, launch: Launch) -> AsyncIterator[Service]:
    server = server_factory(appendfsync="always")
    async with Proxy(server.socket_path) as proxy:
        service = Service(server, proxy, launch)
        await service.start()
        yield service

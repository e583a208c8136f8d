"""Two learners that both believe they hold the lease: compare-and-set decides."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from service.storage.records import lease_key
from tests.conftest import ServerFactory
from tests.support.invariants import assert_learned_once, assert_mirror_equals
from tests.support.load import Load
from tests.support.processes import Launch, ready
from tests.support.servers import ServerProcess
from tests.support.waiting import until

pytestmark = pytest.mark.faults

REFUSED = "was refused: reloading the state"


async def test_two_learners_at_once_leave_the_state_right(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory()
    api = launch("api", server.url)
    learners = [launch("learn", server.url) for _ in range(2)]
    await ready(api)
    async with without_a_lease(server), Load([api.url]) as load:
        await load.more(200)
        await until(lambda: all(learner.logged(REFUSED) for learner in learners), "both are refused")
        await load.more(200)
    replica = await assert_learned_once(server, load.acknowledged)
    await assert_mirror_equals(api.url, replica)


@contextlib.asynccontextmanager
async def without_a_lease(server: ServerProcess) -> AsyncIterator[None]:
    """The key is deleted all the time, so that any learner that asks for the lease gets it."""

    async def delete() -> None:
        with server.client() as client:
            while True:
                client.delete(lease_key("default"))
                await asyncio.sleep(0.005)

    task = asyncio.create_task(delete())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

"""Two learners that both believe they hold the lease: compare-and-set decides."""

from __future__ import annotations

import pytest

from tests.conftest import ServerFactory
from tests.support.invariants import assert_learned_once, assert_mirror_equals
from tests.support.leases import without_a_lease
from tests.support.load import Load
from tests.support.processes import Launch, ready
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
    async with without_a_lease(server, "default"), Load([api.url]) as load:
        await load.more(200)
        await until(lambda: all(learner.logged(REFUSED) for learner in learners), "both are refused")
        await load.more(200)
    replica = await assert_learned_once(server, load.acknowledged)
    await assert_mirror_equals(api.url, replica)

"""The server's clock jumps: a laptop that slept, a correction of the time."""

from __future__ import annotations

import re

import pytest

from tests.support.invariants import assert_learned_once
from tests.support.steered import Steered

pytestmark = [pytest.mark.faults, pytest.mark.asyncio(loop_scope="module")]


def an_hour_earlier(reply: bytes) -> bytes:
    """Of TIME: the seconds since 1970, ten digits, then the microseconds."""
    return re.sub(rb"\d{10}", lambda seconds: b"%d" % (int(seconds[0]) - 3600), reply, count=1)


async def test_updates_are_accepted_after_the_clock_jumped_ahead(steered: Steered) -> None:
    await steered.before_api.cut_all()
    steered.before_api.rewrite["TIME"] = an_hour_earlier
    await steered.update(steered.near, 1)  # on a new connection, for which the time is asked
    steered.before_api.rewrite.clear()
    for start in (10, 20):
        answer = await steered.update(steered.near, 5, start)
        assert answer.status_code == 200
        assert {one["status"] for one in answer.json()["results"]} == {"learned"}
    await assert_learned_once(
        steered.server, [f"event-{i}" for i in [*range(10, 15), *range(20, 25)]], steered.model, others=True
    )

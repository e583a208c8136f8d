"""A server that comes back with less than it had: an older append-only file, a shorter one, or nothing."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from tests.conftest import ServerFactory
from tests.support.append_only_file import copy_aof, lose_the_end, roll_back
from tests.support.invariants import assert_learned_once, assert_mirror_equals
from tests.support.load import example
from tests.support.processes import Launch, ready
from tests.support.servers import ServerProcess
from tests.support.steered import Steered
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.asyncio(loop_scope="module")]


async def send_again(steered: Steered, event_ids: list[str]) -> None:
    """As a caller does that cannot be sure: whatever the server has lost is learned, all else stays."""
    events = [int(event_id.rpartition("-")[2]) for event_id in event_ids]
    for start in range(0, len(events), 100):
        bodies = [example(event) for event in events[start : start + 100]]
        url = f"{steered.far.url}{steered.path}/update"
        (await steered.http.post(url, json={"examples": bodies})).raise_for_status()


async def assert_everything_agrees(steered: Steered, acknowledged: list[str]) -> None:
    replica = await assert_learned_once(steered.server, acknowledged, steered.model)
    await assert_mirror_equals(steered.near.url, replica)
    await assert_mirror_equals(steered.far.url, replica)


async def test_after_an_older_append_only_file_everything_agrees_again(
    steered: Steered, tmp_path: Path
) -> None:
    async with steered.load() as before:
        await before.more(300)
        kept = list(before.acknowledged)
        older = copy_aof(steered.server, tmp_path)
        await before.more(300)
        await roll_back(steered.server, older)
    async with steered.load(first=100_000) as after:
        await after.more(300)
    acknowledged = before.acknowledged + after.acknowledged
    replica = await assert_learned_once(steered.server, kept + after.acknowledged, steered.model, others=True)
    assert replica.state.t < len(acknowledged), "nothing was lost: the test does not test"
    await assert_mirror_equals(steered.near.url, replica)
    await assert_mirror_equals(steered.far.url, replica)
    await send_again(steered, acknowledged)
    await assert_everything_agrees(steered, acknowledged)


async def test_all_processes_agree_after_the_end_of_the_aof_is_lost(steered: Steered) -> None:
    drawn = random.Random(3)
    async with steered.load() as load:
        for _ in range(4):
            await load.more(150)
            await lose_the_end(steered.server, drawn.randrange(1, 20_000))
        await load.more(150)
    await send_again(steered, load.acknowledged)
    await assert_everything_agrees(steered, load.acknowledged)


async def test_a_published_revision_is_not_reused_after_its_loss(steered: Steered, tmp_path: Path) -> None:
    await steered.update_until_learned(steered.far, 20)
    older = copy_aof(steered.server, tmp_path)
    lost = [await steered.update_until_learned(steered.far, 5, start) for start in range(100, 120, 5)]
    await roll_back(steered.server, older)
    new = [await steered.update_until_learned(steered.far, 5, start) for start in range(200, 240, 5)]
    published, published_later = (
        {result["revision"] for results in part for result in results} for part in (lost, new)
    )
    assert not (published & published_later) - {None}
    await assert_everything_agrees(steered, [f"event-{i}" for i in [*range(20), *range(200, 240)]])


async def test_no_revision_is_reused_after_all_processes_were_killed(
    server_factory: ServerFactory, launch: Launch, tmp_path: Path
) -> None:
    """No process is left that knows the published numbers."""
    server = server_factory()
    async with learning(server, launch) as revision_after:
        kept = await revision_after(0, t=1)
        older = copy_aof(server, tmp_path)
        lost = [await revision_after(100 + k, t=2 + k) for k in range(3)]
    await roll_back(server, older)
    async with learning(server, launch) as revision_after:
        new = [await revision_after(200 + k, t=2 + k) for k in range(3)]
    assert len({kept, *lost, *new}) == 7, (kept, lost, new)
    await assert_learned_once(server, ["event-0", *(f"event-{200 + k}" for k in range(3))])


@contextlib.asynccontextmanager
async def learning(server: ServerProcess, launch: Launch) -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """`revision_after(event, t)`: sends it and waits until `t` examples are learned. Ends by `kill -9`."""
    api, learner = launch("api", server.url), launch("learn", server.url)
    await ready(api)

    async def revision_after(event: int, t: int) -> str:
        (await http.post("/update", json=example(event))).raise_for_status()

        async def revision() -> str | None:
            model = (await http.get("/models/default")).json()
            return str(model["revision"]) if model["t"] >= t else None

        return await until(revision, f"{t} examples are learned")

    async with httpx.AsyncClient(base_url=api.url, timeout=30) as http:
        yield revision_after
    api.kill9()
    learner.kill9()


@pytest.mark.parametrize("loads_that_fail", [0, 1, 3])
async def test_entries_read_and_then_lost_with_the_log_leave_no_trace(
    steered: Steered, tmp_path: Path, loads_that_fail: int
) -> None:
    """The server's token is still the learner's; only the log tells that what it learned never was."""
    await steered.update_until_learned(steered.far, 20)
    older = copy_aof(steered.server, tmp_path)
    held = steered.before_learner.hold("commit")
    assert (await steered.update(steered.far, 20, start=100, wait=False)).status_code == 202
    await held.reached.wait()
    await roll_back(steered.server, older)
    failing = steered.before_learner.lose_request("HGETALL", times=loads_that_fail)
    held.release()
    await steered.update_until_learned(steered.far, 20, start=200)
    assert failing.left == 0
    kept = [f"event-{i}" for i in [*range(20), *range(200, 220)]]
    await assert_everything_agrees(steered, kept)


async def test_a_log_that_became_shorter_is_not_reported_as_damaged(steered: Steered, tmp_path: Path) -> None:
    await steered.update_until_learned(steered.far, 20)
    older = copy_aof(steered.server, tmp_path)
    await steered.update_until_learned(steered.far, 20, start=100)
    held = steered.before_learner.hold("XREAD")
    await held.reached.wait()
    await roll_back(steered.server, older)
    assert (await steered.update(steered.far, 20, start=200, wait=False)).status_code == 202
    held.release()
    await assert_everything_agrees(steered, [f"event-{i}" for i in [*range(20), *range(200, 220)]])
    assert not steered.learner.logged(f"learner of {steered.model} stopped")


async def test_an_emptied_server_has_no_models(steered: Steered) -> None:
    await steered.update_until_learned(steered.far, 20)
    with steered.server.client() as client:
        client.flushall()
    for api in (steered.near, steered.far):

        async def status() -> int | None:
            found = (await steered.update(api, 1)).status_code  # noqa: B023
            return None if found == 503 else found

        assert await until(status, "the server is found again") == 404
        url = f"{api.url}{steered.path}/predict"
        assert (await steered.http.post(url, json={"features": {}})).status_code == 404
        assert (await steered.http.get(f"{api.url}/models")).json() == {"models": []}

        async def reported() -> bool:
            ready = await steered.http.get(f"{api.url}/readyz")  # noqa: B023
            return ready.status_code == 503 and steered.model in ready.text

        await until(reported, "readiness reports the lost model")
    await steered.create({"hashing": {"bits": 12}})
    await steered.update_until_learned(steered.near, 20, start=50)
    await assert_everything_agrees(steered, [f"event-{i}" for i in range(50, 70)])

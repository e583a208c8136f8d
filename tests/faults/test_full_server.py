"""A server near and over its memory limit: examples are shed, all else continues, no operator is needed."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.models.replica import Replica
from tests.conftest import ServerFactory
from tests.support.invariants import assert_mirror_equals, learned, topology_of
from tests.support.load import Load, example
from tests.support.processes import Launch, ServiceProcess, ready
from tests.support.servers import Kind, ServerProcess
from tests.support.system import stored
from tests.support.waiting import until, until_in_thread

pytestmark = pytest.mark.faults

MIB = 1 << 20
LEADS = "learning default from"


def long_example(event: int) -> dict[str, Any]:
    """Much in the log, little in the state: a thousand features, the same ones every time."""
    return example(event) | {"features": {"tags": [f"t{i}" for i in range(event % 7, 1000)]}}


def wide_example(event: int) -> dict[str, Any]:
    """Much in the commits: a thousand of five thousand features."""
    start = event % 5 * 1000
    return example(event) | {"features": {"tags": [f"t{i}" for i in range(start, start + 1000)]}}


def fill(server: ServerProcess, share: float, step: int = MIB) -> None:
    """A foreigner's keys take the server to this share of its limit; the last of them may take it beyond."""
    with server.client() as client:
        limit = int(client.info("memory")["maxmemory"])
        number = 0
        while client.info("memory")["used_memory"] < share * limit:
            client.setrange(f"foreign:{number}", step, b"x")
            number += 1


def free(server: ServerProcess) -> None:
    with server.client() as client:
        client.delete(*client.keys("foreign:*"))


async def assert_all_learned(server: ServerProcess, count: int) -> Replica:
    """As many as were acknowledged: the log that would show which is trimmed on a full server."""
    async with topology_of(server) as topology:
        meta = await learned(topology)
        assert meta.t == meta.appended == count
        return await stored(topology, "default")


async def predicts(http: httpx.AsyncClient, api: ServiceProcess) -> bool:
    body = {"features": example(1)["features"]}
    return (await http.post(f"{api.url}/predict", json=body)).status_code == 200


@pytest.mark.parametrize(
    ("make", "examples", "settings"),
    [
        pytest.param(long_example, 20, {}, id="log"),
        pytest.param(wide_example, 10, {"log_retention_seconds": 0}, id="commits"),
    ],
)
async def test_examples_are_shed_until_what_is_learned_is_trimmed(
    server_factory: ServerFactory, launch: Launch, make: Any, examples: int, settings: dict[str, Any]
) -> None:
    server = server_factory(maxmemory="12mb")
    api = launch("api", server.url)
    learner = launch("learn", server.url, **settings)
    await ready(api)
    await until(lambda: learner.logged(LEADS), "the learner leads")
    async with (
        Load([api.url], clients=3, examples=examples, make=make) as load,
        httpx.AsyncClient(timeout=30) as http,
    ):
        for times in (1, 2):
            await until(lambda: load.answers[429] >= times)  # noqa: B023
            assert await predicts(http, api)
            await load.more(20 * examples)
            load.answers[429] = times
    replica = await assert_all_learned(server, len(load.acknowledged))
    await assert_mirror_equals(api.url, replica)


@pytest.mark.parametrize("kind", ["valkey", "redis"])
async def test_a_new_learner_learns_and_trims_over_the_memory_limit(
    server_factory: ServerFactory, launch: Launch, kind: Kind
) -> None:
    server = server_factory(kind=kind, maxmemory="24mb")
    api = launch("api", server.url)
    await ready(api)
    async with httpx.AsyncClient(timeout=30) as http:
        body = {"examples": [example(event) for event in range(100)]}
        answer = await http.post(f"{api.url}/update?wait=false", json=body)
        assert answer.status_code == 202
        fill(server, 0.98)
        fill(server, 1.0, step=4 * MIB)
        restarted = launch("api", server.url)
        learner = launch("learn", server.url)
        await until(lambda: learner.logged(LEADS), "the learner leads")
        async with topology_of(server) as topology:
            assert (await learned(topology)).t == 100
        await until_in_thread(
            lambda: restarted.get("/readyz")["predict"] == "fresh", "the restarted one predicts"
        )
        for process in (api, restarted):
            answer = await http.post(f"{process.url}/update", json=example(1000))
            assert answer.status_code == 429
            assert answer.headers["Retry-After"]
            assert await predicts(http, process)

        free(server)
        await ready(api, restarted)
        async with Load([api.url, restarted.url], first=10_000) as load:
            await load.more(200)
    replica = await assert_all_learned(server, 100 + len(load.acknowledged))
    await assert_mirror_equals(api.url, replica)
    await assert_mirror_equals(restarted.url, replica)


async def test_updates_are_shed_while_other_data_fills_the_server(
    server_factory: ServerFactory, launch: Launch
) -> None:
    server = server_factory(maxmemory="24mb")
    api = launch("api", server.url)
    launch("learn", server.url)
    await ready(api)
    async with Load([api.url], clients=3) as load:
        await load.more(50)
        fill(server, 1.0, step=MIB // 2)
        before = load.answers[429]
        await until(lambda: load.answers[429] >= before + 20)
        async with topology_of(server) as topology:
            await learned(topology)
        free(server)
        await load.more(50)
    replica = await assert_all_learned(server, len(load.acknowledged))
    await assert_mirror_equals(api.url, replica)

"""What has to hold after whatever happened, asked of a real server and of running API processes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import httpx

from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from service.example_log.stream import event_digest
from service.models.config.model import DEFAULT_MODEL
from service.models.replica import Replica, read_meta
from service.settings import Settings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import LogEntry, Meta
from service.storage.topology import Topology, connect
from tests.support.load import example
from tests.support.servers import ServerProcess
from tests.support.system import assert_state_is_a_pass_over_the_log, read_log
from tests.support.waiting import until

PROBES = 200


@contextlib.asynccontextmanager
async def topology_of(server: ServerProcess) -> AsyncIterator[Topology]:
    topology = connect(Settings(redis_url=server.url), server.url)
    try:
        yield topology
    finally:
        await topology.close()


async def meta_of(topology: Topology, model: str = DEFAULT_MODEL) -> Meta:
    channel = Channel(topology)
    try:
        return await read_meta(channel, model)
    finally:
        await channel.close()


async def learned(topology: Topology, model: str = DEFAULT_MODEL, seconds: float = 60.0) -> Meta:
    """Waits until everything in the log is learned."""

    async def complete() -> Meta | None:
        with contextlib.suppress(*CONNECTION_FAILURES):
            meta = await meta_of(topology, model)
            return None if meta.backlog else meta
        return None

    return await until(complete, f"all in the log of {model} is learned", seconds)


async def assert_learned_once(
    server: ServerProcess, acknowledged: Sequence[str], model: str = DEFAULT_MODEL, others: bool = False
) -> Replica:
    """The log holds each acknowledged event once, no other event unless `others`, and the state is a pass
    over it."""
    async with topology_of(server) as topology:
        await learned(topology, model)
        replica = await assert_state_is_a_pass_over_the_log(topology, model)
        assert_holds_once(await read_log(topology, replica), acknowledged, others)
        assert (await meta_of(topology, model)).appended == replica.state.t
    return replica


def assert_holds_once(entries: Sequence[LogEntry], acknowledged: Sequence[str], others: bool = False) -> None:
    logged = ExampleBatch.from_bytes(b"".join(entry.records for entry in entries)).event_ids or []
    assert len(set(logged)) == len(logged), "an event stands in the log more than once"
    missing = digests(acknowledged) - set(logged)
    assert not missing, f"{len(missing)} acknowledged events are not in the log"
    assert others or len(logged) == len(set(acknowledged)), "the log holds what was never acknowledged"


def digests(event_ids: Sequence[str]) -> set[bytes]:
    return {event_digest(event_id) for event_id in event_ids}


async def assert_mirror_equals(url: str, replica: Replica, seconds: float = 60.0) -> None:
    """After a moment, the API process at `url` predicts from exactly this state."""
    model = f"{url}/models/{replica.keys.model}"
    async with httpx.AsyncClient(timeout=30) as http:

        async def is_there() -> bool:
            return bool((await http.get(model)).json().get("revision") == replica.revision)

        await until(is_there, f"{url} predicts from {replica.revision}", seconds)
        probes = [example(i)["features"] for i in range(PROBES)]
        answer = (
            await http.post(f"{model}/predict", json={"instances": [{"features": p} for p in probes]})
        ).json()
    assert answer["revision"] == replica.revision
    encoder = FeatureEncoder(replica.config.hashing)
    expected = replica.config.predict(
        replica.state, ExampleBatch.from_encoded([encoder.encode(p) for p in probes])
    )
    assert [one["probability"] for one in answer["predictions"]] == expected.tolist()

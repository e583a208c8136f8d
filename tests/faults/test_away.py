"""Logging predictions, and the health flag of the server, while the server goes down and comes back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from time import monotonic
from typing import NamedTuple

import numpy as np
import pytest
from redis.exceptions import BusyLoadingError

from model_core.examples.batch import ExampleBatch
from service.errors import LabelsUnavailable
from service.feedback.recorder import MAX_PER_CALL, Recorder, Served
from service.models.registry import OpenModel
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, NotSent
from service.storage.scripts.feedback import LogOutcome
from service.storage.topology import Topology, connect
from tests.conftest import ServerFactory, SettingsFactory
from tests.support.proxy import Proxy
from tests.support.servers import ServerProcess, free_port
from tests.support.system import System
from tests.support.waiting import until

pytestmark = pytest.mark.faults

TIMEOUT_SECONDS = 2.0
LOGGED, REPEATED = LogOutcome.LOGGED, LogOutcome.REPEATED


def served(count: int) -> Served:
    """Predictions under new ids."""
    batch = ExampleBatch.from_encoded([([1, 2, 3], None)] * count)
    return Served(batch, np.full(count, 0.5), None, commit=1, token=b"token", check=False)


class Recording(NamedTuple):
    server: ServerProcess
    proxy: Proxy
    system: System
    model: OpenModel

    @property
    def recorder(self) -> Recorder:
        return self.system.feedback.of(self.model).predictions

    async def record(self) -> list[LogOutcome | None]:
        """Record one prediction under a new id."""
        return list((await self.recorder.record(served(1))).outcomes)

    def calls_of(self, command: str) -> int:
        """How often the server has run it so far."""
        with self.server.client() as client:
            return int(client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])

    def pending(self) -> int:
        """The number of pending predictions, as the server counts them."""
        with self.server.client() as client:
            return int(client.hget(self.model.mirror.replica.keys.feedback, "=u") or 0)


@pytest.fixture
async def recording(fresh_valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[Recording]:
    async with Proxy(fresh_valkey.socket_path) as proxy:
        settings = make_settings(fresh_valkey, redis_url=proxy.url, redis_timeout_seconds=TIMEOUT_SECONDS)
        async with System(settings) as system:
            yield Recording(fresh_valkey, proxy, system, await system.model())
        fresh_valkey.resume()


@pytest.fixture
async def patient(fresh_valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[Recording]:
    """One for which even a server that starts on a busy machine is not away for long."""
    async with Proxy(fresh_valkey.socket_path) as proxy:
        settings = make_settings(
            fresh_valkey, redis_url=proxy.url, redis_timeout_seconds=60, lease_seconds=200
        )
        async with System(settings) as system:
            yield Recording(fresh_valkey, proxy, system, await system.model())


async def test_a_restart_between_two_polls_is_not_an_outage(
    fresh_valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(fresh_valkey, redis_timeout_seconds=2)) as system:
        health = system.health
        fresh_valkey.restart()  # this loop stands still meanwhile, and with it the polls
        health.used_bytes = 0

        def polled() -> bool:
            assert health.up
            return health.used_bytes > 0

        await until(polled)


async def test_a_prediction_survives_the_end_of_its_connection(recording: Recording) -> None:
    assert await recording.record() == [LOGGED]
    await recording.proxy.cut_all()
    assert await recording.record() == [LOGGED]
    recording.server.restart()
    assert await recording.record() == [LOGGED]
    assert recording.pending() == 3


async def test_a_prediction_whose_reply_is_lost_is_logged_once(recording: Recording) -> None:
    lost = recording.proxy.lose_reply("log_new_predictions")
    assert await recording.record() == [REPEATED], "it is known already"
    assert (lost.happened, recording.pending()) == (1, 1)


async def test_after_a_timeout_later_callers_fail_at_once(recording: Recording) -> None:
    assert await recording.record() == [LOGGED]
    recording.server.pause()
    assert await recording.record() == [None]
    assert not recording.system.health.up
    recording.server.resume()
    await until(lambda: recording.system.health.up)
    assert await recording.record() == [LOGGED]


async def test_predictions_are_logged_again_after_an_outage(recording: Recording) -> None:
    assert await recording.record() == [LOGGED]
    recording.server.kill9()
    assert await recording.record() == [None]
    await until(lambda: not recording.system.health.up)
    recording.server.start()
    await until(lambda: recording.system.health.up)
    assert await recording.record() == [LOGGED]


async def test_predictions_wait_for_a_server_that_restarts(patient: Recording) -> None:
    assert await patient.record() == [LOGGED]
    patient.server.kill9()
    under_way = asyncio.create_task(patient.record())
    await until(lambda: not patient.system.health.up)
    arrived_meanwhile = asyncio.create_task(patient.record())
    promised = patient.recorder.record_soon(served(1))
    assert promised.outcomes == [LOGGED]
    patient.server.start()
    assert [await under_way, await arrived_meanwhile] == [[LOGGED], [LOGGED]]
    await until(lambda: patient.pending() == 4)


async def test_promised_predictions_are_logged_after_an_outage(recording: Recording) -> None:
    lost = recording.proxy.lose_reply("log_new_predictions")
    assert recording.recorder.record_soon(served(2)).outcomes == [LOGGED] * 2
    await asyncio.wait_for(lost.spent.wait(), 60)
    await until(lambda: recording.pending() == 2)
    recording.server.kill9()
    assert recording.recorder.record_soon(served(3)).outcomes == [LOGGED] * 3
    await until(lambda: recording.system.health.silent_seconds > TIMEOUT_SECONDS)
    assert recording.recorder.record_soon(served(1)).outcomes == [None], "the server is known to be down"
    recording.server.start()
    await until(lambda: recording.pending() == 5)


async def test_promised_predictions_are_logged_after_a_failover(
    recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    assert await recording.record() == [LOGGED]
    with recording.server.client() as client:
        client.replicaof("127.0.0.1", free_port())
        assert recording.recorder.record_soon(served(2)).outcomes == [LOGGED] * 2
        await until(lambda: "are not logged" in caplog.text)
        assert recording.pending() == 1
        client.replicaof("NO", "ONE")
    await until(lambda: recording.pending() == 3)


async def test_a_server_at_its_memory_limit_is_full_and_not_away(recording: Recording) -> None:
    assert await recording.record() == [LOGGED]
    with recording.server.client() as client:
        client.config_set("maxmemory", 1)
    assert await recording.record() == [None]
    (unlogged,) = recording.system.metrics.feedback_unlogged.collect()
    counts = {one.labels["reason"]: one.value for one in unlogged.samples if one.name.endswith("_total")}
    assert counts == {"away": 0, "full": 1, "pending": 0}


async def test_many_predictions_of_a_request_are_logged_in_several_calls(recording: Recording) -> None:
    pushed = recording.calls_of("rpush")
    recorded = await recording.recorder.record(served(2 * MAX_PER_CALL + 1))
    assert recorded.outcomes == [LOGGED] * (2 * MAX_PER_CALL + 1)
    assert recording.pending() == 2 * MAX_PER_CALL + 1
    assert recording.calls_of("rpush") - pushed == 3, "each call lists what it logs"


async def test_the_reason_of_refused_predictions_is_logged_once(
    recording: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    with recording.server.client() as client:
        for key in recording.model.mirror.replica.keys.impressions:
            client.set(key, "nothing that a prediction can be put into")
    assert [await recording.record() for _ in range(3)] == [[None]] * 3
    assert recording.system.health.up
    (line,) = [message for message in caplog.messages if "are not logged" in message]
    assert "predictions of clicks" in line
    assert "WRONGTYPE" in line


async def test_a_label_outlives_the_deadline_of_another_in_its_call(
    recording: Recording,
) -> None:
    feedback, model = recording.system.feedback, recording.model
    (answer,) = await feedback.label(model, [("unknown", 1, 1.0)], monotonic() + 60)
    assert answer.outcome.value == "U"
    recording.server.kill9()
    hurried, patient = (
        asyncio.create_task(feedback.label(model, [("unknown", 1, 1.0)], monotonic() + seconds))
        for seconds in (0.5, 60)
    )
    with pytest.raises(LabelsUnavailable):
        await hurried
    recording.server.start()
    assert [one.outcome.value for one in await patient] == ["U"]


async def test_a_server_that_loads_its_data_is_down(
    server_factory: ServerFactory, make_settings: SettingsFactory
) -> None:
    server = server_factory()
    with server.client() as client:
        client.mset({f"key-{number}": "v" * 200 for number in range(300)})
        client.bgrewriteaof()
        await until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    server.kill9()
    # Three seconds, and it answers after every few keys.
    server.config |= {"key-load-delay": 10_000, "loading-process-events-interval-bytes": 1024}
    loading = asyncio.create_task(asyncio.to_thread(server.start))
    system = System(make_settings(server, redis_timeout_seconds=2))
    refusal = await first_refusal_of_a_listener(system)
    assert isinstance(refusal, BusyLoadingError)
    assert not system.health.up
    await loading
    await system.health.check()
    assert system.health.up
    await system.health.close()
    await system.topology.close()


async def first_refusal_of_a_listener(system: System) -> Exception | None:
    async with asyncio.timeout(60):
        while True:
            try:
                await system.health.check()
            except NotSent:
                await asyncio.sleep(0.01)
            except CONNECTION_FAILURES as refusal:
                return refusal
            else:
                return None


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster"])
async def test_a_timeout_of_a_silent_server_is_described_in_words(
    scheme: str, make_settings: SettingsFactory, fresh_valkey: ServerProcess
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        topology = connect(make_settings(fresh_valkey, redis_url=url, redis_timeout_seconds=0.2), url)
        with pytest.raises(CONNECTION_FAILURES, match=r"no (answer|connection) within 0\.2 s"):
            await ping_all(topology)
        await topology.close()


async def ping_all(topology: Topology) -> None:
    for node in await topology.masters():
        await Channel(topology, node).call("PING")

"""`ftrl consume` as a process, messages without event ids, and what the log has to hold of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from service.models.replica import Replica
from service.storage.records import LogEntry, meta_key
from tests.support.commands import ServingProcess
from tests.support.invariants import learned, topology_of
from tests.support.kafka import Cluster
from tests.support.processes import QUICK
from tests.support.servers import ServerProcess
from tests.support.system import assert_state_is_a_pass_over_the_log, read_log

TOPIC = "clicks"
GROUP = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}
"""A group that soon notices that a consumer is gone."""


def message(number: int) -> dict[str, Any]:
    """A message that no other equals, without an event id: nothing but its position makes it learned once."""
    features = {"message": f"m{number}", "ad": f"a{number % 97}", "site": f"s{number % 13}"}
    return {"features": features, "label": int(number % 7 == 0)}


class ConsumerProcess(ServingProcess):
    """`ftrl consume` of TOPIC, or of the topics in `words`, from a cluster."""

    def __init__(
        self, cluster: Cluster, redis_url: str, directory: Path, *words: str, **settings: object
    ) -> None:
        config = directory / "kafka.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in GROUP.items()))
        topics = () if "--topic" in words else ("--topic", TOPIC)
        variables = {f"FTRL_{name.upper()}": str(value) for name, value in (QUICK | settings).items()}
        super().__init__(
            *("consume", "--brokers", cluster.brokers, *topics, "--kafka-config", str(config), *words),
            directory=directory,
            **({"FTRL_REDIS_URL": redis_url} | variables),
        )

    def read(self) -> int:
        """Wait until it reads partitions; returns its process id."""
        self.wait_for(r"reading \S+\[")
        return int(self.process.pid)


def positions(server: ServerProcess, model: str = "default") -> dict[str, int]:
    """The stored positions by topic and partition, such as `clicks/0`."""
    with server.client() as client:
        found = client.hgetall(meta_key(model))
    return {
        name.decode().partition("/")[2]: int(position)
        for name, position in found.items()
        if name.startswith(b"offset:")
    }


def appended(server: ServerProcess, model: str = "default") -> int:
    """How many examples the model's log was given."""
    with server.client() as client:
        return int(client.hget(meta_key(model), "appended") or 0)


async def assert_consumed_once(
    server: ServerProcess, numbers: Iterable[int], model: str = "default"
) -> Replica:
    """The log has an example of each of these messages and no other, and the state is a pass over it."""
    async with topology_of(server) as topology:
        await learned(topology, model)
        replica = await assert_state_is_a_pass_over_the_log(topology, model)
        lost, doubled = difference(replica, await read_log(topology, replica), numbers)
    assert (lost, doubled) == (0, 0), f"{lost} messages are lost, {doubled} doubled"
    return replica


def difference(replica: Replica, entries: list[LogEntry], numbers: Iterable[int]) -> tuple[int, int]:
    """How many of the messages are not in the log, and how many examples too many are."""
    encoder = FeatureEncoder(replica.config.hashing)
    expected = Counter(tuple(sorted(encoder.encode(message(n)["features"]).hashes)) for n in numbers)
    batch = ExampleBatch.from_bytes(b"".join(entry.records for entry in entries))
    bounds = batch.row_ptr.tolist()
    hashes = batch.hashes.tolist()
    logged = Counter(tuple(sorted(hashes[start:stop])) for start, stop in pairwise(bounds))
    return (expected - logged).total(), (logged - expected).total()

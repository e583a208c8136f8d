"""`ftrl consume`: what becomes of messages, where it goes on, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.cli.consume.broker import read_properties, require_kafka
from service.errors import CommandFailure
from service.storage.records import meta_key
from tests.support.consumption import (
    ConsumerProcess,
    appended,
    assert_consumed_once,
    message,
    positions,
)
from tests.support.kafka import Cluster, cluster
from tests.support.processes import ServiceProcess
from tests.support.servers import ServerProcess
from tests.support.system import stored_now
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

Consume = Callable[..., ConsumerProcess]
CONFIG = {"hashing": {"bits": 14}}
SCHEMA = {"format": "records", "label": "clicked", "types": {"user.age": "number"}, "event_id": "id"}
RETAINED_BYTES = 5 * 2**20
"""The mock cluster keeps so much of a partition."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of the test's own model and topic."""
    return f"m{abs(hash(request.node.nodeid)):x}"


@pytest.fixture
def consume(
    kafka: Cluster, server: ServerProcess, service: ServiceProcess, tmp_path: Path, name: str
) -> Iterator[Consume]:
    """`consume("--flag")`: of the test's own topic, which exists, into its own model, which exists, too."""
    kafka.create(name)
    service.put(f"/models/{name}", CONFIG)
    started: list[ConsumerProcess] = []

    def consume(*words: str, topic: str = name, model: str = name) -> ConsumerProcess:
        own = ("--topic", topic, "--model", model, *words)
        started.append(ConsumerProcess(kafka, server.url, tmp_path, *own))
        return started[-1]

    try:
        yield consume
    finally:
        for process in started:
            process.remove()


def until_at(server: ServerProcess, name: str, position: int) -> None:
    wait_until(lambda: positions(server, name).get(f"{name}/0") == position, f"{name} is at {position}")


def until_learned(service: ServiceProcess, model: str, count: int) -> None:
    wait_until(lambda: service.get(f"/models/{model}")["t"] == count, f"{model} has learned {count}")


def test_messages_teach_what_requests_teach(
    kafka: Cluster,
    server: ServerProcess,
    service: ServiceProcess,
    consume: Consume,
    name: str,
    tmp_path: Path,
) -> None:
    """One topic of examples and one of rows of a schema, begun while they are empty."""
    examples: list[dict[str, Any]] = [
        {"features": {"ad": f"a{i % 7}", "user.age": i % 50}, "label": int(i % 3 == 0), "event_id": f"e{i}"}
        for i in range(600)
    ]
    examples[3]["features"]["ad"] = 'quote " and é'
    examples[4] |= {"weight": 2.5, "event_time": "2024-05-01T12:00:00Z"}
    kafka.create(f"{name}-rows")
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    others = [f"{name}-rows", f"{name}-http"]
    for other in others:
        service.put(f"/models/{other}", {"hashing": CONFIG["hashing"] | {"types": SCHEMA["types"]}})
    service.put(f"/models/{name}-typed", {"hashing": CONFIG["hashing"] | {"types": SCHEMA["types"]}})
    first = consume(model=f"{name}-typed")
    rows = consume("--schema", str(schema), topic=others[0], model=others[0])
    first.read()
    rows.read()
    kafka.send(name, [*examples, examples[7]])
    kafka.send(others[0], [row_of(one) for one in examples if "weight" not in one])
    service.post(f"/models/{others[1]}/update", {"examples": examples})
    learned_models = {f"{name}-typed": 600, others[0]: 599, others[1]: 600}
    for model, count in learned_models.items():
        until_learned(service, model, count)
    wait_until(
        lambda: positions(server, f"{name}-typed") == {f"{name}/0": 601}, "the repeated one has passed"
    )
    states = [stored_now(server.url, model).state for model in (f"{name}-typed", others[1])]
    assert np.array_equal(states[0].rows, states[1].rows)
    assert first.metric("ftrl_consumer_messages_total", model=f"{name}-typed", outcome="duplicate") == 1
    wait_until(lambda: "ftrl_consumer_lag_messages" in first.metrics(), "the lag is shown")
    assert first.stop() == 0


def row_of(example: dict[str, Any]) -> dict[str, Any]:
    """The same example as a row of SCHEMA."""
    features = example["features"]
    return {
        "ad": features["ad"],
        "user": {"age": features["user.age"]},
        "clicked": example["label"],
        "id": example["event_id"],
    }


def test_bad_messages_are_set_aside_with_the_reason(
    kafka: Cluster, server: ServerProcess, consume: Consume, name: str
) -> None:
    kafka.create(f"{name}-dead")
    bad = [b"{", b"", {"features": {"ad": "a"}, "label": 2}, {"id": "view-1", "label": 1}]
    kafka.send(name, [message(0), bad[0], None, bad[1], message(1), bad[2], bad[3], message(2)])
    consumer = consume("--dead-letter-topic", f"{name}-dead")
    until_at(server, name, 8)
    asyncio.run(assert_consumed_once(server, range(3), name))
    letters = kafka.messages(f"{name}-dead", 4)
    headers = [dict(letter.headers() or []) for letter in letters]
    assert [one["ftrl.offset"] for one in headers] == [b"1", b"3", b"5", b"6"]
    assert [letter.value() or b"" for letter in letters[:2]] == bad[:2]
    assert headers[0]["ftrl.topic"] == name.encode()
    assert headers[2]["ftrl.reason"] == b"label: must be a number from 0 to 1, true or false"
    assert consumer.metric("ftrl_consumer_messages_total", model=name, outcome="refused") == 4
    assert consumer.metric("ftrl_consumer_messages_total", model=name, outcome="empty") == 1


def test_a_bad_message_stops_it_unless_it_is_to_be_skipped(
    kafka: Cluster, server: ServerProcess, consume: Consume, name: str
) -> None:
    kafka.send(name, [message(0), message(1), b"[]", message(2)])
    stopped = consume()
    assert stopped.wait() == 1
    assert f"{name}[0]@2 is no example: " in stopped.log
    assert "--on-error skip" in stopped.log
    assert positions(server, name) == {f"{name}/0": 2}
    consume("--on-error", "skip")
    until_at(server, name, 4)
    asyncio.run(assert_consumed_once(server, range(3), name))


def test_it_goes_on_where_it_was_stopped_and_lets_kafka_know(
    kafka: Cluster, server: ServerProcess, consume: Consume, name: str
) -> None:
    kafka.send(name, [message(n) for n in range(10)])
    first = consume()
    until_at(server, name, 10)
    assert first.stop() == 0
    assert kafka.committed(f"ftrl-{name}", name) == 10
    kafka.send(name, [message(n) for n in range(10, 30)])
    consume()
    until_at(server, name, 30)
    asyncio.run(assert_consumed_once(server, range(30), name))


def test_two_groups_on_one_topic_learn_each_message_once(
    kafka: Cluster, server: ServerProcess, consume: Consume, name: str
) -> None:
    """As a consumer that does not know yet that its partitions were given to another."""
    both = [consume("--group", group) for group in (f"{name}-a", f"{name}-b")]
    for consumer in both:
        consumer.read()
    for start in range(0, 3000, 100):
        kafka.send(name, [message(n) for n in range(start, start + 100)])
    until_at(server, name, 3000)
    asyncio.run(assert_consumed_once(server, range(3000), name))


def test_a_model_that_is_created_again_learns_the_topic_from_its_start(
    kafka: Cluster, server: ServerProcess, service: ServiceProcess, consume: Consume, name: str
) -> None:
    kafka.send(name, [message(n) for n in range(10)])
    consumer = consume()
    until_at(server, name, 10)
    service.delete(f"/models/{name}")
    consumer.wait_for("there is no model")
    kafka.send(name, [message(10)])
    service.put(f"/models/{name}", {"hashing": {"bits": 15}})
    until_at(server, name, 11)
    asyncio.run(assert_consumed_once(server, range(11), name))


def test_messages_that_retention_removed_are_reported_and_passed_over_on_request(
    kafka: Cluster, server: ServerProcess, consume: Consume, name: str
) -> None:
    kafka.send(name, [message(0)])
    first = consume()
    until_at(server, name, 1)
    assert first.stop() == 0
    padding = b" " * 200_000
    kafka.send(name, [json.dumps(message(n)).encode() + padding for n in range(1, 60)])
    stopped = consume()
    assert stopped.wait() == 1
    assert "are not there any more (retention of the topic); --on-gap earliest goes on at" in stopped.log
    assert positions(server, name) == {f"{name}/0": 1}
    going_on = consume("--on-gap", "earliest")
    until_at(server, name, 60)
    missing = going_on.metric("ftrl_consumer_missing_messages_total", model=name)
    assert missing > 60 - 1 - RETAINED_BYTES / len(padding) - 1
    assert appended(server, name) == 60 - missing


def test_a_topic_that_ends_before_the_position_is_reported(
    kafka: Cluster, server: ServerProcess, consume: Consume, name: str
) -> None:
    consume("--start", "latest").read()
    with server.client() as client:
        stored: Any = client.hgetall(meta_key(name))
        (field,) = [one for one in stored if one.startswith(b"offset:")]
        client.hset(meta_key(name), field, "500")
    stopped = consume("--group", f"{name}-other")
    assert stopped.wait() == 1
    assert "it ends at 0, before the position 500" in stopped.log


def test_from_the_end_on(kafka: Cluster, server: ServerProcess, consume: Consume, name: str) -> None:
    kafka.send(name, [message(n) for n in range(5)])
    consumer = consume("--start", "latest")
    consumer.read()
    consumer.kill9()
    kafka.send(name, [message(n) for n in range(5, 8)])
    consume("--start", "latest", "--group", f"{name}-other")
    until_at(server, name, 8)
    asyncio.run(assert_consumed_once(server, range(5, 8), name))


def test_a_challenger_has_no_log_for_messages(service: ServiceProcess, consume: Consume, name: str) -> None:
    service.put(f"/models/{name}-b", {"follows": name})
    refused = consume(model=f"{name}-b")
    assert refused.wait() == 1
    assert f"it learns the log of '{name}'" in refused.log


def test_a_schema_that_the_model_was_not_created_with_is_refused(consume: Consume, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    refused = consume("--schema", str(schema))
    assert refused.wait() == 1
    assert "has other types than the schema" in refused.log


def test_properties_are_read_as_tools_of_kafka_read_them(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# TLS\nsecurity.protocol=SASL_SSL\n\nsasl.password = a=b\n")
    assert read_properties(path) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}
    path.write_text("auto.offset.reset=latest\n")
    with pytest.raises(CommandFailure, match=r":1: auto.offset.reset is set by this command: give --start"):
        read_properties(path)
    path.write_text("x\n")
    with pytest.raises(CommandFailure, match=r":1: must be name=value"):
        read_properties(path)
    with pytest.raises(CommandFailure, match="No such file"):
        read_properties(tmp_path / "missing")


def test_an_installation_without_the_extra_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(CommandFailure, match=r"pip install 'ftrl-service\[kafka\]'"):
        require_kafka()

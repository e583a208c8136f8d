"""Kills of consumers, brokers, Redis and the learner while messages of Kafka come in, none with an event id.

`make kafka-soak` runs it with 200,000 messages and 50 kills.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import Report, ServerFactory
from tests.support.append_only_file import lose_the_end
from tests.support.consumption import (
    TOPIC,
    ConsumerProcess,
    appended,
    assert_consumed_once,
    message,
    positions,
)
from tests.support.kafka import Cluster, cluster
from tests.support.processes import Launch, ServiceProcess
from tests.support.servers import ServerProcess
from tests.support.waiting import until, until_in_thread

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(3600)]

MESSAGES = int(os.environ.get("KAFKA_MESSAGES", "10000"))
KILLS = int(os.environ.get("KAFKA_KILLS", "5"))
SEED = int(os.environ.get("KAFKA_SEED", "1"))
PARTITIONS, BROKERS, CONSUMERS = 8, 3, 2


class Faults:
    """Two consumers, a learner, a server and brokers; each kill is a method."""

    def __init__(self, kafka: Cluster, server: ServerProcess, launch: Launch, directory: Path) -> None:
        self.kafka = kafka
        self.server = server
        self.launch = launch
        self.directory = directory
        self.drawn = random.Random(SEED)
        self.happened: Counter[str] = Counter()
        self.learner: ServiceProcess = launch("learn", server.url)
        self.consumers: list[ConsumerProcess] = []

    def consumer(self) -> ConsumerProcess:
        return ConsumerProcess(self.kafka, self.server.url, self.directory)

    async def kill_a_consumer(self) -> None:
        which = self.drawn.randrange(CONSUMERS)
        self.consumers[which].kill9()
        self.consumers[which].remove()
        self.consumers[which] = self.consumer()

    async def kill_the_server(self) -> None:
        self.server.kill9()
        await asyncio.sleep(self.drawn.uniform(0, 0.5))
        await asyncio.to_thread(self.server.start)

    async def kill_a_broker(self) -> None:
        number = self.drawn.randint(1, BROKERS)
        self.kafka.stop_broker(number)
        await asyncio.sleep(self.drawn.uniform(0, 1))
        self.kafka.start_broker(number)

    async def kill_the_learner(self) -> None:
        self.learner.kill9()
        self.learner = self.launch("learn", self.server.url)

    async def pause_a_consumer(self) -> None:
        """Its partitions are given to the other one; it goes on with what it has read."""
        process = self.drawn.choice(self.consumers).process
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self.drawn.uniform(1, 3))
        process.send_signal(signal.SIGCONT)

    async def during(self, number: int, first: int, stop: int) -> None:
        """A kill while these messages are sent and consumed."""
        sending = asyncio.create_task(send(self.kafka, first, stop))
        await until(lambda: appended(self.server) > first or sending.done(), "messages are being consumed")
        await self.kill(number)
        await sending

    async def kill(self, number: int) -> None:
        kills = (self.kill_a_consumer, self.kill_the_server, self.kill_a_broker, self.kill_the_learner)
        drawn = kills[number % len(kills)]
        self.happened[drawn.__name__] += 1
        await drawn()
        if number % len(kills) == 2:
            self.happened["pause_a_consumer"] += 1
            await self.pause_a_consumer()

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.remove()


async def test_each_message_is_learned_once_whatever_is_killed(
    server_factory: ServerFactory, launch: Launch, tmp_path: Path, report: Report
) -> None:
    server = server_factory(appendfsync="always")
    with cluster(BROKERS) as kafka:
        kafka.create(TOPIC, PARTITIONS)
        faults = Faults(kafka, server, launch, tmp_path)
        try:
            await asyncio.to_thread(faults.learner.wait_for, "learning default from")
            faults.consumers = [faults.consumer() for _ in range(CONSUMERS)]
            started = time.monotonic()
            for number in range(KILLS):
                first, stop = (MESSAGES * k // KILLS for k in (number, number + 1))
                await faults.during(number, first, stop)
            await until_in_thread(lambda: sum(positions(server).values()) == MESSAGES, "all is consumed", 600)
            seconds = time.monotonic() - started
            replica = await assert_consumed_once(server, range(MESSAGES))
        finally:
            faults.close()
    report(
        f"{MESSAGES:,} messages in {PARTITIONS} partitions, {KILLS} kills {dict(faults.happened)} in"
        f" {seconds:.0f} s: 0 lost, 0 doubled, t = {replica.state.t:,}, the state is a pass over the log"
    )


async def test_a_full_backlog_leaves_messages_with_the_broker(
    server_factory: ServerFactory, launch: Launch, tmp_path: Path
) -> None:
    server = server_factory()
    learner = launch("learn", server.url)
    await asyncio.to_thread(learner.wait_for, "learning default from")
    with cluster() as kafka:
        kafka.create(TOPIC)
        learner.pause()
        kafka.send(TOPIC, [message(n) for n in range(1000)])
        consumer = ConsumerProcess(kafka, server.url, tmp_path, backlog_limit_examples=100)
        try:
            waiting = partial(consumer.metric, "ftrl_consumer_waiting", model="default")
            await until_in_thread(lambda: waiting() == 1, "it waits")
            assert positions(server) == {f"{TOPIC}/0": 100}
            learner.resume()
            await until_in_thread(partial(has_come_to, server, 1000), "all is consumed")
            await assert_consumed_once(server, range(1000))
            await until_in_thread(lambda: waiting() == 0, "it does not wait any more")
        finally:
            consumer.remove()


async def test_what_redis_loses_with_its_end_is_consumed_again(
    server_factory: ServerFactory, launch: Launch, tmp_path: Path
) -> None:
    """The positions are lost with the examples, also while no further message comes."""
    server = server_factory(appendfsync="always")
    learner = launch("learn", server.url)
    await asyncio.to_thread(learner.wait_for, "learning default from")
    with cluster() as kafka:
        kafka.create(TOPIC)
        consumer = ConsumerProcess(kafka, server.url, tmp_path)
        try:
            for start in range(0, 600, 100):
                kafka.send(TOPIC, [message(n) for n in range(start, start + 100)])
                await until_in_thread(partial(has_come_to, server, start + 100), "it is consumed")
            await lose_the_end(server, 20_000)
            await until(
                lambda: re.search(r"clicks\[0\] is at \d+, not 600", consumer.log), "it has gone back"
            )
            await until_in_thread(partial(has_come_to, server, 600), "it is consumed again")
            await assert_consumed_once(server, range(600))
        finally:
            consumer.remove()


def has_come_to(server: ServerProcess, position: int) -> bool:
    return positions(server) == {f"{TOPIC}/0": position}


async def send(kafka: Cluster, first: int, stop: int) -> None:
    """In rounds over the partitions, so that all of them grow."""
    for partition in range(PARTITIONS):
        numbers = range(first + partition, stop, PARTITIONS)
        await asyncio.to_thread(kafka.send, TOPIC, [message(n) for n in numbers], partition)

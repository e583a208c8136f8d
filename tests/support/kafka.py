"""Brokers of librdkafka's mock cluster in this process, which other processes reach as any Kafka.

They are real servers for the protocol: groups, rebalances, offsets, headers. A partition keeps 5 MB. The
Python package offers them for its own producer only; through the library itself brokers can be stopped.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.support.waiting import wait_until

FIRST_REBALANCE_MS = 100
"""How long a new group waits for further consumers; brokers wait for 3 s by default."""
_PRODUCER = 0


@cache
def _library() -> Any:
    """The librdkafka that the package brings, with the types of the functions used here."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    found = list(folder.glob("librdkafka-*"))
    if not found:
        pytest.skip("only the Linux wheel of confluent-kafka has its librdkafka beside it")
    library = ctypes.CDLL(str(found[0]))
    library.rd_kafka_new.restype = ctypes.c_void_p
    library.rd_kafka_new.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
    library.rd_kafka_destroy.argtypes = (ctypes.c_void_p,)
    library.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_new.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.rd_kafka_mock_cluster_destroy.argtypes = (ctypes.c_void_p,)
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    library.rd_kafka_mock_cluster_bootstraps.argtypes = (ctypes.c_void_p,)
    library.rd_kafka_mock_topic_create.argtypes = (
        *(ctypes.c_void_p, ctypes.c_char_p),
        *(ctypes.c_int, ctypes.c_int),
    )
    library.rd_kafka_mock_group_initial_rebalance_delay_ms.argtypes = (ctypes.c_void_p, ctypes.c_int32)
    for name in ("rd_kafka_mock_broker_set_down", "rd_kafka_mock_broker_set_up"):
        getattr(library, name).argtypes = (ctypes.c_void_p, ctypes.c_int32)
    return library


class Cluster:
    """brokers: their addresses."""

    def __init__(self, brokers: int = 1) -> None:
        self._library = _library()
        error = ctypes.create_string_buffer(512)
        self._handle = self._library.rd_kafka_new(_PRODUCER, None, error, len(error))
        assert self._handle, error.value
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._handle, brokers)
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, FIRST_REBALANCE_MS)
        self.brokers: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._producer = Producer({"bootstrap.servers": self.brokers, "linger.ms": 5})

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(5)
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)

    def create(self, topic: str, partitions: int = 1) -> None:
        assert not self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1)

    def stop_broker(self, number: int = 1) -> None:
        """It refuses connections and ends those that it has; its messages stay."""
        assert not self._library.rd_kafka_mock_broker_set_down(self._cluster, number)

    def start_broker(self, number: int = 1) -> None:
        assert not self._library.rd_kafka_mock_broker_set_up(self._cluster, number)

    def send(self, topic: str, messages: Sequence[object], partition: int = -1) -> None:
        """Bytes and None as they are, anything else as JSON; delivered when it returns."""
        failures: list[str] = []
        for message in messages:
            value = message if isinstance(message, bytes | None) else json.dumps(message).encode()
            self._producer.produce(
                topic,
                value,
                partition=partition,
                on_delivery=lambda error, _: failures.append(error.str()) if error else None,
            )
            self._producer.poll(0)
        assert self._producer.flush(60) == 0
        assert not failures, failures[0]

    def messages(self, topic: str, count: int) -> list[Message]:
        """The first messages of partition 0, once there are so many."""
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": "reader"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Message] = []

        def has_all() -> bool:
            found.extend(one for one in consumer.consume(count, 0.1) if not one.error())
            return len(found) >= count

        try:
            wait_until(has_all, f"{topic} has {count} messages")
        finally:
            consumer.close()
        return found

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        """The position that the group has let Kafka know."""
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": group})
        try:
            (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=10)
        finally:
            consumer.close()
        return int(found.offset)


@contextlib.contextmanager
def cluster(brokers: int = 1) -> Iterator[Cluster]:
    made = Cluster(brokers)
    try:
        yield made
    finally:
        made.close()

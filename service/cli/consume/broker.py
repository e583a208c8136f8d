"""The side of Kafka: a consumer of a group, and a producer of dead letters.

Kafka's own record of how far the group has come decides nothing: the model stores its positions with its
examples (see consumer.py). They are committed to Kafka now and then for tools that show the lag of a group.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from service.errors import CommandFailure

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

log = logging.getLogger(__name__)

Partition = tuple[str, int]
"""A topic and the number of its partition."""
Positions = dict[Partition, int]
Result = TypeVar("Result")

QUERY_SECONDS = 5.0
DELIVERY_SECONDS = 10.0
LOG_ERROR_EVERY_SECONDS = 60.0
QUIET = {"log_level": "2"}
"""Errors come to `error_cb`, too; librdkafka's own log has each attempt to connect."""
OWN = {
    "bootstrap.servers": "--brokers",
    "group.id": "--group",
    "enable.auto.commit": "",
    "enable.auto.offset.store": "",
    "auto.offset.reset": "--start and --on-gap",
    "partition.assignment.strategy": "",
    "group.protocol": "",
}
"""Properties that the consumer sets, and the flag for each, if there is one."""


def require_kafka() -> Any:
    """Import confluent_kafka. Raises CommandFailure."""
    try:
        import confluent_kafka
    except ImportError:
        raise CommandFailure(
            "Kafka needs confluent-kafka, which is not installed: pip install 'ftrl-service[kafka]'"
        ) from None
    return confluent_kafka


def read_properties(path: Path) -> dict[str, str]:
    """Return the properties in a file of lines `name=value`, as Kafka's tools read it. Raises
    CommandFailure.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as failure:
        raise CommandFailure(f"--kafka-config {path}: {failure}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith(("#", "!")):
            continue
        name, separator, value = (part.strip() for part in line.partition("="))
        if not separator:
            raise CommandFailure(f"--kafka-config {path}:{number}: must be name=value")
        if name in OWN:
            instead = f": give {OWN[name]}" if OWN[name] else ""
            raise CommandFailure(f"--kafka-config {path}:{number}: {name} is set by this command{instead}")
        found[name] = value
    return found


class Polled(NamedTuple):
    """Messages in the order of each partition, and partitions whose position is not there (any more)."""

    messages: list[Message]
    out_of_range: list[Partition]


class Watermarks(NamedTuple):
    """The offset of the first message that a partition has, and that of the next one that it gets."""

    low: int
    high: int


class Broker:
    """A consumer of a group. Methods that are awaited run in one thread, one after the other.

    granted: the partitions that the group has given to this consumer; each is read once it has begun.
    forget: called, while a method is awaited, with partitions that were given to another.
    """

    def __init__(
        self,
        brokers: str,
        group: str,
        properties: Mapping[str, str],
        forget: Callable[[Collection[Partition]], None],
    ) -> None:
        self._kafka = require_kafka()
        self._config = {
            **QUIET,
            **properties,
            "bootstrap.servers": brokers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "partition.assignment.strategy": "cooperative-sticky",
        }
        self.granted: set[Partition] = set()
        self._begun: set[Partition] = set()
        self._forget = forget
        self._thread = ThreadPoolExecutor(1, "kafka")
        self._consumer: Consumer | None = None
        self._held = False
        self._early: list[Message] = []  # that came while it was held
        self._logged: dict[int, float] = {}  # codes of errors, and when each was logged

    async def connect(self, topics: Sequence[str]) -> str | None:
        """Return the id of the cluster, and subscribe; None if no broker answers. Raises CommandFailure."""
        return await self._call(self._connect, topics)

    def _connect(self, topics: Sequence[str]) -> str | None:
        if self._consumer is None:
            try:
                self._consumer = self._kafka.Consumer(self._config, error_cb=self._note, logger=log)
            except self._kafka.KafkaException as wrong:
                raise CommandFailure(f"Kafka refuses these settings: {_text(wrong)}") from None
        try:
            cluster = self._consumer.list_topics(topics[0], timeout=QUERY_SECONDS).cluster_id
        except self._kafka.KafkaException as failure:
            log.debug("no answer: %s", _text(failure))
            return None
        self._consumer.subscribe(
            list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        return cluster or ""

    async def poll(self, count: int, seconds: float) -> Polled:
        """Return at most `count` messages, as soon as there are so many or the time has passed.

        Raises CommandFailure.
        """
        return await self._call(self._poll, count, seconds)

    def _poll(self, count: int, seconds: float) -> Polled:
        consumer = self._open
        if self._held:
            consumer.resume(consumer.assignment())
            self._held = False
        messages, self._early = self._early, []
        out_of_range: list[Partition] = []
        for message in consumer.consume(count - len(messages), 0 if messages else seconds):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001  named so by it
                out_of_range.append((str(message.topic()), int(message.partition() or 0)))
            else:
                self._note(error)
        return Polled(messages, out_of_range)

    async def hold(self, seconds: float) -> None:
        """Wait without reading messages, while the group is told that this consumer is there."""
        await self._call(self._hold, seconds)

    def _hold(self, seconds: float) -> None:
        if self._consumer is None:
            time.sleep(seconds)
            return
        self._consumer.pause(self._consumer.assignment())
        self._held = True
        for message in self._consumer.consume(1, seconds):
            if (error := message.error()) is None:
                self._early.append(message)
            else:
                self._note(error)

    async def read_from(self, positions: Positions) -> None:
        """Read granted partitions from these positions, whether they have begun or not."""
        await self._call(self._read_from, positions)

    def _read_from(self, positions: Positions) -> None:
        consumer, kafka = self._open, self._kafka
        granted = {of: offset for of, offset in positions.items() if of in self.granted}
        self._drop_early(granted)
        # Not `seek`, which fails while a partition is not fetched, as after an offset that is out of range.
        consumer.incremental_unassign([kafka.TopicPartition(*of) for of in granted if of in self._begun])
        consumer.incremental_assign([kafka.TopicPartition(*of, offset) for of, offset in granted.items()])
        self._begun |= granted.keys()

    async def watermarks(self, partition: Partition) -> Watermarks | None:
        """Ask the broker; None if it does not answer."""
        return await self._call(self._watermarks, partition)

    def _watermarks(self, partition: Partition, cached: bool = False) -> Watermarks | None:
        of = self._kafka.TopicPartition(*partition)
        try:
            found: Any = self._open.get_watermark_offsets(of, timeout=QUERY_SECONDS, cached=cached)
        except self._kafka.KafkaException as failure:
            log.debug("no watermarks: %s", _text(failure))
            return None
        return None if found is None else Watermarks(*found)

    def lag(self, partition: Partition, position: int) -> int | None:
        """Messages after the position, by what the broker said last; None if it said nothing yet."""
        found = self._watermarks(partition, cached=True)
        return None if found is None or found.high < 0 else max(0, found.high - position)

    async def commit(self, positions: Positions, *, at_end: bool = False) -> None:
        """Let Kafka know the positions, for its tools alone. at_end: wait until that is done."""
        await self._call(self._commit, positions, at_end)

    def _commit(self, positions: Positions, at_end: bool) -> None:
        offsets = [self._kafka.TopicPartition(*of, offset) for of, offset in positions.items()]
        if not offsets:
            return
        try:
            if at_end:
                self._open.commit(offsets=offsets, asynchronous=False)
            else:
                self._open.commit(offsets=offsets)
        except self._kafka.KafkaException as failure:
            log.debug("positions are not committed to Kafka: %s", _text(failure))

    async def close(self) -> None:
        """Leave the group."""
        if self._consumer is not None:
            await self._call(self._consumer.close)
        self._thread.shutdown()

    @property
    def _open(self) -> Consumer:
        assert self._consumer is not None, "connected"
        return self._consumer

    async def _call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _assigned(self, consumer: Consumer, partitions: list[Any]) -> None:
        self.granted |= {(one.topic, one.partition) for one in partitions}
        consumer.incremental_assign([])  # their positions are not known yet

    def _revoked(self, consumer: Consumer, partitions: list[Any]) -> None:
        named = {(one.topic, one.partition) for one in partitions}
        consumer.incremental_unassign([self._kafka.TopicPartition(*of) for of in named & self._begun])
        self.granted -= named
        self._begun -= named
        self._drop_early(named)
        self._forget(named)

    def _drop_early(self, partitions: Collection[Partition]) -> None:
        self._early = [one for one in self._early if (one.topic(), one.partition()) not in partitions]

    def _note(self, error: KafkaError) -> None:
        """Log an error, each at most once a minute. Raises CommandFailure for one that is final."""
        if error.fatal():
            raise CommandFailure(f"Kafka: {error.str()}")
        now = time.monotonic()
        if now - self._logged.get(error.code(), -LOG_ERROR_EVERY_SECONDS) >= LOG_ERROR_EVERY_SECONDS:
            self._logged[error.code()] = now
            log.warning("Kafka: %s", error.str())


def _text(failure: Exception) -> str:
    """The text of a KafkaException, which carries a KafkaError."""
    (error, *_) = failure.args or (failure,)
    return str(error.str()) if hasattr(error, "str") else str(error)


class DeadLetters:
    """A topic for messages that are no examples. Each may be there more than once."""

    def __init__(self, brokers: str, properties: Mapping[str, str], topic: str) -> None:
        self._kafka = require_kafka()
        self._topic = topic
        try:
            self._producer: Producer = self._kafka.Producer(
                {**QUIET, **properties, "bootstrap.servers": brokers, "enable.idempotence": True}, logger=log
            )
        except self._kafka.KafkaException as wrong:
            raise CommandFailure(f"Kafka refuses these settings: {_text(wrong)}") from None

    async def send(self, refused: Iterable[tuple[Message, str]], model: str) -> str:
        """Send messages, each with its reason. Return why some may not be there; empty if all are."""
        return await asyncio.to_thread(self._send, list(refused), model)

    def _send(self, refused: list[tuple[Message, str]], model: str) -> str:
        failures: list[str] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error.str())

        try:
            for message, reason in refused:
                self._producer.produce(
                    self._topic,
                    message.value(),
                    message.key(),
                    headers=_headers(message, reason, model),
                    on_delivery=delivered,
                )
        except (BufferError, self._kafka.KafkaException) as failure:
            failures.append(_text(failure))
        left = self._producer.flush(DELIVERY_SECONDS)
        return failures[0] if failures else f"{left} are not delivered yet" if left else ""


def _headers(message: Message, reason: str, model: str) -> list[tuple[str, bytes | str | None]]:
    """Those of the message, then why it is here and where it was."""
    found: Any = message.headers() or []
    return [
        *(found.items() if isinstance(found, dict) else found),
        ("ftrl.reason", reason.encode()),
        ("ftrl.model", model.encode()),
        ("ftrl.topic", str(message.topic()).encode()),
        ("ftrl.partition", str(message.partition()).encode()),
        ("ftrl.offset", str(message.offset()).encode()),
    ]

"""From messages to the example log of a model: each message once, whatever ends in between.

An append moves the positions of its messages in the same step, and is refused unless they are where this
process expects them (service/storage/lua/positions.lua). So what Kafka believes does not matter, and neither
does a consumer that goes on although its partitions were given to another. Where the positions are others,
since another consumer has appended or Redis has lost its end, reading goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from redis.exceptions import ResponseError

from service.cli.consume.broker import Broker, DeadLetters, Partition, Positions, Watermarks
from service.cli.consume.target import Prepared, Reading, Target
from service.errors import CommandFailure, LogFull, StateUnavailable, UpdateUnavailable
from service.example_log.incoming import NewExamples
from service.example_log.stream import Place, PositionMoved
from service.models.replica import ModelGone
from service.parsing.messages import MAX_MESSAGES
from service.settings import Settings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, Backoff
from service.storage.health import ServerHealth
from service.storage.topology import Topology
from service.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from confluent_kafka import Message

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
CHECK_SECONDS = 1.0
COMMIT_SECONDS = 5.0
LOG_EVERY_SECONDS = 60.0
SAME_REASON = 20
"""Characters with which two texts of one reason begin; what follows may be numbers that change."""
NO_EXAMPLES = NewExamples.of([])

OnError = Literal["stop", "skip"]
Start = Literal["earliest", "latest"]
OnGap = Literal["stop", "earliest", "latest"]


class Stopped(Exception):
    """The process ends while a step cannot be completed; nothing of it was appended, or all of it."""


@dataclass(frozen=True)
class ConsumePlan:
    """Which topics are consumed into which model, and how.

    properties: of librdkafka, such as those of TLS and SASL. start: where a partition begins that the model
    has no position of. on_gap: where it goes on if the messages at its position are not there. on_error: what
    happens at a message that is no example, if there is no topic for dead letters.
    """

    brokers: str
    topics: tuple[str, ...]
    group: str
    model: str
    reading: Reading
    properties: Mapping[str, str] = field(default_factory=dict)
    start: Start = "earliest"
    on_gap: OnGap = "stop"
    on_error: OnError = "stop"
    dead_letter_topic: str | None = None


class Consumer:
    """Runs until `stop`; no step begins before the one before has ended."""

    def __init__(
        self,
        plan: ConsumePlan,
        topology: Topology,
        health: ServerHealth,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self._plan = plan
        self._topology = topology
        self._health = health
        self._settings = settings
        self._metrics = metrics
        self._channel = Channel(topology)
        self._broker = Broker(plan.brokers, plan.group, plan.properties, self._forget)
        self._letters = (
            DeadLetters(plan.brokers, plan.properties, plan.dead_letter_topic)
            if plan.dead_letter_topic is not None
            else None
        )
        self._cluster = ""
        self._target: Target | None = None
        self._positions: Positions = {}  # of the partitions that are read, as they are stored
        self._messages = min(MAX_MESSAGES, settings.backlog_limit_examples)  # or they would never fit
        self._stopping = False
        self._stop_by = 0.0
        self._obstacle = ""
        self._logged, self._logged_at = "", -LOG_EVERY_SECONDS
        self._backoff = Backoff()
        self._checked = self._committed = time.monotonic()

    def stop(self, seconds: float) -> None:
        """End after the step under way, which may take so long."""
        self._stopping, self._stop_by = True, time.monotonic() + seconds

    async def run(self) -> None:
        """Raises CommandFailure, ContractMismatch, ModelFollows."""
        try:
            await self._connect()
            while not self._stopping:
                polled = await self._broker.poll(self._messages, POLL_SECONDS)
                # Messages first: what follows may change the positions, at which they would not begin then.
                await self._learn([one for one in polled.messages if self._is_next(one)])
                if new := self._broker.granted - self._positions.keys():
                    await self._begin(new)
                for partition in polled.out_of_range:
                    await self._over_gap(partition)
                await self._do_periodic()
        except Stopped:
            log.warning("stopped while waiting: %s", self._obstacle)
        finally:
            await self._leave()

    async def _connect(self) -> None:
        while (cluster := await self._broker.connect(self._plan.topics)) is None:
            await self._wait(f"no broker answers at {self._plan.brokers}")
        self._cluster = cluster
        await self._model()
        self._go_on()
        log.info("consuming %s in group %s", ", ".join(self._plan.topics), self._plan.group)

    async def _leave(self) -> None:
        if self._cluster:
            await self._broker.commit(self._positions, at_end=True)
        await self._broker.close()
        if self._target is not None:
            await self._target.close()
        await self._channel.close()

    def _is_next(self, message: Message) -> bool:
        """False for what was appended before, or is of a partition that was given to another consumer."""
        position = self._positions.get(_partition_of(message))
        return position is not None and _offset_of(message) >= position

    async def _learn(self, messages: Sequence[Message]) -> None:
        """Append messages, and move their positions beyond them."""
        if not messages:
            return
        expected = dict(self._positions)
        target = await self._model()
        full = [(i, value) for i, one in enumerate(messages) if (value := one.value()) is not None]
        read = await asyncio.to_thread(target.reader.read, [value for _, value in full])
        refused = {full[i][0]: reason for i, reason in read.errors.items()}
        if refused and self._letters is None and self._plan.on_error == "stop":
            await self._stop_at(messages, refused, target, expected)
            return
        await self._set_aside([(messages[i], reason) for i, reason in refused.items()])
        places = await self._append(target, read.examples, messages, expected)
        if places is None:
            return
        duplicates = sum(place.examples for place in places if place.duplicate)
        self._metrics.consumed(
            self._plan.model,
            appended=len(read.examples.batch) - duplicates,
            duplicate=duplicates,
            refused=len(refused),
            empty=len(messages) - len(full),
        )

    async def _stop_at(
        self,
        messages: Sequence[Message],
        refused: Mapping[int, str],
        target: Target,
        expected: Positions,
    ) -> None:
        """Append what is before the first bad message, then raise CommandFailure."""
        first = min(refused)
        good = messages[:first]
        values = [value for one in good if (value := one.value()) is not None]
        read = await asyncio.to_thread(target.reader.read, values)
        if await self._append(target, read.examples, good, expected) is None:
            return  # the message may be another consumer's by now
        raise CommandFailure(
            f"{_name_of(messages[first])} is no example: {refused[first]} (--dead-letter-topic TOPIC sets"
            " such messages aside, --on-error skip leaves them out)"
        )

    async def _set_aside(self, refused: list[tuple[Message, str]]) -> None:
        """Send messages to the topic for dead letters, if there is one; before their positions move on."""
        if not refused:
            return
        message, reason = refused[0]
        log.warning("%s and %d more are no examples: %s", _name_of(message), len(refused) - 1, reason)
        while self._letters is not None and (why := await self._letters.send(refused, self._plan.model)):
            await self._wait(f"dead letters cannot be sent: {why}")
        self._go_on()

    async def _append(
        self, target: Target, examples: NewExamples, messages: Sequence[Message], expected: Positions
    ) -> list[Place] | None:
        """Return the places of the examples; None if positions are not where they were when the messages
        came: by now their partitions may have been given away and have come back.
        """
        following = {_partition_of(one): _offset_of(one) + 1 for one in messages}
        prepared = target.prepare(examples, expected, following)
        started = time.monotonic()
        try:
            places = await self._until_appended(target, prepared)
        except PositionMoved:
            await self._go_back()
            return None
        except ModelGone:
            await self._model_gone(target)
            return None
        self._metrics.appended_examples(
            self._plan.model, len(prepared.micro_batch), time.monotonic() - started
        )
        self._positions.update(
            {
                of: max(self._positions[of], offset)
                for of, offset in following.items()
                if of in self._positions
            }
        )
        return places

    async def _until_appended(self, target: Target, prepared: Prepared) -> list[Place]:
        """Send the same micro-batch until it is answered: it is appended once.

        Raises PositionMoved, ModelGone, Stopped.
        """
        while True:
            if self._health.shedding and len(prepared.micro_batch):
                await self._wait("Redis has reached its share of memory (FTRL_MEMORY_SHARE_LIMIT)")
                continue
            deadline = time.monotonic() + self._settings.update_timeout_seconds
            try:
                places = await target.append(prepared, deadline)
            except UpdateUnavailable as silent:
                await self._wait(silent.why)
            except (LogFull, StateUnavailable) as refusal:
                await self._wait(refusal.detail)
            else:
                self._go_on()
                return places

    async def _model(self) -> Target:
        """The model; waits while there is none. Raises what Target.open raises, and Stopped."""
        while self._target is None:
            try:
                self._target = await Target.open(
                    *(self._plan.model, self._cluster, self._plan.reading),
                    channel=self._channel,
                    topology=self._topology,
                    settings=self._settings,
                    metrics=self._metrics,
                )
            except ModelGone:
                await self._wait(
                    f"there is no model {self._plan.model!r}: create it (`ftrl models create`), then its"
                    " messages are consumed"
                )
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                await self._wait(f"Redis does not answer: {failure}")
        return self._target

    async def _model_gone(self, target: Target) -> None:
        """Begin again with the model that has the name now."""
        log.warning("model %s was deleted or created again", self._plan.model)
        await target.close()
        if self._target is target:
            self._target = None
        await self._read_from(await self._placed(self._positions))

    async def _begin(self, partitions: Iterable[Partition]) -> None:
        """Read partitions that were given to this consumer."""
        placed = await self._placed(partitions)
        await self._read_from(placed)
        log.info("reading %s", ", ".join(f"{_name(of)} from {at}" for of, at in sorted(placed.items())))

    async def _placed(self, partitions: Iterable[Partition]) -> Positions:
        """Return the stored positions of partitions that this consumer still has; those without one start."""
        named = list(partitions)
        while True:
            target = await self._model()
            try:
                placed = await self._stored(target, named)
                for partition in named:
                    if partition not in placed:
                        placed[partition] = await self._started(target, partition)
            except ModelGone:
                await target.close()
                self._target = None
            except PositionMoved:
                continue  # another consumer has started it
            else:
                self._go_on()
                return {of: offset for of, offset in placed.items() if of in self._broker.granted}

    async def _stored(self, target: Target, partitions: Sequence[Partition]) -> Positions:
        """Raises ModelGone, Stopped."""
        while True:
            try:
                return await target.stored(self._channel, partitions)
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                await self._wait(f"Redis does not answer: {failure}")

    async def _started(self, target: Target, partition: Partition) -> int:
        """Choose where a partition begins, and store that. Raises ModelGone, PositionMoved, Stopped."""
        found = await self._watermarks(partition)
        position = found.low if self._plan.start == "earliest" else found.high
        await self._until_appended(target, target.prepare(NO_EXAMPLES, {}, {partition: position}))
        log.info("%s begins at %d, its messages are %d to %d", _name(partition), position, *found)
        return position

    async def _watermarks(self, partition: Partition) -> Watermarks:
        while (found := await self._broker.watermarks(partition)) is None:
            await self._wait(f"the broker of {_name(partition)} does not answer")
        return found

    def _forget(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)
            self._metrics.not_consumed(self._plan.model, *partition)

    async def _over_gap(self, partition: Partition) -> None:
        """Go on where messages are, if the plan says so. Raises CommandFailure."""
        position = self._positions.get(partition)
        if position is None:
            return
        found = await self._watermarks(partition)
        if found.low <= position <= found.high:
            await self._read_from({partition: position})
            return
        if position < found.low:
            missing = found.low - position
            what = f"{missing} messages from {position} on are not there any more (retention of the topic)"
        else:
            missing = 0
            what = (
                f"it ends at {found.high}, before the position {position}: the topic was created again, or"
                " has lost its end"
            )
        if self._plan.on_gap == "stop":
            raise CommandFailure(
                f"{_name(partition)}: {what}; --on-gap earliest goes on at {found.low}, --on-gap latest at"
                f" {found.high}"
            )
        going_on = found.low if self._plan.on_gap == "earliest" else found.high
        log.error("%s: %s; going on at %d", _name(partition), what, going_on)
        target = await self._model()
        moved = target.prepare(NO_EXAMPLES, self._positions, {partition: going_on})
        try:
            await self._until_appended(target, moved)
        except PositionMoved:
            await self._go_back()
            return
        except ModelGone:
            await self._model_gone(target)
            return
        self._metrics.missed(self._plan.model, max(missing, going_on - position))
        await self._read_from({partition: going_on})

    async def _do_periodic(self) -> None:
        """From time to time, show the lag, compare the positions, and let Kafka know them."""
        now = time.monotonic()
        if now - self._checked >= CHECK_SECONDS:
            self._checked = now
            for partition, position in self._positions.items():
                if (lag := self._broker.lag(partition, position)) is not None:
                    self._metrics.consumer_lag(self._plan.model, *partition, lag)
            await self._compare()
        if now - self._committed >= COMMIT_SECONDS:
            self._committed = now
            await self._broker.commit(self._positions)

    async def _compare(self) -> None:
        """Go back if Redis has lost its end, also while no message comes."""
        target = await self._model()
        try:
            stored = await target.stored(self._channel, list(self._positions))
        except (*CONNECTION_FAILURES, ResponseError):
            return  # the next append waits for it
        except ModelGone:
            await self._model_gone(target)
            return
        if stored != self._positions:
            await self._go_back()

    async def _go_back(self) -> None:
        """Read on from the stored positions."""
        before = dict(self._positions)
        stored = await self._placed(self._positions)
        for partition, position in stored.items():
            if partition in before and position != before[partition]:
                log.warning("%s is at %d, not %d", _name(partition), position, before[partition])
        await self._read_from(stored)

    async def _read_from(self, positions: Positions) -> None:
        await self._broker.read_from(positions)
        self._positions |= {of: at for of, at in positions.items() if of in self._broker.granted}

    async def _wait(self, why: str) -> None:
        """Pause, while messages are left with the broker. Raises Stopped."""
        self._obstacle = why
        now = time.monotonic()
        if why[:SAME_REASON] != self._logged[:SAME_REASON] or now - self._logged_at >= LOG_EVERY_SECONDS:
            log.warning("waiting: %s", why)
            self._logged, self._logged_at = why, now
        self._metrics.consumer_waiting.labels(self._plan.model).set(1)
        if self._stopping and time.monotonic() >= self._stop_by:
            raise Stopped
        await self._broker.hold(self._backoff.next_seconds())

    def _go_on(self) -> None:
        self._backoff.reset()
        self._obstacle = ""
        self._metrics.consumer_waiting.labels(self._plan.model).set(0)


def _partition_of(message: Message) -> Partition:
    return str(message.topic()), int(message.partition() or 0)


def _offset_of(message: Message) -> int:
    return int(message.offset() or 0)


def _name(partition: Partition) -> str:
    topic, number = partition
    return f"{topic}[{number}]"


def _name_of(message: Message) -> str:
    return f"{_name(_partition_of(message))}@{message.offset()}"

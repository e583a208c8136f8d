"""The model that learns the messages: one incarnation of it, its log, and the positions stored with that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from model_core.hashing.encoder import FeatureEncoder
from service.cli.consume.broker import Partition, Positions
from service.cli.replay.contract import check_contract
from service.errors import ModelFollows
from service.example_log.incoming import NewExamples
from service.example_log.stream import ExampleLog, MicroBatch, Place
from service.models.config.model import checked_config, limits_of
from service.models.evaluation.slices import SliceFinder
from service.models.replica import ModelGone, read_meta
from service.parsing.files.rows import ReadOptions
from service.parsing.messages import MessageFormat, MessageReader
from service.settings import Settings
from service.storage.channel import Channel
from service.storage.records import ModelKeys
from service.storage.scripts.log import Move
from service.storage.topology import Topology
from service.telemetry.metrics import Metrics


@dataclass(frozen=True)
class Reading:
    """How messages are read; `contract`: what the schema says of the model's hash contract."""

    message_format: MessageFormat
    options: ReadOptions
    contract: dict[str, Any]


class Prepared(NamedTuple):
    """A micro-batch, which stays the same however often it is sent, and what it was made of."""

    micro_batch: MicroBatch
    examples: NewExamples


class Target:
    """cluster: the id of the cluster of the positions: offsets of another one mean other messages."""

    def __init__(
        self,
        keys: ModelKeys,
        log: ExampleLog,
        reader: MessageReader,
        slices: SliceFinder | None,
        cluster: str,
    ) -> None:
        self.keys = keys
        self.log = log
        self.reader = reader
        self._slices = slices
        self._cluster = cluster

    @classmethod
    async def open(
        cls,
        name: str,
        cluster: str,
        reading: Reading,
        *,
        channel: Channel,
        topology: Topology,
        settings: Settings,
        metrics: Metrics,
    ) -> Target:
        """The model as it is now.

        Raises ModelGone, ModelFollows, ContractMismatch, CommandFailure if its hash contract is not that of
        the schema, and what Channel.call raises.
        """
        meta = await read_meta(channel, name)
        if meta.follows:
            raise ModelFollows(name, meta.follows.model)
        config = checked_config(name, meta)
        check_contract(name, reading.contract, config.hashing.to_json())
        sliced = config.evaluation.slices
        slices = SliceFinder(FeatureEncoder(config.hashing), sliced) if sliced else None
        reader = MessageReader(
            reading.message_format, config.hashing, limits_of(settings), reading.options, slices
        )
        keys = ModelKeys(name, meta.incarnation)
        log = ExampleLog(topology, keys, settings, lambda lost: metrics.lost_examples(name, lost))
        return cls(keys, log, reader, slices, cluster)

    async def stored(self, channel: Channel, partitions: Sequence[Partition]) -> Positions:
        """The stored positions, of those partitions that have one. Raises ModelGone, and what Channel.call
        raises.
        """
        fields = [self._field(partition) for partition in partitions]
        incarnation, *found = await channel.call("HMGET", self.keys.meta, "incarnation", *fields)
        if incarnation is None or incarnation.decode() != self.keys.incarnation:
            raise ModelGone(self.keys.model)
        pairs = zip(partitions, found, strict=True)
        return {partition: int(position) for partition, position in pairs if position is not None}

    def prepare(self, examples: NewExamples, expected: Positions, next_positions: Positions) -> Prepared:
        """Make a micro-batch that moves positions from those that are expected; one that is not among these
        has to be unknown to the model.
        """
        micro_batch = MicroBatch()
        micro_batch.extend(examples.batch, examples.event_ids)
        micro_batch.slice_names = dict(examples.slice_names)
        micro_batch.moves = [
            Move(self._field(of), str(expected[of]) if of in expected else "", str(position))
            for of, position in next_positions.items()
        ]
        return Prepared(micro_batch, examples)

    async def append(self, prepared: Prepared, deadline: float) -> list[Place]:
        """Raises what ExampleLog.append raises."""
        places = await self.log.append(prepared.micro_batch, deadline)
        if self._slices is not None:
            self._slices.mark_logged(prepared.examples.slice_names)
        return places

    async def close(self) -> None:
        await self.log.close()

    def _field(self, partition: Partition) -> str:
        topic, number = partition
        return f"offset:{self._cluster}/{topic}/{number}"

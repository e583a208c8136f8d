"""The example log of a model as the source of a race, and the state that the model had at its beginning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from typing import Any, Literal

from lab.experiments.log_window import LogWindow, text_of_time
from lab.experiments.progress import RaceProgress
from lab.experiments.race import Feed, Result, Search
from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract
from model_core.learning.state import ModelState, parse_evidence
from service.errors import CommandFailure, LogIncomplete, SnapshotMismatch
from service.models.alias_store import check_free
from service.models.bulk_load import PATIENCE_SECONDS, PatientChannel
from service.models.challengers import MAY_DIFFER, challenger_config
from service.models.config.model import ModelConfig
from service.models.replica import ModelGone, read_meta
from service.parsing.files.reader import CHUNK_ROWS, Chunk
from service.settings import Settings
from service.snapshots.restore.challenge import create_challenger
from service.snapshots.restore.log_replay import LogReader, Replay
from service.snapshots.restore.rebuild import start_before
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.store.formats import check_family
from service.storage.channel import Channel, open_channel

Start = Literal["snapshot", "empty"]

_HALVING_CHUNKS, _HALVING_ROWS = 27, 64


class LogSource:
    """A window of a model's log, read over Redis and from the archive. Nothing of the model is changed.

    settings: with the `redis_url`, and of the snapshot store. start: "snapshot" begins with the state that
    the model had, for the configurations that can have it.
    """

    def __init__(self, settings: Settings, window: LogWindow, start: Start = "empty") -> None:
        self._settings = settings
        self._window = window
        self._start = start
        self._catalogue = SnapshotStore(settings).of(window.replica.keys.model)
        self._archive = self._catalogue.log_archive(window.replica.log_keys)
        self._oldest: int | None = None
        self._newest = 0
        self._started_from = ""
        config = window.replica.config
        self.present = ModelConfig(config.hyper, config.hashing)
        """The configuration of the model, as far as it changes what is learned."""

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._window.replica.keys.model

    @property
    def name(self) -> str:
        return f"the log of {self.model}"

    def check(self, config: ModelConfig) -> None:
        """Raise InvalidInput, with the field, if the log does not hold the hashes of this configuration."""
        own, logged = config.hashing.to_json(), self.present.hashing.to_json()
        for field, value in logged.items():
            if field not in MAY_DIFFER and own[field] != value:
                raise InvalidInput(
                    ("hashing", field),
                    f"must be {value!r}, as in the model: its log holds hashes, not features. To try other"
                    " ways of hashing, give a file of the examples",
                )

    @contextmanager
    def open(
        self, contracts: Sequence[HashContract], search: Search | None, progress: RaceProgress
    ) -> Iterator[Feed]:
        """Raises CommandFailure, LogIncomplete, DamagedLogSegment, StoreUnavailable, StateUnavailable."""
        rows = CHUNK_ROWS
        if search != "grid":
            rows = min(CHUNK_ROWS, max(_HALVING_ROWS, self._window.size // _HALVING_CHUNKS))
        with asyncio.Runner() as runner:
            stack = AsyncExitStack()
            channel = runner.run(stack.enter_async_context(open_channel(self._settings)))
            try:
                start = runner.run(self._state_then(channel, progress)) if self._start == "snapshot" else None
                chunks = (
                    (chunk,) * len(contracts) for chunk in self._chunks(runner, channel, rows)
                )  # all contracts have the same hashes
                yield Feed(chunks, self._window.size, None if start is None else self._copies_of(start))
            finally:
                runner.run(stack.aclose())

    def facts(self) -> dict[str, Any]:
        """Return the window that was learned, for programs: first and last example, times, and the start."""
        window = self._window
        return {
            "model": window.replica.keys.model,
            "revision": window.replica.revision,
            "first_example": window.begin.number,
            "last_example": window.end.number - 1,
            "since": text_of_time(self._oldest or 0),
            "until": text_of_time(self._newest),
            "reaches_back": window.reaches_back,
            "start": self._started_from or "empty",
        }

    def remarks(self) -> Iterator[str]:
        """Yield sentences that say the same."""
        facts = self.facts()
        yield (
            f"examples {facts['first_example']:,} to {facts['last_example']:,} of {self.name}, of"
            f" {facts['since']} to {facts['until']}"
        )
        if not self._window.reaches_back:
            yield "neither the log nor its archive reaches further back"
        if self._started_from:
            yield f"began with the state that the model then had, rebuilt from {self._started_from}"

    def challenge(self, name: str, result: Result) -> bool:
        """Start a candidate as a challenger of the model, from the state that it has reached; return False if
        that very challenger exists.

        Raises ServiceError, and what Channel.call raises.
        """
        return asyncio.run(self._challenge(name, result))

    async def _challenge(self, name: str, result: Result) -> bool:
        assert result.state is not None
        champion, end = self._window.replica, self._window.end
        config, tried = challenger_config(champion.config, {}), result.option.config
        reached = replace(champion, state=result.state, applied=end.after, applied_number=end.number)
        async with open_channel(self._settings) as channel:
            await check_free(channel, name)
            return await create_challenger(
                channel,
                SnapshotStore(self._settings),
                name,
                champion.keys,
                reached,
                replace(config, hyper=tried.hyper, hashing=tried.hashing),
            )

    def _chunks(self, runner: asyncio.Runner, channel: Channel, rows: int) -> Iterator[Chunk]:
        window = self._window
        reader = LogReader(channel, self._archive, window.replica.log_keys, *window.begin)
        server = PatientChannel(channel, PATIENCE_SECONDS)
        while reader.next_number < window.end.number:
            first = reader.number
            batch = ExampleBatch.concatenate(runner.run(self._next(server, reader, rows)))
            for start in range(0, len(batch), rows):
                piece = batch.slice(start, min(start + rows, len(batch)))
                yield Chunk(piece, [], first - window.begin.number + start + len(piece))

    async def _next(self, server: PatientChannel, reader: LogReader, rows: int) -> list[ExampleBatch]:
        """At least so many rows, or all that are left."""
        batches: list[ExampleBatch] = []
        end = self._window.end
        while sum(map(len, batches)) < rows and reader.next_number < end.number:
            try:
                found = await server.run(lambda _: reader.read(end.after))
            except LogIncomplete as gap:
                raise await self._explained(gap.detail, server) from gap
            for logged in found:
                if self._oldest is None:
                    self._oldest = int(logged.batch.event_times.min(initial=logged.newest))
                self._newest = max(self._newest, logged.newest)
                batches.append(logged.batch)
        return batches

    async def _explained(self, detail: str, server: PatientChannel) -> CommandFailure:
        """Say why the log does not hold an example that it held before."""
        keys = self._window.replica.log_keys
        try:
            meta = await server.run(lambda channel: read_meta(channel, keys.model))
            gone = meta.incarnation != keys.incarnation
        except ModelGone:
            gone = True
        if gone:
            return CommandFailure(f"{keys.model} was deleted while its log was read")
        return CommandFailure(
            f"{detail} Begin later (--last or --since), or let the service archive the log"
            " (FTRL_LOG_ARCHIVE_SECONDS)."
        )

    async def _state_then(self, channel: Channel, progress: RaceProgress) -> ModelState:
        """The state that the model had at the beginning of the window."""
        window = self._window
        start = await start_before(channel, self._catalogue, window.replica, window.begin.number)
        if start is None:
            raise CommandFailure(
                f"no snapshot of the present state of {window.replica.keys.model} is as old as example"
                f" {window.begin.number:,}, with which the window begins: use --start empty, or begin later"
            )
        replay = Replay(channel, self._archive, window.replica, start.applied, start.number)
        replay.state = start.state
        self._started_from = start.what
        try:
            while replay.next_number < window.begin.number:
                progress.approach(replay.number - start.number, window.begin.number - start.number)
                await replay.learn_next(window.begin.after)
                replay.state.take_changed()
        except LogIncomplete as gap:
            raise CommandFailure(
                f"the log does not lead from {start.what} to example {window.begin.number:,} any more, with"
                f" which the window begins: use --start empty, or begin later ({gap.detail})"
            ) from gap
        return replay.state

    def _copies_of(self, state: ModelState) -> Callable[[ModelConfig], ModelState | None]:
        return lambda config: copy_of(state, config) if self._fits(config) else None

    def _fits(self, config: ModelConfig) -> bool:
        """Test whether the model's state can be that of a model with this configuration."""
        own, present = config.hashing, self.present.hashing
        if (own.fingerprint, own.prior_probability) != (present.fingerprint, present.prior_probability):
            return False
        try:
            check_family(self.present, config.hyper)
        except SnapshotMismatch:
            return False
        return True


def copy_of(state: ModelState, config: ModelConfig) -> ModelState:
    """An independent copy, for a model with this configuration."""
    copy, slots = config.empty_state(), state.seen_slots()
    copy.apply_rows(slots, state.rows_at(slots))
    copy.t, copy.discount = state.t, parse_evidence(state.discount.text())
    return copy

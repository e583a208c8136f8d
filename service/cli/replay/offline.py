"""`ftrl replay --offline` and `--dry-run`: a file directly into the kernels, then the state into Redis.

Modules that access Redis are imported by the functions that use them: a dry run starts without them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from model_core.evaluation.measures import compact
from model_core.examples.batch import ExampleBatch
from model_core.learning import rounds
from model_core.learning.state import ModelState
from model_core.text.problems import LineError
from service.cli.replay.summary import Predicted, ReplayPlan, ReplaySummary, Tally
from service.errors import CommandFailure, Interrupted
from service.models.config.model import DEFAULT_MODEL, ModelConfig, default_config
from service.parsing.files.reader import read_examples, read_rows
from service.parsing.files.source import STANDARD_INPUT, InputFiles
from service.runtime.kernels import interrupts_held
from service.runtime.memory import retain_large_blocks
from service.settings import Settings

if TYPE_CHECKING:
    from model_core.hashing.encoder import Features
    from service.cli.replay.parts import Slices
    from service.models.replica import Replica

log = logging.getLogger(__name__)

ROWS_WITH_NAMES = 10_000


def replay_without_loading(plan: ReplayPlan, settings: Settings) -> ReplaySummary:
    """Learn from an empty state, and store nothing. Raises InvalidInput, CommandFailure, UnreadableFile."""
    config = _config_of_new(plan, settings)
    with InputFiles(*plan.files) as source:
        return _learn(plan, source, config, config.empty_state())


def replay_offline(plan: ReplayPlan, settings: Settings) -> ReplaySummary:
    """Learn from the model's present state, which the result replaces unless the model learned meanwhile.

    `settings` name the server. Raises UnfitServer, ModelConflict, ContractMismatch, InvalidInput,
    CommandFailure, UnreadableFile, and what bulk_load and Channel.call raise; then the model is as it was.
    """
    import asyncio

    with InputFiles(*plan.files) as source:  # before anything is created
        base = asyncio.run(_present_state(plan, settings))
        rounds_before = base.state.t
        summary = _learn(plan, source, base.config, base.state)
    if base.state.t == rounds_before:
        return summary
    log.info("loading %d features into Redis", base.state.features_seen)
    started = time.perf_counter()
    try:
        asyncio.run(_load(plan, base, settings))
    except KeyboardInterrupt:
        raise Interrupted(
            f"the file was learned, but perhaps not stored: model {plan.model} has all of it or nothing"
            " (`ftrl models` shows its examples)"
        ) from None
    return replace(summary, load_seconds=time.perf_counter() - started)


def _learn(plan: ReplayPlan, source: InputFiles, config: ModelConfig, state: ModelState) -> ReplaySummary:
    """Learn the file, as often as the plan says; `source` is read in the first pass.

    Raises CommandFailure, UnreadableFile.
    """
    retain_large_blocks()
    if source.size is not None:
        state.prepare_for(plan.passes * source.size)
    with interrupts_held():
        _warm_up(plan, config)  # the figures are those of the pass, not of loading the kernels
    slices = _slices(plan, config)
    with Tally(plan, source) as tally:
        try:
            for number in range(plan.passes):
                with source if number == 0 else InputFiles(*plan.files) as text:
                    held = _one_pass(plan, text, config, state, tally, slices)
                tally.end_pass(_predicted(config, state, held) if plan.holdout else None)
        except KeyboardInterrupt:
            raise Interrupted(f"{tally.so_far()}; nothing was stored") from None
    parts = () if slices is None else slices.parts()
    return tally.summary(state.features_seen, state.nonzero(config.hyper), parts)


def _warm_up(plan: ReplayPlan, config: ModelConfig) -> None:
    if config.hyper.number_of_experts == 1:
        rounds.warm_up()
    else:
        rounds.warm_up_mixture()
    if plan.file_format in ("vw", "libsvm"):
        from model_core.text import parser

        parser.warm_up(plan.file_format)


def _one_pass(
    plan: ReplayPlan,
    source: InputFiles,
    config: ModelConfig,
    state: ModelState,
    tally: Tally,
    slices: Slices | None,
) -> list[ExampleBatch]:
    """Learn the file once; return the held-out examples."""
    is_first = tally.in_first_pass
    encoder = slices.encoder if slices is not None and is_first else None
    held: list[ExampleBatch] = []
    chunks = read_examples(source, plan.file_format, config.hashing, plan.options, encoder=encoder)
    with closing(chunks):
        for chunk in chunks:
            if is_first:
                for error in chunk.errors:
                    tally.bad_line(error)
                tally.duplicates += chunk.duplicates
            for batch in _without_last(chunk.batch, plan.holdout, held):
                with interrupts_held():  # one within the call of a kernel can end the process
                    learned = config.learn(state, batch)
                tally.learned(learned.margins, batch.labels, batch.weights, chunk.bytes_read)
                if slices is not None and is_first:
                    slices.add(learned.margins, batch)
    if held and not tally.rows:
        raise CommandFailure(
            f"--holdout {plan.holdout}: {source.name} has {sum(map(len, held)):,} examples, and none is left"
            " to learn: hold out fewer"
        )
    return held


def _without_last(batch: ExampleBatch, rows: int, held: list[ExampleBatch]) -> Iterator[ExampleBatch]:
    """Yield the examples of `held` and then of `batch`, but hold back the last `rows` of them in `held`."""
    held.append(batch)
    excess = sum(map(len, held)) - rows
    while held and excess >= len(held[0]):
        excess -= len(held[0])
        yield held.pop(0)
    if excess > 0:
        first = held[0]
        held[0] = first.slice(excess, len(first))
        yield first.slice(0, excess)


def _predicted(config: ModelConfig, state: ModelState, held: list[ExampleBatch]) -> Predicted:
    batch = ExampleBatch.concatenate(held)
    weights = batch.weights if batch.weights.size else None
    return Predicted(config.margins(state, batch), compact(batch.labels), weights)


def _slices(plan: ReplayPlan, config: ModelConfig) -> Slices | None:
    if not plan.slices:
        return None
    from service.cli.replay.parts import Slices

    return Slices(plan.slices, config.hashing, plan.options.limits)


async def _present_state(plan: ReplayPlan, settings: Settings) -> Replica:
    from service.cli.replay.contract import check_contract
    from service.models.registry import ensure_model
    from service.models.replica import ModelGone, load_replica
    from service.storage.channel import open_channel

    await _check_server(settings)
    async with open_channel(settings) as channel:
        if plan.config:
            await ensure_model(channel, plan.model, _config_of_new(plan, settings))
        try:
            base = await load_replica(channel, plan.model)
        except ModelGone:
            await ensure_model(channel, plan.model, _config_of_new(plan, settings))
            base = await load_replica(channel, plan.model)
    check_contract(plan.model, plan.contract, base.config.hashing.to_json(), plan.config.get("hashing", {}))
    return base


async def _check_server(settings: Settings) -> None:
    """Raises UnfitServer if the service would not start on it."""
    from service.storage.health import ServerHealth
    from service.storage.topology import connect

    topology = connect(settings, str(settings.redis_url))
    health = ServerHealth(topology, settings)
    try:
        await health.check()
    finally:
        await health.close()
        await topology.close()


def _config_of_new(plan: ReplayPlan, settings: Settings) -> ModelConfig:
    """The configuration that the plan gives, or else the service's own default."""
    if plan.model == DEFAULT_MODEL and not plan.config:
        return ModelConfig.from_json(plan.config_of_new(default_config(settings).to_json()))
    return ModelConfig.from_json(plan.config_of_new())


async def _load(plan: ReplayPlan, base: Replica, settings: Settings) -> None:
    from service.models.bulk_load import bulk_load
    from service.models.feature_names import MAX_NAMES, names_seen, note_first_names, weighted
    from service.storage.channel import open_channel

    async with open_channel(settings) as channel:
        await bulk_load(channel, base, base.state)
        if settings.feature_names and plan.files != (STANDARD_INPUT,):
            seen = names_seen(_first_features(plan, base.config), base.config.hashing, plan.options.limits)
            await note_first_names(channel, plan.model, weighted(dict(seen.most_common(MAX_NAMES))))


def _first_features(plan: ReplayPlan, config: ModelConfig) -> Iterator[Features]:
    """Yield the features of the first ROWS_WITH_NAMES rows, which are read once more for that."""
    with (
        InputFiles(*plan.files) as source,
        closing(read_rows(source, plan.file_format, config.hashing, plan.options)) as rows,
    ):
        for row in islice(rows, ROWS_WITH_NAMES):
            if not isinstance(row, LineError):
                yield row.features

"""`ftrl replay --offline` and `--dry-run`: a file directly into the kernels, then the state into Redis.

Modules that access Redis are imported by the functions that use them: a dry run starts without them.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from model_core.learning.state import ModelState
from model_core.warm_up import Family, warm_up
from service.cli.replay.summary import ReplayPlan, ReplaySummary, Tally
from service.models.config.model import DEFAULT_MODEL, ModelConfig, default_config
from service.parsing.files.reader import read_examples
from service.parsing.files.source import TextSource
from service.runtime.kernels import interrupts_held
from service.settings import Settings

if TYPE_CHECKING:
    from service.models.replica import Replica

log = logging.getLogger(__name__)


def replay_without_loading(plan: ReplayPlan, settings: Settings) -> ReplaySummary:
    """Learn from an empty state, and store nothing. Raises InvalidInput, CommandFailure, UnreadableFile."""
    config = _config_of_new(plan, settings)
    with TextSource(plan.file) as source:
        return _one_pass(plan, source, config, ModelState.empty(config.hashing.bits))


def replay_offline(plan: ReplayPlan, settings: Settings) -> ReplaySummary:
    """Learn from the model's present state, which the result replaces unless the model learned meanwhile.

    `settings` name the server. Raises UnfitServer, ModelConflict, ContractMismatch, InvalidInput,
    CommandFailure, UnreadableFile, and what bulk_load and Channel.call raise; then the model is as it was.
    """
    import asyncio

    with TextSource(plan.file) as source:  # before anything is created
        base = asyncio.run(_present_state(plan, settings))
        rounds_before = base.state.t
        summary = _one_pass(plan, source, base.config, base.state)
    if base.state.t == rounds_before:
        return summary
    log.info("loading %d features into Redis", base.state.features_seen)
    started = time.perf_counter()
    asyncio.run(_load(base, settings))
    return replace(summary, load_seconds=time.perf_counter() - started)


def _one_pass(plan: ReplayPlan, source: TextSource, config: ModelConfig, state: ModelState) -> ReplaySummary:
    state.use_large_pages()
    families: list[Family] = ["learning"]
    if plan.file_format in ("vw", "libsvm"):
        families.append(plan.file_format)
    with interrupts_held():
        warm_up(families)  # the figures are those of the pass, not of loading the kernels
    examples = read_examples(source, plan.file_format, config.hashing, plan.options)
    with closing(examples), Tally(plan, source) as tally:
        for chunk in examples:
            for error in chunk.errors:
                tally.bad_line(error)
            tally.duplicates += chunk.duplicates
            learned = config.learn(state, chunk.batch)
            tally.learned(learned.margins, chunk.batch.labels, chunk.batch.weights, chunk.bytes_read)
    return tally.summary(state.features_seen, state.nonzero(config.hyper))


async def _present_state(plan: ReplayPlan, settings: Settings) -> Replica:
    from service.models.registry import ensure_model
    from service.models.replica import ModelGone, load_replica
    from service.storage.channel import open_channel

    await _check_server(settings)
    async with open_channel(settings) as channel:
        if plan.config:
            await ensure_model(channel, plan.model, _config_of_new(plan, settings))
        try:
            return await load_replica(channel, plan.model)
        except ModelGone:
            await ensure_model(channel, plan.model, _config_of_new(plan, settings))
            return await load_replica(channel, plan.model)


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
        return default_config(settings)
    return ModelConfig.from_json(plan.config)


async def _load(base: Replica, settings: Settings) -> None:
    from service.models.bulk_load import bulk_load
    from service.storage.channel import open_channel

    async with open_channel(settings) as channel:
        await bulk_load(channel, base, base.state)

"""`ftrl replay --offline`: a file straight into the kernels, then the whole state into Redis at once."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from model_core.learning import warm_up
from model_core.state import ModelState
from model_core.text_formats import warm_up as warm_up_parsers
from service.bulk_load import bulk_load
from service.model_config import ModelConfig
from service.models import ensure_model
from service.readers import read_examples
from service.redis_client import Channel, connect
from service.replay import ReplayPlan, ReplaySummary, Tally
from service.replica import ModelGone, Replica, load_replica
from service.settings import Settings
from service.text_sources import TextSource


def replay_without_loading(plan: ReplayPlan) -> ReplaySummary:
    """From an empty state, and nothing is kept. Raises InvalidInput, CommandFailure, UnreadableFile."""
    config = ModelConfig.from_json(plan.config_body)
    return _one_pass(plan, config, ModelState.empty(config.hashing.bits))


def replay_offline(plan: ReplayPlan, settings: Settings) -> ReplaySummary:
    """From the model's present state, which the result replaces unless the model learned meanwhile.

    `settings` name the server. Raises ModelConflict, ModelMoved, InvalidInput, CommandFailure,
    UnreadableFile, and what Channel.call raises.
    """
    base = asyncio.run(_present_state(plan, settings))
    summary = _one_pass(plan, base.config, base.state)
    started = time.perf_counter()
    asyncio.run(_load(base, settings))
    return replace(summary, load_seconds=time.perf_counter() - started)


def _one_pass(plan: ReplayPlan, config: ModelConfig, state: ModelState) -> ReplaySummary:
    warm_up()  # the figures are those of the pass, not of loading the kernels
    warm_up_parsers()
    with TextSource(plan.file) as source, Tally(plan, source) as tally:
        for chunk in read_examples(source, plan.file_format, config.hashing, plan.options):
            for error in chunk.errors:
                tally.bad_line(error)
            learned = config.learn(state, chunk.batch)
            tally.learned(learned.margins, chunk.batch.labels, chunk.batch.weights, chunk.bytes_read)
    return tally.summary(state.features_seen, state.nonzero(config.hyper))


async def _present_state(plan: ReplayPlan, settings: Settings) -> Replica:
    client = connect(settings, str(settings.redis_url))
    channel = Channel(client)
    try:
        if plan.configures:
            await ensure_model(channel, plan.model, ModelConfig.from_json(plan.config_body))
        try:
            return await load_replica(channel, plan.model)
        except ModelGone:
            await ensure_model(channel, plan.model, ModelConfig())
            return await load_replica(channel, plan.model)
    finally:
        await channel.close()
        await client.aclose()


async def _load(base: Replica, settings: Settings) -> None:
    client = connect(settings, str(settings.redis_url))
    channel = Channel(client)
    try:
        await bulk_load(channel, base, base.state)
    finally:
        await channel.close()
        await client.aclose()

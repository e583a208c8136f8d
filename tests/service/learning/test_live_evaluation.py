"""The evaluation that the learner stores with its commits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest

from service.example_log.incoming import NewExamples
from service.models.bulk_load import bulk_load
from service.models.config.model import ModelConfig
from service.models.registry import OpenModel
from service.storage.channel import open_channel
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.system import (
    System,
    assert_state_is_a_pass_over_the_log,
    examples,
    stored,
    stored_evaluation,
)
from tests.support.waiting import until

SLICED = ModelConfig.from_json({"hashing": {"bits": 14}, "evaluation": {"slices": ["ad"], "most": 4}})


@pytest.fixture
async def system(valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[System]:
    async with System(make_settings(valkey)) as system:
        yield system


async def update(system: System, model: OpenModel, count: int, start: int = 0) -> None:
    """As a request does that names the ads of its examples."""
    bodies = "".join(f'{{"ad": "a{i % 13}"}}' for i in range(start, start + count)).encode()
    new = NewExamples.of(examples(model, count, start))._replace(slice_names=model.new_slice_names(bodies))
    await system.submit(model, new, wait=True)


async def test_a_new_learner_counts_nothing_twice(system: System) -> None:
    model = await system.model(SLICED)
    learning = system.learn()
    await update(system, model, 200)
    learning.cancel()
    await until(learning.done)
    system.learn()
    await update(system, model, 200, start=200)
    replica = await assert_state_is_a_pass_over_the_log(system.topology)
    evaluation = await stored_evaluation(system.topology, replica)
    assert evaluation.progressive.figures("all").examples == 400
    assert evaluation.slices is not None
    assert sum(s.figures.examples for s in evaluation.slices.figures("all")) == 400
    assert {name.value for name in evaluation.names.values()} == {f"a{i}" for i in range(13)}


async def test_slice_values_of_another_process_are_known_in_time(
    system: System, valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    config = ModelConfig.from_json({"evaluation": {"slices": ["ad"]}})
    model = await system.model(config)
    system.learn()
    await update(system, model, 3)
    async with System(make_settings(valkey)) as other:
        theirs = await other.model(config)
        await update(other, theirs, 3, start=3)
    await update(system, model, 3, start=3)
    replica = await assert_state_is_a_pass_over_the_log(system.topology)
    slices = (await stored_evaluation(system.topology, replica)).slices
    assert slices is not None
    assert sorted(s.figures.examples for s in slices.figures("all")) == [0, 1, 1, 1, 2, 2, 2]


async def test_served_predictions_are_evaluated_by_what_was_served(system: System) -> None:
    model = await system.model(SLICED)
    system.learn()
    new = NewExamples.of(examples(model, 400))
    served = np.where(np.arange(400) % 2, np.nan, -1.5)
    ids = [bytes([i % 2]) * 16 if i % 2 == 0 else b"" for i in range(400)]
    batch = replace(new.batch, prediction_ids=ids, served_margins=served)
    await system.submit(model, new._replace(batch=batch), wait=True)
    replica = await assert_state_is_a_pass_over_the_log(system.topology)
    evaluation = await stored_evaluation(system.topology, replica)
    assert evaluation.progressive.figures("all").examples == 400
    assert evaluation.served is not None
    assert evaluation.served.figures("all").examples == 200


async def test_a_damaged_evaluation_restarts_and_learning_continues(system: System) -> None:
    model = await system.model(SLICED)
    learning = system.learn()
    await update(system, model, 50)
    learning.cancel()
    await until(learning.done)
    key = model.mirror.replica.keys.evaluation
    async with open_channel(system.settings) as channel:
        await channel.call("HSET", key, b"p\0\0\0\0", b"damaged", b"x", b"foreign")
        system.learn()
        await update(system, model, 30, start=50)
        assert await channel.call("HEXISTS", key, b"x") == 0
    replica = await stored(system.topology)
    assert replica.state.t == 80
    assert (await stored_evaluation(system.topology, replica)).progressive.figures("all").examples == 30


@pytest.mark.parametrize("kept", [False, True])
async def test_a_bulk_load_restarts_the_evaluation_unless_kept(system: System, kept: bool) -> None:
    model = await system.model(SLICED)
    learning = system.learn()
    await update(system, model, 50)
    learning.cancel()
    await until(learning.done)
    base = await stored(system.topology)
    async with open_channel(system.settings) as channel:
        await bulk_load(channel, base, base.state, keep_evaluation=kept)
    system.learn()
    await update(system, model, 30, start=50)
    evaluation = await stored_evaluation(system.topology, await stored(system.topology))
    assert evaluation.progressive.figures("all").examples == (80 if kept else 30)


async def test_examples_that_are_skipped_do_not_count(system: System) -> None:
    model = await system.model(ModelConfig.from_json({"hyper": {"rate": {"kind": "adaptive", "alpha": 1e6}}}))
    system.learn()
    new = NewExamples.of(examples(model, 4))
    batch = replace(new.batch, values=np.full(new.batch.hashes.size, 1e300))
    results = await system.submit(model, new._replace(batch=batch), wait=True)
    skipped = results.statuses.count("skipped")
    assert skipped
    replica = await assert_state_is_a_pass_over_the_log(system.topology)
    figures = (await stored_evaluation(system.topology, replica)).progressive.figures("all")
    assert figures.examples == 4 - skipped

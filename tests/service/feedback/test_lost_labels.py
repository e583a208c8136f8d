"""Labels whose examples a server has lost are counted, as updates are."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import numpy as np

from model_core.examples.batch import ExampleBatch
from service.example_log.incoming import NewLabel
from service.feedback.labels import TakenLabels, record_predictions, take_labels
from service.models.config.model import ModelConfig
from service.models.registry import OpenModel
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.system import System, read_log, stored
from tests.support.waiting import until

AT_ARRIVAL = ModelConfig.from_json({"feedback": {"exposure": "on_predict", "learn_at": "arrival"}})


async def test_labels_lost_in_a_failover_are_counted(
    fresh_valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(fresh_valkey)) as system:
        model = await system.model(AT_ARRIVAL)
        await predict(system, model, ["a", "b", "c"])
        assert await label(system, model, ["a", "b", "a"]) == "JJD"
        assert await lost(system) == 0
        await as_a_replica_that_lacks_the_newest_entry(system)
        assert await label(system, model, ["c"]) == "J"
        assert await lost(system) == 2


async def test_a_label_lost_in_a_failover_is_not_in_the_log(
    fresh_valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(fresh_valkey)) as system:
        model = await system.model(AT_ARRIVAL)
        await predict(system, model, ["a", "b"])
        kept, labels_kept = await take(system, model, "a")
        lost, labels_lost = await take(system, model, "b")
        repeated, _ = await take(system, model, "b")
        await as_a_replica_that_lacks_the_newest_entry(system)
        await until(lambda: model.mirror.source not in (kept.source, lost.source), "the mirror reconnects")
        assert await kept.are_in_log(labels_kept)
        assert not await lost.are_in_log(labels_lost)
        assert not await repeated.are_in_log(labels_lost)


async def take(system: System, model: OpenModel, prediction_id: str) -> tuple[TakenLabels, list[NewLabel]]:
    labels = [NewLabel(prediction_id, 1, 1.0)]
    others = no_models()
    (part,) = await take_labels(
        system.feedback, model, others, lambda _: others, labels, time.monotonic() + 30
    )
    return part, labels


async def no_models() -> AsyncIterator[OpenModel]:
    none: list[OpenModel] = []
    for model in none:
        yield model


async def predict(system: System, model: OpenModel, ids: list[str]) -> None:
    batch = ExampleBatch.from_encoded([([1, 2], None)] * len(ids))
    names, logged = await record_predictions(system.feedback, model, batch, np.zeros(len(ids)), ids, {})
    assert (names, logged) == (ids, [True] * len(ids))


async def label(system: System, model: OpenModel, ids: list[str]) -> str:
    deadline = time.monotonic() + 30
    answers = await system.feedback.label(model, [(text, 1, 1.0) for text in ids], deadline)
    return "".join(answer.outcome.value for answer in answers)


async def lost(system: System) -> float:
    """There from the first label on."""
    lines = system.metrics.render().decode().splitlines()
    (line,) = [line for line in lines if line.startswith('ftrl_examples_lost_total{model="clicks"}')]
    return float(line.rpartition(" ")[2])


async def as_a_replica_that_lacks_the_newest_entry(system: System) -> None:
    replica = await stored(system.topology)
    newest = (await read_log(system.topology, replica))[-1]
    await system.client.xdel(replica.keys.log, str(newest.id))
    await system.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

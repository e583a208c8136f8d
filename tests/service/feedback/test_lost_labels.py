"""Labels whose examples a server has lost are counted, as updates are."""

from __future__ import annotations

import time

import numpy as np

from model_core.examples.batch import ExampleBatch
from service.feedback.labels import record_predictions
from service.models.config.model import ModelConfig
from service.models.registry import OpenModel
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.system import System, read_log, stored

AT_ARRIVAL = ModelConfig.from_json({"feedback": {"exposure": "on_predict", "learn_at": "arrival"}})


async def test_what_was_appended_for_labels_and_is_lost_at_a_failover_is_counted(
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

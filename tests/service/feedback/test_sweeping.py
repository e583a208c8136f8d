"""The rate at which pending predictions of a model are swept, without a learner."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import numpy as np
import pytest

from model_core.examples.batch import ExampleBatch
from service.feedback.recorder import Served
from service.feedback.store import Swept
from service.feedback.sweeper import sweep_pending
from service.models.config.model import ModelConfig
from service.models.registry import OpenModel
from service.runtime.tasks import cancel_all
from service.storage.scripts.feedback import LogOutcome
from tests.conftest import SettingsFactory
from tests.support.servers import ServerProcess
from tests.support.system import System
from tests.support.waiting import until

SHORT = {"exposure": "on_predict", "window_seconds": 1, "late_seconds": 60}


class Sweeping:
    """Sweepers of several models, with the last result of each and the number of its sweeps."""

    def __init__(self, system: System) -> None:
        self.sweeps: Counter[str] = Counter()
        self.found: dict[str, Swept] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self._system = system

    def begin(self, model: str) -> None:
        show = partial(self._show, model)
        work = sweep_pending(self._system.topology, model, self._system.settings, show)
        self.tasks.append(asyncio.create_task(work))

    def _show(self, model: str, swept: Swept, _: ModelConfig) -> None:
        self.sweeps[model] += 1
        self.found[model] = swept

    def open(self, model: str) -> int:
        return self.found[model].pending["open"] if model in self.found else -1


async def record(system: System, model: OpenModel, count: int) -> None:
    batch = ExampleBatch.from_encoded([([1, 2, 3], None)] * count)
    served = Served(batch, np.zeros(count), None, commit=1, token=b"token", check=False)
    assert (await system.feedback.of(model).predictions.record(served)).outcomes == [
        LogOutcome.LOGGED
    ] * count


@pytest.mark.slow
async def test_a_full_backlog_does_not_make_sweeps_more_frequent(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(valkey, backlog_limit_examples=1)) as system:
        full = await system.model(ModelConfig.from_json({"feedback": SHORT}), "full")
        await system.model(name="idle")
        await record(system, full, 3)
        sweeping = Sweeping(system)
        sweeping.begin("full")
        sweeping.begin("idle")
        await until(lambda: sweeping.open("full") == 2)
        before = sweeping.sweeps.copy()
        await until(lambda: sweeping.sweeps["idle"] >= before["idle"] + 3)
        assert sweeping.sweeps["full"] - before["full"] < 10
        with valkey.client() as client:  # as a learner does
            client.hset(full.mirror.replica.keys.meta, "applied_number", 1)
        await until(lambda: sweeping.open("full") == 1)
        with valkey.client() as client:
            client.hset(full.mirror.replica.keys.meta, "applied_number", 2)
        await until(lambda: sweeping.open("full") == 0)
        await cancel_all(sweeping.tasks)

"""A model that has become worse is rolled back to its good snapshot, once."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import pytest

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.learning.rounds import Learned
from service.example_log.incoming import NewExamples
from service.models.config.model import ModelConfig
from service.models.config.sections import AutoRollback
from service.models.registry import OpenModel
from service.snapshots.rollback.gate import RollbackGate
from service.snapshots.rollback.paired_losses import GoodModel, PairedLosses, Verdict
from service.snapshots.store.catalogue import SnapshotStore
from service.storage.records import LogEntry, LogId
from tests.conftest import SettingsFactory
from tests.support.proxy import Proxy
from tests.support.servers import ServerProcess
from tests.support.snapshot_samples import sample
from tests.support.snapshot_systems import catalogue, restored, take
from tests.support.system import System, stored
from tests.support.waiting import until

GATED = ModelConfig.from_json(
    {"hashing": {"bits": 14}, "snapshots": {"auto_rollback": {"examples": 2000, "margin": 0.01}}}
)
POISONED = 20_000
MIXTURE: dict[str, object] = {
    "rate": {"kind": "mixture", "experts": [{"alpha": 1.0, "l1": 0.1}, {"half_life_examples": 50.0}]}
}


class Stream:
    """Examples whose clicks follow from 200 features, five of them in each."""

    def __init__(self, seed: int = 1) -> None:
        self._random = np.random.default_rng(seed)
        self._effects = np.random.default_rng(0).normal(0, 1.0, 200)

    def examples(self, count: int, *, flipped: bool = False) -> ExampleBatch:
        chosen = self._random.integers(0, 200, (count, 5))
        clicked = self._random.random(count) < 1 / (1 + np.exp(-self._effects[chosen].sum(axis=1)))
        return ExampleBatch.from_encoded(
            [(row, None) for row in chosen.tolist()], (clicked ^ flipped).tolist()
        )


async def learn(system: System, model: OpenModel, examples: ExampleBatch) -> None:
    goal = model.mirror.replica.applied_number + len(examples)
    for start in range(0, len(examples), 2000):
        batch = examples.slice(start, start + 2000)
        await system.submit(model, NewExamples(batch), False)
    await until(lambda: model.mirror.replica.applied_number == goal)


def rollbacks(system: System) -> float:
    for line in system.metrics.render().decode().splitlines():
        if line.startswith('ftrl_rollbacks_total{model="clicks"}'):
            return float(line.split()[-1])
    return 0.0


async def test_after_20_000_flipped_labels_the_model_goes_back_once(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    system.learn()
    model, stream = await system.model(GATED), Stream()
    await learn(system, model, stream.examples(10_000))
    good = await take(system, model, "good")
    await learn(system, model, stream.examples(POISONED, flipped=True))
    assert rollbacks(system) == 0, "while the flipped labels come, the model predicts them better"
    await learn(system, model, stream.examples(4000))
    await until(lambda: rollbacks(system) == 1)
    rollback_line = (
        r"model clicks is rolled back: over the 2000 examples before number (\d+) .* that of snapshot (\S+)"
    )
    found = re.search(rollback_line, caplog.text)
    assert found is not None
    assert found[2] == good["id"]
    assert 30_000 < int(found[1]) < 32_000, "before as many right labels came as are compared"
    replica = await stored(system.topology)
    assert replica.generation == 1
    reasons = [catalogue(system).header(entry).reason for entry in catalogue(system).entries()]
    assert "before restore" in reasons
    await learn(system, model, stream.examples(POISONED, flipped=True))
    await learn(system, model, stream.examples(4000))
    await until(lambda: "was already rolled back once" in caplog.text)
    assert rollbacks(system) == 1


async def test_a_model_that_learns_what_is_right_stays(system: System) -> None:
    system.learn()
    model, stream = await system.model(GATED), Stream()
    await learn(system, model, stream.examples(2000))
    await take(system, model, "good")
    await learn(system, model, stream.examples(10_000))
    assert (rollbacks(system), (await stored(system.topology)).generation) == (0, 0)


async def test_without_a_good_snapshot_a_model_stays(system: System) -> None:
    system.learn()
    model, stream = await system.model(GATED), Stream()
    await learn(system, model, stream.examples(2000))
    await take(system, model)
    await learn(system, model, stream.examples(6000, flipped=True))
    await learn(system, model, stream.examples(4000))
    assert (rollbacks(system), (await stored(system.topology)).generation) == (0, 0)


async def test_a_model_that_was_restored_while_it_was_compared_stays(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    system.learn()
    model, stream = await system.model(GATED), Stream()
    await learn(system, model, stream.examples(2000))
    await take(system, model, "good")
    compared, store = await stored(system.topology), SnapshotStore(system.settings)
    await restored(system, "good")
    gate = RollbackGate(system.topology, "clicks", store, system.metrics)
    batch = stream.examples(2000)
    wrong = Learned(np.where(batch.labels == 1, -9.0, 9.0), np.zeros(2000, np.uint8))
    gate.add(compared, LogEntry(LogId(1, 0), 2000, 0, b""), batch, wrong)
    gate.judge(compared)
    await until(lambda: "while it was compared" in caplog.text)
    await gate.close()
    assert (rollbacks(system), (await stored(system.topology)).generation) == (0, 1)


async def test_an_interrupted_rollback_may_be_tried_again(
    valkey: ServerProcess, make_settings: SettingsFactory, caplog: pytest.LogCaptureFixture
) -> None:
    settings = make_settings(valkey)
    async with (
        Proxy(valkey.socket_path) as proxy,
        System(settings.model_copy(update={"redis_url": proxy.url})) as system,
    ):
        system.learn()
        model, stream = await system.model(GATED), Stream()
        await learn(system, model, stream.examples(2000))
        await take(system, model, "good")
        held = proxy.hold("new_generation")
        stopped = await judged_bad(system, stream)
        await held.reached.wait()
        await stopped.close()
        proxy.behave()
        gate = await judged_bad(system, stream)
        await until(lambda: rollbacks(system) == 1)
        await gate.close()
        assert (await stored(system.topology)).generation > 0
        again = await judged_bad(system, stream)
        await until(lambda: "was already rolled back once" in caplog.text)
        await again.close()


async def judged_bad(system: System, stream: Stream) -> RollbackGate:
    """Return the gate of a learner that predicted everything wrong."""
    store, compared = SnapshotStore(system.settings), await stored(system.topology)
    gate = RollbackGate(system.topology, "clicks", store, system.metrics)
    batch = stream.examples(2000)
    wrong = Learned(np.where(batch.labels == 1, -9.0, 9.0), np.zeros(2000, np.uint8))
    gate.judge(compared)  # of another generation than none: what was added before would be forgotten
    gate.add(compared, LogEntry(LogId(1, 0), 2000, 0, b""), batch, wrong)
    gate.judge(compared)
    return gate


def empty_good() -> GoodModel:
    return GoodModel.of("id", sample(0))


def losses_of(
    live: list[float], labels: list[int], skipped: list[int], weights: list[float], max_examples: int = 100
) -> PairedLosses:
    losses = PairedLosses(empty_good(), max_examples)
    batch = ExampleBatch.from_encoded([([i], None) for i in range(len(labels))], labels, weights)
    losses.add(0, batch, Learned(np.array(live), np.array(skipped, np.uint8)))
    return losses


def test_the_difference_is_weighted_and_leaves_out_skipped_examples() -> None:
    live = [1.0, -2.0, np.nan, 0.5]
    verdict = losses_of(live, [1, 1, 1, 0], [0, 0, 1, 0], [1.0, 2.0, 50.0, 1.0]).verdict()
    losses = np.log1p(np.exp([-1.0, 2.0, 0.5]))
    differences, weights = losses - np.log(2), np.array([1.0, 2.0, 1.0])
    mean = differences @ weights / 4
    assert verdict.difference == pytest.approx(mean)
    assert verdict.error == pytest.approx(np.sqrt(weights**2 @ (differences - mean) ** 2) / 4)
    assert verdict.live - verdict.good == pytest.approx(mean)


def test_only_the_last_examples_count() -> None:
    losses = losses_of([9.0, 9.0, 1.0, -2.0], [0, 0, 1, 1], [0] * 4, [1.0] * 4, max_examples=2)
    assert len(losses) == 2
    assert losses.verdict().live == pytest.approx(np.log1p(np.exp([-1.0, 2.0])).mean())


@pytest.mark.parametrize("count", [0, 500])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("hyper", [{"l1": 0.1}, MIXTURE])
@pytest.mark.parametrize("prior", [0.1, "from_log"])
def test_a_good_model_predicts_what_the_snapshot_does(
    count: int, bias: bool, hyper: dict[str, object], prior: float | str
) -> None:
    hashing = {"bits": 16, "bias": bias, "prior_probability": prior}
    config = ModelConfig.from_json({"hyper": hyper, "hashing": hashing})
    snapshot, random = sample(count, config), np.random.default_rng(0)
    features = [(random.integers(0, 2**32, k).tolist(), random.normal(size=k).tolist()) for k in range(9)]
    seen = [(snapshot.slots[i : i + 5].tolist(), None) for i in range(0, len(snapshot.slots) - 6, 5)]
    for batch in (ExampleBatch.from_encoded(features), ExampleBatch.from_encoded([([], None), *seen])):
        expected = config.margins(snapshot.state(), batch)
        assert GoodModel.of("id", snapshot).margins(batch) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("difference", "error", "worse"),
    [(0.02, 0.001, True), (0.02, 0.01, False), (0.005, 0.0001, False), (-0.1, 0.0, False)],
)
def test_it_takes_margin_and_standard_errors_both(difference: float, error: float, worse: bool) -> None:
    assert Verdict(0.5, 0.5, difference, error).is_worse(AutoRollback(margin=0.01)) is worse


def test_a_window_of_skipped_examples_is_no_reason() -> None:
    assert not losses_of([np.inf], [1], [1], [1.0]).verdict().is_worse(AutoRollback(margin=0.0))


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ([], "snapshots"),
        ({"rollback": {}}, "snapshots.rollback"),
        ({"auto_rollback": True}, "snapshots.auto_rollback"),
        ({"auto_rollback": {"examples": 10}}, "snapshots.auto_rollback.examples"),
        ({"auto_rollback": {"margin": -1}}, "snapshots.auto_rollback.margin"),
        ({"auto_rollback": {"margin": 10**400}}, "snapshots.auto_rollback.margin"),
        ({"auto_rollback": {"margin": "1"}}, "snapshots.auto_rollback.margin"),
        ({"auto_rollback": {"often": 1}}, "snapshots.auto_rollback.often"),
    ],
)
def test_a_bad_section_is_refused_by_its_path(section: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ModelConfig.from_json({"snapshots": section})
    assert str(refused.value).startswith(f"{path}: ")


def test_the_section_is_off_by_default_and_then_not_stored() -> None:
    assert ModelConfig().snapshots.auto_rollback is None
    assert "snapshots" not in ModelConfig().canonical()
    on = ModelConfig.from_json({"snapshots": {"auto_rollback": {}}})
    assert on.snapshots.auto_rollback == AutoRollback()
    assert ModelConfig.from_json(on.to_json()) == on

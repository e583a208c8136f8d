"""Publishing by a learner between commits: how often, and how much at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from model_core.evaluation.figures import Figures, Window
from model_core.examples.batch import ExampleBatch
from service.learning.live_evaluation import (
    PAUSE_FACTOR,
    REPORT_EVERY_SECONDS,
    SLICES_EVERY_SECONDS,
    EvaluationPublisher,
)
from service.models.config.sections import EvaluationConfig
from service.models.evaluation.slices import SliceName
from service.models.evaluation.state import Evaluations
from service.models.mirror import Mirror
from service.storage.records import FIGURES, SHORT_SLICE_FIGURES, SLICE_FIGURES
from service.telemetry.metrics import Metrics

CONFIG = EvaluationConfig(("ad",), 100)
VALUES = 100
WORK_SECONDS = 0.25


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class WorkingMetrics(Metrics):
    """Each figure of a source, and each slice, takes its time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.slices_shown = 0

    def evaluated(self, model: str, source: str, figures: Figures) -> None:
        super().evaluated(model, source, figures)
        self._clock.now += WORK_SECONDS

    def sliced(self, model: str, feature: str, value: str, figures: Mapping[Window, Figures]) -> None:
        super().sliced(model, feature, value, figures)
        self._clock.now += 0.0015
        self.slices_shown += 1


def evaluations_of(examples: int) -> Evaluations:
    evaluations = Evaluations(CONFIG)
    evaluations.know({number: SliceName(0, f"a{number}") for number in range(VALUES)})
    random = np.random.default_rng(1)
    labels = (random.random(examples) < 0.5).astype(np.float64)
    hashes = np.arange(examples, dtype=np.uint32) % VALUES
    batch = ExampleBatch(np.arange(examples + 1), hashes, np.empty(0), labels, np.empty(0))
    evaluations.add(random.normal(size=examples), batch, 1_700_000_000_000)
    return evaluations


async def stored(mirror: Mirror, field: bytes) -> Any:
    text = await mirror.channel.call("HGET", mirror.replica.keys.evaluation, field)
    return None if text is None else json.loads(text)


async def test_each_turn_is_followed_by_a_pause_of_twenty_times_its_work(mirror: Mirror) -> None:
    clock = Clock()
    publisher = EvaluationPublisher("clicks", WorkingMetrics(clock), clock)
    publisher.restart(sliced=True)
    evaluations = evaluations_of(200)
    await publisher.turn(evaluations, mirror)
    assert await stored(mirror, FIGURES) is not None
    worked = clock.now - 100.0
    assert worked == 10 * WORK_SECONDS  # five windows, by weight and without
    rest = PAUSE_FACTOR * worked
    assert publisher.seconds_until_due() == rest
    clock.now += rest / 2
    await mirror.channel.call("HDEL", mirror.replica.keys.evaluation, FIGURES)
    publisher.mark_changed()
    await publisher.turn(evaluations, mirror)
    assert await stored(mirror, FIGURES) is None, "it rests"
    clock.now += rest / 2
    await publisher.turn(evaluations, mirror)
    assert await stored(mirror, FIGURES) is not None


async def test_slices_are_published_in_pieces_and_stored_together(
    mirror: Mirror,
) -> None:
    clock = Clock()
    metrics = WorkingMetrics(clock)
    publisher = EvaluationPublisher("clicks", metrics, clock)
    publisher.restart(sliced=True)
    evaluations = evaluations_of(300 * VALUES)
    most = turns = 0
    while (report := await stored(mirror, FIGURES)) is None or report["slices_t"] is None:
        clock.now += publisher.seconds_until_due()
        before = metrics.slices_shown
        await publisher.turn(evaluations, mirror)
        most, turns = max(most, metrics.slices_shown - before), turns + 1
    assert most <= 2, "of 1.5 ms each"
    assert turns > VALUES / 2
    slices, short = [await stored(mirror, field) for field in (SLICE_FIGURES, SHORT_SLICE_FIGURES)]
    assert set(slices["ad"]) == set(short["ad"]) == {"other", *(f"a{number}" for number in range(VALUES))}
    whole, cut = slices["ad"]["a7"]["1h"], short["ad"]["a7"]["1h"]
    assert (whole["examples"], cut["examples"]) == (300, 300)
    assert cut["log_loss"] == pytest.approx(whole["log_loss"], rel=1e-5)
    assert whole["unweighted"]["log_loss"] == whole["log_loss"]
    assert b'value="a7",window="1h"} 300.0' in metrics.render()


async def test_reports_are_published_more_often_than_slices(mirror: Mirror) -> None:
    clock = Clock()
    publisher = EvaluationPublisher("clicks", Metrics(), clock)
    publisher.restart(sliced=True)
    evaluations = evaluations_of(200)
    published = []
    for t in range(15):
        mirror.replica.state.t = t
        publisher.mark_changed()
        for _ in range(200):  # the clock stands still: each turn is at once
            await publisher.turn(evaluations, mirror)
        report = await stored(mirror, FIGURES)
        published.append((report["t"], report["slices_t"]))
        clock.now += REPORT_EVERY_SECONDS
    assert [t for t, _ in published] == list(range(15))
    assert {slices_t for _, slices_t in published if slices_t is not None} == {
        0,
        round(SLICES_EVERY_SECONDS),
        round(2 * SLICES_EVERY_SECONDS),
    }


async def test_reports_that_are_always_due_do_not_hold_up_the_census(mirror: Mirror) -> None:
    clock = Clock()
    publisher = EvaluationPublisher("clicks", WorkingMetrics(clock), clock)
    publisher.restart(sliced=False)
    evaluations = evaluations_of(200)
    for _ in range(4):
        publisher.mark_changed()
        clock.now += publisher.seconds_until_due()
        await publisher.turn(evaluations, mirror)
    assert publisher.census is not None


async def test_a_model_without_slices_stores_none(mirror: Mirror) -> None:
    clock = Clock()
    publisher = EvaluationPublisher("clicks", Metrics(), clock)
    publisher.restart(sliced=False)
    evaluations = Evaluations(EvaluationConfig())
    for _ in range(20):
        await publisher.turn(evaluations, mirror)
        clock.now += REPORT_EVERY_SECONDS
    assert (await stored(mirror, FIGURES))["slices_t"] is None
    assert await stored(mirror, SLICE_FIGURES) is None

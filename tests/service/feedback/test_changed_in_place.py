"""How labels are waited for is changed while predictions wait: each is learned once, by the new times."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from model_core.errors import InvalidInput
from service.errors import FixedAtCreation
from service.feedback.reconfigure import change_feedback
from service.models.config.model import ModelConfig, checked_config
from service.models.config.sections import FeedbackConfig
from service.models.registry import new_meta
from service.models.replica import ModelGone, read_meta
from service.storage.channel import Channel
from tests.conftest import SettingsFactory
from tests.service.feedback.conftest import KEYS, SHORT, Bench, id_of
from tests.support.servers import ServerProcess
from tests.support.system import System
from tests.support.waiting import until

MakeBench = Callable[..., Bench]
LONG = 120.0
"""Seconds; what waits so long is due up to 4 seconds later."""


class Model:
    """Benches of one model are processes of it, each with its own idea of what is in force."""

    def __init__(self, make_bench: MakeBench, **config: Any) -> None:
        self._make_bench, self._config = make_bench, config

    def bench(self) -> Bench:
        return self._make_bench(**self._config)

    async def create(self) -> None:
        config = ModelConfig.from_json({"feedback": SHORT | self._config})
        meta = new_meta(config) | {"incarnation": KEYS.incarnation}
        flat = [part for field in meta.items() for part in field]
        await self.bench().channel.call("HSET", KEYS.meta, *flat)

    async def change(self, **fields: Any) -> FeedbackConfig:
        return await change_feedback(self.bench().channel, KEYS.model, fields)

    async def in_force(self) -> FeedbackConfig:
        return checked_config(KEYS.model, await read_meta(self.bench().channel, KEYS.model)).feedback


@pytest.fixture
def make_model(make_bench: MakeBench) -> Callable[..., Any]:
    async def make(**config: Any) -> Model:
        model = Model(make_bench, **config)
        await model.create()
        return model

    return make


async def nothing_is_left(bench: Bench) -> None:
    for stage in ("unshown", "early", "open", "closed"):
        await bench.swept(stage)

    async def is_empty() -> bool:
        return not (await bench.sweep()).bytes

    await until(is_empty)
    assert await bench.keys() == []


async def test_a_raised_memory_limit_admits_predictions_at_once(make_model: Any) -> None:
    model = await make_model(max_bytes=1 << 16)
    one, other = model.bench(), model.bench()
    assert (await one.log(*range(1000))).endswith("F")
    assert await other.log(1000) == "F"
    await model.change(max_bytes=1 << 20)
    assert (await one.log(1001), await other.log(1002)) == ("L", "L")
    await model.change(max_bytes=1 << 16)
    assert (await one.log(1003), await other.log(1004)) == ("F", "F")


@pytest.mark.slow
async def test_what_is_open_gets_the_new_window_longer_or_shorter(make_model: Any) -> None:
    model = await make_model(exposure="on_predict", window_seconds=60)
    bench, other = model.bench(), model.bench()
    await bench.log(*range(1200))
    await model.change(window_seconds=LONG)
    swept = await other.sweep()
    assert (swept.pending["open"], swept.more, swept.oldest_seconds) == (
        1200,
        False,
        pytest.approx(0, abs=300),
    )
    assert await other.label((1, 1)) == "W"
    await model.change(window_seconds=1.5)
    swept = await bench.swept("open")
    assert (swept.counts["joined"], swept.counts["negative"]) == (1, 1199)
    examples = await bench.logged()
    assert sorted(examples.prediction_ids or []) == sorted(map(id_of, range(1200)))
    await nothing_is_left(bench)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("times", "changed"),
    [
        ({"unshown_seconds": LONG, "window_seconds": 2 * LONG}, {"window_seconds": 1.5}),
        ({"unshown_seconds": 2, "window_seconds": 2}, {"unshown_seconds": LONG}),
    ],
)
async def test_a_shown_prediction_listed_as_unshown_closes_by_its_window(
    make_model: Any, times: dict[str, float], changed: dict[str, float]
) -> None:
    model = await make_model(**times)
    bench = model.bench()
    await bench.log(*range(300))
    await bench.expose(*range(0, 300, 2))
    assert await bench.label((0, 1), (2, 1), weight=2.5) == "WW"
    assert await bench.label((1, 1)) == "G"
    assert await bench.expose(1) == "S"
    await model.change(**changed)
    swept = await model.bench().swept("open")
    assert (swept.counts["joined"], swept.counts["negative"]) == (3, 148)
    examples = await bench.logged()
    assert sorted(examples.prediction_ids or []) == sorted(map(id_of, [1, *range(0, 300, 2)]))


@pytest.mark.slow
async def test_a_window_is_not_closed_when_the_former_one_would_have_ended(make_model: Any) -> None:
    model = await make_model(exposure="on_predict", late_seconds=60)
    bench, closing = model.bench(), model.bench()
    await bench.log(1)
    await model.change(window_seconds=LONG)
    await bench.log(2)
    await bench.pass_time(2.2)
    assert (await closing.sweep()).pending == {"unshown": 0, "early": 0, "open": 2, "closed": 0}
    assert await bench.label((1, 1), (2, 1)) == "WW"
    await model.change(window_seconds=1)
    assert (await closing.swept("open")).counts["joined"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "stage"),
    [("unshown_seconds", "unshown"), ("grace_seconds", "early"), ("late_seconds", "closed")],
)
async def test_every_kind_that_waits_gets_its_new_time(make_model: Any, field: str, stage: str) -> None:
    model = await make_model(**{field: LONG})
    bench = model.bench()
    await bench.log(1)
    if stage == "early":
        assert await bench.label((1, 1)) == "G"
    if stage == "closed":
        await bench.expose(1)
        await bench.swept("open")
    assert (await bench.sweep()).pending[stage] == 1
    await model.change(**{field: 2 * LONG})
    assert (await bench.sweep()).pending[stage] == 1
    await model.change(**{field: 1})
    await nothing_is_left(bench)


async def test_an_early_click_outlives_the_former_limit_of_its_prediction(
    make_model: Any,
) -> None:
    model = await make_model()
    bench = model.bench()
    await bench.log(1, 2)
    assert await bench.label((1, 1)) == "G"
    await model.change(unshown_seconds=LONG)
    await bench.pass_time(2.2)
    swept = await bench.sweep()
    assert (swept.pending["unshown"], swept.pending["early"]) == (1, 1)
    assert await bench.expose(1, 2) == "SS"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((2, 1), (120, 1)),
        ((60, 30), (60, 1)),
        ((30, 60), (90, 1)),
        ((60, 1), (90, 120)),
        ((90, 60), (60, 90)),
    ],
)
async def test_after_a_change_a_label_never_shortens_its_predictions_time(
    make_model: Any, before: tuple[float, float], after: tuple[float, float]
) -> None:
    names = ("unshown_seconds", "grace_seconds")
    model = await make_model(**dict(zip(names, before, strict=True)))
    bench = model.bench()

    async def due() -> int:
        (early,) = [one for one in await bench.channel.call("HKEYS", KEYS.feedback) if one[:1] == b"g"]
        return int(early[1:])

    kept = int((await bench.channel.call("TIME"))[0])
    await bench.log(1)
    assert await bench.label((1, 1)) == "G"
    first = await due()
    await model.change(**dict(zip(names, after, strict=True)))
    assert await due() >= kept + max(after)
    await model.change(**dict(zip(names, before, strict=True)))
    assert await due() == first


@pytest.mark.slow
async def test_different_times_in_processes_lose_or_double_no_impression(
    make_bench: MakeBench,
) -> None:
    short, long = make_bench(), make_bench(window_seconds=3.5, unshown_seconds=4, late_seconds=30)
    await long.log(*range(100))
    await short.log(*range(100, 200))
    assert await short.expose(*range(0, 200, 2)) == "S" * 100
    assert await long.expose(*range(1, 200, 2)) == "S" * 100
    assert await long.label(*((number, 1) for number in range(0, 200, 3))) == "W" * 67
    async with asyncio.timeout(30):
        while (await short.sweep(40)).pending["open"]:  # each lists for the other what is not due there
            await long.sweep(40)
    examples = await short.logged()
    learned = dict(zip(examples.prediction_ids or [], examples.labels.tolist(), strict=True))
    assert (len(examples), learned) == (200, {id_of(number): int(number % 3 == 0) for number in range(200)})


@pytest.mark.slow
async def test_changes_while_everything_goes_on_lose_and_double_nothing(make_model: Any) -> None:
    model = await make_model(late_seconds=60, unshown_seconds=60, grace_seconds=90)
    random_numbers = random.Random(17)
    answers: dict[int, str] = {}

    async def traffic(first: int) -> None:
        bench = model.bench()
        for start in range(first, first + 300, 10):
            numbers = range(start, start + 10)
            assert await bench.log(*numbers) == "L" * 10
            if start % 20:
                early = await bench.label(*((number, 1) for number in numbers))
                answers.update(zip(numbers, early, strict=True))
            assert await bench.expose(*numbers) == "S" * 10
            if not start % 20:
                answers[start] = await bench.label((start, 1))

    async def change_all_the_time() -> None:
        while True:
            await model.change(
                window_seconds=random_numbers.choice([1, 1.7, 40, LONG]),
                learn_at=random_numbers.choice(["arrival", "window_close"]),
                unshown_seconds=random_numbers.choice([60, 90]),
                grace_seconds=random_numbers.choice([90, LONG]),
                late_seconds=random_numbers.choice([60, 90]),
            )
            await asyncio.sleep(0.005)

    async def sweep_all_the_time() -> None:
        bench = model.bench()
        while True:
            await bench.sweep(50)

    others = [asyncio.create_task(work()) for work in (change_all_the_time, sweep_all_the_time)]
    await asyncio.gather(traffic(0), traffic(10_000), traffic(20_000))
    for task in others:
        task.cancel()
    await asyncio.wait(others)
    await model.change(window_seconds=1, learn_at="window_close")
    bench = model.bench()
    await bench.swept("open")
    examples = await bench.logged()
    learned = dict(zip(examples.prediction_ids or [], examples.labels.tolist(), strict=True))
    sent = [number for first in (0, 10_000, 20_000) for number in range(first, first + 300)]
    assert len(examples) == len(learned) == len(sent)
    assert set(answers.values()) <= set("GWJT")
    clicked = {number for number, answer in answers.items() if answer != "T"}
    assert learned == {id_of(number): int(number in clicked) for number in sent}
    await model.change(unshown_seconds=1, grace_seconds=1, late_seconds=1)
    await nothing_is_left(bench)


async def test_changes_at_once_all_count(make_model: Any) -> None:
    model = await make_model()
    fields: list[dict[str, Any]] = [
        {"window_seconds": 7.0},
        {"grace_seconds": 8.0},
        {"unshown_seconds": 9.0},
        {"late_seconds": 10.0},
        {"max_bytes": 1 << 20},
        {"log": True},
        {"learn_at": "arrival"},
    ]
    await asyncio.gather(*(model.change(**one) for one in fields))
    in_force = (await model.in_force()).to_json()
    assert {name: in_force[name] for one in fields for name in one} == {
        name: value for one in fields for name, value in one.items()
    }


async def test_what_cannot_be_changed_is_refused_and_nothing_is(make_model: Any) -> None:
    model = await make_model()
    before = await model.in_force()
    with pytest.raises(FixedAtCreation, match="Clone the model with 'on_predict'"):
        await model.change(exposure="on_predict", window_seconds=5)
    with pytest.raises(InvalidInput, match="window_seconds"):
        await model.change(window_seconds=0)
    assert await model.in_force() == before
    assert await model.change(exposure=before.exposure, window_seconds=1) == before
    with pytest.raises(ModelGone):
        await change_feedback(model.bench().channel, "unknown", {})


async def test_a_change_that_the_server_has_lost_is_lost_for_all(make_model: Any) -> None:
    model = await make_model(max_bytes=1 << 16)
    bench = model.bench()
    await model.change(max_bytes=1 << 20)
    assert (await bench.log(*range(1000))).endswith("L")
    await bench.channel.call("HDEL", KEYS.meta, "feedback")  # as after a failover
    assert await bench.log(1000) == "F"


async def test_mirrors_follow_also_while_commits_come_all_the_time(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    settings = make_settings(valkey)
    async with System(settings) as system, System(settings) as other:
        system.learn()
        model, busy = await system.model(), await other.models.get("clicks")
        channel = Channel(system.topology)
        await change_feedback(channel, "clicks", {"log": True, "max_bytes": 1 << 20})
        await until(lambda: model.config.feedback.log and busy.config.feedback.log)
        learning = asyncio.create_task(system.update(model, 2000))
        await change_feedback(channel, "clicks", {"window_seconds": LONG})
        await until(lambda: busy.config.feedback.window_seconds == LONG)
        await learning
        await channel.close()

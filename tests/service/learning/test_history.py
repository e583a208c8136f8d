"""The history of a model: at most so many moments, by the model's own time, from one learner at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain

import pytest

from model_core.evaluation.figures import WINDOWS, Figures
from service.learning.history import HistoryWriter
from service.models.evaluation.report import Report
from service.models.history import STEP_SECONDS, Moment, Past, past_as_json, read_past, thinned
from service.models.mirror import Mirror
from service.models.promotions import Promotion
from service.storage.records import Meta, mapping_of
from service.storage.scripts import history
from service.storage.scripts.history import Mark, add_marks, read_entries

FIGURES = [Figures(window, "weight", 100, 60, auc=0.7, log_loss=0.4) for window in WINDOWS]
REPORT = Report("revision", 0, sources={"progressive": [(one, one) for one in FIGURES]})


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Leading:
    """A learner that leads, as far as the history needs it."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.clock = Clock()
        self.snapshot = ""
        self.writer = HistoryWriter("clicks", lambda: self.snapshot, self.clock)
        self.writer.lead()

    async def pass_time(self, learned: int = 1) -> Past:
        self.clock.now += STEP_SECONDS
        self.mirror.replica.state.t += learned
        await self.writer.add(REPORT, None, self.mirror)
        return await everything(self.mirror)


async def everything(mirror: Mirror) -> Past:
    """All moments by seconds, also those that a reader is not shown as they are close together."""
    channel, keys = mirror.channel, mirror.replica.keys
    rows = await read_entries(channel, keys.history[0], 0)
    marks = (await read_past(channel, keys, "1h", 0)).marks
    return Past([(at, Moment.unpack(fields[b"r"])) for at, fields in rows], marks)


async def test_a_moment_holds_the_figures_and_the_first_one_a_mark_of_the_start(mirror: Mirror) -> None:
    past = await Leading(mirror).pass_time()
    (_, moment), ((_, mark),) = past.moments[0], past.marks
    assert (moment.t, mark) == (1, Mark("start", ""))
    assert moment.figures[:2] == pytest.approx((0.7, 0.4))
    assert math.isnan(moment.density)
    shown = past_as_json(past, "1h")
    assert shown["windows"]["24h"]["auc"] == [0.7]
    assert shown["density"] == shown["learned"] == [None]


async def test_while_nothing_is_learned_a_moment_is_added_once_a_minute(mirror: Mirror) -> None:
    leading = Leading(mirror)
    numbers = [len((await leading.pass_time(learned=0)).moments) for _ in range(14)]
    assert numbers == [1] * 12 + [2] * 2
    assert len((await leading.pass_time()).moments) == 3


async def test_both_histories_and_the_marks_are_bounded(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SECONDS_KEPT", "MARKS_KEPT"):
        monkeypatch.setattr(history, name, 3)
    leading, past = Leading(mirror), Past([], [])
    for number in range(6):
        leading.snapshot = f"s{number}"
        past = await leading.pass_time()
    assert [moment.t for _, moment in past.moments] == [4, 5, 6]
    assert [mark.detail for _, mark in past.marks] == ["s3", "s4", "s5"]
    by_minutes = await read_past(mirror.channel, mirror.replica.keys, "30d", 0)
    assert len(by_minutes.moments) in (1, 2), "one for each five minutes"


async def test_a_learner_whose_state_is_not_the_latest_adds_nothing(mirror: Mirror) -> None:
    leading = Leading(mirror)
    await leading.pass_time()
    await mirror.channel.call("HSET", mirror.replica.keys.meta, "token", "another")
    assert len((await leading.pass_time()).moments) == 1


async def test_the_next_learner_marks_what_happened_while_none_led(mirror: Mirror) -> None:
    first = Leading(mirror)
    first.snapshot = "s1"
    await first.pass_time()
    await mirror.channel.call("HSET", mirror.replica.keys.meta, "base", "s1", "rolled_back", "s1")
    mirror.replica.generation += 1
    past = await Leading(mirror).pass_time()
    assert [mark for _, mark in past.marks] == [
        *(Mark("snapshot", "s1"), Mark("start", "")),
        *(Mark("rollback", "s1"), Mark("start", "")),
    ]


async def test_a_rollback_and_a_promotion_between_two_moments_are_both_marked(mirror: Mirror) -> None:
    leading = Leading(mirror)
    await leading.pass_time()
    promotion = Promotion(
        number=1,
        challenger="b",
        incarnation="",
        generation=0,
        snapshot="s2",
        before="s3",
        t=5,
        reason="asked for",
        milliseconds=0,
    )
    fields = {"base": "s2", "rolled_back": "s1", "promoted": promotion.packed()}
    await mirror.channel.call("HSET", mirror.replica.keys.meta, *chain.from_iterable(fields.items()))
    mirror.replica.generation += 2
    past = await leading.pass_time()
    assert [mark for _, mark in past.marks][1:] == [Mark("rollback", "s1"), Mark("promotion", "s2")]


async def test_a_clock_that_goes_back_leaves_the_order(mirror: Mirror) -> None:
    keys, channel = mirror.replica.keys, mirror.channel
    meta = Meta.parse(mapping_of(await channel.call("HGETALL", keys.meta)))
    assert meta.incarnation == keys.incarnation
    seconds = int((await channel.call("TIME"))[0])
    ahead = (seconds + 3600) * 1_000_000
    await channel.call("HSET", keys.meta, "clock", ahead, "clock_seen", seconds * 1_000_000)
    leading = Leading(mirror)
    await leading.pass_time()
    await channel.call("HDEL", keys.meta, "clock", "clock_seen")
    past = await leading.pass_time()
    assert [moment.t for _, moment in past.moments] == [1, 2]
    assert past.moments[1][0] >= past.moments[0][0] >= ahead // 1000
    assert await add_marks(channel, replace(keys, incarnation="gone"), [Mark("alias", "")]) is False


def test_gaps_and_longer_spans_are_shown() -> None:
    moment = Moment(10, 0, 0, 0.5, (0.5,) * 12, (0.25, 0.75))
    shown = past_as_json(
        Past([(0, moment), (5_000, moment._replace(t=110)), (500_000, moment._replace(t=20))], []), "1h"
    )
    assert shown["learned"] == [None, 20.0, None, None]
    assert shown["experts"][1] == [0.75, 0.75, None, 0.75]
    assert [at for at, _ in thinned([(k * 300_000, b"") for k in range(24)], 3600.0)] == [
        3_300_000,
        6_900_000,
    ]
    assert past_as_json(Past([], []), "7d")["time"] == []
    assert Moment.unpack(moment.packed()) == moment

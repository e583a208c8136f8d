"""Pending predictions while clocks jump: a laptop that slept, a correction of the time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ServerFactory
from tests.service.feedback.conftest import Bench, id_of
from tests.support.server_clock import CallerClock, ServerClock
from tests.support.servers import ServerProcess

MakeBench = Callable[..., Bench]
HOUR = 3600
LONG = {"window_seconds": 60, "unshown_seconds": 60, "grace_seconds": 60, "late_seconds": 2 * HOUR}


@pytest.fixture
def clock(tmp_path: Path) -> ServerClock:
    return ServerClock(tmp_path)


@pytest.fixture
def valkey(
    clock: ServerClock, server_factory: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> ServerProcess:
    """In place of the one for all tests: its clock is the test's."""
    with monkeypatch.context() as environment:
        for name, value in clock.environment.items():
            environment.setenv(name, value)
        return server_factory(appendonly=False)


async def jump(bench: Bench, clock: ServerClock, seconds: int) -> None:
    """Time has passed, or both clocks were set: that of the server, and that of the process."""
    caller = CallerClock()
    caller.ahead_seconds = seconds
    bench.topology.clock = caller
    await clock.jump(bench.channel, seconds)


def ids(*numbers: int) -> list[bytes]:
    return [id_of(number) for number in numbers]


async def test_after_a_jump_ahead_pending_impressions_are_learned_once(
    make_bench: MakeBench, clock: ServerClock
) -> None:
    bench = make_bench(**LONG)
    await bench.log(*range(6))
    await bench.expose(0, 1, 2, 3)
    assert await bench.label((1, 1), (4, 1)) == "WG"
    await jump(bench, clock, HOUR)
    assert await bench.label((2, 1)) == "W", "it is not closed yet"
    swept = await bench.swept("open")
    examples = await bench.logged()
    assert sorted(examples.prediction_ids or []) == ids(0, 1, 2, 3)
    learned = dict(zip(examples.prediction_ids or [], examples.labels.tolist(), strict=True))
    assert [learned[one] for one in ids(0, 1, 2, 3)] == [0, 1, 1, 0]
    assert (swept.counts["orphan"], swept.counts["never_shown"]) == (1, 1)
    assert await bench.label((1, 1), (3, 1), (5, 1)) == "DTU"
    assert await bench.log(7) == "L"
    assert await bench.expose(7) == "S"
    assert (await bench.sweep()).pending["open"] == 1, "new windows are as long as ever"


async def test_a_jump_of_the_server_alone_closes_nothing_early(
    make_bench: MakeBench, clock: ServerClock
) -> None:
    bench = make_bench(**LONG)
    await bench.log(1, 2)
    await bench.expose(1)
    await clock.jump(bench.channel, HOUR)
    swept = await bench.sweep()
    assert (swept.pending["open"], swept.pending["unshown"]) == (1, 1)
    assert swept.oldest_seconds < 30
    assert await bench.log(3) == "L"
    assert await bench.expose(3) == "S"
    await clock.jump(bench.channel, 0)
    assert (await bench.sweep()).pending["open"] == 2
    assert await bench.label((1, 1), (3, 1)) == "WW"


@pytest.mark.slow
async def test_after_clocks_were_set_back_windows_still_end_and_nothing_is_lost(
    make_bench: MakeBench, clock: ServerClock
) -> None:
    bench = make_bench(window_seconds=2, unshown_seconds=60, grace_seconds=60, late_seconds=2 * HOUR)
    await jump(bench, clock, HOUR)
    await bench.log(1, 2, 3)
    await bench.expose(1, 2)
    await jump(bench, clock, 0)
    assert await bench.label((1, 1), (1, 1), (3, 1)) == "WDG"
    assert await bench.expose(3, 1) == "SA"
    assert await bench.log(1, 2, 3) == "SSS"
    assert await bench.log(4) == "L"
    assert await bench.expose(4) == "S"
    await bench.swept("open")
    examples = await bench.logged()
    assert sorted(examples.prediction_ids or []) == ids(1, 2, 3, 4)
    learned = dict(zip(examples.prediction_ids or [], examples.labels.tolist(), strict=True))
    assert [learned[one] for one in ids(1, 2, 3, 4)] == [1, 0, 1, 0]


async def test_a_click_after_a_jump_is_late_while_its_id_is_remembered(
    make_bench: MakeBench, clock: ServerClock
) -> None:
    bench = make_bench(exposure="on_predict", late="append", **LONG)
    await bench.log(1, 2)
    await jump(bench, clock, HOUR)
    await bench.swept("open")
    await jump(bench, clock, 2 * HOUR)
    assert await bench.label((1, 1)) == "P"
    await jump(bench, clock, 6 * HOUR)
    await bench.swept("closed")
    assert await bench.label((1, 1), (2, 1)) == "UU"
    assert sorted((await bench.logged()).labels.tolist()) == [0, 0, 1]

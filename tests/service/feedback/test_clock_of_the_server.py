"""What waits while the server's clock jumps: a laptop that slept, a correction of the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ServerFactory
from tests.service.feedback.conftest import Bench, id_of
from tests.support.server_clock import ServerClock
from tests.support.servers import ServerProcess
from tests.support.waiting import until

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
    """Returns when scripts have the new time: it is not looked at for every one."""
    clock.jump_to(seconds)

    async def has_jumped() -> bool:
        return abs(await server_time(bench) - time.time() - seconds) <= 20

    await until(has_jumped)


async def server_time(bench: Bench) -> int:
    return int(await bench.channel.call("EVAL", "return redis.call('TIME')[1]", 0))


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


async def test_after_a_jump_back_windows_stay_open_longer_without_loss(
    make_bench: MakeBench, clock: ServerClock
) -> None:
    bench = make_bench(**LONG)
    await jump(bench, clock, HOUR)
    await bench.log(1, 2, 3)
    await bench.expose(1, 2)
    await jump(bench, clock, 0)
    swept = await bench.sweep()
    assert (swept.pending["open"], swept.pending["unshown"], swept.oldest_seconds) == (2, 1, 0)
    assert await bench.label((1, 1), (1, 1), (3, 1)) == "WDG"
    assert await bench.expose(3, 1) == "SA"
    assert await bench.log(1, 2, 3) == "SSS"
    assert await bench.log(4) == "L"
    assert await bench.expose(4) == "S"
    await jump(bench, clock, 200)
    await bench.sweep()
    assert sorted((await bench.logged()).prediction_ids or []) == ids(3, 4), "shown by the earlier clock"
    await jump(bench, clock, HOUR + 200)
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

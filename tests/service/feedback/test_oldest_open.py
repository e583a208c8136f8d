"""The age of the oldest open impression, as a sweep reports it."""

from __future__ import annotations

from collections.abc import Callable

from tests.service.feedback.conftest import Bench

LONG = {"exposure": "on_predict", "window_seconds": 300}
AT_ARRIVAL = LONG | {"learn_at": "arrival"}


async def test_it_is_exact_to_a_second_however_long_the_window(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(**LONG)
    before = await bench.clock()
    await bench.log(1)
    after = await bench.clock()
    await bench.pass_time(1.2)
    await bench.log(2)
    least = await bench.clock() - after
    oldest = (await bench.sweep()).oldest_seconds
    assert least - 0.001 <= oldest <= await bench.clock() - before + 1


async def test_without_open_impressions_it_is_0(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(**AT_ARRIVAL)
    assert (await bench.sweep()).oldest_seconds == 0
    await bench.log(1)
    await bench.pass_time(0.5)
    assert (await bench.sweep()).oldest_seconds >= 0.5
    await bench.label((1, 1))
    assert (await bench.sweep()).oldest_seconds == 0


async def test_those_that_labels_have_closed_do_not_count(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(**AT_ARRIVAL)
    await bench.log(*range(250))
    await bench.label(*((number, 1) for number in range(250)))
    await bench.pass_time(1.2)
    before = await bench.clock()
    await bench.log(250)
    assert (await bench.sweep()).oldest_seconds <= await bench.clock() - before + 1

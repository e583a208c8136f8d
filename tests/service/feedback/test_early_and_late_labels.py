"""Labels before their impression is shown, and after its window."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from service.errors import LogFull
from tests.service.feedback.conftest import KEYS, MARGIN, Bench, id_of

MakeBench = Callable[..., Bench]


async def test_an_explicit_label_0_is_not_a_late_click(make_bench: MakeBench) -> None:
    bench = make_bench(exposure="on_predict", late_seconds=60)
    await bench.log(1)
    assert await bench.label((1, 0)) == "W"
    assert await bench.label((1, 1)) == "C"
    await bench.swept("open")
    assert await bench.label((1, 0), (1, 1)) == "DC"


@pytest.mark.parametrize("learn_at", ["window_close", "arrival"])
async def test_a_label_before_its_impression_waits_for_it(make_bench: MakeBench, learn_at: str) -> None:
    bench = make_bench(learn_at=learn_at, grace_seconds=60)
    await bench.log(1)
    assert await bench.label((1, 1)) == "G"
    assert await bench.label((1, 1), (1, 0)) == "EC"
    assert (await bench.sweep()).pending["early"] == 1
    assert await bench.expose(1) == "S"
    await bench.swept("open")
    assert (await bench.logged()).labels.tolist() == [1]


@pytest.mark.slow
async def test_an_early_label_does_not_shorten_the_wait_to_be_shown(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(unshown_seconds=60, grace_seconds=1)
    await bench.log(1)
    assert await bench.label((1, 1)) == "G"
    await bench.pass_time(2.1)
    assert (await bench.sweep()).pending["early"] == 1, "the grace is over"
    assert await bench.expose(1) == "S"
    await bench.swept("open")
    assert (await bench.logged()).labels.tolist() == [1]


async def test_a_label_whose_impression_never_comes_is_an_orphan(make_bench: MakeBench) -> None:
    bench = make_bench()
    await bench.log(1)
    await bench.label((1, 1))
    swept = await bench.swept("early")
    assert swept.counts["orphan"] == 1
    assert await bench.label((1, 1)) == "U"
    assert await bench.expose(1) == "U"
    assert not len(await bench.logged())


async def test_a_late_click_is_counted_and_dropped(make_bench: MakeBench) -> None:
    bench = make_bench(exposure="on_predict", late_seconds=60)
    await bench.log(1)
    await bench.swept("open")
    assert await bench.label((1, 1), (1, 1), (1, 0)) == "TTD", "label 0 is what was learned"
    assert (await bench.logged()).labels.tolist() == [0]
    assert await bench.label((1, 1)) == "T", "as its first answer may have been lost"
    assert (await bench.sweep()).counts["late"] == 1


async def test_the_delay_of_a_label_is_reported_once(make_bench: MakeBench) -> None:
    bench = make_bench(exposure="on_predict", late_seconds=60)
    before = time.time()
    await bench.log(1, 2)
    (delay,) = await delays(bench, (1, 1))
    assert delay is not None
    assert 0 <= delay <= time.time() - before + 1, "since it was shown, which is kept in whole seconds"
    await bench.swept("open")
    late = await delays(bench, (2, 1))
    assert late[0] is not None
    assert late[0] >= 1, "longer than the window"
    assert await delays(bench, (1, 1), (2, 1), (2, 0)) == [None, None, None]


async def delays(bench: Bench, *labels: tuple[int, int]) -> list[float | None]:
    return [labelled.delay for labelled in await bench.labelled(*labels)]


async def test_a_late_click_can_be_learned_beside_its_negative(make_bench: MakeBench) -> None:
    bench = make_bench(exposure="on_predict", late="append", late_seconds=60)
    await bench.log(1, 2)
    await bench.swept("open")
    assert await bench.label((1, 1), (1, 1)) == "PD"
    assert await bench.label((1, 1), (1, 0), (2, 0)) == "DCD"
    examples = await bench.logged()
    assert sorted(examples.labels.tolist()) == [0, 0, 1]
    assert (examples.prediction_ids or []).count(id_of(1)) == 2


async def test_a_late_click_is_refused_while_the_backlog_is_full(
    make_bench: MakeBench,
) -> None:
    bench = make_bench({"backlog_limit_examples": 2}, exposure="on_predict", late="append", late_seconds=60)
    await bench.log(1, 2)
    await bench.swept("open")
    await bench.log(3)
    with pytest.raises(LogFull, match="send the same labels again later"):
        await bench.label((1, 1), (3, 1))
    assert await bench.label((3, 1), (1, 0), (9, 1)) == "WDU", "they append nothing yet"
    await bench.channel.call("HSET", KEYS.meta, "applied_number", 2)
    assert await bench.label((1, 1)) == "P"
    assert (await bench.logged()).labels.tolist() == [0, 0, 1]


@pytest.mark.parametrize("weight", [1.0, 2.5])
@pytest.mark.parametrize("learn_at", ["window_close", "arrival"])
async def test_a_label_between_is_learned_as_it_came(
    make_bench: MakeBench, learn_at: str, weight: float
) -> None:
    bench = make_bench(learn_at=learn_at, grace_seconds=60)
    await bench.log(1, 2)
    await bench.expose(1)
    assert await bench.label((1, 0.25), (2, 0.75), weight=weight) == ("JG" if learn_at == "arrival" else "WG")
    assert await bench.label((1, 0.25), (1, 0.5), (1, 1), (2, 0.75), (2, 0)) == "DCCEC"
    await bench.expose(2)
    await bench.swept("open")
    examples = await bench.logged()
    assert sorted(examples.labels.tolist()) == [0.25, 0.75]
    assert examples.weights.tolist() == ([] if weight == 1.0 else [weight, weight])
    assert examples.served_margins.tolist() == [MARGIN, MARGIN]
    assert await bench.label((1, 0.25), (2, 0.75), (1, 0.75), (2, 1)) == "DDCC"
    (one,) = await bench.labelled((1, 0.25))
    assert one.place is not None, "it is known where it was learned"


async def test_a_label_between_is_late_as_a_click_is(make_bench: MakeBench) -> None:
    bench = make_bench(exposure="on_predict", late="append", late_seconds=60)
    await bench.log(1)
    await bench.swept("open")
    assert await bench.label((1, 0.5), (1, 0.5), (1, 1), (1, 0)) == "PDCC"
    assert (await bench.logged()).labels.tolist() == [0, 0.5]


async def test_a_late_label_between_is_counted_and_dropped(make_bench: MakeBench) -> None:
    bench = make_bench(exposure="on_predict", late_seconds=60)
    await bench.log(1)
    await bench.swept("open")
    assert await bench.label((1, 0.5), (1, 0.5), (1, 0)) == "TTD"
    assert (await bench.logged()).labels.tolist() == [0]


async def test_a_label_between_is_never_left_out_by_the_sampling_of_labels_0(make_bench: MakeBench) -> None:
    bench = make_bench(exposure="on_predict", learn_at="arrival", negative_sample_rate=1e-6)
    await bench.log(*range(20))
    assert await bench.label(*((number, 0.01) for number in range(20))) == 20 * "J"
    assert (await bench.logged()).weights.size == 0

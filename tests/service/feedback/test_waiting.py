"""What waits in Redis: each verb against a real server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest

from model_core.examples.batch import ExampleBatch
from service.errors import LogFull
from service.models.replica import ModelGone
from service.storage.scripts.feedback import LabelOutcome
from tests.service.feedback.conftest import KEYS, MARGIN, Bench, id_of

MakeBench = Callable[..., Bench]


async def test_only_the_shown_one_of_a_hundred_candidates_is_learned(
    make_bench: MakeBench,
) -> None:
    bench = make_bench()
    assert await bench.log(*range(100)) == "L" * 100
    assert await bench.expose(42) == "S"
    await bench.swept("open")
    swept = await bench.swept("unshown")
    examples = await bench.logged()
    assert [*(examples.prediction_ids or ())] == [id_of(42)]
    assert examples.labels.tolist() == [0]
    assert examples.served_margins.tolist() == [MARGIN]
    assert examples.hashes.tolist() == [1, 2, 3, 42]
    assert (swept.counts["never_shown"], swept.counts["negative"]) == (99, 1)


async def test_a_click_is_learned_at_the_end_of_its_window_with_its_weight(make_bench: MakeBench) -> None:
    bench = make_bench(exposure="on_predict")
    await bench.log(1, 2, 3)
    assert await bench.label((1, 1)) == "W"
    assert await bench.label((3, 1), weight=2.5) == "W"
    assert not len(await bench.logged())
    swept = await bench.swept("open")
    examples = await bench.logged()
    rows = zip(
        examples.prediction_ids or [], examples.labels.tolist(), examples.weights.tolist(), strict=True
    )
    assert sorted(rows) == [(id_of(1), 1, 1.0), (id_of(2), 0, 1.0), (id_of(3), 1, 2.5)]
    assert (swept.counts["joined"], swept.counts["negative"]) == (2, 1)


async def test_a_click_can_be_learned_when_it_arrives(make_bench: MakeBench) -> None:
    bench = make_bench(exposure="on_predict", learn_at="arrival")
    await bench.log(1, 2)
    (labelled,) = await bench.labelled((1, 1))
    assert labelled.outcome is LabelOutcome.JOINED
    assert labelled.place is not None
    assert labelled.delay == pytest.approx(0, abs=10)
    assert (await bench.logged()).labels.tolist() == [1]
    await bench.swept("open")
    assert (await bench.logged()).labels.tolist() == [1, 0]


@pytest.mark.parametrize("learn_at", ["window_close", "arrival"])
async def test_a_label_counts_once_and_the_first_one_stands(make_bench: MakeBench, learn_at: str) -> None:
    bench = make_bench(exposure="on_predict", learn_at=learn_at, late_seconds=60)
    await bench.log(1)
    first = "J" if learn_at == "arrival" else "W"
    assert await bench.label((1, 1), (1, 1), (1, 0)) == first + "DC"
    assert await bench.label((1, 1), (1, 0), (9, 1)) == "DCU"
    await bench.swept("open")
    repeated, contrary = await bench.labelled((1, 1), (1, 0))
    assert (repeated.outcome, contrary.outcome) == (LabelOutcome.REPEATED, LabelOutcome.CONFLICT)
    assert repeated.place is not None, "where the first stands in the log"
    assert (await bench.logged()).labels.tolist() == [1]


@pytest.mark.slow
async def test_what_is_closed_is_forgotten_and_no_key_stays(make_bench: MakeBench) -> None:
    bench = make_bench(exposure="on_predict")
    await bench.log(1, 2)
    await bench.swept("open")
    swept = await bench.swept("closed")
    assert await bench.label((1, 1)) == "U"
    assert (swept.bytes, await bench.keys()) == (0, [])


async def test_the_same_id_again_keeps_the_first_features(make_bench: MakeBench) -> None:
    bench = make_bench()
    assert await bench.log(1) == "L"
    assert await bench.log(1, 1, 2) == "SSL"
    assert await bench.log(1, features=(9,)) == "X"
    await bench.label((1, 1), weight=3.0)
    assert await bench.log(1) == "S"
    await bench.expose(1, 2)
    assert await bench.log(1, 2) == "SS"
    await bench.swept("open")
    assert len(await bench.logged()) == 2


async def test_shown_twice_is_shown_once(make_bench: MakeBench) -> None:
    bench = make_bench()
    await bench.log(1)
    assert await bench.expose(1, 1, 5) == "SAU"
    await bench.swept("open")
    assert await bench.expose(1) in ("A", "U")
    assert len(await bench.logged()) == 1


async def test_a_shown_prediction_stays_in_its_list_until_that_comes(make_bench: MakeBench) -> None:
    bench = make_bench(window_seconds=60)
    await bench.log(*range(100))
    (unshown,) = await bench.lists()
    await bench.expose(*range(50))
    assert await bench.lists() == [unshown]
    swept = await bench.swept("unshown")
    assert (swept.pending["open"], swept.counts["never_shown"]) == (50, 50)
    assert 0 < swept.oldest_seconds < 60
    assert [name[:1] for name in await bench.lists()] == ["i"]


async def test_a_label_keeps_its_weight_through_every_stage(make_bench: MakeBench) -> None:
    bench = make_bench(unshown_seconds=60, window_seconds=1)
    await bench.log(1, 2)
    assert await bench.label((1, 1), weight=2.5) == "G"
    assert await bench.label((1, 1), (1, 0), weight=2.5) == "EC"
    assert await bench.expose(1, 2) == "SS"
    assert await bench.label((2, 0), weight=0.5) == "W"
    assert await bench.log(1, 2) == "SS"
    await bench.swept("open")
    examples = await bench.logged()
    rows = zip(
        examples.prediction_ids or [], examples.labels.tolist(), examples.weights.tolist(), strict=True
    )
    assert sorted(rows) == [(id_of(1), 1, 2.5), (id_of(2), 0, 0.5)]


async def test_sampled_negatives_are_chosen_by_id_and_weigh_the_inverse(make_bench: MakeBench) -> None:
    bench = make_bench(exposure="on_predict", negative_sample_rate=0.25)
    await bench.log(*range(400))
    await bench.label(*((number, 1) for number in range(10)))
    swept = await bench.swept("open")
    examples = await bench.logged()
    negatives = examples.labels == 0
    kept = int(negatives.sum())
    assert swept.counts["negative"] == 390
    assert kept == 390 - swept.counts["unsampled"]
    assert abs(kept - 97.5) < 5 * math.sqrt(390 * 0.25 * 0.75)
    assert set(examples.weights[negatives].tolist()) == {4.0}
    assert examples.weights[~negatives].tolist() == [1.0] * 10
    chosen = {i for i in examples.prediction_ids or [] if int.from_bytes(i[12:], "little") < 2**30}
    assert {
        i for i, negative in zip(examples.prediction_ids or [], negatives, strict=True) if negative
    } <= chosen


async def test_beyond_the_limit_nothing_is_logged_until_there_is_room(make_bench: MakeBench) -> None:
    bench = make_bench(max_bytes=1 << 16)
    answers = await bench.log(*range(1000))
    kept = answers.count("L")
    assert answers == "L" * kept + "F" * (1000 - kept)
    assert 0 < kept < 1000
    await bench.swept("unshown")
    assert await bench.log(5000) == "L"


async def test_a_full_backlog_stops_the_sweep_and_refuses_labels(
    make_bench: MakeBench,
) -> None:
    bench = make_bench({"backlog_limit_examples": 3}, exposure="on_predict", learn_at="arrival")
    await bench.log(*range(5))
    await bench.pass_time(2.1)
    swept = await bench.sweep()
    assert (swept.more, swept.pending["open"]) == (False, 2), "more has to wait for room"
    assert await bench.label(*((number, 1) for number in range(10, 20))) == "U" * 10, "they add nothing"
    with pytest.raises(LogFull, match="send the same labels again later"):
        await bench.label((4, 1))
    await bench.channel.call("HSET", KEYS.meta, "applied_number", 3)
    await bench.swept("open")
    assert sorted((await bench.logged()).prediction_ids or []) == [id_of(i) for i in range(5)]


async def test_a_backlog_of_too_many_bytes_stops_the_sweep_too(make_bench: MakeBench) -> None:
    bench = make_bench({"backlog_limit_bytes": 1024}, exposure="on_predict", learn_at="arrival")
    await bench.log(*range(30), features=range(100))
    assert await bench.label((0, 1), (1, 1), (2, 1)) == "JJJ"
    await bench.pass_time(2.1)
    assert (await bench.sweep()).pending["open"] == 27
    with pytest.raises(LogFull, match=r"3 examples of 1[0-9]{3} bytes .*send the same labels again later"):
        await bench.label((4, 1))
    await bench.channel.call("HSET", KEYS.meta, "applied_number", 3)
    await bench.swept("open")
    assert sorted((await bench.logged()).prediction_ids or []) == [id_of(i) for i in range(30)]


async def test_two_sweepers_at_once_close_each_impression_once(make_bench: MakeBench) -> None:
    benches = [make_bench(exposure="on_predict") for _ in range(2)]
    await benches[0].log(*range(2000))
    await benches[0].pass_time(2.1)
    swept = [False, False]

    async def sweep(number: int) -> None:
        while not swept[number]:
            swept[number] = not (await benches[number].sweep(100)).pending["open"]

    await asyncio.gather(sweep(0), sweep(1))
    examples = await benches[0].logged()
    assert sorted(examples.prediction_ids or []) == [id_of(i) for i in range(2000)]


async def test_a_deleted_model_takes_nothing(make_bench: MakeBench) -> None:
    bench = make_bench()
    await bench.channel.call("HSET", KEYS.meta, "incarnation", "another")
    for verb in (bench.log(1), bench.expose(1), bench.label((1, 1)), bench.sweep()):
        with pytest.raises(ModelGone):
            await verb


def test_a_batch_without_examples_has_none() -> None:
    assert not len(ExampleBatch.from_bytes(b""))

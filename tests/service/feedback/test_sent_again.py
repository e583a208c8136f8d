"""Predictions that are sent again under the same id."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from model_core.examples.batch import ExampleBatch
from tests.service.feedback.conftest import Bench

MakeBench = Callable[..., Bench]
LONG = {"unshown_seconds": 60, "window_seconds": 60, "grace_seconds": 60}


async def test_the_order_of_features_does_not_make_another_prediction(make_bench: MakeBench) -> None:
    bench = make_bench(**LONG)
    await bench.log(1, features=(1, 2, 2, 3))
    assert await bench.log(1, features=(3, 2, 1, 2)) == "S"
    assert await bench.log(1, features=(3, 2, 1, 1)) == "X", "another one is there twice"
    await bench.label((1, 1), weight=2.0)
    assert await bench.log(1, features=(2, 3, 2, 1)) == "S"
    assert await bench.log(1, features=(2, 3, 2)) == "X"


async def test_nor_does_it_where_features_have_values(make_bench: MakeBench) -> None:
    bench = make_bench(exposure="on_predict")
    one, other, third, plain = (
        ExampleBatch.from_encoded([features])
        for features in (
            ([1, 2, 3], [0.5, 2.0, 1.0]),
            ([3, 1, 2], [1.0, 0.5, 2.0]),
            ([1, 2, 3], [2.0, 0.5, 1.0]),
            ([1, 2, 3], None),
        )
    )
    assert await bench.log_batch(1, one, check=True) == "L"
    assert await bench.log_batch(1, other, check=True) == "S"
    assert await bench.log_batch(1, third, check=True) == "X"
    assert await bench.log_batch(1, plain, check=True) == "X"
    await bench.swept("open")
    assert (await bench.logged()).hashes.tolist() == [1, 2, 3], "those of the first stay"


async def test_a_label_repeated_before_its_impression_is_recognised(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(**LONG)
    await bench.log(1)
    assert await bench.label((1, 1), (1, 1), (1, 0)) == "GEC"
    await bench.expose(1)
    assert await bench.label((1, 1)) == "D"


@pytest.mark.slow
async def test_the_id_of_a_closed_prediction_is_not_logged_again(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(exposure="on_predict", late_seconds=3)
    await bench.log(1)
    await bench.label((1, 1))
    await bench.swept("open")
    assert await bench.log(1) + await bench.log(1, features=(9,)) == "SS", "what it had is not known by now"
    assert (await bench.sweep()).pending == {"unshown": 0, "early": 0, "open": 0, "closed": 1}
    assert await bench.label((1, 1), (1, 0)) == "DC", "labels are those of the closed one"
    await bench.swept("closed")
    assert await bench.log(1, features=(9,)) == "L"
    await bench.swept("open")
    assert (await bench.logged()).labels.tolist() == [1, 0]

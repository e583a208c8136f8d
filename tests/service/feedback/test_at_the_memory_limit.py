"""A server at its memory limit still answers whatever needs no more room than there was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis.exceptions import ResponseError

from service.storage.errors import is_out_of_memory
from tests.service.feedback.conftest import Bench


@pytest.mark.parametrize(("learn_at", "letter"), [("arrival", "J"), ("window_close", "W")])
async def test_labels_are_accepted_and_repeated_ones_recognised(
    make_bench_on_any: Callable[..., Bench], learn_at: str, letter: str
) -> None:
    bench = make_bench_on_any(learn_at=learn_at, window_seconds=60, unshown_seconds=60)
    assert await bench.log(1, 2, 3) == "LLL"
    assert await bench.expose(1, 2) == "SS"
    assert await bench.label((1, 1)) == letter
    await bench.channel.call("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(ResponseError) as refused:
        await bench.log(4)
    assert is_out_of_memory(refused.value)
    assert await bench.label((1, 1)) == "D"
    assert await bench.label((1, 0)) == "C"
    assert await bench.expose(1) == "A"
    assert await bench.log(1) == "S"
    assert await bench.label((2, 1), (2, 1), (5, 1)) == letter + "DU"
    assert await bench.expose(3) == "S"
    counts = (await bench.sweep()).counts
    assert (counts["duplicate"], counts["conflict"], counts["repeated"]) == (2, 1, 1)

"""Requests that share a call."""

from __future__ import annotations

import asyncio

import pytest

from service.runtime.coalescer import Asked, Coalescer


async def test_requests_during_a_call_share_the_next_up_to_its_size() -> None:
    calls: list[list[int]] = []

    async def answer(together: list[Asked[int, int]]) -> None:
        calls.append([asked.request for asked in together])
        await asyncio.sleep(0)
        for asked in together:
            asked.answer(10 * asked.request)

    coalescer = Coalescer[int, int](answer, max_size=4)
    assert await asyncio.gather(*(coalescer.submit(number, number) for number in (1, 2, 1, 2, 9, 1))) == [
        *(10, 20, 10, 20, 90, 10)
    ]
    assert calls == [[1, 2, 1], [2], [9], [1]]


async def test_requests_of_consecutive_turns_share_a_call_unless_it_is_large() -> None:
    calls: list[list[int]] = []

    async def answer(together: list[Asked[int, int]]) -> None:
        calls.append([asked.request for asked in together])
        for asked in together:
            asked.answer(asked.request)

    async def submit_in_turn(turn: int, size: int) -> int:
        for _ in range(turn):
            await asyncio.sleep(0)
        return await coalescer.submit(turn, size)

    coalescer = Coalescer[int, int](answer, max_size=64)
    await asyncio.gather(*(submit_in_turn(turn, 1) for turn in range(3)))
    assert calls == [[0, 1, 2]]
    await asyncio.gather(*(submit_in_turn(turn, 4) for turn in range(2)))
    assert calls[1:] == [[0], [1]]


async def test_a_failure_is_raised_to_callers_and_logged_without_any(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(together: list[Asked[int, int]]) -> None:
        raise RuntimeError(f"{len(together)} failed")

    coalescer = Coalescer[int, int](fail, max_size=4)
    with pytest.raises(RuntimeError, match="1 failed"):
        await coalescer.submit(1)
    assert not caplog.messages
    coalescer.submit_soon(1)
    await coalescer.drain(10)
    assert caplog.messages == ["a call whose answer is not awaited failed"]


async def test_a_call_lingers_only_for_requests_that_allow_it() -> None:
    calls: list[list[int]] = []

    async def answer(together: list[Asked[int, int]]) -> None:
        calls.append([asked.request for asked in together])
        for asked in together:
            asked.answer(asked.request)

    coalescer = Coalescer[int, int](answer, max_size=4)
    coalescer.submit_soon(1, linger_seconds=0.05)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls == []
    assert await coalescer.submit(2) == 2
    assert calls == [[1, 2]]
    coalescer.submit_soon(3, linger_seconds=30.0)
    assert await coalescer.submit(4) == 4
    assert calls[1:] == [[3, 4]]

"""Pauses between attempts."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from service.storage import errors
from service.storage.errors import Backoff


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    # Its own reference alone: whatever else runs in the loop sleeps as ever.
    monkeypatch.setattr(errors, "asyncio", SimpleNamespace(sleep=sleep))
    return pauses


async def test_pauses_grow_up_to_the_cap_and_start_over_after_a_reset(slept: list[float]) -> None:
    backoff = Backoff(first_seconds=1.0, cap_seconds=5.0, factor=2.0)
    for _ in range(4):
        await backoff.pause()
    backoff.reset()
    await backoff.pause()
    assert slept == [1.0, 2.0, 4.0, 5.0, 1.0]


async def test_a_pause_that_would_end_after_the_deadline_is_known_before(slept: list[float]) -> None:
    backoff = Backoff(first_seconds=10.0, cap_seconds=100.0)
    deadline = time.monotonic() + 15.0
    assert not backoff.outlasts(deadline)
    await backoff.pause()
    assert backoff.outlasts(deadline)

"""Outcomes of log entries, and the requests that await them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import uvloop

from service.models.mirror import MAX_EXAMPLES_HELD, Outcomes
from service.storage.records import Commit, LearnedEntry, LogId, changed_type

FIRST, SECOND, THIRD = LogId(1, 0), LogId(2, 0), LogId(2, 1)


def commit(entries: Sequence[tuple[LogId, int]], start: float = 0.0, applied: LogId | None = None) -> Commit:
    """Of entries with so many examples each, the margins counted up from `start`; every third is skipped."""
    count = sum(examples for _, examples in entries)
    margins = start + np.arange(count, dtype=float)
    learned = [LearnedEntry(*entry) for entry in entries]
    through = applied or entries[-1][0]
    skipped = (np.arange(count) % 3 == 2).astype(np.uint8)
    return Commit(b"a", b"b", 1, 1, through, 1, 0, np.empty(0, changed_type()), learned, margins, skipped)


def soon(seconds: float = 60.0) -> float:
    return asyncio.get_running_loop().time() + seconds


def test_entries_get_their_examples_and_the_revision_of_the_commit() -> None:
    outcomes = Outcomes()
    outcomes.record(commit([(FIRST, 2), (SECOND, 3)]), "r1")
    first, second = outcomes.held(FIRST), outcomes.held(SECOND)
    assert first is not None
    assert second is not None
    assert (first.margins.tolist(), first.skipped, first.revision) == ([0, 1], bytes([0, 0]), "r1")
    assert (second.margins.tolist(), second.skipped) == ([2, 3, 4], bytes([1, 0, 0]))
    assert outcomes.held(THIRD) is None


def test_an_entry_is_known_as_soon_as_the_mirror_is_past_it() -> None:
    outcomes = Outcomes()
    assert not outcomes.knows(FIRST)
    outcomes.applied_through(SECOND)
    assert outcomes.knows(FIRST)
    assert outcomes.knows(SECOND)
    assert not outcomes.knows(THIRD)
    assert outcomes.held(FIRST) is None


def test_a_server_that_lost_its_tail_takes_back_what_was_known() -> None:
    outcomes = Outcomes()
    outcomes.record(commit([(FIRST, 1), (SECOND, 1)]), "r1")
    outcomes.applied_through(FIRST)
    assert not outcomes.knows(SECOND)


async def test_all_waiters_of_an_entry_wake_when_it_is_applied() -> None:
    outcomes = Outcomes()
    waiters = [asyncio.create_task(outcomes.learned(entry, soon())) for entry in (FIRST, FIRST, SECOND)]
    later = asyncio.create_task(outcomes.learned(THIRD, soon()))
    await asyncio.sleep(0)
    outcomes.record(commit([(FIRST, 1), (SECOND, 1)]), "r1")
    assert await asyncio.gather(*waiters) == [True, True, True]
    assert not later.done()
    outcomes.applied_through(THIRD)
    assert await later


async def test_an_applied_entry_is_not_waited_for() -> None:
    outcomes = Outcomes()
    outcomes.applied_through(SECOND)
    assert await outcomes.learned(FIRST, soon(-1.0))


async def test_waiting_ends_at_its_deadline_and_leaves_nothing_behind() -> None:
    outcomes = Outcomes()
    assert await asyncio.gather(*(outcomes.learned(FIRST, soon(0.01)) for _ in range(3))) == [False] * 3
    abandoned = asyncio.create_task(outcomes.learned(SECOND, soon()))
    await asyncio.sleep(0)
    abandoned.cancel()
    await asyncio.wait([abandoned])
    assert outcomes._waiting == {}


async def test_one_who_gives_up_does_not_disturb_the_other() -> None:
    outcomes = Outcomes()
    patient = asyncio.create_task(outcomes.learned(FIRST, soon()))
    assert not await outcomes.learned(FIRST, soon(0.01))
    outcomes.applied_through(FIRST)
    assert await patient


def test_the_oldest_outcomes_go_when_there_are_too_many() -> None:
    outcomes = Outcomes()
    size = MAX_EXAMPLES_HELD // 4
    for i in range(6):
        outcomes.record(commit([(LogId(i + 1, 0), size)]), f"r{i}")
    assert [outcomes.held(LogId(i + 1, 0)) is not None for i in range(6)] == [False] * 2 + [True] * 4


def test_the_newest_outcome_is_held_however_large() -> None:
    outcomes = Outcomes()
    outcomes.record(commit([(FIRST, 1)]), "r1")
    outcomes.record(commit([(SECOND, MAX_EXAMPLES_HELD + 1)]), "r2")
    assert outcomes.held(FIRST) is None
    assert outcomes.held(SECOND) is not None


def test_an_entry_that_is_learned_once_more_counts_once() -> None:
    outcomes = Outcomes()
    for _ in range(8):
        outcomes.record(commit([(FIRST, MAX_EXAMPLES_HELD // 2)]), "r")
    outcomes.record(commit([(SECOND, 10)], start=5.0), "r")
    held = outcomes.held(SECOND)
    assert outcomes.held(FIRST) is not None
    assert held is not None
    assert held.margins[0] == 5.0


def test_a_wait_whose_deadline_is_over_disturbs_no_other() -> None:
    """On the loop of the service, whose handle of a call that is due at once is no timer."""
    outcomes = Outcomes()

    async def waits() -> tuple[bool, bool]:
        late, other = outcomes.learned(FIRST, soon(-1.0)), outcomes.learned(SECOND, soon(0.01))
        return await asyncio.gather(late, other)

    assert list(uvloop.run(waits())) == [False, False]

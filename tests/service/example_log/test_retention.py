"""Where a stream is cut."""

from __future__ import annotations

from service.learning.commit import RetainedBytes
from service.storage.records import LogId


def test_what_fits_is_kept_whole() -> None:
    retained = RetainedBytes(100)
    for i in range(10):
        retained.add(LogId(1000 + i, 0), 10)
    assert retained.oldest_retained() < LogId(1000, 0)


def test_the_oldest_go_until_the_rest_fits() -> None:
    retained = RetainedBytes(35)
    for i in range(10):
        retained.add(LogId(1000 + i, 0), 10)
    assert retained.oldest_retained() == LogId(1007, 0)


def test_the_newest_stays_however_large() -> None:
    retained = RetainedBytes(35)
    retained.add(LogId(1000, 0), 10)
    retained.add(LogId(1001, 0), 1000)
    assert retained.oldest_retained() == LogId(1001, 0)


def test_what_was_there_before_stays_while_it_fits() -> None:
    retained = RetainedBytes(2000, oldest=LogId(1000, 0), newest=LogId(2000, 5), size=1000)
    retained.add(LogId(3000, 0), 900)
    assert retained.oldest_retained() <= LogId(1000, 0)


def test_what_was_there_before_goes_little_by_little() -> None:
    retained = RetainedBytes(1000, oldest=LogId(1000, 0), newest=LogId(2000, 5), size=1000)
    retained.add(LogId(3000, 0), 500)
    assert LogId(1480, 0) < retained.oldest_retained() < LogId(1530, 0)


def test_small_entries_are_grouped_and_cut_to_a_sixty_fourth() -> None:
    retained = RetainedBytes(64_000)
    for i in range(100_000):
        retained.add(LogId(1000 + i, 0), 10)
    kept = 1000 + 100_000 - retained.oldest_retained().milliseconds
    assert 6400 - 100 <= kept <= 6400
    assert len(retained._parts) < 130

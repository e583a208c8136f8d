"""Listeners and the one source that feeds them, steered by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping

import pytest

from service.api.dashboard.feed import Events, Feed, Listener
from service.errors import StreamRefused
from tests.support.waiting import until


class Source:
    """Gives what the test says, and notes what it was asked."""

    def __init__(self) -> None:
        self.news: dict[str, Events] = {}
        self.asked: list[set[str]] = []
        self.closed = False

    async def sample(self, models: Collection[str]) -> Mapping[str, Events]:
        self.asked.append(set(models))
        return self.news

    async def close(self) -> None:
        self.closed = True


class Failing(Source):
    async def sample(self, models: Collection[str]) -> Mapping[str, Events]:
        await super().sample(models)
        raise RuntimeError("not foreseen")


@pytest.fixture
def sources() -> list[Source]:
    return []


@pytest.fixture
def feed(sources: list[Source]) -> Feed:
    def open_source() -> Source:
        sources.append(Source())
        sources[-1].news = {"ads": {"live": b"1", "figures": b"a"}}
        return sources[-1]

    return Feed(open_source, limit=3)


async def first_of(events: AsyncIterator[bytes]) -> bytes:
    async with asyncio.timeout(60):
        return await anext(events)


async def test_a_slow_listener_holds_only_the_newest_event_of_each_kind() -> None:
    listener = Listener("ads")
    for number in range(1000):
        listener.offer({"live": b"live %d;" % number})
        listener.offer({"figures": b"figures %d;" % number})
    assert await first_of(aiter(listener)) == b"live 999;figures 999;"


async def test_nothing_is_sampled_without_listeners(feed: Feed, sources: list[Source]) -> None:
    with feed.listen("ads") as listener:
        await first_of(aiter(listener))
    await until(lambda: sources[0].closed)
    asked = len(sources[0].asked)
    await asyncio.sleep(0.05)
    assert len(sources[0].asked) == asked
    with feed.listen("ads") as listener:
        await first_of(aiter(listener))
    assert len(sources) == 2


async def test_listeners_share_one_source_and_each_model_is_sampled_once(
    feed: Feed, sources: list[Source]
) -> None:
    with feed.listen("ads") as one, feed.listen("ads") as two, feed.listen("shops"):
        assert await first_of(aiter(one)) == await first_of(aiter(two)) == b"1a"
    assert len(sources) == 1
    assert sources[0].asked[0] == {"ads", "shops"}


async def test_a_later_listener_gets_the_newest_events(feed: Feed, sources: list[Source]) -> None:
    with feed.listen("ads") as one:
        await first_of(aiter(one))
        sources[0].news = {}  # nothing has changed since
        with feed.listen("ads") as two:
            assert await first_of(aiter(two)) == b"1a"


async def test_a_stream_ends_after_the_event_that_says_so(feed: Feed, sources: list[Source]) -> None:
    with feed.listen("ads") as listener:
        events = aiter(listener)
        await first_of(events)
        sources[0].news = {"ads": {"gone": b"g"}}
        assert [event async for event in events] == [b"g"]


async def test_at_a_stop_all_streams_end_and_no_more_begin(feed: Feed) -> None:
    with feed.listen("ads") as listener:
        feed.stop()
        async with asyncio.timeout(60):
            async for _ in listener:
                pass
    with pytest.raises(StreamRefused), feed.listen("ads"):
        pass


async def test_only_so_many_may_listen_at_a_time(feed: Feed) -> None:
    with feed.listen("ads"), feed.listen("ads"):
        with feed.listen("ads"), pytest.raises(StreamRefused), feed.listen("ads"):
            pass
        with feed.listen("ads"):
            assert feed.listeners == 3


async def test_a_source_that_fails_is_opened_again(caplog: pytest.LogCaptureFixture) -> None:
    opened: list[Source] = []

    def open_source() -> Source:
        opened.append(Source() if opened else Failing())
        opened[-1].news = {"ads": {"live": b"1"}}
        return opened[-1]

    with Feed(open_source, limit=1).listen("ads") as listener:
        assert await first_of(aiter(listener)) == b"1"
    assert opened[0].closed
    assert "not foreseen" in caplog.text

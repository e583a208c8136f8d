"""Commands that access Redis directly, without the HTTP API of a running service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from service.errors import CommandFailure, UnknownModel
from service.settings import Settings

if TYPE_CHECKING:
    from service.storage.channel import Channel

Result = TypeVar("Result")


@contextmanager
def with_redis_url(settings: Settings, *, errand: bool = False) -> Iterator[Settings]:
    """Yield the settings with a `redis_url`: the given one, or that of the embedded server.

    `errand`: see EmbeddedServer.
    """
    if not settings.embedded:
        yield settings
        return
    from service.storage.embedded import EmbeddedServer

    with EmbeddedServer(settings, errand=errand) as server:
        yield settings.model_copy(update={"redis_url": server.url})


def run_errand(settings: Settings, errand: Callable[[Channel, Settings], Awaitable[Result]]) -> Result:
    """The result of `errand`, which gets a connection and settings with a `redis_url`.

    Raises CommandFailure for a model that is not in the data, and what `errand` raises.
    """
    from service.storage.channel import open_channel

    async def run(found: Settings) -> Result:
        async with open_channel(found) as channel:
            return await errand(channel, found)

    with with_redis_url(settings, errand=True) as found:
        try:
            return asyncio.run(run(found))
        except UnknownModel as unknown:  # the command may have been called in another directory
            raise CommandFailure(
                f"{unknown.detail} The data is {settings.data_place}; --data-dir or --redis-url selects that"
                " of another service."
            ) from unknown

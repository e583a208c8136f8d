"""Commands that access Redis directly, without the HTTP API of a running service.

Where the data is: `--redis-url`, or the directory `--data-dir` of an embedded server. One that only reads
never starts a server, which would show an empty directory as a service without models.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from service.cli.remote import DEFAULT_URL, URL_VARIABLE, service_at, url_of_environment
from service.errors import CommandFailure, UnknownModel
from service.settings import Settings

if TYPE_CHECKING:
    from service.storage.channel import Channel

Result = TypeVar("Result")

_NAMES_OF_PLACES = {"redis_url", "data_dir", "snapshots"}
UrlInstead = Annotated[
    str | None,
    typer.Option(
        "--url",
        help=f"Ask the service at this address instead of reading the data of --redis-url or --data-dir."
        f" Without any of them: that of {URL_VARIABLE}, or the data in ./data, or {DEFAULT_URL}.",
    ),
]


@contextmanager
def with_redis_url(settings: Settings, *, errand: bool = False) -> Iterator[Settings]:
    """Yield the settings with a `redis_url`: the given one, or that of the embedded server, which is started
    unless it runs.

    `errand`: see EmbeddedServer.
    """
    if not settings.embedded:
        yield settings
        return
    from service.storage.embedded import EmbeddedServer

    with EmbeddedServer(settings, errand=errand) as server:
        yield settings.model_copy(update={"redis_url": server.url})


@contextmanager
def with_running_redis(settings: Settings) -> Iterator[Settings]:
    """Yield the settings with a `redis_url`. Raises CommandFailure if no embedded server runs."""
    if not settings.embedded:
        yield settings
        return
    from service.storage.embedded import EmbeddedServer

    server = EmbeddedServer(settings)
    if not server.running():
        raise CommandFailure(
            f"no server runs on the data {settings.data_place}: start the service there (`ftrl serve`), or"
            " select the data of another with --data-dir or --redis-url"
        )
    yield settings.model_copy(update={"redis_url": server.url})


def run_errand(
    settings: Settings,
    errand: Callable[[Channel, Settings], Awaitable[Result]],
    *,
    starts_server: bool = False,
) -> Result:
    """The result of `errand`, which gets a connection and settings with a `redis_url`.

    Raises CommandFailure for a model that is not in the data, or without `starts_server` if no embedded
    server runs; and what `errand` raises.
    """
    from service.storage.channel import open_channel

    async def run(found: Settings) -> Result:
        async with open_channel(found) as channel:
            return await errand(channel, found)

    with with_redis_url(settings, errand=True) if starts_server else with_running_redis(settings) as found:
        try:
            return asyncio.run(run(found))
        except UnknownModel as unknown:  # the command may have been called in another directory
            raise CommandFailure(
                f"{unknown.detail} The data is {settings.data_place}; --data-dir or --redis-url selects that"
                " of another service."
            ) from unknown


def service_to_ask(settings: Settings, url: str | None, is_here: Callable[[], bool]) -> str | None:
    """The address of the service that answers instead of the data itself; None: the data is read directly.

    A place that the caller names comes first, then what `is_here`, then the default address. Raises
    CommandFailure if there is nothing at any of them.
    """
    if url is not None or not _NAMES_OF_PLACES.isdisjoint(settings.model_fields_set):
        return url
    url = url_of_environment()
    if url is not None or is_here():
        return url
    if not _answers(DEFAULT_URL):
        raise CommandFailure(
            f"nothing is {settings.data_place}, and no service answers at {DEFAULT_URL}: start one (`ftrl"
            f" serve`), or say where it is with --url ({URL_VARIABLE}), --data-dir or --redis-url"
        )
    sys.stderr.write(f"ftrl: asking the service at {DEFAULT_URL}\n")
    return DEFAULT_URL


def runs_here(settings: Settings) -> bool:
    """Return whether the embedded server runs on the data directory."""
    from service.storage.embedded import EmbeddedServer

    return EmbeddedServer(settings).running()


def _answers(url: str) -> bool:
    try:
        with service_at(url) as service:
            service.call("GET", "/livez")
    except CommandFailure:
        return False
    return True

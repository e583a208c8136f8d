"""The commands `ftrl log`, for whoever is on call."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from service.cli.model_option import checked_model_name
from service.cli.serve import with_redis_url
from service.cli.setting_flags import with_settings
from service.settings import Settings

if TYPE_CHECKING:
    from service.storage.channel import Channel

Result = TypeVar("Result")
Model = Annotated[str, typer.Option(help="Whose log.", callback=checked_model_name)]

app = typer.Typer(help="Look into a model's example log; get a learner past an entry that it cannot read.")


@app.command()
@with_settings
def show(
    settings: Settings,
    model: Model = "default",
    start: Annotated[
        str | None, typer.Option("--from", help="First entry; by default the first that is not learned.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many entries.")] = 20,
) -> None:
    """Show how far the log is learned, and entries of it."""
    from service.example_log.inspect import describe_log

    for line in _over_redis(settings, lambda channel: describe_log(channel, model, start, count)):
        sys.stdout.write(line + "\n")


@app.command()
@with_settings
def find(
    settings: Settings,
    identifier: Annotated[str, typer.Argument(metavar="ID", help="Of a logged prediction, or an event_id.")],
    model: Model = "default",
) -> None:
    """Find what became an example under an id: its labels, and whether it is learned."""
    from service.example_log.inspect import find_examples

    for line in _over_redis(settings, lambda channel: find_examples(channel, model, identifier)):
        sys.stdout.write(line + "\n")


@app.command()
@with_settings
def skip(
    settings: Settings,
    entry: Annotated[str, typer.Argument(help="The learner goes on after this entry, e.g. 1700000000000-0.")],
    model: Model = "default",
) -> None:
    """Leave out what the log holds up to an entry and is not learned, that entry included."""
    from service.example_log.inspect import skip_through

    examples = _over_redis(settings, lambda channel: skip_through(channel, model, entry))
    sys.stdout.write(f"skipped {examples} examples of {model} through {entry}\n")


def _over_redis(settings: Settings, errand: Callable[[Channel], Awaitable[Result]]) -> Result:
    from service.storage.channel import open_channel

    async def run(found: Settings) -> Result:
        async with open_channel(found) as channel:
            return await errand(channel)

    with with_redis_url(settings, errand=True) as found:
        return asyncio.run(run(found))

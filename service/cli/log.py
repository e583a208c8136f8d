"""`ftrl log`: inspecting and repairing an example log, for the operator on call."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from service.cli.errand import run_errand
from service.cli.flags import checked_model_name, with_settings
from service.settings import Settings

Model = Annotated[str, typer.Option(help="The model of the log.", callback=checked_model_name)]

app = typer.Typer()


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

    for line in run_errand(settings, lambda channel, _: describe_log(channel, model, start, count)):
        sys.stdout.write(line + "\n")


@app.command()
@with_settings
def find(
    settings: Settings,
    identifier: Annotated[
        str, typer.Argument(metavar="ID", help="Id of a logged prediction, or an event_id.")
    ],
    model: Model = "default",
) -> None:
    """Find the examples of an id: their labels, and whether they are learned."""
    from service.example_log.inspect import find_examples

    for line in run_errand(settings, lambda channel, _: find_examples(channel, model, identifier)):
        sys.stdout.write(line + "\n")


@app.command()
@with_settings
def skip(
    settings: Settings,
    entry: Annotated[
        str, typer.Argument(help="The learner continues after this entry, e.g. 1700000000000-0.")
    ],
    model: Model = "default",
) -> None:
    """Skip what is not learned yet, up to an entry and including it."""
    from service.example_log.inspect import skip_through

    examples = run_errand(settings, lambda channel, _: skip_through(channel, model, entry))
    sys.stdout.write(f"skipped {examples} examples of {model} through {entry}\n")

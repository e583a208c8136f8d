"""`ftrl log`: inspecting and repairing an example log, for the operator on call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from service.cli.errand import UrlInstead, run_errand, runs_here, service_to_ask
from service.cli.flags import checked_model_name, with_settings
from service.cli.output import write_json, write_lines
from service.cli.remote import AsJson, path_of, service_at
from service.settings import Settings

MAX_ENTRIES = 1000
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
    count: Annotated[int, typer.Option(min=1, max=MAX_ENTRIES, help="How many entries.")] = 20,
    url: UrlInstead = None,
    as_json: AsJson = False,
) -> None:
    """Show how far the log is learned, and entries of it."""
    address = service_to_ask(settings, url, lambda: runs_here(settings))
    if address is None:
        from service.example_log.inspect import describe_log

        description = run_errand(settings, lambda channel, _: describe_log(channel, model, start, count))
        described = asdict(description)
    else:
        query: dict[str, str | int] = {"count": count}
        if start is not None:
            query["from"] = start
        with service_at(address) as service:
            described = service.call("GET", path_of("models", model, "log"), query=query)
    if as_json:
        write_json(described)
    else:
        write_lines(lines_of(described))


def lines_of(log: dict[str, Any]) -> Iterator[str]:
    """A log's description as text. Raises KeyError if it is not that of this version of the service."""
    yield (
        f"model {log['model']}: {log['entries']} entries; learned through {log['learned_through']},"
        f" {log['waiting']} examples wait"
    )
    for line in log["lines"]:
        if line["status"] == "examples":
            content = f"{line['clicks']:g} clicks, {line['features']} features"
            yield f"{line['entry']}  examples {line['first']}..{line['last']}  {content}"
        else:
            yield f"{line['entry']}  {line['status'].upper()}: {line['problem']}"


@app.command()
@with_settings
def find(
    settings: Settings,
    identifier: Annotated[
        str, typer.Argument(metavar="ID", help="Id of a logged prediction, or an event_id.")
    ],
    model: Model = "default",
    as_json: AsJson = False,
) -> None:
    """Find the examples of an id: their labels, and whether they are learned."""
    from service.example_log.inspect import find_examples

    found = run_errand(settings, lambda channel, _: find_examples(channel, model, identifier))
    if as_json:
        write_json([asdict(one) for one in found])
    else:
        write_lines(
            f"{one.entry}  example {one.number}  label {one.label}  weight {one.weight:g}"
            f"  {'learned' if one.learned else 'waits to be learned'}"
            for one in found
        )


@app.command()
@with_settings
def skip(
    settings: Settings,
    entry: Annotated[
        str, typer.Argument(help="The learner continues after this entry, e.g. 1700000000000-0.")
    ],
    model: Model = "default",
    as_json: AsJson = False,
) -> None:
    """Skip what is not learned yet, up to an entry and including it."""
    from service.example_log.inspect import skip_through

    examples = run_errand(settings, lambda channel, _: skip_through(channel, model, entry))
    if as_json:
        write_json({"model": model, "entry": entry, "skipped": examples})
    else:
        write_lines([f"skipped {examples} examples of {model} through {entry}"])

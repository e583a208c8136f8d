"""`ftrl rebuild`: prove that the state in Redis is what the log says."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.errand import run_errand
from service.cli.flags import checked_model_name, format_of, with_settings
from service.cli.output import write_json, write_lines
from service.cli.remote import URL_VARIABLE, AsJson, path_of, service_at
from service.errors import CommandFailure, Interrupted
from service.settings import Settings

if TYPE_CHECKING:
    from service.snapshots.restore.rebuild import FileToLearn, Rebuilt
    from service.storage.channel import Channel


@with_settings
def rebuild(
    settings: Settings,
    model: Annotated[str, typer.Option(help="Which model.", callback=checked_model_name)] = "default",
    snapshot: Annotated[
        str | None,
        typer.Option(help="Begin with this one, or with `nothing`; by default as early as the log reaches."),
    ] = None,
    file: Annotated[
        str | None, typer.Option(help="Learn this file (vw, libsvm, csv, tsv or jsonl) in place of the log.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            envvar=URL_VARIABLE, help="Refuse data that is not that of the service at this address."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Learn the log again and compare the result with Redis.

    It starts from a snapshot or from nothing, and prints that both are equal, or the first difference, with
    exit code 1. It needs the data directory (or the snapshot store) and the Redis of the service.
    """
    from service.models.config.model import limits_of
    from service.parsing.files.rows import ReadOptions
    from service.snapshots.restore.rebuild import FileToLearn

    learned = None
    if file is not None:
        learned = FileToLearn(file, format_of(file), ReadOptions(limits=limits_of(settings)))
    rebuilt = _run(settings, model, snapshot, learned, None if url is None else _incarnation(url, model))
    made = f"{rebuilt.start} and {rebuilt.examples:,} examples"
    if as_json:
        write_json({"model": model, "equal": not rebuilt.difference, **asdict(rebuilt)})
    if rebuilt.difference:
        raise CommandFailure(f"{model} differs from what {made} make: {rebuilt.difference}")
    if not as_json:
        equal = f"equal: {made} make the state of {model} bit for bit"
        write_lines([f"{equal} (t = {rebuilt.t:,}, {rebuilt.slots:,} slots)"])


def _incarnation(url: str, model: str) -> str:
    """The incarnation with which the revisions of a service's model begin."""
    with service_at(url) as service:
        revision: str = service.call("GET", path_of("models", model))["revision"]
    return revision.partition("-")[0]


def _run(
    settings: Settings, model: str, snapshot: str | None, file: FileToLearn | None, served: str | None
) -> Rebuilt:
    """`served`: the incarnation that is to be found in Redis; None: any."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from service.snapshots.restore.rebuild import rebuild as run
    from service.snapshots.store.catalogue import SnapshotStore

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("examples, left:"), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("", total=None)

    def learned(examples: int, total: int | None) -> None:
        bar.update(task, completed=examples, total=total)

    async def errand(channel: Channel, found: Settings) -> Rebuilt:
        if served is not None:
            await _require(channel, model, served, settings.data_place)
        return await run(channel, SnapshotStore(found).of(model), snapshot, file, learned)

    try:
        with bar:
            return run_errand(settings, errand)
    except KeyboardInterrupt:
        learned_again = f"{bar.tasks[0].completed:,.0f} examples were learned again"
        raise Interrupted(f"{learned_again} and not compared; the model is as it was") from None


async def _require(channel: Channel, model: str, incarnation: str, place: str) -> None:
    """Raises CommandFailure if the model there is another, UnknownModel if there is none."""
    from service.models.replica import gone_is_unknown, read_meta

    with gone_is_unknown():
        meta = await read_meta(channel, model)
    if not meta.revision.startswith(f"{incarnation}-"):
        raise CommandFailure(
            f"the model {model} {place} is not that of the service: give the --data-dir or --redis-url of the"
            " service"
        )

"""`ftrl rebuild`: prove that the state in Redis is what the log says."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.errand import run_errand
from service.cli.flags import checked_model_name, format_of, with_settings
from service.errors import CommandFailure
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
    rebuilt = _run(settings, model, snapshot, learned)
    made = f"{rebuilt.start} and {rebuilt.examples:,} examples"
    if rebuilt.difference:
        raise CommandFailure(f"{model} differs from what {made} make: {rebuilt.difference}")
    sys.stdout.write(
        f"equal: {made} make the state of {model} bit for bit (t = {rebuilt.t:,}, {rebuilt.slots:,} slots)\n"
    )


def _run(settings: Settings, model: str, snapshot: str | None, file: FileToLearn | None) -> Rebuilt:
    from service.snapshots.restore.rebuild import rebuild as run
    from service.snapshots.store.catalogue import SnapshotStore

    def errand(channel: Channel, found: Settings) -> Awaitable[Rebuilt]:
        return run(channel, SnapshotStore(found).of(model), snapshot, file)

    return run_errand(settings, errand)

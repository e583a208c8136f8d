"""`ftrl snapshot ...`: accesses the store and Redis directly, and needs no running API."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from service.cli.errand import run_errand
from service.cli.flags import checked_model_name, json_or_file, with_settings
from service.settings import Settings

if TYPE_CHECKING:
    from model_core.learning.hyperparameters import Hyperparameters
    from service.snapshots.export import Format
    from service.snapshots.store.catalogue import Catalogue
    from service.storage.channel import Channel

Result = TypeVar("Result")
Model = Annotated[str, typer.Option(help="Model of the snapshots.", callback=checked_model_name)]
Name = Annotated[
    str,
    typer.Argument(help="Its id, a tag (the newest that has it), or `newest`: but for what restores saved."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]

app = typer.Typer()


@app.command(name="list")
@with_settings
def list_command(settings: Settings, model: Model = "default", as_json: Json = False) -> None:
    """List the snapshots of a model, oldest first."""
    from service.snapshots.store.catalogue import list_readable, print_table

    found, damaged = list_readable(_catalogue(settings, model))
    if as_json:
        _write_json(found)
    else:
        print_table(found)
    for problem in damaged:
        sys.stderr.write(f"ftrl: {problem}\n")


@app.command()
@with_settings
def show(settings: Settings, snapshot: Name, model: Model = "default") -> None:
    """Describe one snapshot, as JSON. Its checksum is verified."""
    from service.snapshots.store.catalogue import description_of

    catalogue = _catalogue(settings, model)
    entry = catalogue.find(snapshot)
    _write_json(description_of(entry, catalogue.load(entry).header))


@app.command()
@with_settings
def create(
    settings: Settings,
    model: Model = "default",
    tag: Annotated[str | None, typer.Option(help="A tag; a tagged snapshot is kept permanently.")] = None,
) -> None:
    """Have the learner take a snapshot now."""
    from service.models.replica import read_meta
    from service.snapshots.store.catalogue import checked_tag
    from service.snapshots.take.requests import request_snapshot
    from service.storage.records import ModelKeys

    if tag is not None:
        checked_tag(tag)

    async def ask(channel: Channel, _: Settings) -> dict[str, Any]:
        keys = ModelKeys(model, (await read_meta(channel, model)).incarnation)
        return await request_snapshot(channel, keys, "request", tag)

    sys.stdout.write(f"{_over_redis(settings, model, ask)['id']}\n")


@app.command()
@with_settings
def tag(
    settings: Settings,
    snapshot: Name,
    tag: Annotated[str, typer.Argument(help="Such as `good`: a tagged snapshot is kept permanently.")],
    model: Model = "default",
    remove: Annotated[bool, typer.Option("--remove", help="Remove the tag.")] = False,
) -> None:
    """Add a tag to a snapshot, or remove it."""
    catalogue = _catalogue(settings, model)
    entry = catalogue.find(snapshot)
    if remove:
        catalogue.untag(entry, tag)
    else:
        catalogue.tag(entry, tag)


@app.command()
@with_settings
def delete(settings: Settings, snapshot: Name, model: Model = "default") -> None:
    """Delete a snapshot."""
    catalogue = _catalogue(settings, model)
    entry = catalogue.find(snapshot)
    catalogue.delete(entry)
    sys.stdout.write(f"deleted {entry.id}\n")


@app.command()
@with_settings
def diff(
    settings: Settings,
    a: Name,
    b: Name,
    model: Model = "default",
    most: Annotated[int, typer.Option(min=0, help="How many weights that moved most.")] = 20,
) -> None:
    """Compare two snapshots, as JSON: evaluation, density, and the weights that moved most."""
    from service.snapshots.export import difference

    catalogue = _catalogue(settings, model)
    loaded = [catalogue.load(catalogue.find(name)) for name in (a, b)]
    _write_json(difference(loaded[0], loaded[1], most))


@app.command()
@with_settings
def export(
    settings: Settings,
    snapshot: Name,
    file: Annotated[Path, typer.Argument(help="Where to write it.")],
    model: Model = "default",
    file_format: Annotated[
        str, typer.Option("--format", help="safetensors, npz, or serving: the weights that are not 0.")
    ] = "safetensors",
) -> None:
    """Write a snapshot to a file for use elsewhere."""
    from service.snapshots.export import export as write

    kinds: Mapping[str, Format] = {"safetensors": "safetensors", "npz": "npz", "serving": "serving"}
    if file_format not in kinds:
        raise typer.BadParameter(f"must be one of {', '.join(kinds)}", param_hint="--format")
    catalogue = _catalogue(settings, model)
    size = write(catalogue.load(catalogue.find(snapshot)), file.absolute(), kinds[file_format])
    sys.stdout.write(f"{file}: {size:,} bytes\n")


@app.command(name="import")
@with_settings
def import_command(
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="A snapshot, with or without zstd.")],
    model: Model = "default",
    tag: Annotated[str | None, typer.Option(help="A tag for it.")] = None,
) -> None:
    """Import a snapshot file into the store; `restore` then makes it a model."""
    from service.snapshots.export import import_file
    from service.snapshots.store.formats import config_of

    snapshot = import_file(file)
    config_of(snapshot.header)
    entry = _catalogue(settings, model).write(snapshot, [] if tag is None else [tag])
    sys.stdout.write(f"{entry.id}\n")


@app.command()
@with_settings
def restore(
    settings: Settings,
    snapshot: Name,
    model: Model = "default",
    from_now: Annotated[
        bool, typer.Option("--from-now", help="Continue from now; discard what was learned after it.")
    ] = False,
    replay_log: Annotated[bool, typer.Option("--replay-log", help="Learn later examples again.")] = False,
    hyper: Annotated[
        str | None, typer.Option(help="With --replay-log: other hyperparameters, as JSON or as a file of it.")
    ] = None,
) -> None:
    """Make a snapshot the model's state again, in one step while requests go on."""
    from service.snapshots.restore.restore import Restored, RestorePlan
    from service.snapshots.restore.restore import restore as run
    from service.snapshots.store.catalogue import SnapshotStore

    if from_now == replay_log:
        raise typer.BadParameter("say either --from-now or --replay-log")
    if hyper is not None and not replay_log:
        raise typer.BadParameter("nothing is learned with it without --replay-log", param_hint="--hyper")
    plan = RestorePlan(model, snapshot, replay_log, None if hyper is None else _hyper(hyper))

    async def go(channel: Channel, found: Settings) -> Restored:
        return await run(channel, SnapshotStore(found), plan)

    done = _over_redis(settings, model, go)
    sys.stdout.write(
        f"restored {done.model} from {done.snapshot}: t = {done.t}, {done.replayed} examples learned again,"
        f" {done.seconds:.1f} s\n"
    )
    if done.before is None:
        sys.stdout.write("there was no model before\n")
    else:
        sys.stdout.write(
            f"to take it back: ftrl snapshot restore {done.before} --from-now --model {done.model}\n"
        )


def _hyper(text: str) -> Hyperparameters:
    """Raises InvalidInput, typer.BadParameter."""
    from service.models.config.model import ModelConfig

    return ModelConfig.from_json({"hyper": json_or_file(text, "--hyper")}).hyper


def _catalogue(settings: Settings, model: str) -> Catalogue:
    from service.snapshots.store.catalogue import SnapshotStore

    return SnapshotStore(settings).of(model)


def _over_redis(
    settings: Settings, model: str, errand: Callable[[Channel, Settings], Awaitable[Result]]
) -> Result:
    from service.models.alias_store import check_free
    from service.models.replica import gone_is_unknown

    async def checked(channel: Channel, found: Settings) -> Result:
        await check_free(channel, model)
        with gone_is_unknown():
            return await errand(channel, found)

    return run_errand(settings, checked)


def _write_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")

"""`ftrl snapshot ...`: what a running service can do is asked of it; all else reads the store and Redis."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from service.cli.errand import UrlInstead, run_errand, runs_here, service_to_ask
from service.cli.flags import checked_model_name, json_or_file, with_settings
from service.cli.output import write_json, write_lines, write_table
from service.cli.remote import AsJson, path_of, service_at
from service.errors import CommandFailure, ServiceError, UnknownSnapshot
from service.settings import Settings

if TYPE_CHECKING:
    from model_core.learning.hyperparameters import Hyperparameters
    from service.snapshots.export import Format
    from service.snapshots.store.catalogue import Catalogue, Entry
    from service.storage.channel import Channel

Result = TypeVar("Result")
Model = Annotated[str, typer.Option(help="Model of the snapshots.", callback=checked_model_name)]
Name = Annotated[
    str,
    typer.Argument(help="Its id, a tag (the newest that has it), or `newest`: but for what restores saved."),
]

app = typer.Typer()


@app.command(name="list")
@with_settings
def list_command(
    settings: Settings, model: Model = "default", url: UrlInstead = None, as_json: AsJson = False
) -> None:
    """List the snapshots of a model, oldest first."""
    address = service_to_ask(settings, url, lambda: Path(settings.snapshot_store).is_dir())
    if address is None:
        from service.snapshots.store.catalogue import list_readable

        found, damaged = list_readable(_catalogue(settings, model))
    else:
        with service_at(address) as service:
            reply = service.call("GET", path_of("models", model, "snapshots"))
        found, damaged = reply["snapshots"], reply["damaged"]
    if as_json:
        write_json(found)
    elif found:
        headings = ("id", "tags", "reason", "examples", "features", "density", "bytes")
        write_table(headings, map(_row, found), texts=3)
    else:
        sys.stderr.write(f"ftrl: no snapshot of {model} at {address or settings.snapshot_place}\n")
    for problem in damaged:
        sys.stderr.write(f"ftrl: {problem}\n")


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        *(one["id"], " ".join(one["tags"]), one["reason"], f"{one['t']:,}", f"{one['features_seen']:,}"),
        *(f"{one['density']:.3f}", f"{one['bytes']:,}"),
    )


@app.command()
@with_settings
def show(
    settings: Settings,
    snapshot: Name,
    model: Model = "default",
    url: UrlInstead = None,
    as_json: AsJson = False,
) -> None:
    """Describe one snapshot. Where the store is read directly, its checksum is verified."""
    address = service_to_ask(settings, url, lambda: Path(settings.snapshot_store).is_dir())
    if address is None:
        from service.snapshots.store.catalogue import description_of

        with _found(settings, model, snapshot) as (catalogue, entry):
            described = description_of(entry, catalogue.load(entry).header)
    else:
        with service_at(address) as service:
            described = service.call("GET", path_of("models", model, "snapshots", snapshot))
    write_json(described, None if as_json else 2)


@app.command()
@with_settings
def create(
    settings: Settings,
    model: Model = "default",
    tag: Annotated[str | None, typer.Option(help="A tag; a tagged snapshot is kept permanently.")] = None,
    url: UrlInstead = None,
    as_json: AsJson = False,
) -> None:
    """Have the learner take a snapshot now."""
    from service.snapshots.store.catalogue import checked_tag

    if tag is not None:
        checked_tag(tag)
    address = service_to_ask(settings, url, lambda: runs_here(settings))
    if address is None:
        taken = _over_redis(settings, model, lambda channel, _: _request(channel, model, tag))
    else:
        with service_at(address) as service:
            query = {} if tag is None else {"tag": tag}
            taken = service.call("POST", path_of("models", model, "snapshots"), query=query)
    if as_json:
        write_json(taken)
    else:
        write_lines([taken["id"]])


async def _request(channel: Channel, model: str, tag: str | None) -> dict[str, Any]:
    from service.models.replica import read_meta
    from service.snapshots.take.requests import request_snapshot
    from service.storage.records import ModelKeys

    keys = ModelKeys(model, (await read_meta(channel, model)).incarnation)
    return await request_snapshot(channel, keys, "request", tag)


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
    with _found(settings, model, snapshot) as (catalogue, entry):
        if remove:
            catalogue.untag(entry, tag)
        else:
            catalogue.tag(entry, tag)


@app.command()
@with_settings
def delete(settings: Settings, snapshot: Name, model: Model = "default", as_json: AsJson = False) -> None:
    """Delete a snapshot."""
    with _found(settings, model, snapshot) as (catalogue, entry):
        catalogue.delete(entry)
    if as_json:
        write_json({"model": model, "deleted": entry.id})
    else:
        write_lines([f"deleted {entry.id}"])


@app.command()
@with_settings
def diff(
    settings: Settings,
    a: Name,
    b: Name,
    model: Model = "default",
    most: Annotated[int, typer.Option(min=0, help="How many weights that moved most.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Compare two snapshots: evaluation, density, and the weights that moved most.

    Where the Redis of the service answers, with the names of the features that are known.
    """
    from service.snapshots.export import difference

    loaded = []
    for name in (a, b):
        with _found(settings, model, name) as (catalogue, entry):
            loaded.append(catalogue.load(entry))
    names = _names(settings, model) if settings.feature_names else None
    write_json(difference(loaded[0], loaded[1], most, names), None if as_json else 2)


def _names(settings: Settings, model: str) -> list[str] | None:
    """Return the names of features that the service has noted; None if its Redis has no such model."""
    from redis.exceptions import ResponseError

    from service.storage.errors import CONNECTION_FAILURES

    try:
        return _over_redis(settings, model, lambda channel, _: _read_names(channel, model))
    except (CommandFailure, ServiceError, ResponseError, *CONNECTION_FAILURES):
        return None


async def _read_names(channel: Channel, model: str) -> list[str]:
    from service.models.feature_names import learned_keys
    from service.models.replica import read_meta
    from service.storage.records import ModelKeys
    from service.storage.scripts.names import read_names

    meta = await read_meta(channel, model)
    keys = learned_keys(ModelKeys(model, meta.incarnation), meta.follows)
    return list(await read_names(channel, keys))


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
    as_json: AsJson = False,
) -> None:
    """Write a snapshot to a file for use elsewhere."""
    from service.snapshots.export import export as write

    kinds: Mapping[str, Format] = {"safetensors": "safetensors", "npz": "npz", "serving": "serving"}
    if file_format not in kinds:
        raise typer.BadParameter(f"must be one of {', '.join(kinds)}", param_hint="--format")
    with _found(settings, model, snapshot) as (catalogue, entry):
        size = write(catalogue.load(entry), file.absolute(), kinds[file_format])
    if as_json:
        write_json({"snapshot": entry.id, "file": str(file), "format": file_format, "bytes": size})
    else:
        write_lines([f"{file}: {size:,} bytes"])


@app.command(name="import")
@with_settings
def import_command(
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="A snapshot, with or without zstd.")],
    model: Model = "default",
    tag: Annotated[str | None, typer.Option(help="A tag for it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Import a snapshot file into the store; `restore` then makes it a model."""
    from service.snapshots.export import import_file
    from service.snapshots.store.formats import config_of

    snapshot = import_file(file)
    config_of(snapshot.header)
    entry = _catalogue(settings, model).write(snapshot, [] if tag is None else [tag])
    if as_json:
        write_json({"id": entry.id, "tags": list(entry.tags), "bytes": entry.bytes})
    else:
        write_lines([entry.id])


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
    as_json: AsJson = False,
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

    with _says_where(settings):
        done = _over_redis(settings, model, go, starts_server=True)
    if as_json:
        write_json(done.to_json())
    else:
        restored = f"restored {done.model} from {done.snapshot}: t = {done.t}"
        back = f"to take it back: ftrl snapshot restore {done.before} --from-now --model {done.model}"
        write_lines(
            [
                f"{restored}, {done.replayed} examples learned again, {done.seconds:.1f} s",
                "no state was there before that could be saved" if done.before is None else back,
            ]
        )


def _hyper(text: str) -> Hyperparameters:
    """Raises InvalidInput, typer.BadParameter."""
    from service.models.config.model import ModelConfig

    return ModelConfig.from_json({"hyper": json_or_file(text, "--hyper")}).hyper


def _catalogue(settings: Settings, model: str) -> Catalogue:
    from service.snapshots.store.catalogue import SnapshotStore

    return SnapshotStore(settings).of(model)


@contextlib.contextmanager
def _found(settings: Settings, model: str, name: str) -> Iterator[tuple[Catalogue, Entry]]:
    """A snapshot of the store. Raises CommandFailure if it is not there, or is deleted within the block."""
    with _says_where(settings):
        catalogue = _catalogue(settings, model)
        yield catalogue, catalogue.find(name)


@contextlib.contextmanager
def _says_where(settings: Settings) -> Iterator[None]:
    try:
        yield
    except UnknownSnapshot as unknown:  # the command may have been called in another directory
        raise CommandFailure(
            f"{unknown.detail} The snapshots are those in {settings.snapshot_place}; --data-dir or"
            " --snapshots selects others."
        ) from unknown


def _over_redis(
    settings: Settings,
    model: str,
    errand: Callable[[Channel, Settings], Awaitable[Result]],
    *,
    starts_server: bool = False,
) -> Result:
    from service.models.alias_store import check_free
    from service.models.replica import gone_is_unknown

    async def checked(channel: Channel, found: Settings) -> Result:
        await check_free(channel, model)
        with gone_is_unknown():
            return await errand(channel, found)

    return run_errand(settings, checked, starts_server=starts_server)

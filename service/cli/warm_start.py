"""The command `ftrl import`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from service.cli.flags import checked_model_name, json_or_file, with_settings
from service.cli.output import write_json, write_lines
from service.cli.remote import AsJson
from service.errors import Interrupted
from service.settings import Settings

if TYPE_CHECKING:
    from service.parsing.files.source import TextSource
    from service.parsing.files.weights import WeightsFile
    from service.snapshots.restore.warm_start import Evidence, WarmStart


@with_settings
def import_command(
    settings: Settings,
    name: Annotated[str, typer.Argument(help="The name of the new model.", callback=checked_model_name)],
    weights: Annotated[
        str | None,
        typer.Option(
            help="A table of weights, CSV or TSV, with a first line of name,value,weight,count; value and"
            " count may be left out.",
            metavar="FILE",
        ),
    ] = None,
    vw: Annotated[
        str | None,
        typer.Option("--vw", help="What `vw --invert_hash FILE` wrote of a logistic model.", metavar="FILE"),
    ] = None,
    namespaces: Annotated[
        Literal["ignore", "prefix"],
        typer.Option(help="Namespaces of Vowpal Wabbit, as for `ftrl replay`: with prefix, `f^` stays."),
    ] = "ignore",
    click_rate: Annotated[
        float | None,
        typer.Option(
            min=1e-6,
            max=1 - 1e-6,
            help="Click rate of the examples that the weights were learned from; by default that of the bias"
            " alone.",
        ),
    ] = None,
    default_count: Annotated[
        float,
        typer.Option(
            min=0, max=1e15, help="Examples that a weight without a count stands for: less moves it faster."
        ),
    ] = 100,
    hyper: Annotated[str | None, typer.Option(help="Hyperparameters: JSON, or a file of it.")] = None,
    hashing: Annotated[
        str | None,
        typer.Option(help="Hash contract: JSON, or a file of it; by default numbers are taken as they are."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a model from the weights of another learner.

    Its first predictions are those of the weights, and it learns on from there. It needs the Redis and the
    data directory (or the snapshot store) of the service, which may run meanwhile.
    """
    from service.cli.errand import with_redis_url
    from service.parsing.files.source import TextSource
    from service.snapshots.restore.warm_start import Evidence

    file = weights if vw is None else vw
    if file is None or (weights is not None and vw is not None):
        raise typer.BadParameter("give one of --weights and --vw")
    given = {"hyper": json_or_file(hyper, "--hyper"), "hashing": json_or_file(hashing, "--hashing")}
    body = {section: value for section, value in given.items() if value is not None}
    _check(body)
    with TextSource(file) as source, with_redis_url(settings, errand=True) as found:
        try:
            opened = _opened(source, found, None if vw is None else namespaces)
            start = _import(found, name, opened, body, Evidence(click_rate, default_count))
        except KeyboardInterrupt:
            raise Interrupted(
                f"`ftrl models` shows whether {name} was created: all of it, or nothing"
            ) from None
    if as_json:
        write_json(_described(name, start))
    else:
        write_lines(_summary(name, start))


def _check(body: dict[str, Any]) -> None:
    """Raise typer.BadParameter."""
    from model_core.errors import InvalidInput
    from service.snapshots.restore.warm_start import config_for

    try:
        config_for(body)
    except InvalidInput as wrong:
        raise typer.BadParameter(str(wrong), param_hint=f"--{wrong.path[0]}") from None


def _opened(
    source: TextSource, settings: Settings, namespaces: Literal["ignore", "prefix"] | None
) -> WeightsFile:
    if namespaces is None:
        from service.parsing.files.weights import TableOfWeights

        return TableOfWeights(source, settings.max_name_bytes)
    from service.parsing.files.vw_model import VowpalWabbitModel

    return VowpalWabbitModel(source, settings.max_name_bytes, namespaces)


def _import(
    settings: Settings, name: str, file: WeightsFile, body: dict[str, Any], evidence: Evidence
) -> WarmStart:
    """Raises BadWeights, UnreadableFile, InvalidInput, and what create_warm raises."""
    from service.parsing.files.weights import read_weights
    from service.snapshots.restore.create import check_new
    from service.snapshots.restore.warm_start import config_for, create_warm, warm_start
    from service.snapshots.store.catalogue import SnapshotStore
    from service.storage.channel import open_channel

    async def check() -> None:
        async with open_channel(settings) as channel:
            await check_new(channel, name)

    async def create(start: WarmStart) -> None:
        async with open_channel(settings) as channel:
            names = read.names if settings.feature_names else {}
            await create_warm(channel, SnapshotStore(settings), name, start, file.name, names)

    asyncio.run(check())
    read = read_weights(file, config_for(body).hashing.seed)
    start = warm_start(file, read, config_for(body, read), evidence)
    asyncio.run(create(start))
    return start


def _described(name: str, start: WarmStart) -> dict[str, Any]:
    return {
        "model": name,
        "weights": start.weights,
        "features_seen": start.state.features_seen,
        "sharing_slots": start.sharing,
        "without_evidence": start.without_evidence,
        "t": start.state.t,
        "hashing": start.config.hashing.to_json(),
    }


def _summary(name: str, start: WarmStart) -> list[str]:
    hashing = start.config.hashing
    lines = [f"model {name}: {start.weights:,} weights, t = {start.state.t:,}"]
    if start.sharing:
        lines.append(
            f"{start.sharing:,} features share their slots, which have the mean of their weights: more"
            f" slots keep them apart (--hashing '{{\"bits\": {min(hashing.bits + 3, 28)}}}')"
        )
    if start.without_evidence:
        lines.append(
            f"weights without a count, which stand for --default-count examples: {start.without_evidence:,}"
        )
    categories = sorted(name for name, kind in hashing.types.items() if kind == "category")
    if categories:
        lines.append(f"numbers of these names are categories: {', '.join(categories)}")
    if hashing.crosses:
        lines.append(f"crosses: {', '.join('^'.join(names) for names in hashing.crosses)}")
    return lines

"""The command `ftrl status`: what the page shows of each model, in one line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from service.cli.output import write_json, write_table
from service.cli.remote import DEFAULT_URL, AsJson, Url, path_of, service_at
from service.errors import CommandFailure

if TYPE_CHECKING:
    from service.cli.http_client import ServiceClient

STREAMS_AT_ONCE = 8
WHOLE_STREAM = "all"


class Column(NamedTuple):
    heading: str
    text: Callable[[dict[str, Any]], str]


def status(
    url: Url = DEFAULT_URL,
    model: Annotated[
        list[str] | None, typer.Option(help="Only this model; repeat it for several. By default all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show whether each model is up, learning and right.

    The verdict and its words are those of the page. The figures are of the window that is judged, or of the
    whole stream. The exit code is 1 if any verdict is `bad`.
    """
    with service_at(url) as service:
        names = model or service.call("GET", "/models")["models"]
    with ThreadPoolExecutor(STREAMS_AT_ONCE) as pool:
        found = list(pool.map(lambda name: _status_of(url, name), names))
    if as_json:
        write_json(found)
    else:
        rows = [[column.text(one) for column in COLUMNS] for one in found]
        write_table([column.heading for column in COLUMNS], rows, texts=2)
    if any(one["verdict"]["level"] == "bad" for one in found):
        raise typer.Exit(1)


def _status_of(url: str, name: str) -> dict[str, Any]:
    """The status of a model; one that cannot be read has the reason as its verdict."""
    from service.cli.http_client import Refused

    with service_at(url) as service:
        try:
            live = _second(
                live for kind, live in service.events(path_of("models", name, "live")) if kind == "live"
            )
            figures = _figures(service.call("GET", path_of("models", name, "evaluation")))
            snapshot = _newest_snapshot(service, name)
        except Refused as refused:
            return {"model": name, "verdict": {"level": "bad", "headline": str(refused), "checks": []}}
    return {
        "model": live["model"],
        "verdict": live["verdict"],
        "figures": figures,
        "t": live["t"],
        "revision": live["revision"],
        "learner": live["learner"],
        "lag": live["lag"],
        "snapshot": snapshot,
        "aliases": sorted(alias for alias, target in live["aliases"].items() if target == live["model"]),
    }


def _second(events: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """The second of two events, as rates need a second; or the first, if the stream ends."""
    first = next(events, None)
    found = next(events, first)
    if found is None:
        raise CommandFailure(
            "the service ended the stream of live figures: it is stopping, or is another version"
        )
    return found


def _figures(evaluation: dict[str, Any]) -> dict[str, Any]:
    """The figures by weight of the window that is judged; before there is one, of the whole stream."""
    judged = evaluation["judgement"] or {}
    sources = evaluation["sources"]
    source = judged.get("source") or ("served" if sources["served"] else "progressive")
    windows: dict[str, dict[str, Any]] = sources[source]["windows"]
    figures = windows[judged.get("window", WHOLE_STREAM)]
    parts = {"reliability", "unweighted"}
    return {"source": source} | {name: value for name, value in figures.items() if name not in parts}


def _newest_snapshot(service: ServiceClient, name: str) -> dict[str, Any] | None:
    from service.cli.http_client import Refused

    try:
        newest = service.call("GET", path_of("models", name, "snapshots", "newest"))
    except Refused as refused:
        if refused.status != 404:
            raise
        return None
    age = time.time() - datetime.fromisoformat(newest["time"]).timestamp()
    return {"id": newest["id"], "time": newest["time"], "age_seconds": round(age, 1)}


def _figure(name: str, digits: int) -> Callable[[dict[str, Any]], str]:
    def text(one: dict[str, Any]) -> str:
        value = one.get("figures", {}).get(name)
        return "-" if value is None else f"{value:.{digits}f}"

    return text


def _lag(one: dict[str, Any]) -> str:
    lag = one.get("lag")
    if lag is None:
        return "-"
    late = "" if lag["seconds"] is None else f", {_duration(lag['seconds'])}"
    return f"{lag['examples']:,}{late}" if lag["examples"] else "0"


def _snapshot(one: dict[str, Any]) -> str:
    snapshot = one.get("snapshot")
    return "none" if snapshot is None else _duration(snapshot["age_seconds"])


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


COLUMNS = (
    Column("model", lambda one: one["model"]),
    Column("verdict", lambda one: one["verdict"]["level"]),
    Column("AUC", _figure("auc", 4)),
    Column("log loss", _figure("log_loss", 4)),
    Column("calibration", _figure("calibration_ratio", 3)),
    Column("updates", lambda one: f"{one['t']:,}" if "t" in one else "-"),
    Column("lag", _lag),
    Column("snapshot", _snapshot),
    Column("aliases", lambda one: ",".join(one.get("aliases", ())) or "-"),
    Column("", lambda one: one["verdict"]["headline"]),
)

"""The command `ftrl doctor`: what is wrong with an installation, and what to do about it."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from service import __version__
from service.cli.errand import with_running_redis
from service.cli.flags import misspelt_variables, with_settings
from service.cli.output import write_json, write_lines
from service.cli.remote import URL_VARIABLE, AsJson, service_at
from service.errors import CommandFailure
from service.settings import Settings

if TYPE_CHECKING:
    from service.storage.channel import Channel
    from service.storage.health import ServerHealth

MIN_FREE_BYTES, MIN_FREE_SHARE = 256 << 20, 0.05
MAX_CLOCK_SECONDS = 2.0
SLOW_REPLY_SECONDS = 0.05

Level = Literal["ok", "warn", "bad"]


@dataclass(frozen=True)
class Finding:
    """`action`: what to do; empty if nothing needs to be done."""

    check: str
    level: Level
    text: str
    action: str = ""


@with_settings
def doctor(
    settings: Settings,
    url: Annotated[
        str | None,
        typer.Option(
            envvar=URL_VARIABLE,
            help="Address of the service; by default that of the settings --host and --port.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check settings, service, Redis, clock and disk, and say what to do.

    It reads the settings as the service does, so call it with the same environment and flags. Nothing is
    started or changed. The exit code is 1 if anything is `bad`.
    """
    found = [
        *_settings(settings),
        *_versions(),
        *service_findings(*_addresses(settings, url)),
        *_redis(settings),
        *_disks(settings),
    ]
    if as_json:
        write_json([asdict(finding) for finding in found])
    else:
        width = max(len(finding.check) for finding in found)
        for finding in found:
            write_lines([f"{finding.level:<4}  {finding.check:<{width}}  {finding.text}"])
            if finding.action:
                write_lines([f"{'':{width + 6}}  -> {finding.action}"])
    if any(finding.level == "bad" for finding in found):
        raise typer.Exit(1)


def _addresses(settings: Settings, url: str | None) -> tuple[str, str]:
    """Of the service, and of its /livez and /readyz."""
    if url:
        return url, url
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "localhost") else settings.host
    at = f"http://{f'[{host}]' if ':' in host else host}"
    return f"{at}:{settings.port}", f"{at}:{settings.health_port or settings.port}"


def _settings(settings: Settings) -> Iterator[Finding]:
    for name, meant in misspelt_variables():
        yield Finding("settings", "warn", f"{name} is no setting and has no effect", f"set {meant} instead?")
    if settings.anonymous_abroad:
        yield Finding(
            "settings",
            "bad",
            f"anyone who can reach {settings.host} could call the service, which therefore does not start",
            "make tokens with `ftrl token create` and set FTRL_TOKENS_FILE, or set FTRL_ALLOW_ANONYMOUS=true",
        )
    if settings.tokens_file is not None:
        yield _tokens(settings.tokens_file)
    given, known = len(settings.model_fields_set), len(Settings.model_fields)
    yield Finding("settings", "ok", f"{given} of {known} are given, the others have their defaults")


def _tokens(file: Path) -> Finding:
    from service.api.security.tokens import TokenFileError, read_tokens

    try:
        grants = read_tokens(file)
    except TokenFileError as wrong:
        return Finding(
            "tokens", "bad", str(wrong), "correct the line; the service goes on with what it read before"
        )
    if not grants:
        return Finding(
            "tokens", "bad", f"{file} has no token: every call is refused", "`ftrl token create --file`"
        )
    return Finding("tokens", "ok", f"{len(grants)} in {file}")


def _versions() -> Iterator[Finding]:
    from service.runtime.kernels import kernels_are_compiled

    text = f"ftrl {__version__}, Python {platform.python_version()}, {os.cpu_count()} processors"
    yield Finding("versions", "ok", text)
    if not kernels_are_compiled():
        yield Finding(
            "kernels",
            "warn",
            "not compiled for this version: the first start takes a minute",
            "`ftrl warm-up`",
        )


def service_findings(url: str, health_url: str) -> Iterator[Finding]:
    """Whether a service answers, and each model of it whose verdict is bad."""
    from service.cli.http_client import Refused

    try:
        with service_at(health_url) as service:
            service.call("GET", "/livez")
            ready = service.call("GET", "/readyz", accepts=(503,))
        with service_at(url) as service:
            version = service.call("GET", "/openapi.json")["info"]["version"]
    except Refused as refused:
        action = (
            "put a token of the service in FTRL_TOKEN"
            if refused.status == 401
            else "see the log of the service"
        )
        yield Finding("service", "bad", str(refused), action)
        return
    except CommandFailure as failure:
        yield Finding(
            "service", "bad", str(failure).partition(": start it")[0], "`ftrl serve`, or give its --url"
        )
        return
    level: Level = "ok" if ready["predict"] == "fresh" and ready["update"] == "available" else "bad"
    text = f"{url}: predictions are {ready['predict']}, updates are {ready['update']}"
    reasons = " ".join(ready["reasons"])
    yield Finding("service", "warn" if reasons and level == "ok" else level, text, reasons)
    yield from _models(url)
    if version != __version__:
        yield Finding(
            "versions", "warn", f"the service is of version {version}", "use its own `ftrl` command"
        )


def _models(url: str) -> Iterator[Finding]:
    try:
        with service_at(url) as service:
            overview = service.call("GET", "/overview")
    except CommandFailure as failure:
        yield Finding(
            "models", "warn", f"not checked: {failure}", "`ftrl status` with a token for all models"
        )
        return
    for line in overview["models"]:
        if line["level"] == "bad":
            yield Finding("models", "bad", f"{line['model']}: {line['headline']}", "see docs/runbook.md")
    if overview["left_out"]:
        text = f"{len(overview['left_out'])} of them were not checked"
        yield Finding("models", "warn", text, "`ftrl models show NAME` shows one")


def _redis(settings: Settings) -> list[Finding]:
    from redis.exceptions import RedisError

    try:
        with with_running_redis(settings) as found:
            return asyncio.run(_asked(found, settings))
    except CommandFailure as nothing:
        what, _, action = str(nothing).partition(": ")
        return [Finding("redis", "bad", what, action)]
    except (RedisError, OSError) as failure:
        action = (
            "see docs/runbook.md; FTRL_REDIS_URL, _USERNAME, _PASSWORD and _CA_CERT say how it is reached"
        )
        return [Finding("redis", "bad", f"{settings.data_place}: {failure}", action)]


async def _asked(found: Settings, settings: Settings) -> list[Finding]:
    from service.storage.channel import Channel
    from service.storage.health import ServerHealth, UnfitServer
    from service.storage.topology import connect
    from service.storage.torn_tail import name_of

    topology = connect(found, str(found.redis_url))
    health, channel = ServerHealth(topology, found), Channel(topology)
    unfit = ""
    try:
        try:
            await health.check()
        except UnfitServer as wrong:
            unfit = str(wrong)
        server = f"{name_of(await channel.info('server'))} {settings.data_place}"
        first = Finding("redis", "bad" if unfit else "ok", server, unfit)
        return [first, *_server(health), *_persistence(health), *await _clock(channel)]
    finally:
        await channel.close()
        await health.close()
        await topology.close()


def _server(health: ServerHealth) -> Iterator[Finding]:
    if health.refusal:
        yield Finding("redis", "bad", f"refuses writes: {health.refusal}", "see docs/runbook.md")
    limit = "maxmemory is not set"
    if health.limit_bytes:
        limit = f"{health.used_share:.0%} of maxmemory ({health.limit_bytes:,} bytes) are used"
    text = f"{health.policy or 'not shown'}; {limit}"
    if health.shedding:
        action = f"raise maxmemory: above {health.share_limit:.0%} new examples are refused"
        yield Finding("policy", "bad", text, action)
    elif health.may_evict:
        yield Finding("policy", "warn", f"{text}: models may be evicted", "set maxmemory-policy noeviction")
    else:
        yield Finding("policy", "ok", text)


def _persistence(health: ServerHealth) -> Iterator[Finding]:
    if health.persists is False:
        text, action = (
            "nothing is persisted: a restart loses every model",
            "set `appendonly yes` (docs/redis.md)",
        )
        yield Finding("persistence", "bad", text, action)
    elif not health.persistence_ok:
        text = "the last write to the disk of Redis failed"
        yield Finding("persistence", "bad", text, "make room on its disk, and see its log")
    elif health.persists is None:
        text = "the server does not show whether it persists anything"
        yield Finding("persistence", "warn", text, "look it up where it is managed")
    else:
        yield Finding("persistence", "ok", "the data is persisted, and the last writes to disk succeeded")
    if health.half_transactions:
        text = f"{health.half_transactions} may run half of a transaction at a restart"
        yield Finding("persistence", "warn", text, "use a version without this defect (docs/redis.md)")


async def _clock(channel: Channel) -> list[Finding]:
    """Compare with the clock of Redis, by the quickest of three replies."""
    measured = []
    for _ in range(3):
        began = time.time()
        seconds, microseconds = map(int, await channel.call("TIME"))
        took = time.time() - began
        measured.append((took, seconds + microseconds / 1e6 - began - took / 2))
    took, offset = min(measured)
    found = [Finding("clock", "ok", f"that of Redis differs by {abs(offset):.3f} s")]
    if abs(offset) > MAX_CLOCK_SECONDS:
        text = f"that of Redis is {abs(offset):.1f} s {'ahead' if offset > 0 else 'behind'}"
        found = [
            Finding("clock", "warn", text, "synchronise the clocks (NTP): windows and ids depend on them")
        ]
    if took > SLOW_REPLY_SECONDS:
        text = f"Redis takes {1000 * took:.0f} ms to answer"
        found.append(Finding("redis", "warn", text, "place it near the service: every update waits for it"))
    return found


def _disks(settings: Settings) -> Iterator[Finding]:
    places = {"snapshots": settings.snapshot_place}
    if settings.embedded:
        places = {"data": str(settings.data_dir.absolute())} | places
    for what, place in places.items():
        if "://" not in place:
            yield _disk(what, Path(place))


def _disk(what: str, place: Path) -> Finding:
    there = next(path for path in (place, *place.parents) if path.exists())
    usage = shutil.disk_usage(there)
    text = f"{what} in {place}: {usage.free:,} of {usage.total:,} bytes are free"
    if not os.access(there, os.W_OK):
        return Finding(
            "disk", "bad", f"{what} in {place}: not writable", "choose another FTRL_DATA_DIR, or its owner"
        )
    if usage.free < MIN_FREE_BYTES:
        return Finding("disk", "bad", text, "make room, or move it to a larger disk")
    if usage.free < MIN_FREE_SHARE * usage.total:
        return Finding("disk", "warn", text, "make room soon: Redis needs it to rewrite its file")
    return Finding("disk", "ok", text)

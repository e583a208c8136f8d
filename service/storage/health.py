"""Monitors the Redis server: if it answers and accepts writes, how full it is, if it could lose a model."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time

from redis.exceptions import BusyLoadingError, ResponseError

from service.settings.groups import RedisSettings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, was_cut, words_of
from service.storage.fitness import refusals
from service.storage.records import probe_key
from service.storage.scripts.log import try_write
from service.storage.topology import Node, Topology
from service.storage.torn_tail import Rewrites, name_of, runs_half_transactions

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
FIRST_PROBE_SECONDS, PROBE_SECONDS = 0.025, 0.2
"""While the server is away: the first interval, which doubles up to the second."""
OLDEST_REDIS = (6, 2)
PROBED = "-"
"""Instead of a model's name, in the key (PROBE) at which a write is always tried."""
WRITES_TO_DISK = ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status")


SHOWN_REFUSALS = 5


class UnfitServer(Exception):
    """The server may evict keys, so that a model could vanish silently, or refuses commands."""


class ServerHealth:
    """The last report of the server: polled once a second, and about seven times while it is away.

    `refusal`: the error with which it refuses writes; empty if it accepts them.
    """

    def __init__(self, topology: Topology, settings: RedisSettings) -> None:
        self.refusal = ""
        self.redis_version: tuple[int, ...] = OLDEST_REDIS  # of Valkey: the one it is compatible with
        self.policy = ""
        self.persists: bool | None = None  # None: not known
        self.persistence_ok = True
        self.used_bytes = 0
        self.limit_bytes = 0
        self.half_transactions = ""
        """The server that may run half of a transaction at a restart (see torn_tail), or empty."""
        self.unfit = ""
        """Why the last check found the server unfit for models, or empty."""
        self.shedding = False
        """New examples are refused, so that commits and trims still fit."""
        self._settings = settings
        self._topology = topology
        self._channels: dict[Node | None, Channel] = {}
        self._writes = Channel(topology)
        self._probed = {PROBED}  # and models whose appends failed: in a cluster they may be on another node
        self._rewrites = Rewrites()
        self._shows_settings = True
        self._doubted = asyncio.Event()
        self._is_up = asyncio.Event()
        self._silent_since = -math.inf  # while it is not up
        self._away_since: float | None = None

    @property
    def up(self) -> bool:
        """True while it answers."""
        return self._is_up.is_set()

    @property
    def silent_seconds(self) -> float:
        """Seconds for which it has not answered; 0 while it is up."""
        return 0.0 if self.up else time.monotonic() - self._silent_since

    async def until_up(self, seconds: float) -> bool:
        """Waits until it answers, at most so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_up.wait(), seconds)
        return self.up

    @property
    def share_limit(self) -> float:
        """The share of maxmemory above which new examples are refused."""
        return self._settings.memory_share_limit

    @property
    def used_share(self) -> float:
        """The used share of maxmemory; 0 without a limit."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0

    @property
    def connections_refused(self) -> int:
        """The number of connections that could not be opened because a limit was reached."""
        return self._topology.limit.refused

    @property
    def connection_limit(self) -> str:
        """The limit of connections that was reached just now; empty for none."""
        return self._topology.limit.reason

    @property
    def may_evict(self) -> bool:
        return self.limit_bytes > 0 and self.policy not in ("noeviction", "")

    async def check(self) -> None:
        """Polls once, at the start. Raises UnfitServer, and what Channel.call raises."""
        await self._poll()
        self.unfit = await self._reason_against()
        if self.unfit:
            raise UnfitServer(self.unfit)
        if self.persists is False:
            log.warning("this Redis persists nothing (no AOF, no RDB): a restart of it loses every model")
        if self.half_transactions:
            log.warning(
                "%s may run half of a transaction at the restart after one that cut the end of its"
                " append-only file, which is therefore rewritten after every start; use a version without"
                " this defect (docs/redis.md)",
                self.half_transactions,
            )

    async def _reason_against(self) -> str:
        if self.redis_version < OLDEST_REDIS:
            return "This Redis is older than 6.2, which is the first that can trim the streams used here."
        if self.may_evict and not self._settings.allow_eviction:
            return (
                f"This Redis has maxmemory-policy {self.policy}: under memory pressure it would evict model"
                " state silently. Set `maxmemory-policy noeviction` there, or FTRL_ALLOW_EVICTION=true to"
                " accept the loss."
            )
        channel = Channel(self._topology)
        try:
            refused = await refusals(channel)
        finally:
            await channel.close()
        if not refused:
            return ""
        shown = "; ".join(refused[:SHOWN_REFUSALS])
        more = f"; and {len(refused) - SHOWN_REFUSALS} more" if len(refused) > SHOWN_REFUSALS else ""
        return (
            f"This server refuses what the service needs: {shown}{more}. Give its user the rights that"
            " docs/redis.md lists, enable these commands, or use a server that docs/redis.md names."
        )

    def doubt(self, since: float) -> None:
        """Reports a call that began at `since` (time.monotonic()) and failed: the server counts as away from
        then on until it is polled, which happens at once.
        """
        self._note_silence(since)
        self._doubted.set()

    def doubt_writes(self, model: str) -> None:
        """Reports that an append to this model failed: writes are tried there too until one succeeds."""
        self._probed.add(model)

    async def watch(self) -> None:
        """Polls forever."""
        probe = FIRST_PROBE_SECONDS
        while True:
            # Processes that lost the server together do not all poll it at once.
            await self._rest(POLL_SECONDS if self._away_since is None else probe * random.uniform(0.5, 1))
            began = time.monotonic()
            try:
                await self._poll_again_if_cut()
                self._note_answer()
                probe = FIRST_PROBE_SECONDS
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                self._note_silence(began)
                self._note_absence(failure)
                probe = min(2 * probe, PROBE_SECONDS)

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._doubted.wait()
        self._doubted.clear()

    async def _poll_again_if_cut(self) -> None:
        """Polls again if the connection ended, as at a restart, which says nothing about the server now."""
        try:
            await self._poll()
        except CONNECTION_FAILURES as failure:
            if not was_cut(failure):
                raise
            await self._poll()

    def _note_answer(self) -> None:
        if self._away_since is not None:
            log.info("Redis answers again, after %.1f s", time.monotonic() - self._away_since)
            self._away_since = None

    def _note_silence(self, since: float) -> None:
        if self.up:
            self._silent_since = since
            self._is_up.clear()

    def _note_absence(self, failure: Exception) -> None:
        if self._away_since is None:
            log.warning("Redis does not answer: %s", failure)
            self._away_since = time.monotonic()

    async def _poll(self) -> None:
        """In a cluster the worst of the masters counts."""
        channels = await self._master_channels()
        infos = [await channel.info() for channel in channels]
        if any(info.get("loading", "0") != "0" for info in infos):
            raise BusyLoadingError("the server is loading its data")
        persisting = [
            await self._persistence(info, channel) for info, channel in zip(infos, channels, strict=True)
        ]
        self.redis_version = min(_version(info) for info in infos)
        self.policy = max(infos, key=_evicts).get("maxmemory_policy", "")
        fullest = max(infos, key=_used_share)
        self.used_bytes = int(fullest.get("used_memory", 0))
        self.limit_bytes = int(fullest.get("maxmemory", 0))
        self.shedding = self.used_share > self.share_limit
        self.persists = False if False in persisting else None if None in persisting else True
        self.persistence_ok = all(info.get(name, "ok") == "ok" for info in infos for name in WRITES_TO_DISK)
        self._note_refusal(await self._try_writes())
        self.half_transactions = next((name_of(info) for info in infos if runs_half_transactions(info)), "")
        self._is_up.set()
        for info, channel in zip(infos, channels, strict=True):
            await self._rewrites.request(info, channel)

    async def _try_writes(self) -> str:
        """Tries writes that change nothing; returns the error of the first that is refused."""
        channel = self._channels.get(None, self._writes)  # a channel to one node of a cluster stays there
        for name in sorted(self._probed):
            try:
                await try_write(channel, probe_key(name))
            except ResponseError as refusal:
                return words_of(refusal)
            if name != PROBED:
                self._probed.discard(name)
        return ""

    def _note_refusal(self, refusal: str) -> None:
        if refusal and not self.refusal:
            log.error("Redis refuses writes, and so updates fail: %s", refusal)
        elif self.refusal and not refusal:
            log.info("Redis accepts writes again")
        self.refusal = refusal

    async def _master_channels(self) -> list[Channel]:
        nodes = await self._topology.masters()
        for gone in self._channels.keys() - set(nodes):
            await self._channels.pop(gone).close()
        return [self._channels.setdefault(node, Channel(self._topology, node)) for node in nodes]

    async def _persistence(self, info: dict[str, str], channel: Channel) -> bool | None:
        """None if the server does not show its settings: managed ones hide them, and an ACL should (they hold
        passwords). They are not requested again, which would fill the server's ACL log.
        """
        if info.get("aof_enabled") == "1":
            return True
        if not self._shows_settings:
            return None
        try:
            settings = await channel.call("CONFIG", "GET", "save")
        except ResponseError:
            self._shows_settings = False
            return None
        return bool(settings[1])

    async def close(self) -> None:
        for channel in (self._writes, *self._channels.values()):
            await channel.close()


def _version(info: dict[str, str]) -> tuple[int, ...]:
    return tuple(int(part) for part in info["redis_version"].split(".")[:2])


def _evicts(info: dict[str, str]) -> bool:
    return info.get("maxmemory_policy", "") not in ("noeviction", "") and info.get("maxmemory", "0") != "0"


def _used_share(info: dict[str, str]) -> float:
    limit = int(info.get("maxmemory", 0))
    return int(info.get("used_memory", 0)) / limit if limit else 0.0

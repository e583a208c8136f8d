"""What the Redis server says of itself: whether it may lose a model, and whether it is nearly full."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from service.redis_client import CONNECTION_FAILURES, Channel
from service.settings import Settings

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
OLDEST_REDIS = (6, 2)
WRITES_TO_DISK = ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status")


class UnfitServer(Exception):
    """The server may evict keys, so that a model could vanish silently, or lacks commands: no start on it."""


class ServerHealth:
    """Polled once a second. What it last knew stays while the server is away; `up` says whether it is."""

    def __init__(self, client: Redis, settings: Settings) -> None:
        self.up = False
        self.redis_version: tuple[int, ...] = OLDEST_REDIS  # of Valkey: the one it is compatible with
        self.policy = ""
        self.persists: bool | None = None  # None: the server does not tell
        self.persistence_ok = True
        self.used_bytes = 0
        self.limit_bytes = 0
        self._settings = settings
        self._channel = Channel(client)

    @property
    def used_share(self) -> float:
        """Of maxmemory; 0 without a limit."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0

    @property
    def shedding(self) -> bool:
        """Whether new examples are refused, so that commits and trims still fit."""
        return self.used_share > self._settings.memory_share_limit

    @property
    def may_evict(self) -> bool:
        return self.limit_bytes > 0 and self.policy not in ("noeviction", "")

    async def check(self) -> None:
        """One poll, for the start. Raises UnfitServer, and what Channel.call raises."""
        await self._poll()
        if self.redis_version < OLDEST_REDIS:
            raise UnfitServer(
                "This Redis is older than 6.2, which is the first that can trim the streams used here."
            )
        if self.may_evict and not self._settings.allow_eviction:
            raise UnfitServer(
                f"This Redis has maxmemory-policy {self.policy}: under memory pressure it would evict model"
                " state silently. Set `maxmemory-policy noeviction` there, or FTRL_ALLOW_EVICTION=true to"
                " accept the loss."
            )
        if self.persists is False:
            log.warning("this Redis persists nothing (no AOF, no RDB): a restart of it loses every model")

    async def watch(self) -> None:
        """Polls for ever."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self._poll()
            except (*CONNECTION_FAILURES, ResponseError) as failure:
                self.up = False
                log.debug("Redis does not answer: %s", failure)

    async def _poll(self) -> None:
        info = _parse(await self._channel.call("INFO"))
        self.redis_version = tuple(int(part) for part in info["redis_version"].split(".")[:2])
        self.policy = info.get("maxmemory_policy", "")
        self.used_bytes = int(info.get("used_memory", 0))
        self.limit_bytes = int(info.get("maxmemory", 0))
        self.persists = await self._persistence(info)
        self.persistence_ok = all(info.get(name, "ok") == "ok" for name in WRITES_TO_DISK)
        self.up = True

    async def _persistence(self, info: dict[str, str]) -> bool | None:
        if info.get("aof_enabled") == "1":
            return True
        try:
            settings = await self._channel.call("CONFIG", "GET", "save")
        except ResponseError:  # managed servers hide it
            return None
        return bool(settings[1])

    async def close(self) -> None:
        await self._channel.close()


def _parse(info: Any) -> dict[str, str]:
    lines = bytes(info).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)

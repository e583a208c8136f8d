"""Servers that leave half of a transaction in their append-only file: a rewrite of it is the cure.

If a crash cuts that file inside a transaction, these servers truncate it after the last whole command rather
than before the transaction. What they write next completes it: at the restart after next its first commands
run with the next transaction, although the service has repeated them meanwhile.
"""

from __future__ import annotations

import logging

from redis.exceptions import ResponseError

from service.storage.channel import Channel

log = logging.getLogger(__name__)

MENDED_VALKEY = {(8, 0): 11, (8, 1): 10, (9, 0): 6, (9, 1): 2}
"""The first patch of each version of Valkey that truncates before the transaction. No version of Redis is
known to.
"""


def runs_half_transactions(info: dict[str, str]) -> bool:
    """Return whether the server of this INFO is one of those, and has such a file."""
    if info.get("aof_enabled") != "1":
        return False
    if "valkey_version" not in info:
        return True
    major, minor, patch = (int(part) for part in info["valkey_version"].split(".")[:3])
    return patch < MENDED_VALKEY[major, minor] if (major, minor) in MENDED_VALKEY else major < 9


def name_of(info: dict[str, str]) -> str:
    valkey = info.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version', '')}"


class Rewrites:
    """Requests a rewrite of the append-only file once after each start of such a server."""

    def __init__(self) -> None:
        self._requested: set[str] = set()  # the runs of servers for which that was done

    async def request(self, info: dict[str, str], channel: Channel) -> None:
        """Does nothing if the file has been rewritten since the start, by this request or another."""
        run = info["run_id"]
        rewritten = int(info.get("aof_last_rewrite_time_sec", -1)) >= 0
        under_way = "1" in (info.get("aof_rewrite_in_progress"), info.get("aof_rewrite_scheduled"))
        if not runs_half_transactions(info) or rewritten or under_way or run in self._requested:
            return
        self._requested.add(run)
        try:
            await channel.call("BGREWRITEAOF")
        except ResponseError as refusal:
            log.warning(
                "%s refuses BGREWRITEAOF (%s): run it after every start that followed a crash"
                " (docs/redis.md)",
                name_of(info),
                refusal,
            )

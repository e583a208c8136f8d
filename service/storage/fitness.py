"""Determines what a server refuses of the commands that the service sends, before anything depends on them.

Each command is sent in a form that changes nothing: on a key that does not exist.
"""

from __future__ import annotations

from redis.exceptions import NoPermissionError, ResponseError

from service.storage.channel import Channel, Script
from service.storage.errors import is_out_of_memory, is_transient
from service.storage.records import PROBE

_PROBE = Script("probe")
_DERIVED = f"{PROBE}:derived"

_CALLS: tuple[tuple[str | float, ...], ...] = (
    ("DEL", PROBE),
    ("EVAL", "return 0", 0),
    ("EXISTS", PROBE),
    ("EXPIRE", PROBE, 1),
    ("GET", PROBE),
    ("HDEL", PROBE, "field"),
    ("HGET", PROBE, "field"),
    ("HGETALL", PROBE),
    ("HKEYS", PROBE),
    ("HLEN", PROBE),
    ("HMGET", PROBE, "field"),
    ("HSCAN", PROBE, 0),
    ("LLEN", PROBE),
    ("LPOP", PROBE),
    ("LRANGE", PROBE, 0, 0),
    ("LREM", PROBE, 0, ""),
    ("PERSIST", PROBE),
    ("SCAN", 0, "COUNT", 1),
    ("SET", PROBE, "", "XX", "PX", 1),
    ("SMEMBERS", PROBE),
    ("SREM", PROBE, ""),
    ("TIME",),
    ("UNLINK", PROBE),
    ("XADD", PROBE, "NOMKSTREAM", "*", "field", ""),
    ("XDEL", PROBE, "1-0"),
    ("XLEN", PROBE),
    ("XRANGE", PROBE, "-", "+", "COUNT", 1),
    ("XREAD", "COUNT", 1, "STREAMS", PROBE, "0"),
    ("XREVRANGE", PROBE, "+", "-", "COUNT", 1),
    ("XTRIM", PROBE, "MINID", "~", "0-1"),
)
_FAILING: tuple[tuple[str | float, ...], ...] = (
    ("BLPOP", PROBE, "no number"),
    ("HINCRBY", PROBE, "field", "no number"),
    ("HSET", PROBE, "field", "", "a field without a value"),
    ("RENAMENX", PROBE, _DERIVED),
    ("XINFO", "STREAM", PROBE),
)
"""Calls that every server answers with an error, as they would change something otherwise."""


async def refusals(channel: Channel) -> list[str]:
    """List what the server refuses, each with its reason. Raises any of CONNECTION_FAILURES."""
    refused = [await _refusal(channel, call) for call in _CALLS]
    refused += [await _refusal(channel, call, fails=True) for call in _FAILING]
    return [one for one in refused if one is not None] + await _refused_in_scripts(channel)


async def _refusal(channel: Channel, call: tuple[str | float, ...], *, fails: bool = False) -> str | None:
    try:
        await channel.call(*call)
    except NoPermissionError as error:
        return f"{call[0]} ({error})"
    except ResponseError as error:
        if _passes(error) or (fails and not str(error).lower().startswith("unknown")):
            return None
        return f"{call[0]} ({str(error).partition(', with args')[0]})"
    return None


async def _refused_in_scripts(channel: Channel) -> list[str]:
    try:
        found = await _PROBE(channel, (PROBE,), _DERIVED)
    except ResponseError as error:
        return [] if _passes(error) else [f"EVALSHA ({error})"]
    pairs = [
        (name.decode(), reason.decode(errors="replace"))
        for name, reason in zip(found[::2], found[1::2], strict=True)
    ]
    return [
        f"{name} in a script ({reason})"
        for name, reason in pairs
        if "READONLY" not in reason and not _passes(ResponseError(reason))
    ]


def _passes(error: ResponseError) -> bool:
    """Return whether an error concerns the state of the server, and not its kind or its user's rights."""
    return is_out_of_memory(error) or is_transient(error)

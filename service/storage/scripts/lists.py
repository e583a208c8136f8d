"""Lists through which processes send each other messages."""

from __future__ import annotations

from service.storage.channel import Channel, Script

_PUSH = Script("push")
_ANSWER = Script("answer_request")


async def push(channel: Channel, key: str, value: str | bytes, expires_seconds: int) -> int:
    """Adds to a list that expires unless it is added to again; returns its length."""
    return int(await _PUSH(channel, (key,), value, expires_seconds))


async def answer_request(
    channel: Channel, requests: str, reply_key: str, request: str, reply: str, expires_seconds: int
) -> None:
    """Removes a request from its list and pushes its reply, also on a full server; does nothing if the
    request is not there, so it may be repeated.
    """
    await _ANSWER(channel, (requests, reply_key), request, reply, expires_seconds)

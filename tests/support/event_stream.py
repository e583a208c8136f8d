"""Reads server-sent events as they come."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import httpx


class Event(NamedTuple):
    kind: str
    content: Any


@contextlib.contextmanager
def listening(api: httpx.Client, model: str = "default") -> Iterator[Iterator[Event]]:
    """The live figures of a model, until the block ends."""
    with (
        httpx.Client(base_url=api.base_url, timeout=30) as client,
        client.stream("GET", f"/models/{model}/live") as reply,
    ):
        reply.raise_for_status()
        yield events(reply.iter_lines())


def events(lines: Iterable[str]) -> Iterator[Event]:
    kind = "message"
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield Event(kind, json.loads(value))


def next_of(found: Iterator[Event], kind: str = "live") -> Any:
    """The content of the next event of the kind."""
    return next(event.content for event in found if event.kind == kind)

"""A TCP proxy before a server's unix socket that loses, cuts or holds what a test tells it to.

It takes one request at a time from a connection and knows the service's scripts by their names, so a test
says `proxy.lose_reply("append")` and means the append script, however it is called.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple, Self

from service.runtime.tasks import cancel_all
from service.storage.channel import Script
from service.storage.scripts import aliases, commit, feedback, lease, lists, log, models

SCRIPTS = {
    text: script.name
    for module in (aliases, commit, feedback, lease, lists, log, models)
    for script in vars(module).values()
    if isinstance(script, Script)
    for text in (script.text, script.digest.encode())
}
"""Names of the scripts by their texts and by their digests."""


TURNS = 10
"""Of the loop, after which what was accepted is a connection, and what was cut has closed its socket."""


class Fault(Enum):
    LOSE_REQUEST = auto()
    """The connection ends before the server sees any of it."""
    CUT_REQUEST = auto()
    """The server gets one half, then the connection ends."""
    LOSE_REPLY = auto()
    """The server acts, then the connection ends without its reply."""


class Request(NamedTuple):
    """`verb`: the name of the script, or else the command in capitals."""

    verb: str
    raw: bytes


@dataclass
class Rule:
    """Lets `kind` happen to the next `left` requests of a verb."""

    verb: str
    kind: Fault
    left: int
    happened: int = 0
    spent: asyncio.Event = field(default_factory=asyncio.Event)

    def count(self) -> None:
        self.left -= 1
        self.happened += 1
        if not self.left:
            self.spent.set()


@dataclass
class Hold:
    """Keeps every request of a verb from the server until `release()`."""

    verb: str
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        self.reached.set()
        await self._released.wait()

    def release(self) -> None:
        self._released.set()


class Proxy:
    """`async with Proxy(server.socket_path) as proxy:` and connect to `proxy.url`.

    `target` is the server's socket; new connections lead to where it says then. `chaos`, where set, may name
    a fault for any request that no rule names; `rewrite` changes the replies to a verb.
    """

    url: str

    def __init__(self, target: Path) -> None:
        self.chaos: Callable[[Request], Fault | None] | None = None
        self.rewrite: dict[str, Callable[[bytes], bytes]] = {}
        self.target = target
        self.dropped = 0  # connections that it ended
        self._rules: list[Rule] = []
        self._holds: list[Hold] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()
        for _ in range(TURNS):
            await self.cut_all()
            await asyncio.sleep(0)

    def lose_request(self, verb: str, times: int = 1) -> Rule:
        return self._rule(verb, Fault.LOSE_REQUEST, times)

    def cut_request(self, verb: str, times: int = 1) -> Rule:
        return self._rule(verb, Fault.CUT_REQUEST, times)

    def lose_reply(self, verb: str, times: int = 1) -> Rule:
        return self._rule(verb, Fault.LOSE_REPLY, times)

    def hold(self, verb: str) -> Hold:
        self._holds.append(Hold(verb))
        return self._holds[-1]

    def behave(self) -> None:
        """From now on everything comes through."""
        for hold in self._holds:
            hold.release()
        self._rules, self._holds, self.chaos, self.rewrite = [], [], None, {}

    async def cut_all(self) -> None:
        """Ends every connection that there is."""
        while self._connections:
            self.dropped += len(self._connections)
            await cancel_all(self._connections)

    def _rule(self, verb: str, kind: Fault, times: int) -> Rule:
        self._rules.append(Rule(verb, kind, times))
        return self._rules[-1]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._relay(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        connection.add_done_callback(lambda _: writer.close())  # also of a task that never began

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            answers, server = await asyncio.open_unix_connection(self.target)
            with contextlib.closing(server):
                while await self._relay_one(await read_request(reader), answers, server, writer):
                    pass

    async def _relay_one(
        self,
        request: Request,
        answers: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
    ) -> bool:
        """False where the connection is to end."""
        for hold in self._holds:
            if hold.verb == request.verb:
                await hold.wait()
        rule, fault = self._fault_of(request)
        if fault is Fault.LOSE_REQUEST:
            return self._drop(rule)
        if fault is Fault.CUT_REQUEST:
            server.write(request.raw[: len(request.raw) // 2])
            await server.drain()
            return self._drop(rule)
        server.write(request.raw)
        reply = await read_reply(answers)
        if fault is Fault.LOSE_REPLY and not reply.startswith(b"-NOSCRIPT"):  # then it had not acted
            return self._drop(rule)
        client.write(self.rewrite.get(request.verb, bytes)(reply))
        await client.drain()
        return True

    def _drop(self, rule: Rule | None) -> bool:
        self.dropped += 1
        if rule is not None:
            rule.count()
        return False

    def _fault_of(self, request: Request) -> tuple[Rule | None, Fault | None]:
        for rule in self._rules:
            if rule.verb == request.verb and rule.left:
                return rule, rule.kind
        return None, self.chaos(request) if self.chaos else None


async def read_request(reader: asyncio.StreamReader) -> Request:
    """One command, an array of bulk strings. Raises EOFError at the end of the connection."""
    raw = [await _line(reader)]
    words: list[bytes] = []
    for _ in range(int(raw[0][1:])):
        header = await _line(reader)
        word = await reader.readexactly(int(header[1:]) + 2)
        raw += (header, word)
        words.append(word[:-2])
    return Request(_verb(words), b"".join(raw))


async def read_reply(reader: asyncio.StreamReader) -> bytes:
    """One reply of RESP 2, whole. Raises EOFError."""
    line = await _line(reader)
    kind, length = line[:1], line[1:-2]
    if kind == b"$" and length != b"-1":
        return line + await reader.readexactly(int(length) + 2)
    if kind == b"*":
        return b"".join([line, *[await read_reply(reader) for _ in range(int(length))]])
    return line


def _verb(words: Sequence[bytes]) -> str:
    if words[0].upper() in (b"EVALSHA", b"EVAL"):
        return SCRIPTS.get(words[1], "EVAL")
    return words[0].upper().decode()


async def _line(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n")

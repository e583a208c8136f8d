"""A cheap closed-loop HTTP/1.1 load generator: `python -m bench.load --url URL --bodies FILE`.

It runs as a process of its own. Every connection sends the next prebuilt request as soon as the reply to
the last one is complete. Anything but a 2xx reply with the expected content ends the run with an error:
a server that refuses quickly must not look fast. Prints one JSON object.
"""

import argparse
import asyncio
import json
import resource
import sys
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import uvloop


class Load(NamedTuple):
    """What to send and what to expect. `expected` must occur exactly `occurrences` times in each reply."""

    url: str
    bodies: Path
    connections: int
    seconds: float
    warm_up: float
    expected: str
    occurrences: int
    token: str = ""


class BadReply(Exception):
    """The server answered something that the benchmark must not count."""


def build_requests(load: Load) -> list[bytes]:
    """Whole requests, head and body, one for every line of the file of bodies."""
    parts = urlsplit(load.url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    head = f"POST {target} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
    if load.token:
        head += f"authorization: Bearer {load.token}\r\n"
    bodies = load.bodies.read_bytes().splitlines()
    return [f"{head}content-length: {len(body)}\r\n\r\n".encode() + body for body in bodies]


class Run:
    """State shared by all connections of one run: the requests, the clock, what was measured."""

    def __init__(self, load: Load, requests: list[bytes]) -> None:
        self.next_request = cycle(requests).__next__
        self.expected = load.expected.encode()
        self.occurrences = load.occurrences
        self.begin = perf_counter() + load.warm_up
        self.end = self.begin + load.seconds
        # The rate is taken from the last completion before the measured time to the last one in it, as a
        # handful of slow replies would be miscounted at the edges of a fixed time.
        self.first = self.last = self.begin
        self.latencies: list[float] = []
        self.all_requests = 0  # also those outside of the measured time
        self.open = load.connections
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, error: Exception) -> None:
        if not self.finished.done():
            self.finished.set_exception(error)

    def close_one(self) -> None:
        self.open -= 1
        if self.open == 0 and not self.finished.done():
            self.finished.set_result(None)


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request under way."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.reply = b""
        self.missing = 0
        self.done = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.send()

    def send(self) -> None:
        self.started = perf_counter()
        self.transport.write(self.run.next_request())

    def data_received(self, data: bytes) -> None:
        try:
            self.collect(data)
        except BadReply as error:
            self.run.fail(error)

    def collect(self, data: bytes) -> None:
        """Join the pieces of a reply until its content-length is reached."""
        reply = self.reply = self.reply + data if self.reply else data
        if self.missing > len(data):
            self.missing -= len(data)
            return
        head_end = reply.find(b"\r\n\r\n")
        if head_end < 0:
            return
        size = head_end + 4 + content_length(reply[:head_end])
        if len(reply) < size:
            self.missing = size - len(reply)
            return
        self.missing = 0
        self.complete(reply)
        self.reply = b""

    def complete(self, reply: bytes) -> None:
        run = self.run
        now = perf_counter()
        if not reply.startswith(b"HTTP/1.1 2") or (
            run.occurrences and reply.count(run.expected) != run.occurrences
        ):
            raise BadReply(reply[:2000].decode(errors="replace"))
        run.all_requests += 1
        if now < run.begin:
            run.first = now
        elif now < run.end:
            run.last = now
            run.latencies.append(now - self.started)
        if now < run.end:
            self.send()
        else:
            self.done = True
            self.transport.close()
            run.close_one()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done:
            self.run.fail(error or BadReply("the server closed a connection"))


def content_length(head: bytes) -> int:
    """The body's size in bytes; the generator does not read chunked replies."""
    head = head.lower()
    at = head.find(b"content-length:")
    if at < 0:
        raise BadReply(f"no content-length: {head.decode(errors='replace')}")
    end = head.find(b"\r\n", at)
    return int(head[at + 15 : end if end > 0 else None])


async def generate(load: Load) -> dict[str, float]:
    """Run the load; requests a second, latencies in milliseconds, and the generator's own use of a core."""
    run = Run(load, build_requests(load))
    parts = urlsplit(load.url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    loop = asyncio.get_running_loop()
    for _ in range(load.connections):
        await loop.create_connection(lambda: Connection(run), host, port)
    await asyncio.wait_for(run.finished, load.warm_up + load.seconds + 60)
    return summarise(run.latencies, run.last - run.first) | {"all_requests": run.all_requests}


def summarise(latencies: list[float], seconds: float) -> dict[str, float]:
    if not latencies:
        raise BadReply("no request finished in the measured time")
    latencies.sort()
    return {
        "requests_per_second": len(latencies) / seconds,
        "p50_ms": 1000 * latencies[len(latencies) // 2],
        "p99_ms": 1000 * latencies[len(latencies) * 99 // 100],
        "requests": len(latencies),
    }


def parse_arguments() -> Load:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("--url", required=True, help="where to POST")
    parser.add_argument("--bodies", type=Path, required=True, help="file with one request body a line")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds of load before the measured time")
    parser.add_argument("--expected", default="", help="text that every reply must hold")
    parser.add_argument("--occurrences", type=int, default=0, help="how often it must; 0: not checked")
    parser.add_argument("--token", default="", help="sent with each request")
    return Load(**vars(parser.parse_args()))


def main() -> None:
    load = parse_arguments()
    started = perf_counter()
    try:
        summary = uvloop.run(generate(load))
    except (BadReply, OSError, TimeoutError) as error:
        sys.exit(f"bench.load: {load.url}: {type(error).__name__}: {error}")
    usage = resource.getrusage(resource.RUSAGE_SELF)
    summary["busy"] = (usage.ru_utime + usage.ru_stime) / (perf_counter() - started)
    print(json.dumps(summary))


if __name__ == "__main__":
    main()

"""Examples streamed to /update, against the write path alone, lists of 1,000 and `ftrl replay --url`."""

import asyncio
import gc
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from threading import Thread
from time import monotonic, perf_counter
from urllib.parse import urlsplit

import uvloop

from bench.criteo import rows, write_bodies, write_vw
from bench.filled_model import MODEL, SETTINGS, created_model
from bench.http_ratio import batches, example, train
from bench.learning_log import leading, until_learned
from bench.processes import ProcessFailed, Server, finish, ftrl, load, redis_server, service
from bench.result import Options, Result, Target, alternate
from model_core.hashing.encoder import FeatureEncoder
from model_core.learning.rounds import warm_up
from service.example_log.appender import Updates
from service.example_log.incoming import NewExample, NewExamples
from service.models.config.model import ModelConfig
from service.models.registry import Models
from service.parsing.streams.groups import GROUP_LINES
from service.storage.embedded_binary import binary_path
from service.storage.health import ServerHealth
from service.telemetry.metrics import Metrics

ROWS = 80_000
GROUP = 1000
SERVICE = {"FTRL_UPDATE_TIMEOUT_SECONDS": "30"}  # a busy machine is slow
APPEND_SECONDS = 60.0
PIECE_BYTES = 1 << 18
CONFIG = ModelConfig()


def measure(options: Options) -> list[Result]:
    """Examples a second: durable, learned and answered."""
    ndjson = write_bodies(options, "streamed", map(example, rows(ROWS)))
    lists = write_bodies(options, "lists", batches(ROWS, GROUP))
    text = options.directory / "streamed.vw"
    write_vw(text, ROWS)
    groups = list(_groups())
    warm_up()
    with service(**SERVICE) as server:
        train(f"{server.url}/update")

        def stream_json() -> float:
            return ROWS / stream(server, ndjson, "application/x-ndjson", ROWS)

        def stream_text() -> float:
            return ROWS / stream(server, text, "text/x-vw", ROWS)

        def send_lists() -> float:
            figures = load(f"{server.url}/update", lists, options, connections=4)
            return GROUP * figures["requests_per_second"]

        def replay() -> float:
            command = ftrl("replay", str(ndjson), "--url", server.url, "--format", "jsonl", "--json")
            summary = json.loads(finish(command))
            return float(summary["rows"] / summary["seconds"])

        compared = [
            (
                "JSON lines",
                stream_json,
                lambda: _write_path(groups),
                "the write path alone",
                Target(">=", 0.6),
            ),
            ("VW text", stream_text, lambda: _write_path(groups), "the write path alone", Target(">=", 0.6)),
            ("JSON lines", stream_json, send_lists, "1,000 a request, 4 connections", None),
            ("JSON lines", stream_json, replay, "ftrl replay --url of the same file", None),
        ]
        stream_json()
        stream_text()
        return [
            _result(options, what, ours, theirs, against, target)
            for what, ours, theirs, against, target in compared
        ]


def _result(
    options: Options,
    what: str,
    ours: Callable[[], float],
    theirs: Callable[[], float],
    against: str,
    target: Target | None,
) -> Result:
    figures, reference = alternate(options.rounds, ours, theirs)
    return Result(
        "streams", f"/update, {what} on one connection", "examples/s", figures, reference, against, target
    )


def stream(server: Server, file: Path, media_type: str, expected: int) -> float:
    """Send a file as one body of unknown length, and return the seconds until its last line is answered."""
    parts = urlsplit(server.url)
    head = f"POST /update HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: {media_type}\r\n"
    head += "transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    data = file.read_bytes()
    started = perf_counter()
    with socket.create_connection((parts.hostname, parts.port or 80)) as connection:

        def send() -> None:
            connection.sendall(head.encode())
            for start in range(0, len(data), PIECE_BYTES):
                piece = data[start : start + PIECE_BYTES]
                connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
            connection.sendall(b"0\r\n\r\n")

        sending = Thread(target=send)
        sending.start()
        reply = b""
        while piece := connection.recv(PIECE_BYTES):
            reply += piece
        sending.join()
    seconds = perf_counter() - started
    end = json.loads(reply.splitlines()[-4])
    if end.get("end") != "complete" or end["statuses"] != {"learned": expected}:
        raise ProcessFailed(f"the stream ended with {end}")
    return seconds


def _groups() -> Iterator[NewExamples]:
    encoder = FeatureEncoder(CONFIG.hashing)
    source = (NewExample(encoder.encode(row.features), row.label, 1.0, None, None) for row in rows(ROWS))
    while group := list(islice(source, GROUP_LINES)):
        yield NewExamples.of(group)


def _write_path(groups: Sequence[NewExamples]) -> float:
    """Examples a second that are appended, as many at a time as a stream does, and learned."""
    gc.collect()  # the state and the mirror of the run before, half a gigabyte
    with redis_server(str(binary_path())) as url:
        return ROWS / uvloop.run(_written(url, groups))


async def _written(url: str, groups: Sequence[NewExamples]) -> float:
    async with created_model(url, CONFIG) as topology, leading(topology) as learning:
        models = Models(topology, SETTINGS)
        updates = Updates(topology, SETTINGS, ServerHealth(topology, SETTINGS), Metrics())
        model = await models.get(MODEL)
        following = asyncio.create_task(model.mirror.follow())
        started = perf_counter()
        for group in groups:
            await updates.append(model, group, monotonic() + APPEND_SECONDS)
        await until_learned(topology, learning)
        seconds = perf_counter() - started
        following.cancel()
        await updates.close()
        await models.close()
        return seconds

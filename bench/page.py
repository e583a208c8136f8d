"""What predictions wait for while the page is open on a model with 800 slices that goes on learning."""

import http.client
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from bench.criteo import write_bodies
from bench.processes import Server, load, post, service
from bench.result import Options, Result, alternate

MODEL = "/models/sliced"
SLICED = [f"f{number}" for number in range(8)]
VALUES = 100
ROWS = 40_000
BATCH = 1000
LEARN_EVERY_SECONDS = 0.2
CONNECTIONS = 4


def measure(options: Options) -> list[Result]:
    """99th percentiles, of one /predict a time on each connection."""
    examples = list(_examples(ROWS))
    bodies = write_bodies(options, "page", ({"features": e["features"]} for e in examples[:1000]))
    with service() as server:
        _put(server, {"evaluation": {"slices": SLICED, "most": VALUES}})
        for start in range(0, ROWS, BATCH):
            post(f"{server.url}{MODEL}/update", {"examples": examples[start : start + BATCH]})
        with _repeating(lambda: post(f"{server.url}{MODEL}/update", {"examples": examples[:20]})):
            opened, closed = alternate(
                options.rounds,
                lambda: _opened(server, bodies, options),
                lambda: _p99(server, bodies, options),
            )
    return [
        Result(
            "page",
            f"p99 of /predict with the page open on a model with {len(SLICED) * VALUES} slices that learns",
            "ms",
            opened,
            closed,
            "the same without the page",
        )
    ]


def _examples(count: int) -> Iterator[dict[str, object]]:
    random = np.random.default_rng(1)
    values = random.integers(0, VALUES, (count, len(SLICED)))
    for row, label in zip(values.tolist(), (random.random(count) < 0.3).tolist(), strict=True):
        features = {name: f"v{value}" for name, value in zip(SLICED, row, strict=True)}
        yield {"features": features, "label": int(label)}


def _put(server: Server, config: object) -> None:
    request = urllib.request.Request(server.url + MODEL, json.dumps(config).encode(), method="PUT")
    request.add_header("content-type", "application/json")
    urllib.request.urlopen(request).close()


def _opened(server: Server, bodies: Path, options: Options) -> float:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
    connection.request("GET", f"{MODEL}/live")
    stream = connection.getresponse()
    reading = threading.Thread(target=_read_on, args=(stream,))
    reading.start()
    try:
        return _p99(server, bodies, options)
    finally:
        assert connection.sock is not None
        connection.sock.shutdown(2)
        reading.join()
        connection.close()


def _read_on(stream: http.client.HTTPResponse) -> None:
    while stream.read1(65_536):
        pass


def _p99(server: Server, bodies: Path, options: Options) -> float:
    return load(f"{server.url}{MODEL}/predict", bodies, options, connections=CONNECTIONS)["p99_ms"]


@contextmanager
def _repeating(work: Callable[[], object]) -> Iterator[None]:
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(LEARN_EVERY_SECONDS):
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

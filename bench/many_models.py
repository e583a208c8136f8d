"""What idle models cost a service in one process: memory, connections to Redis, and processor time."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from redis import Redis

from bench.processes import ProcessFailed, Server, cpu_seconds, redis_server, service
from bench.result import Options, Result
from service.storage.embedded_binary import binary_path

COUNTS = (1, 100, 1000)
BITS = 16
SETTLE_SECONDS = 5.0
LEARN_SECONDS = 300.0
POLL_SECONDS = 0.5
REQUESTS_AT_ONCE = 8
EXAMPLE = {"features": {"ad": "a"}, "label": 1, "event_id": "first"}
"""It has an id, so that it is learned once however often it is sent."""
IN_USE = {"FTRL_SNAPSHOT_SECONDS": "0", "FTRL_REDIS_TIMEOUT_SECONDS": "2"}


class Idle(NamedTuple):
    """Resident MB, connections, and milliseconds of processor time a second, of the service and of Redis."""

    memory: float
    connections: int
    service_ms: float
    redis_ms: float


def measure(options: Options) -> list[Result]:
    results = []
    for count in COUNTS:
        with redis_server(str(binary_path())) as url, service(FTRL_REDIS_URL=url, **IN_USE) as server:
            idle = _idle(server, url, count, options.seconds)
        what = f"{count} idle models of 2^{BITS} slots with one example each"
        results += [
            Result("many-models", f"{what}: memory of the process", "MB", (idle.memory,)),
            Result("many-models", f"{what}: connections to Redis", "", (float(idle.connections),)),
            Result(
                "many-models",
                f"{what}: processor time a second",
                "ms",
                (idle.service_ms,),
                notes=(f"of Redis: {idle.redis_ms:.1f} ms",),
            ),
        ]
    return results


def _idle(server: Server, redis_url: str, count: int, seconds: float) -> Idle:
    models = [f"{server.url}/models/model-{number}" for number in range(count)]
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as requests:
        for step in (_create, _append, _learn):
            list(requests.map(step, models))
    time.sleep(SETTLE_SECONDS)
    with Redis.from_url(redis_url) as client:
        info = client.info()
        redis = int(info["process_id"])
        before = (time.monotonic(), cpu_seconds(server.pid), cpu_seconds(redis))
        time.sleep(seconds)
        after = (time.monotonic(), cpu_seconds(server.pid), cpu_seconds(redis))
        connections = int(client.info()["connected_clients"]) - 1
    passed = after[0] - before[0]
    return Idle(
        _resident(server.pid),
        connections,
        1000 * (after[1] - before[1]) / passed,
        1000 * (after[2] - before[2]) / passed,
    )


def _create(model: str) -> None:
    _ask("PUT", model, {"hashing": {"bits": BITS}}, lambda _: True)


def _append(model: str) -> None:
    _ask("POST", f"{model}/update?wait=false", EXAMPLE, lambda _: True)


def _learn(model: str) -> None:
    _ask("POST", f"{model}/update", EXAMPLE, lambda reply: reply["status"] in ("learned", "duplicate"))


def _ask(method: str, url: str, body: object, done: Callable[[Any], bool]) -> None:
    """Repeats the request until it is done, also where the service is not able to yet."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}, method=method
    )
    deadline = time.monotonic() + LEARN_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                text = reply.read().decode()
            if done(json.loads(text)):
                return
        except urllib.error.HTTPError as refusal:
            text = f"{refusal.code} {refusal.read().decode(errors='replace')}"
        if time.monotonic() > deadline:
            raise ProcessFailed(f"{method} {url}: {text} after {LEARN_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def _resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024

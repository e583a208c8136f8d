"""The latency of a /predict while large updates flow, against the same without them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.criteo import Row, complete_rows, rows, write_bodies
from bench.http_ratio import train
from bench.predict_batch import CONTEXT, INSTANCE, only
from bench.processes import Server, answers, free_port, ftrl, load, post, redis_server, running, service
from bench.result import Options, Result, Target, alternate
from service.storage.embedded_binary import binary_path

CANDIDATES = 50
EXAMPLES = 10_000
PREFIX = "of the impression shown before it: "  # long names make large bodies
BODIES = 2
LEAD_SECONDS = 1.0  # of the updates, before the first prediction
SETTINGS = {"FTRL_UPDATE_TIMEOUT_SECONDS": "30", "FTRL_REDIS_TIMEOUT_SECONDS": "4"}  # a busy machine is slow


def measure(options: Options) -> list[Result]:
    """The 99th percentile of the latency of a /predict with 50 candidates, on 4 connections."""
    small, large = write_bodies(options, "small", _small()), write_bodies(options, "large", _large())
    return [
        _measured(options, _api_and_learner(), small, large, "learner apart"),
        _measured(options, service(**SETTINGS), small, large, "one process"),
    ]


def _measured(
    options: Options, serving: AbstractContextManager[Server], small: Path, large: Path, processes: str
) -> Result:
    with serving as server:
        train(f"{server.url}/update")
        for body in _large(EXAMPLES // 10):  # all names have to be known
            post(f"{server.url}/update", body)

        def predict() -> float:
            measured = load(f"{server.url}/predict", small, options, connections=4)
            return measured["p99_ms"]

        def predict_meanwhile() -> float:
            lead = options._replace(seconds=options.seconds + 2 * LEAD_SECONDS)
            with ThreadPoolExecutor(1) as threads:
                updating = threads.submit(load, f"{server.url}/update", large, lead, connections=1)
                latency = predict()
                flowed.append(updating.result()["p50_ms"])
            return latency

        flowed: list[float] = []
        ours, alone = alternate(options.rounds, predict_meanwhile, predict)
    mebibytes = large.stat().st_size / BODIES / 2**20
    return Result(
        "large-updates",
        f"p99 of /predict, 50 candidates, with updates of {mebibytes:.1f} MiB, {processes}",
        "ms",
        ours,
        alone,
        against="the same without updates",
        target=Target("<=", 3.0),
        notes=(f"an update took {sorted(flowed)[len(flowed) // 2]:.0f} ms",),
    )


@contextmanager
def _api_and_learner() -> Iterator[Server]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with redis_server(str(binary_path())) as redis, TemporaryDirectory(prefix="ftrl-bench-") as directory:
        environment = SETTINGS | {
            "FTRL_PORT": str(port),
            "FTRL_METRICS_PORT": str(free_port()),
            "FTRL_REDIS_URL": redis,
            "FTRL_DATA_DIR": directory,
            "FTRL_LOG_LEVEL": "warning",
            "FTRL_MAX_VALUE": "1e9",  # as in `service`
        }
        metrics = f"http://127.0.0.1:{environment['FTRL_METRICS_PORT']}/metrics"
        with (
            running(ftrl("learn"), lambda: answers(metrics), environment),
            running(ftrl("api"), lambda: answers(f"{url}/readyz?for=update"), environment) as api,
        ):
            yield Server(url, api.pid)


def _small() -> Iterator[dict[str, object]]:
    source = complete_rows(1199)
    for start in range(0, len(source) - CANDIDATES, 10):
        candidates = source[start : start + CANDIDATES]
        instances = [{"features": only(row, INSTANCE)} for row in candidates]
        yield {"context": only(source[start], CONTEXT), "instances": instances}


def _large(examples: int = EXAMPLES) -> Iterator[dict[str, object]]:
    """Bodies with BODIES x EXAMPLES examples in all."""
    source = rows(BODIES * EXAMPLES)
    while chunk := list(islice(source, examples)):
        yield {"examples": [{"features": _renamed(row), "label": row.label} for row in chunk]}


def _renamed(row: Row) -> dict[str, int | str]:
    return {PREFIX + name: value for name, value in row.features.items()}

"""The learner alone, from a full log to committed state, against the same rows replayed offline."""

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, NamedTuple

import uvloop
from redis import Redis

from bench.criteo import rows, write_vw
from bench.filled_model import SETTINGS, created_model
from bench.learning_log import append, learn
from bench.processes import redis_server
from bench.replay import replay_offline
from bench.result import Options, Result, alternate
from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from model_core.learning.rounds import warm_up
from service.example_log.incoming import NewExample
from service.models.config.model import ModelConfig
from service.storage.embedded_binary import binary_path

TIMES = 10
BATCH = 2048
EACH_SECOND = SETTINGS.model_copy(update={"checkpoint_seconds": 1.0})
"""The last checkpoint would wait longer than all rows take."""
CONFIG = ModelConfig.from_json({"hyper": {"rate": {"kind": "adaptive"}}})


class Run(NamedTuple):
    """Seconds of a learner's run, and of the server's work in it: commits, and reads of the log."""

    whole: float
    commits: float
    reads: float


def measure(options: Options) -> list[Result]:
    file = options.directory / "learner.vw"
    count = write_vw(file, times=TIMES)
    examples = list(_examples())
    warm_up()
    arguments = (file, CONFIG.hyper.to_json(), CONFIG.hashing.to_json())
    replay_offline(*arguments)  # compiles what is not yet compiled
    ours, offline = alternate(options.rounds, lambda: _run(examples), lambda: replay_offline(*arguments))
    return [
        Result(
            "learner",
            f"learner alone: {count:,} rows, log to checkpointed state, checkpoints a second apart or more",
            "rows/s",
            tuple(count / run.whole for run in ours),
            tuple(run.inside for run in offline),
            "ftrl replay --offline, without the start of the interpreter",
            notes=(_breakdown(ours[-1], examples),),
        )
    ]


def _examples() -> Iterator[NewExample]:
    encoder = FeatureEncoder(CONFIG.hashing)
    for row in rows():
        yield NewExample(encoder.encode(row.features), row.label, 1.0, None, None)


def _run(examples: list[NewExample]) -> Run:
    with redis_server(str(binary_path())) as url, Redis.from_url(url) as client:
        # The service runs on uvloop, too.
        seconds = uvloop.run(_learn(url, examples, client.config_resetstat))
        server = client.info("commandstats")
    return Run(seconds, _seconds(server, "evalsha", "eval"), _seconds(server, "xread"))


async def _learn(url: str, examples: list[NewExample], before: Callable[[], Any]) -> float:
    async with created_model(url) as client:
        for _ in range(TIMES):
            await append(client, examples, BATCH)
        before()
        return await learn(client, EACH_SECOND)


def _seconds(statistics: dict[str, Any], *commands: str) -> float:
    return sum(statistics.get(f"cmdstat_{command}", {"usec": 0})["usec"] for command in commands) / 1e6


def _breakdown(run: Run, examples: list[NewExample]) -> str:
    """Where a learner's time went: the server's own figures, and the learner's stages run by themselves."""
    decode, kernel = _stages(examples)
    rest = run.whole - run.commits - run.reads - decode - kernel
    parts = {
        "server, commits": run.commits,
        "server, reading the log": run.reads,
        "decoding records": decode,
        "kernel": kernel,
        "the rest (wire, packing, event loop)": rest,
    }
    count = TIMES * len(examples)
    shares = ", ".join(f"{name} {1e6 * seconds / count:.2f}" for name, seconds in parts.items())
    return f"microseconds a row: {shares}; in all {1e6 * run.whole / count:.2f}"


def _stages(examples: list[NewExample]) -> tuple[float, float]:
    """Seconds for decoding all records, and for learning them into a state that is empty at first."""
    state = CONFIG.empty_state()
    decoding = learning = 0.0
    chunks = [examples[start : start + BATCH] for start in range(0, len(examples), BATCH)]
    packed = [
        ExampleBatch.from_encoded([e.encoded for e in chunk], [e.label for e in chunk]).to_bytes()
        for chunk in chunks
    ]
    for records in TIMES * packed:
        started = perf_counter()
        batch = ExampleBatch.from_bytes(records)
        decoded = perf_counter()
        CONFIG.learn(state, batch)
        learning += perf_counter() - decoded
        decoding += decoded - started
    return decoding, learning

"""Load on two servers in turn: what the HTTP benchmarks have in common."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.criteo import Row, rows
from bench.processes import Server, cpu_seconds, load, post
from bench.result import Options, alternate

TRAINING_ROWS = 20_000


class Call(NamedTuple):
    """One kind of request to one server; `expected` must occur `occurrences` times in every reply."""

    server: Server
    path: str
    bodies: Path
    expected: str = ""
    occurrences: int = 0
    token: str = ""


class Measured(NamedTuple):
    """One dictionary of the load generator's figures a round."""

    ours: tuple[dict[str, float], ...]
    reference: tuple[dict[str, float], ...]

    def figures(self, name: str, scale: float = 1.0) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return (
            tuple(scale * run[name] for run in self.ours),
            tuple(scale * run[name] for run in self.reference),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Medians of all rounds. A generator that is busy all the time would be what is measured."""
        return (_described("ours", self.ours), _described("reference", self.reference))


def _described(who: str, runs: Sequence[dict[str, float]]) -> str:
    middle = {name: median(run[name] for run in runs) for name in runs[0]}
    return (
        f"{who}: p50 {middle['p50_ms']:.2f} ms, p99 {middle['p99_ms']:.2f} ms, {middle['cpu_ms']:.3f} ms of "
        f"processor time a request, Redis included; the generator was busy {middle['busy']:.0%}"
    )


def compare(options: Options, ours: Call, reference: Call, connections: int) -> Measured:
    """Alternating rounds of the same load on both."""

    def run(call: Call) -> dict[str, float]:
        used = cpu_seconds(call.server.pid)
        measured = load(
            call.server.url + call.path,
            call.bodies,
            options,
            connections=connections,
            expected=call.expected,
            occurrences=call.occurrences,
            token=call.token,
        )
        used = cpu_seconds(call.server.pid) - used
        return measured | {"cpu_ms": 1000 * used / measured["all_requests"]}

    return Measured(*alternate(options.rounds, lambda: run(ours), lambda: run(reference)))


def example(row: Row) -> dict[str, object]:
    return {"features": row.features, "label": row.label}


def batches(count: int, size: int = 1000) -> Iterator[dict[str, object]]:
    """Bodies of batch updates with `count` rows in all."""
    source = rows(count)
    while chunk := [example(row) for row in islice(source, size)]:
        yield {"examples": chunk}


def train(url: str, token: str = "") -> None:
    """Let a server learn the first rows, so that it predicts from a real model and not from zeros."""
    for body in batches(TRAINING_ROWS):
        post(url, body, token)

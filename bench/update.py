"""/update: durable in Redis and learned before the reply, against River learning in memory.

River's model is in the memory of one process. The service is measured with a process for the learner, as
Docker Compose and Kubernetes run it, and with everything in one process.
"""

from collections.abc import Iterator
from pathlib import Path

from bench.criteo import rows, write_bodies
from bench.http_ratio import Call, batches, compare, example
from bench.processes import reference, service
from bench.result import Options, Result, Target, require

ROWS = 40_000
BATCH = 1000
LEARNED = '"learned"'
LAYOUTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("", "API and learner in two processes", {"FTRL_SEPARATE_LEARNER": "true", "FTRL_METRICS_PORT": "0"}),
    ("-in-one", "API and learner in one process", {}),
)
"""What follows the name of a result, what was measured, and its settings. The first has the target."""


def measure_one(options: Options) -> list[Result]:
    """Requests a second, one example each, on 32 connections."""
    require("river")
    bodies = write_bodies(options, "example", map(example, rows(ROWS)))
    return list(_measure(options, "update-one", bodies, size=1, connections=32, target=1.6))


def measure_batch(options: Options) -> list[Result]:
    """Examples a second, 1,000 a request."""
    require("river")
    bodies = write_bodies(options, "examples", batches(ROWS, BATCH))
    return list(_measure(options, "update-batch", bodies, size=BATCH, connections=4, target=10.0))


def _measure(
    options: Options, name: str, bodies: Path, *, size: int, connections: int, target: float
) -> Iterator[Result]:
    path = "/update" if size == 1 else "/update-batch"
    with reference("bench.reference_river:app") as river:
        for suffix, layout, settings in LAYOUTS:
            with service(**settings) as ours:
                measured = compare(
                    options,
                    Call(ours, "/update", bodies, LEARNED, size),
                    Call(river, path, bodies, LEARNED, size),
                    connections=connections,
                )
            yield Result(
                name + suffix,
                f"/update with {size:,} examples a request, durable (everysec), learned before the reply,"
                f" {connections} connections; {layout}",
                "examples/s",
                *measured.figures("requests_per_second", scale=size),
                against="River behind FastAPI, in memory",
                target=Target(">=", target) if not suffix else None,
                notes=measured.notes,
            )

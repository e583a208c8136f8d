"""/update: durable in Redis and learned before the reply, against River learning in memory."""

from bench.criteo import rows, write_bodies
from bench.http_ratio import Call, batches, compare, example
from bench.processes import reference, service
from bench.result import Options, Result, Target, require

ROWS = 40_000
BATCH = 1000
LEARNED = '"learned"'


def measure_one(options: Options) -> list[Result]:
    """Requests a second, one example each, on 32 connections."""
    require("river")
    bodies = write_bodies(options, "example", map(example, rows(ROWS)))
    with service() as ours, reference("bench.reference_river:app") as river:
        measured = compare(
            options,
            Call(ours, "/update", bodies, LEARNED, 1),
            Call(river, "/update", bodies, LEARNED, 1),
            connections=32,
        )
    return [
        Result(
            "update-one",
            "/update single, durable (everysec), learned before the reply, 32 connections",
            "requests/s",
            *measured.figures("requests_per_second"),
            against="River behind FastAPI, in memory",
            target=Target(">=", 1.0),
            notes=measured.notes,
        )
    ]


def measure_batch(options: Options) -> list[Result]:
    """Examples a second, 1,000 a request."""
    require("river")
    bodies = write_bodies(options, "examples", batches(ROWS, BATCH))
    with service() as ours, reference("bench.reference_river:app") as river:
        measured = compare(
            options,
            Call(ours, "/update", bodies, LEARNED, BATCH),
            Call(river, "/update-batch", bodies, LEARNED, BATCH),
            connections=4,
        )
    return [
        Result(
            "update-batch",
            "/update with 1,000 examples a request, durable, learned before the reply, 4 connections",
            "examples/s",
            *measured.figures("requests_per_second", scale=BATCH),
            against="River behind FastAPI, in memory",
            target=Target(">=", 4.0),
            notes=measured.notes,
        )
    ]

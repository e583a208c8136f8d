"""/predict with one example of 39 features: throughput, then latency, against an empty endpoint."""

from bench.criteo import complete_rows, write_bodies
from bench.http_ratio import Call, Measured, compare, train
from bench.processes import reference, service
from bench.result import Options, Result, Target

AGAINST = "empty FastAPI endpoint, same pydantic body, response model"


def measure_throughput(options: Options) -> list[Result]:
    """Requests a second on 16 connections."""
    measured = _measure(options, connections=16)
    return [
        Result(
            "predict-one",
            "/predict, one example of 39 features, 16 connections",
            "requests/s",
            *measured.figures("requests_per_second"),
            against=AGAINST,
            target=Target(">=", 1.8),
            notes=measured.notes,
        )
    ]


def measure_latency(options: Options) -> list[Result]:
    """The median reply time on one connection."""
    measured = _measure(options, connections=1)
    return [
        Result(
            "predict-latency",
            "/predict, one example of 39 features, p50, 1 connection",
            "ms",
            *measured.figures("p50_ms"),
            against=AGAINST,
            target=Target("<=", 1.1),
            notes=measured.notes,
        )
    ]


def _measure(options: Options, connections: int) -> Measured:
    bodies = write_bodies(options, "one", ({"features": row.features} for row in complete_rows(1199)))
    with service() as ours, reference("bench.reference_empty:app") as empty:
        train(f"{ours.url}/update")
        return compare(
            options,
            Call(ours, "/predict", bodies, expected='"probability"', occurrences=1),
            Call(empty, "/predict", bodies, expected='"probability"', occurrences=1),
            connections,
        )

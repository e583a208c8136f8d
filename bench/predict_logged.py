"""/predict that keeps what it predicts until its label comes, against the same without keeping it."""

from bench.criteo import complete_rows, write_bodies
from bench.http_ratio import Call, compare, train
from bench.processes import service
from bench.result import Options, Result, Target


def measure(options: Options) -> list[Result]:
    """Requests a second on 16 connections; each reply waits until its prediction is kept."""
    rows = [row.features for row in complete_rows(1199)]
    logged = write_bodies(options, "logged", ({"features": row, "log": True} for row in rows))
    plain = write_bodies(options, "one", ({"features": row} for row in rows))
    with service() as keeping, service() as forgetting:
        for server in (keeping, forgetting):
            train(f"{server.url}/update")
        measured = compare(
            options,
            Call(keeping, "/predict", logged, expected='"logged":true', occurrences=1),
            Call(forgetting, "/predict", plain, expected='"probability"', occurrences=1),
            connections=16,
        )
    return [
        Result(
            "predict-logged",
            "/predict, logged, one example of 39 features, 16 connections",
            "requests/s",
            *measured.figures("requests_per_second"),
            against="the same, not logged",
            target=Target(">=", 0.8),
            notes=measured.notes,
        )
    ]

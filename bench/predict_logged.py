"""/predict that keeps what it predicts until its label comes, against the same without keeping it."""

import json
from pathlib import Path

from bench.criteo import complete_rows, write_bodies
from bench.http_ratio import Call, compare, train
from bench.processes import service
from bench.result import Options, Result, Target


def measure(options: Options) -> list[Result]:
    """Requests a second on 16 connections, where replies wait until predictions are kept, and where not."""
    rows = [row.features for row in complete_rows(1199)]
    logged = write_bodies(options, "logged", ({"features": row, "log": True} for row in rows))
    plain = write_bodies(options, "one", ({"features": row} for row in rows))
    return [_measured(options, logged, plain, wait) for wait in (True, False)]


def _measured(options: Options, logged: Path, plain: Path, wait: bool) -> Result:
    model = options.directory / f"wait-{wait}.json"
    model.write_text(json.dumps({"feedback": {"wait": wait, "max_bytes": 1 << 32}}))
    with service(FTRL_DEFAULT_MODEL=str(model)) as keeping, service() as forgetting:
        for server in (keeping, forgetting):
            train(f"{server.url}/update")
        measured = compare(
            options,
            Call(keeping, "/predict", logged, expected='"logged":true', occurrences=1),
            Call(forgetting, "/predict", plain, expected='"probability"', occurrences=1),
            connections=16,
        )
    return Result(
        "predict-logged" if wait else "predict-logged-promised",
        f"/predict, logged, {'' if wait else 'wait: false, '}one example of 39 features, 16 connections",
        "requests/s",
        *measured.figures("requests_per_second"),
        against="the same, not logged",
        target=Target(">=", 0.85),
        notes=measured.notes,
    )

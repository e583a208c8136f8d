"""What it costs a prediction that its token is checked."""

import json
from pathlib import Path

from bench.criteo import complete_rows, write_bodies
from bench.http_ratio import Call, compare, train
from bench.processes import service
from bench.result import Options, Result
from service.api.security.tokens import SCOPES, Grant, digest_of, new_token

AGAINST = "the same without tokens"
CONNECTIONS = 16


def measure(options: Options) -> list[Result]:
    """/predict of a service that needs tokens, and of one that needs none."""
    token = new_token()
    bodies = write_bodies(options, "one", ({"features": row.features} for row in complete_rows(1199)))
    with service(FTRL_TOKENS_FILE=str(_file_of(token, options))) as guarded, service() as free:
        train(f"{guarded.url}/update", token)
        train(f"{free.url}/update")
        measured = compare(
            options,
            Call(guarded, "/predict", bodies, '"probability"', 1, token),
            Call(free, "/predict", bodies, '"probability"', 1),
            CONNECTIONS,
        )
    what = "/predict with a token, one example of 39 features"
    return [
        Result(
            "predict-token",
            what,
            "requests/s",
            *measured.figures("requests_per_second"),
            against=AGAINST,
            notes=measured.notes,
        ),
        Result(
            "predict-token",
            f"{what}, processor time a request",
            "ms",
            *measured.figures("cpu_ms"),
            against=AGAINST,
        ),
    ]


def _file_of(token: str, options: Options) -> Path:
    """With some other tokens beside it."""
    grants = [
        Grant(digest_of(one.encode()), f"caller-{number}", frozenset(SCOPES), None)
        for number, one in enumerate([token, *(new_token() for _ in range(99))])
    ]
    file = options.directory / "tokens.jsonl"
    file.write_text("".join(f"{json.dumps(grant.to_json())}\n" for grant in grants))
    return file

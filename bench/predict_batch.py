"""/predict with a context and 100 instances, against River with 100 whole dictionaries."""

from collections.abc import Iterator

from bench.criteo import NAMES, Row, complete_rows, write_bodies
from bench.http_ratio import Call, compare, train
from bench.processes import reference, service
from bench.result import Options, Result, Target, require

CONTEXT = NAMES[:20]
INSTANCE = NAMES[20:]
INSTANCES = 100


def measure(options: Options) -> list[Result]:
    """Instances a second."""
    require("river")
    with service() as ours, reference("bench.reference_river:app") as river:
        train(f"{ours.url}/update")
        train(f"{river.url}/update-batch")
        measured = compare(
            options,
            Call(ours, "/predict", write_bodies(options, "shared", _shared()), '"probability"', INSTANCES),
            Call(river, "/predict", write_bodies(options, "whole", _whole()), '"probability"', INSTANCES),
            connections=4,
        )
    return [
        Result(
            "predict-batch",
            "/predict, context of 20 features and 100 instances of 19, 4 connections",
            "instances/s",
            *measured.figures("requests_per_second", scale=INSTANCES),
            against="River behind FastAPI, 100 whole dictionaries",
            target=Target(">=", 3.0),
            notes=measured.notes,
        )
    ]


def _groups() -> Iterator[tuple[Row, list[Row]]]:
    """A user's row, and the rows whose ad columns are the candidates."""
    source = complete_rows(1199)
    for start in range(0, len(source) - INSTANCES, 10):
        yield source[start], source[start : start + INSTANCES]


def _shared() -> Iterator[dict[str, object]]:
    for user, candidates in _groups():
        instances = [{"features": only(row, INSTANCE)} for row in candidates]
        yield {"context": only(user, CONTEXT), "instances": instances}


def _whole() -> Iterator[dict[str, object]]:
    for user, candidates in _groups():
        context = only(user, CONTEXT)
        yield {"instances": [{"features": context | only(row, INSTANCE)} for row in candidates]}


def only(row: Row, names: tuple[str, ...]) -> dict[str, int | str]:
    """The columns of these names."""
    return {name: row.features[name] for name in names}

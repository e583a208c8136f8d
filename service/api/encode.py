"""Replies of the hot routes as bytes of JSON, in the shapes that `reply_schemas.py` documents.

Numbers are finite or null, so that every reply is valid JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring_ascii as quoted

from pydantic_core import to_json

from service.example_log.results import UpdateResults

_LOGGED = {None: "", True: ',"logged":true', False: ',"logged":false'}

Ids = Sequence[str | None] | None
Logged = Sequence[bool] | None


def prediction_reply(
    model: str, revision: str, probabilities: list[float], ids: Ids, logged: Logged = None
) -> bytes:
    (predicted,) = _predicted(probabilities, ids)
    flag = _LOGGED[logged[0] if logged else None]
    return f'{{{predicted},"model":"{model}","revision":"{revision}"{flag}}}'.encode()


def predictions_reply(
    model: str, revision: str, probabilities: list[float], ids: Ids, logged: Logged = None
) -> bytes:
    """Each says for itself whether it is logged where not all are."""
    predicted = _predicted(probabilities, ids)
    flag = _LOGGED[None if logged is None else all(logged)]
    if logged is not None and not all(logged):
        predicted = [fields + _LOGGED[one] for fields, one in zip(predicted, logged, strict=True)]
    items = "},{".join(predicted)
    items = f"{{{items}}}" if probabilities else ""
    return f'{{"predictions":[{items}],"model":"{model}","revision":"{revision}"{flag}}}'.encode()


def updated(results: UpdateResults) -> list[str]:
    """An object of JSON for each example or label."""
    revisions = ["null" if revision is None else quoted(revision) for revision in results.revisions]
    columns = zip(
        results.statuses,
        _numbers(results.probabilities.tolist()),
        _numbers(results.losses.tolist()),
        revisions,
        map(quoted, results.ids),
        strict=True,
    )
    field = results.id_field
    return [
        f'{{"status":"{status}","probability":{probability},"loss":{loss},"revision":{revision},"{field}":{i}}}'
        for status, probability, loss, revision, i in columns
    ]


def updates_reply(items: Iterable[str]) -> bytes:
    return f'{{"results":[{",".join(items)}]}}'.encode()


def impressions_reply(ids: Sequence[str], statuses: Sequence[str]) -> bytes:
    items = ",".join(
        f'{{"id":{quoted(i)},"status":"{status}"}}' for i, status in zip(ids, statuses, strict=True)
    )
    return f'{{"results":[{items}]}}'.encode()


def _predicted(probabilities: list[float], ids: Ids) -> list[str]:
    """The fields of a prediction, for each."""
    numbers = _numbers(probabilities)
    if not ids:
        return [f'"probability":{number}' for number in numbers]
    return [
        f'"probability":{number}' if i is None else f'"probability":{number},"id":{quoted(i)}'
        for number, i in zip(numbers, ids, strict=True)
    ]


def _numbers(values: list[float]) -> list[str]:
    """Each as JSON, what is not finite as null: a fifth of the time that repr takes."""
    return to_json(values, inf_nan_mode="null")[1:-1].decode().split(",") if values else []

"""Replies of the hot routes as bytes of JSON, in the shapes that `schemas.py` documents.

Numbers are finite or null, so that every reply is valid JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from json.encoder import encode_basestring_ascii as quoted
from math import isfinite

from service.updates import UpdateResult

_LOGGED = {None: "", True: ',"logged":true', False: ',"logged":false'}

Ids = Sequence[str | None] | None


def prediction_reply(
    model: str, revision: str, probabilities: list[float], ids: Ids, logged: bool | None = None
) -> bytes:
    predicted = _predicted(probabilities[0], ids[0] if ids else None)
    return f'{{{predicted},"model":"{model}","revision":"{revision}"{_LOGGED[logged]}}}'.encode()


def predictions_reply(
    model: str, revision: str, probabilities: list[float], ids: Ids, logged: bool | None = None
) -> bytes:
    items = "},{".join(map(_predicted, probabilities, ids or repeat(None)))
    items = f"{{{items}}}" if probabilities else ""
    return f'{{"predictions":[{items}],"model":"{model}","revision":"{revision}"{_LOGGED[logged]}}}'.encode()


def update_reply(result: UpdateResult) -> bytes:
    return _updated(result).encode()


def updates_reply(results: Sequence[UpdateResult]) -> bytes:
    return f'{{"results":[{",".join(map(_updated, results))}]}}'.encode()


def impressions_reply(ids: Sequence[str], statuses: Sequence[str]) -> bytes:
    items = ",".join(
        f'{{"id":{quoted(i)},"status":"{status}"}}' for i, status in zip(ids, statuses, strict=True)
    )
    return f'{{"results":[{items}]}}'.encode()


def _predicted(probability: float, identifier: str | None) -> str:
    if identifier is None:
        return f'"probability":{_number(probability)}'
    return f'"probability":{_number(probability)},"id":{quoted(identifier)}'


def _updated(result: UpdateResult) -> str:
    revision = "null" if result.revision is None else quoted(result.revision)
    return (
        f'{{"status":"{result.status}","probability":{_number(result.probability)},'
        f'"loss":{_number(result.loss)},"revision":{revision},{_identified(result)}}}'
    )


def _identified(result: UpdateResult) -> str:
    if result.event_id is None:
        return f'"id":{quoted(str(result.prediction_id))}'
    return f'"event_id":{quoted(result.event_id)}'


def _number(value: float | None) -> str:
    return "null" if value is None or not isfinite(value) else repr(value)

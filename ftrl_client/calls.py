"""The calls of the API as values: what is sent, how the reply is read, and whether it may be sent again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from ftrl_client.messages import Example, Features, Instance, Label, Prediction, Update, features_json, new_id

T = TypeVar("T")
Json = Mapping[str, Any]
NDJSON = "application/x-ndjson"
BATCH_SIZE = 500
"""Examples in one request: well below the limits of the service."""
STREAM_SIZE = 2000
"""Lines in one request of a stream. The reply has to fit into the buffers of a connection, since httpx reads
it once it has sent all.
"""


@dataclass(frozen=True)
class Call(Generic[T]):
    """`repeatable`: whether it may be sent again if it is not known whether it took effect. `lines`: sent as
    JSON lines instead of a body; the reply is an object whose `lines` are its own.
    """

    method: str
    path: str
    body: Json | None
    read: Callable[[Json], T]
    repeatable: bool
    lines: Sequence[Json] | None = None

    @property
    def content(self) -> dict[str, Any]:
        """The arguments of httpx."""
        if self.lines is None:
            return {"json": self.body}
        text = "".join(json.dumps(line) + "\n" for line in self.lines)
        return {"content": text.encode(), "headers": {"Content-Type": NDJSON}}

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def with_event_ids(self, event_ids: Sequence[str]) -> Call[T]:
        """The same update, repeatable, under the ids that a refusal gave its examples."""
        body = self.body or {}
        if "examples" in body:
            pairs = zip(body["examples"], event_ids, strict=True)
            named = {**body, "examples": [{"event_id": event_id, **example} for example, event_id in pairs]}
        else:
            named = {"event_id": event_ids[0], **body}
        return replace(self, body=named, repeatable=True)


def predict(
    model: str, instances: Iterable[Instance | Features], context: Features | None, log: bool | None
) -> Call[list[Prediction]]:
    """Each prediction that may be logged has an id, so that one that is sent again is logged once."""
    named = [one if isinstance(one, Instance) else Instance(one) for one in instances]
    if log is not False:
        named = [one if one.id is not None else Instance(one.features, new_id()) for one in named]
    body: dict[str, Any] = {"instances": [one.to_json() for one in named]}
    if context is not None:
        body["context"] = features_json(context)
    if log is not None:
        body["log"] = log
    return _post(model, "predict", body, _predictions)


def update(model: str, examples: Sequence[Example | Label], *, wait: bool) -> Call[list[Update]]:
    body = {"examples": [example.to_json() for example in examples]}
    return _post(model, "update" if wait else "update?wait=false", body, _updates)


def update_one(model: str, example: Example | Label, *, wait: bool) -> Call[Update]:
    return _post(model, "update" if wait else "update?wait=false", example.to_json(), _update)


def stream(model: str, examples: Sequence[Example | Label]) -> Call[list[Update]]:
    lines = [example.to_json() for example in examples]
    path = f"/models/{quote(model, safe='')}/update?each=true"
    return Call("POST", path, None, _streamed, repeatable=True, lines=lines)


def impressions(model: str, ids: Iterable[str]) -> Call[dict[str, str]]:
    return _post(model, "impressions", {"ids": list(ids)}, _statuses)


def plain(method: str, path: str, body: Json | None) -> Call[dict[str, Any]]:
    return Call(method, path, body, dict, repeatable=method in ("GET", "PUT"))


def batches(examples: Iterable[Example | Label], size: int = BATCH_SIZE) -> Iterator[list[Example | Label]]:
    remaining = iter(examples)
    while batch := list(islice(remaining, size)):
        yield batch


def _post(model: str, verb: str, body: Json, read: Callable[[Json], T]) -> Call[T]:
    return Call("POST", f"/models/{quote(model, safe='')}/{verb}", body, read, repeatable=True)


def _predictions(reply: Json) -> list[Prediction]:
    logged, model, revision = reply.get("logged"), reply["model"], reply["revision"]
    return [
        Prediction(one["probability"], one.get("id"), one.get("logged", logged), model, revision)
        for one in reply["predictions"]
    ]


def _updates(reply: Json) -> list[Update]:
    return [_update(result) for result in reply["results"]]


def _update(result: Json) -> Update:
    return Update(
        result["status"],
        result.get("probability"),
        result.get("loss"),
        result.get("revision"),
        result.get("event_id"),
        result.get("id"),
        result.get("detail"),
    )


def _streamed(reply: Json) -> list[Update]:
    return [_update(line) for line in reply["lines"] if "status" in line]


def _statuses(reply: Json) -> dict[str, str]:
    return {result["id"]: result["status"] for result in reply["results"]}

"""Additions to the OpenAPI document: examples of bodies, and problems as replies."""

from __future__ import annotations

from typing import Any

from fastapi.openapi.models import Example

from service.api.problems import PROBLEM_JSON
from service.api.schemas import Problem

Responses = dict[int | str, dict[str, Any]]

_IMPRESSION = {"ad": "a17", "campaign": "c3", "site": "news.example", "hour": 14, "tags": ["sport", "video"]}

PREDICT_EXAMPLES: dict[str, Example] = {
    "one": Example(summary="One impression", value={"features": _IMPRESSION, "id": "request-1"}),
    "candidates": Example(
        summary="One user, several candidate ads",
        value={
            "context": {"user": "u42", "site": "news.example", "hour": 14},
            "instances": [
                {"features": {"ad": "a17", "price": 0.35}, "id": "a17"},
                {"features": {"ad": "b4", "price": 1.2}, "id": "b4"},
            ],
        },
    ),
}

EXPLAIN_EXAMPLES: dict[str, Example] = {
    "one": Example(summary="One impression", value={"features": _IMPRESSION}),
}

UPDATE_EXAMPLES: dict[str, Example] = {
    "one": Example(
        summary="One clicked impression",
        value={
            "features": _IMPRESSION,
            "label": 1,
            "event_id": "impression-1",
            "event_time": "2024-05-01T12:00:00Z",
        },
    ),
    "many": Example(
        summary="Several, of which those without a click were sampled",
        value={
            "examples": [
                {"features": {"ad": "a17", "site": "news.example"}, "label": 1, "weight": 2},
                {"features": {"ad": "b4", "site": "news.example"}, "label": 0, "sample_rate": 0.1},
            ]
        },
    ),
}

IMPRESSIONS_EXAMPLES: dict[str, Example] = {
    "one": Example(summary="One of the candidates was shown", value={"ids": ["a17"]}),
}

MODEL_EXAMPLES: dict[str, Example] = {
    "defaults": Example(summary="All defaults", value={}),
    "crosses": Example(
        summary="A smaller model with a cross",
        value={"hashing": {"bits": 18, "crosses": [["ad", "site"]]}},
    ),
}


CHANGE_EXAMPLES: dict[str, Example] = {
    "room": Example(
        summary="More room for pending predictions", value={"feedback": {"max_bytes": 1073741824}}
    ),
    "window": Example(summary="Another window", value={"feedback": {"window_seconds": 3600}}),
}


def problems(**described: str) -> Responses:
    """Return replies for `responses=` of a route, such as `problems(_404="There is no such model.")`."""
    return {
        int(status.lstrip("_")): {"model": Problem, "description": description}
        for status, description in described.items()
    }


_OF_A_MODEL = {
    "_404": "There is no such model.",
    "_409": "The stored model was written under another contract.",
    "_422": "The request is not valid; `errors` says where and why.",
    "_503": "Redis does not answer, and the state is not in memory.",
}
OF_A_BODY = {
    "_408": "The body was not complete in time.",
    "_413": "The body is too large.",
    "_415": "The body is not application/json, or packed other than by gzip or zstd.",
}
MODEL_PROBLEMS = problems(**_OF_A_MODEL)
AT_ITS_LIMIT = {"_507": "Redis is at its memory limit."}
CREATE_PROBLEMS = problems(
    **_OF_A_MODEL | OF_A_BODY | AT_ITS_LIMIT | {"_409": "The model exists with another configuration."}
)
CHANGE_PROBLEMS = problems(
    **_OF_A_MODEL
    | OF_A_BODY
    | {"_409": "That part is fixed at creation, or the name is an alias.", "_503": "Redis does not answer."}
)
PREDICT_PROBLEMS = problems(
    **_OF_A_MODEL
    | OF_A_BODY
    | {
        "_409": "The stored model was written under another contract, or one of the ids belongs to a logged"
        " prediction with other features."
    }
)
_TOO_MUCH = {"_429": "Too many examples are pending, or Redis is nearly full."}
IMPRESSIONS_PROBLEMS = problems(
    **_OF_A_MODEL
    | OF_A_BODY
    | _TOO_MUCH
    | {"_503": "Redis does not answer; send the same request again, it takes effect once."}
)
UPDATE_PROBLEMS = problems(
    **_OF_A_MODEL
    | OF_A_BODY
    | _TOO_MUCH
    | {
        "_404": "There is no such model, or no such pending prediction.",
        "_409": "The stored model was written under another contract, or the prediction has the other label.",
        "_503": "Redis does not answer; `outcome` says whether the examples may have been appended,"
        " `event_ids` under which ids a retry learns each once.",
    }
)


def with_problem_media_type(document: dict[str, Any]) -> dict[str, Any]:
    """Give problems their own media type; FastAPI documents every reply as application/json."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if status[0] in "45" and "application/json" in response.get("content", {}):
                    response["content"] = {PROBLEM_JSON: response["content"]["application/json"]}
    return document

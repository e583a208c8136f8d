"""Additions to the OpenAPI document: tags, tokens, examples of bodies, and problems as replies."""

from __future__ import annotations

from typing import Any

from fastapi.openapi.models import Example

from service.api.problems import PROBLEM_JSON
from service.api.reply_examples import REPLY_EXAMPLES
from service.api.schemas import Problem
from service.api.security.access import DECLARATION
from service.parsing.streams.formats import STREAM_FORMATS

Responses = dict[int | str, dict[str, Any]]

TAGS = [
    {"name": "predict", "description": "Click probabilities, and what they are made of."},
    {"name": "update", "description": "Examples to learn from, and labels of logged predictions."},
    {"name": "feedback", "description": "Which logged predictions were shown."},
    {"name": "models", "description": "Models: create, describe, evaluate, change, clone, delete."},
    {"name": "aliases", "description": "Other names for models, which can be switched."},
    {"name": "snapshots", "description": "Saved states of a model, and the way back to one."},
    {"name": "health", "description": "For load balancers, orchestrators and Prometheus."},
]
BEARER = "bearer"
SECURITY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token of `ftrl token create`. `x-access` of a call is the scope that it needs.",
}
TOKEN_PROBLEMS = {
    "401": "The call needs a token, or the token is unknown.",
    "403": "The token does not allow this call, or not for this model.",
}
PROBLEM_SCHEMA = {"$ref": "#/components/schemas/Problem"}

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


STREAMED_BODIES = {"x-streams": sorted(STREAM_FORMATS)}
"""Media types of bodies of an update that are read while they arrive. Among the contents of the body they
would make generators of clients fail.
"""


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
        "_415": "The body is neither application/json nor a stream of examples, or packed other than by gzip"
        " or zstd.",
        "_409": "The stored model was written under another contract, or the prediction has another label.",
        "_503": "Redis does not answer; `outcome` says whether the examples may have been appended,"
        " `event_ids` under which ids a retry learns each once.",
    }
)


def completed(document: dict[str, Any], *, tokens: bool) -> dict[str, Any]:
    """Complete FastAPI's document in place: summaries, tokens, replies. `tokens`: whether calls need one."""
    document["components"]["securitySchemes"] = {BEARER: SECURITY_SCHEME}
    for operations in document["paths"].values():
        for operation in operations.values():
            _summarize(operation)
            if operation[DECLARATION]["token"]:
                _require_token(operation, tokens=tokens)
            for status, response in operation["responses"].items():
                _complete_reply(operation["operationId"], status, response)
    return document


def _summarize(operation: dict[str, Any]) -> None:
    """Take the summary from the first line of the description, as docstrings have it."""
    summary, _, rest = operation["description"].partition("\n\n")
    operation["summary"], operation["description"] = summary.rstrip("."), rest or summary


def _require_token(operation: dict[str, Any], *, tokens: bool) -> None:
    """Where no call needs a token, one may be sent nevertheless: clients are generated with the argument."""
    operation["security"] = [{BEARER: []}] if tokens else [{BEARER: []}, {}]
    for status, description in TOKEN_PROBLEMS.items():
        content = {"application/json": {"schema": PROBLEM_SCHEMA}}
        operation["responses"][status] = {"description": description, "content": content}


def _complete_reply(operation: str, status: str, response: dict[str, Any]) -> None:
    """Give problems their own media type, as FastAPI documents every reply as JSON, and others an example."""
    content = response.get("content", {})
    if content.get("application/json", {}).get("schema") == PROBLEM_SCHEMA:
        response["content"] = {PROBLEM_JSON: content["application/json"]}
    elif status.startswith("2") and "application/json" in content:
        content["application/json"]["examples"] = REPLY_EXAMPLES[operation.removesuffix("_for_model")]

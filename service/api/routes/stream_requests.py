"""The format and the query string of a streamed update."""

from __future__ import annotations

from typing import NamedTuple, TypeVar
from urllib.parse import parse_qs

from starlette.types import Scope

from model_core.errors import InvalidInput
from model_core.text.problems import Labels, Namespaces
from service.api.routes.update import flag_of
from service.errors import UnsupportedMediaType
from service.parsing.streams.formats import STREAM_FORMATS
from service.parsing.streams.groups import StreamFormat, StreamOptions
from service.settings.groups import LimitSettings

Choice = TypeVar("Choice", bound=str)

_LABELS: tuple[Labels, ...] = ("minus_plus", "zero_one")
_NAMESPACES: tuple[Namespaces, ...] = ("ignore", "prefix")
_ON_ERROR = ("skip", "stop")


class StreamQuery(NamedTuple):
    """The query string of a streamed update, parsed."""

    wait: bool
    each: bool
    stops_at_errors: bool
    options: StreamOptions


def format_of(scope: Scope) -> StreamFormat:
    """Return the format that the headers announce. Raises UnsupportedMediaType."""
    given = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            given = value
    media_type = given.split(b";")[0].strip().lower().decode("latin-1")
    if media_type not in STREAM_FORMATS:
        raise UnsupportedMediaType(
            "Send the body as JSON, with the header Content-Type: application/json, or examples as a stream:"
            f" {', '.join(STREAM_FORMATS)}."
        )
    STREAM_FORMATS[media_type].check()
    return STREAM_FORMATS[media_type]


def query_of(query: bytes, settings: LimitSettings) -> StreamQuery:
    """Read a query string. Raises InvalidInput."""
    values = parse_qs(query.decode("ascii", "replace"), keep_blank_values=True)
    options = StreamOptions(
        settings, _one_of(values, "labels", _LABELS), _one_of(values, "namespaces", _NAMESPACES)
    )
    stops = _one_of(values, "on_error", _ON_ERROR) == "stop"
    wait, each = flag_of(query, "wait", default=True), flag_of(query, "each", default=False)
    return StreamQuery(wait, each, stops, options)


def _one_of(values: dict[str, list[str]], name: str, choices: tuple[Choice, ...]) -> Choice:
    """Return the choice that is given, by default the first."""
    given = values.get(name, [choices[0]])[-1]
    for choice in choices:
        if given == choice:
            return choice
    raise InvalidInput((name,), f"must be {' or '.join(choices)}")

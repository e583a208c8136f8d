"""Refuses names that occur twice in one JSON object: pydantic takes the last, which would hide a mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from model_core.errors import InvalidInput

_PERHAPS_A_NAMES_END = re.compile(rb'"\s*:')


def refuse_repeated_names(body: bytes, names: int | None = None) -> None:
    """Raise InvalidInput for the first one; the body is JSON that was parsed before.

    `names`: the number of names in the parsed body. The body has at least as many colons, and at least as
    many places that look like the end of a name; if it has no more, none was lost and parsing ends here.
    """
    if names == body.count(b":") or names == len(_PERHAPS_A_NAMES_END.findall(body)):
        return
    # The numbers do not matter here, and may be too long for Python's integers.
    _search(json.loads(body, object_pairs_hook=_Pairs, parse_int=len, parse_float=len), ())


def name_count(
    request: Mapping[str, Any], fields: Sequence[str], items: Sequence[Mapping[str, Any]] = ()
) -> int:
    """Count the names in a request, in those of its fields that may be objects, and in its items.

    Names inside the values of features are left out, so that bodies with such are searched.
    """
    own = sum(_own_names(request.get(field)) for field in fields)
    return len(request) + own + sum(len(item) + _own_names(item.get("features")) for item in items)


def _own_names(features: object) -> int:
    return len(features) if isinstance(features, dict) else 0


class _Pairs(list[tuple[str, Any]]):
    """An object as it is written in the body."""


def _search(value: object, path: tuple[str | int, ...]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, item in value:
            if name in seen:
                raise InvalidInput(
                    (*path, name), "this name occurs twice in one object: send it once", "duplicate_name"
                )
            seen.add(name)
            _search(item, (*path, name))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            _search(item, (*path, position))

"""Names that come twice in one object of JSON: pydantic takes the last, and a mistake would go unnoticed."""

from __future__ import annotations

import json
import re
from typing import Any

from model_core.errors import InvalidInput

_PERHAPS_A_NAMES_END = re.compile(rb'"\s*:')


def refuse_repeated_names(body: bytes, names: int | None = None) -> None:
    """Raises InvalidInput for the first; the body is JSON that was read before.

    `names`: how many there are in what was read of it. The body has no fewer colons, nor fewer places that
    look like the end of a name; where it has no more, none was lost, and it need not be read again.
    """
    if names == body.count(b":") or names == len(_PERHAPS_A_NAMES_END.findall(body)):
        return
    # Numbers are of no interest here, and might be too long for Python's integers.
    _search(json.loads(body, object_pairs_hook=_Pairs, parse_int=len, parse_float=len), ())


class _Pairs(list[tuple[str, Any]]):
    """An object as it stands in the body."""


def _search(value: object, path: tuple[str | int, ...]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, item in value:
            if name in seen:
                raise InvalidInput((*path, name), "this name comes twice in one object", "duplicate_name")
            seen.add(name)
            _search(item, (*path, name))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            _search(item, (*path, position))

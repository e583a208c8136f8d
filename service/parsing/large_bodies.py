"""Large bodies of JSON: bounded before any object is made of them, and read in parts.

A parser makes an object of each name and value, holds the interpreter until it is done, and cannot be
stopped. A body of a million of them would stall all other requests of the process and fill its memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from model_core.errors import InvalidInput
from model_core.json.shape import Shape, shape_of
from service.errors import FieldError, Unprocessable, field_error
from service.parsing.field_errors import field_errors

MAX_VALUES = 1 << 16
"""Names and values, lists and objects included, of a body without its list, and of each item of the list."""
LARGE_BYTES = 1 << 16
_VALUES_PER_FEATURE = 8  # ["name", {"value": "x", "times": 2}] has 7

Request = TypeVar("Request", bound=Mapping[str, Any])


def max_values(max_features: int) -> int:
    """MAX_VALUES, or more where an example may have so many features that a valid one could have more."""
    return max(MAX_VALUES, _VALUES_PER_FEATURE * max_features)


class ListReader(Generic[Request]):
    """Reads requests that may have a list in `field`, of at most `max_items` items."""

    def __init__(self, parse: Callable[[bytes], Request], field: str, max_items: int, most: int) -> None:
        """`parse` raises ValidationError and InvalidInput. `most`: names and values, as for MAX_VALUES."""
        self._parse = parse
        self._field = field
        self._max_items = max_items
        self._most = most

    async def read(self, body: bytes) -> tuple[Request, Iterator[list[Any]]]:
        """Return a request and the items of its list in groups. In a large request the list is empty, and
        its items are parsed as the groups are iterated; let other tasks run between them.

        Raises ValidationError, InvalidInput; so do the groups, and Unprocessable.
        """
        if len(body) > LARGE_BYTES:
            shape = await asyncio.to_thread(shape_of, body, self._field, self._max_items, self._most)
            return self._parse(shape.frame), self._groups(body, shape)
        request = self._parse(body)
        items = request.get(self._field, [])
        if len(items) > self._max_items:
            detail = f"a request has at most {self._max_items} {self._field}: send several requests"
            raise InvalidInput((self._field,), detail, "too_many")
        return request, iter([items])

    def _groups(self, body: bytes, shape: Shape) -> Iterator[list[Any]]:
        first = 0
        for start, stop, count in shape.groups:
            try:
                request = self._parse(b'{"%b":[%b]}' % (self._field.encode(), body[start:stop]))
            except InvalidInput as wrong:
                raise InvalidInput(self._moved(wrong.path, first), wrong.detail, wrong.code) from None
            except ValidationError as wrong:
                errors = wrong.errors(include_url=False, include_input=False)
                raise Unprocessable([self._in_body(error, first, count) for error in errors]) from None
            yield request[self._field]
            first += count

    def _moved(self, path: tuple[str | int, ...], first: int) -> tuple[str | int, ...]:
        """Return a path in a group as one in the body."""
        field, *rest = path
        position, *inside = rest or [0]
        return (field, position + first, *inside) if isinstance(position, int) and rest else path

    def _in_body(self, error: Mapping[str, Any], first: int, count: int) -> FieldError:
        if error["type"] == "json_invalid":
            why = error["ctx"]["error"].partition(" at line ")[0]
            where = f"{self._field}[{first}] to {self._field}[{first + count - 1}]"
            return field_error((), f"Invalid JSON in {where}: {why}", "invalid_json")
        (moved,) = field_errors([{**error, "loc": self._moved(error["loc"], first)}])
        return moved

"""Counts what a body of JSON has, before any object is made of it: one byte can become an object of 60.

The names and values of a body are counted, an opening bracket as one. A body need not be valid. If it is, the
items of its list can be parsed in groups, each a sequence of whole items without the comma that follows.
"""

from typing import Any, NamedTuple

import numpy as np

from model_core.errors import InvalidInput, Path
from model_core.hashing.columns import Bytes, Integers
from model_core.json.scan import (
    CLOSE_LIST,
    CLOSE_OBJECT,
    COLON,
    COMMA,
    OPEN_LIST,
    OPEN_OBJECT,
    PADDING,
    QUOTE,
    at,
)
from model_core.kernels.compiled import inlined_kernel, kernel

_GROUP_BYTES, _GROUP_VALUES = 1 << 16, 1 << 9  # a group ends where it has either
_WHOLE, _MALFORMED, _TOO_MANY_VALUES, _TOO_MANY_ITEMS, _TWO_LISTS = range(5)
_ITEMS, _LIST_START, _LIST_STOP, _GROUPS, _DEPTH, _KEY_START, _KEY_STOP, _OUTSIDE = range(8)
_VALUES, _GROUP_START, _GROUP_ITEMS, _VALUES_OF_GROUP = range(8, 12)
_STATE_CELLS = 12
_NO_FIELD = b'"'  # no name in JSON has a quote that is not escaped
_BACKSLASH = ord("\\")

_WORD, _BLANK, _CLOSING, _OPENING = range(4)
_KINDS = np.zeros(256, np.uint8)
"""What begins with each byte; a text counts as a word."""
_KINDS[[ord(" "), ord("\t"), ord("\n"), ord("\r"), COLON]] = _BLANK
_KINDS[[COMMA, CLOSE_LIST, CLOSE_OBJECT]] = _CLOSING
_KINDS[[OPEN_LIST, OPEN_OBJECT]] = _OPENING


class Shape(NamedTuple):
    """`frame`: the body without the items of its list. `groups`: where each begins and ends, and how many
    items it has.
    """

    frame: bytes
    groups: list[tuple[int, int, int]]


def shape_of(body: bytes, field: str, max_items: int, max_values: int) -> Shape:
    """Find the list in `field` of the body's outermost object, and check that each item of it has at most
    `max_values` names and values, and so has the rest of the body.

    Raises InvalidInput.
    """
    return _shape(body, field.encode(), max_items, max_values)


def check_values(body: bytes, max_values: int) -> None:
    """Raise InvalidInput for a body with more than `max_values` names and values."""
    _shape(body, _NO_FIELD, 0, max_values)


def _shape(body: bytes, field: bytes, max_items: int, max_values: int) -> Shape:
    state = np.zeros(_STATE_CELLS, np.int64)
    # Each group but the last has so many bytes, or values of at least a byte.
    groups = np.empty((len(body) // min(_GROUP_BYTES, _GROUP_VALUES) + 2, 3), np.int64)
    text: Any = body + PADDING
    name: Any = field
    status = _scan(text, len(body), name, max_items, max_values, state, groups)
    items, start, stop, count = state[: _GROUPS + 1].tolist()
    if status != _WHOLE:
        raise _refusal(status, field.decode(), items if start and not stop else None, max_items, max_values)
    spans = [(first, after, within) for first, after, within in groups[:count].tolist()]
    return Shape(body[:start] + body[stop:], spans)


def _refusal(status: int, field: str, item: int | None, max_items: int, max_values: int) -> InvalidInput:
    """`item`: the one in which the scan ended, None outside of the list."""
    path: Path = () if item is None else (field, item)
    if status == _TOO_MANY_VALUES:
        detail = f"has more than {max_values} names and values, lists and objects included"
        return InvalidInput(path, detail, "too_many")
    if status == _TOO_MANY_ITEMS:
        detail = f"a request has at most {max_items} {field}: send several requests"
        return InvalidInput((field,), detail, "too_many")
    if status == _TWO_LISTS:
        detail = "this name occurs twice in one object: send it once"
        return InvalidInput((field,), detail, "duplicate_name")
    detail = "Invalid JSON: a quote or a bracket is not closed, or there is a comma or a bracket too many"
    return InvalidInput((), detail, "invalid_json")


@kernel
def _scan(
    text: Bytes, size: int, name: Bytes, max_items: int, max_values: int, state: Integers, groups: Integers
) -> int:
    """text: with PADDING.  size: without.  state int64[_STATE_CELLS], groups int64[g, 3]: the results."""
    i = 0
    while i < size:
        kind = _KINDS[at(text, i)]
        start, status = i, _WHOLE
        i += 1
        if kind == _OPENING:
            status = _open(state, i, _is_list_of(text, start, state, name))
        elif kind == _CLOSING:
            status = _end_value(state, groups, start, at(text, start) != COMMA, max_items)
        elif kind == _WORD:
            i = _word_stop(text, start, size)
            _count(state)
            if state[_DEPTH] == 1:
                state[_KEY_START], state[_KEY_STOP] = start, i
        if max(state[_VALUES], state[_OUTSIDE]) > max_values:
            status = _TOO_MANY_VALUES
        if status != _WHOLE:
            return status
    return _WHOLE if i == size and state[_DEPTH] == 0 else _MALFORMED


@inlined_kernel
def _word_stop(text: Bytes, i: int, size: int) -> int:
    """Return what follows the text, number or word that begins at `i`; more than `size` without its end."""
    if at(text, i) != QUOTE:
        while i < size and _KINDS[at(text, i)] == _WORD and at(text, i) != QUOTE:
            i += 1
        return i
    i += 1
    while i < size and at(text, i) != QUOTE:
        i += 2 if at(text, i) == _BACKSLASH else 1
    return i + 1


@inlined_kernel
def _is_list_of(text: Bytes, i: int, state: Integers, name: Bytes) -> bool:
    """Tell if the bracket at `i` opens the list in the field `name` of the outermost object."""
    start = state[_KEY_START]
    if state[_DEPTH] != 1 or at(text, i) != OPEN_LIST or state[_KEY_STOP] - start != len(name) + 2:
        return False
    k = 0
    while k < len(name) and at(text, start + 1 + k) == at(name, k):
        k += 1
    return k == len(name)


@inlined_kernel
def _in_list(state: Integers) -> bool:
    return state[_LIST_START] > 0 and state[_LIST_STOP] == 0


@inlined_kernel
def _count(state: Integers) -> None:
    state[_VALUES if _in_list(state) else _OUTSIDE] += 1


@inlined_kernel
def _open(state: Integers, after: int, is_list: bool) -> int:
    state[_DEPTH] += 1
    if not is_list:
        _count(state)
        return _WHOLE
    if state[_LIST_START] > 0:
        return _TWO_LISTS
    state[_LIST_START] = state[_GROUP_START] = after
    return _WHOLE


@kernel
def _end_value(state: Integers, groups: Integers, i: int, closes: bool, max_items: int) -> int:
    """Note the comma or the closing bracket at `i`, and with it perhaps an item and a group."""
    ends_item = _in_list(state) and state[_DEPTH] == 2
    state[_DEPTH] -= closes
    if not ends_item:
        return _WHOLE
    if closes:
        state[_LIST_STOP] = i
        if state[_ITEMS] == 0 and state[_VALUES] == 0:
            return _WHOLE
    if state[_VALUES] == 0:
        return _MALFORMED
    state[_ITEMS] += 1
    state[_GROUP_ITEMS] += 1
    state[_VALUES_OF_GROUP] += state[_VALUES]
    state[_VALUES] = 0
    if closes or i - state[_GROUP_START] >= _GROUP_BYTES or state[_VALUES_OF_GROUP] >= _GROUP_VALUES:
        group = state[_GROUPS]
        groups[group, 0], groups[group, 1], groups[group, 2] = state[_GROUP_START], i, state[_GROUP_ITEMS]
        state[_GROUPS] += 1
        state[_GROUP_START], state[_GROUP_ITEMS], state[_VALUES_OF_GROUP] = i + 1, 0, 0
    return _TOO_MANY_ITEMS if state[_ITEMS] > max_items else _WHOLE


def warm_up() -> None:
    """Compile the kernel, or load it from the cache."""
    shape_of(b"{}", "examples", 1, 10)

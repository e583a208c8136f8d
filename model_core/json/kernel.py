"""Reads the bodies of /predict and /update into columns, in one pass over the bytes.

    {"features": {...}, "label": 1, "weight": 2, ...}   or {"examples": [{...}, ...]}
    {"features": {...}, "id": "a"}                      or {"context": {...}, "instances": [{...}, ...]}

A body that is not entirely ordinary is left to the other reader, which reports what is wrong, if anything.
Positions and REFUSED are those of scan.py.
"""

import numpy as np
from numpy.typing import NDArray

from model_core.hashing.columns import FEATURES, FULL, Bytes, Floats, Integers
from model_core.json.columns import (
    CONTEXT,
    CONTEXT_STAMP,
    DONE,
    MOST_EXAMPLES,
    MOST_INSTANCES,
    NO_ROOM,
    NOT_ORDINARY,
    STAMP,
    Columns,
)
from model_core.json.features import read_features
from model_core.json.rows import (
    AN_EXAMPLE,
    KEY_CONTEXT,
    KEY_EXAMPLES,
    KEY_INSTANCES,
    read_key,
    read_row,
    read_rows,
)
from model_core.json.scan import (
    CLOSE_OBJECT,
    OPEN_OBJECT,
    REFUSED,
    after_blanks,
    at,
    next_item,
    value_after_colon,
)
from model_core.kernels.compiled import kernel

_LAST_STAMP = 1 << 30
_MANY = (KEY_EXAMPLES, KEY_CONTEXT | KEY_INSTANCES)  # first keys of a body with a list, by row


@kernel
def parse(
    what: int,
    size: int,
    text: Bytes,
    options: Integers,
    bounds: Floats,
    state: Integers,
    hashes: NDArray[np.uint32],
    values: Floats,
    row_ptr: Integers,
    labels: Floats,
    weights: Floats,
    times: Integers,
    ids: Integers,
    seen: Integers,
    kinds: Integers,
) -> tuple[int, bool]:
    """(DONE, NOT_ORDINARY or NO_ROOM, whether the body has a list of rows).

    what: AN_EXAMPLE for /update, AN_INSTANCE for /predict.  size: of the text without its padding.  The rest:
    Columns, whose fields arrive faster one by one.
    """
    columns = Columns(
        text, options, bounds, state, hashes, values, row_ptr, labels, weights, times, ids, seen, kinds
    )
    _begin(columns)
    i = after_blanks(text, 0)
    many = _first_key(text, i) & _MANY[what] != 0
    if not many:
        i = read_row(columns, i, what)
    elif what == AN_EXAMPLE:
        i = _read_examples(columns, i, what)
    else:
        i = _read_instances(columns, i, what)
    return _answer(columns, i, size), many


@kernel
def _begin(columns: Columns) -> None:
    state = columns.state
    if state[STAMP] >= _LAST_STAMP:
        columns.seen[:] = 0
        state[STAMP] = 0
    _begin_rows(columns)


@kernel
def _begin_rows(columns: Columns) -> None:
    """Begin without rows and without a context."""
    state = columns.state
    state[:STAMP] = 0
    state[STAMP] += 1
    state[CONTEXT_STAMP] = state[STAMP]
    columns.row_ptr[0] = 0


@kernel
def _answer(columns: Columns, i: int, size: int) -> int:
    if columns.state[FULL]:
        return NO_ROOM
    return DONE if i != REFUSED and after_blanks(columns.text, i) == size else NOT_ORDINARY


@kernel
def _first_key(text: Bytes, i: int) -> int:
    return read_key(text, after_blanks(text, i + 1))[0] if at(text, i) == OPEN_OBJECT else 0


@kernel
def _read_examples(columns: Columns, i: int, what: int) -> int:
    """Read an object whose only field is `examples`."""
    text = columns.text
    _, i = read_key(text, after_blanks(text, i + 1))
    i = read_rows(columns, value_after_colon(text, i), what, columns.options[MOST_EXAMPLES])
    if i != REFUSED:
        i = next_item(text, i, CLOSE_OBJECT)
    return i + 1 if i != REFUSED and at(text, i) == CLOSE_OBJECT else REFUSED


@kernel
def _read_instances(columns: Columns, i: int, what: int) -> int:
    """Read an object of `instances`, with a `context` or without."""
    text = columns.text
    found, start = 0, i
    i = after_blanks(text, i + 1)
    while at(text, i) != CLOSE_OBJECT:
        key, i = read_key(text, i)
        if key & (KEY_CONTEXT | KEY_INSTANCES) & ~found == 0:
            return REFUSED
        i = value_after_colon(text, i)
        if key == KEY_CONTEXT:
            i = _read_context(columns, i)
        else:
            start = i
        # Instances that came before their context are read again.
        if key == KEY_INSTANCES or (found and i != REFUSED):
            rows_end = read_rows(columns, start, what, columns.options[MOST_INSTANCES])
            i = rows_end if key == KEY_INSTANCES or rows_end == REFUSED else i
        found |= key
        if i != REFUSED:
            i = next_item(text, i, CLOSE_OBJECT)
        if i == REFUSED:
            return REFUSED
    return i + 1 if found & KEY_INSTANCES else REFUSED


@kernel
def _read_context(columns: Columns, i: int) -> int:
    _begin_rows(columns)
    i = read_features(columns, i, columns.state[FEATURES])
    columns.state[CONTEXT] = columns.state[FEATURES]
    return i

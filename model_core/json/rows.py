"""Reads an example or an instance into a row of the columns.

Positions and REFUSED are those of scan.py.
"""

import numpy as np

from model_core.examples.records import NO_TIME
from model_core.hashing.columns import FEATURES, HAS_WEIGHTS, ROWS, Bytes
from model_core.json.columns import CONTEXT, HAS_IDS, HAS_TIMES, MOST_WEIGHT, STAMP, Columns, add_context
from model_core.json.features import read_features
from model_core.json.fields import (
    EXAMPLE,
    EXAMPLES,
    INSTANCE,
    INSTANCES,
    MAX_ID_LENGTH,
    READ_APART,
)
from model_core.json.scan import (
    CLOSE_LIST,
    CLOSE_OBJECT,
    OPEN_LIST,
    OPEN_OBJECT,
    QUOTE,
    REFUSED,
    after_blanks,
    at,
    boolean_end,
    next_item,
    null_end,
    read_number,
    text_end,
    value_after_colon,
)
from model_core.json.times import read_time
from model_core.kernels.compiled import inlined_kernel, kernel

_READ = (EXAMPLE, INSTANCE, INSTANCES, EXAMPLES)  # in the order in which keys are compared
_KEYS = tuple(dict.fromkeys(key for fields in _READ for key in fields.names if key not in READ_APART))
_BITS = {key: 1 << position for position, key in enumerate(_KEYS)}
_KEY_CELLS = 16
_KEY_BYTES = np.frombuffer(b"".join(f'{key}"'.encode().ljust(_KEY_CELLS, b"\0") for key in _KEYS), np.uint8)
assert max(map(len, _KEYS)) + 1 < _KEY_CELLS

_FEATURES, _LABEL, _WEIGHT = _BITS["features"], _BITS["label"], _BITS["weight"]
_RATE, _EVENT_TIME = _BITS["sample_rate"], _BITS["event_time"]
KEY_CONTEXT, KEY_INSTANCES, KEY_EXAMPLES = _BITS["context"], _BITS["instances"], _BITS["examples"]

AN_EXAMPLE, AN_INSTANCE = 0, 1  # what a row is
_ROWS = (EXAMPLE, INSTANCE)  # by what a row is
_ALLOWED = tuple(sum(_BITS[key] for key in fields.names) for fields in _ROWS)
_NEEDED = tuple(sum(_BITS[key] for key in fields.required) for fields in _ROWS)


@kernel
def read_key(text: Bytes, i: int) -> tuple[int, int]:
    """Return (bit of the key whose opening quote is at `i`, its end), or (0, REFUSED) for any other."""
    if at(text, i) != QUOTE:
        return 0, REFUSED
    for position in range(len(_KEYS)):
        cell, end = _KEY_CELLS * position, i + 1
        while _KEY_BYTES[cell] and at(text, end) == _KEY_BYTES[cell]:
            cell += 1
            end += 1
        if _KEY_BYTES[cell] == 0:
            return 1 << position, end
    return 0, REFUSED


@kernel
def read_rows(columns: Columns, i: int, what: int, most: int) -> int:
    """Add a row for each item of the list at `i`."""
    text = columns.text
    if i == REFUSED or at(text, i) != OPEN_LIST:
        return REFUSED
    i = after_blanks(text, i + 1)
    while at(text, i) != CLOSE_LIST:
        if columns.state[ROWS] == most:
            return REFUSED
        i = read_row(columns, i, what)
        if i != REFUSED:
            i = next_item(text, i, CLOSE_LIST)
        if i == REFUSED:
            return REFUSED
    return i + 1


@kernel
def read_row(columns: Columns, i: int, what: int) -> int:
    """Add a row for the object at `i`; the context's features come before its own."""
    text = columns.text
    if at(text, i) != OPEN_OBJECT:
        return REFUSED
    first = _begin_row(columns)
    found, weight, rate = 0, 1.0, 1.0
    i = after_blanks(text, i + 1)
    while at(text, i) != CLOSE_OBJECT:
        key, i = read_key(text, i)
        if key & _ALLOWED[what] & ~found == 0:
            return REFUSED
        found |= key
        i = value_after_colon(text, i)
        if i == REFUSED:
            return REFUSED
        if key == _FEATURES:
            i = read_features(columns, i, first)
        elif key == _WEIGHT:
            i, weight = _read_factor(text, i)
        elif key == _RATE:
            i, rate = _read_factor(text, i)
        else:
            i = _read_field(columns, i, key)
        if i != REFUSED:
            i = next_item(text, i, CLOSE_OBJECT)
        if i == REFUSED:
            return REFUSED
    fine = found & _NEEDED[what] == _NEEDED[what] and _end_row(columns, weight, rate)
    return i + 1 if fine else REFUSED


@inlined_kernel
def _begin_row(columns: Columns) -> int:
    """Set the optional fields of a row to absent; return the index of its first feature."""
    state = columns.state
    row, first = state[ROWS], state[FEATURES]
    state[STAMP] += 1
    columns.labels[row] = 0.0
    columns.times[row] = NO_TIME
    columns.ids[row, 0] = columns.ids[row, 1] = 0
    add_context(columns)
    return first


@inlined_kernel
def _end_row(columns: Columns, weight: float, rate: float) -> bool:
    """Complete a row; False if its weight or sample rate is out of bounds."""
    state, most = columns.state, columns.bounds[MOST_WEIGHT]
    row = state[ROWS]
    if not (0.0 <= weight <= most and 0.0 < rate <= 1.0 and rate * most >= 1.0):
        return False
    columns.weights[row] = weight / rate
    if columns.weights[row] != 1.0:
        state[HAS_WEIGHTS] = 1
    state[ROWS] = row + 1
    columns.row_ptr[row + 1] = state[FEATURES] - state[CONTEXT]
    return True


@inlined_kernel
def _read_factor(text: Bytes, i: int) -> tuple[int, float]:
    """Read a number, or null as 1."""
    if at(text, i) == ord("n"):
        return null_end(text, i), 1.0
    return read_number(text, i)


@kernel
def _read_field(columns: Columns, i: int, key: int) -> int:
    """Read a label, an id or the time of an event into the row."""
    if key == _LABEL:
        return _read_label(columns, i)
    if at(columns.text, i) == ord("n"):
        return null_end(columns.text, i)
    if key != _EVENT_TIME:
        return _read_id(columns, i)
    i, time = read_time(columns.text, i)
    columns.times[columns.state[ROWS]] = time
    columns.state[HAS_TIMES] = 1
    return i


@inlined_kernel
def _read_label(columns: Columns, i: int) -> int:
    text = columns.text
    if at(text, i) == ord("t") or at(text, i) == ord("f"):
        columns.labels[columns.state[ROWS]] = at(text, i) == ord("t")
        return boolean_end(text, i)
    i, label = read_number(text, i)
    columns.labels[columns.state[ROWS]] = abs(label)  # of -0, which is a label 0
    return i if 0.0 <= label <= 1.0 else REFUSED


@inlined_kernel
def _read_id(columns: Columns, i: int) -> int:
    text, state = columns.text, columns.state
    if at(text, i) != QUOTE:
        return REFUSED
    stop = text_end(text, i + 1)
    if not 0 < stop - i - 1 <= MAX_ID_LENGTH:
        return REFUSED
    columns.ids[state[ROWS], 0] = i + 1
    columns.ids[state[ROWS], 1] = stop
    state[HAS_IDS] = 1
    return stop + 1

"""Reads an object of features into hashes and values, the same as FeatureEncoder makes of it.

Only for contracts in which no name has a rule of its own (model_core.hashing.columns.is_plain). Positions and
REFUSED are those of scan.py.
"""

import numpy as np

from model_core.hashing.columns import BUCKET, FEATURES, FULL, SCALED, add_feature, number_feature
from model_core.hashing.contract import LARGEST_NUMBER
from model_core.json.columns import (
    CONTEXT_STAMP,
    MISSING_INDICATOR,
    MOST_FEATURES,
    MOST_NAME_BYTES,
    MOST_VALUE,
    NUMBER_KIND,
    SCALE,
    SEED,
    STAMP,
    Columns,
)
from model_core.json.names import AS_NUMBER, AS_TEXT, is_known, is_new
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
    name_end,
    next_item,
    null_end,
    read_number,
    text_end,
    value_after_colon,
)
from model_core.kernels.compiled import inlined_kernel, kernel
from model_core.kernels.murmur import Partial, begun, extended, extended_by_equals, finished


@kernel
def read_features(columns: Columns, i: int, first: int) -> int:
    """Add the features of the object that begins at `i` to a row whose features begin at `first`."""
    text = columns.text
    if i == REFUSED or at(text, i) != OPEN_OBJECT:
        return REFUSED
    i = after_blanks(text, i + 1)
    names = 0
    while at(text, i) != CLOSE_OBJECT:
        names += 1
        i = _feature(columns, i)
        if i != REFUSED:
            i = next_item(text, i, CLOSE_OBJECT)
        if i == REFUSED:
            return REFUSED
    most = columns.options[MOST_FEATURES]
    too_many = names > most or columns.state[FEATURES] - first > most or columns.state[FULL]
    return REFUSED if too_many else i + 1


@inlined_kernel
def _feature(columns: Columns, i: int) -> int:
    text, options, state = columns.text, columns.options, columns.state
    if at(text, i) != QUOTE:
        return REFUSED
    stop = name_end(text, i + 1)
    if not 0 < stop - i - 1 <= options[MOST_NAME_BYTES]:
        return REFUSED
    name = extended(begun(options[SEED]), text, i + 1, stop)
    name_hash = finished(name)
    if not is_new(columns.seen, name_hash, state[STAMP], state[CONTEXT_STAMP]):
        return REFUSED
    i = value_after_colon(text, stop + 1)
    return REFUSED if i == REFUSED else _add_value(columns, name, name_hash, i)


@inlined_kernel
def _add_value(columns: Columns, name: Partial, name_hash: np.uint32, i: int) -> int:
    """Add the features of a name with the value at `i`; the most frequent kinds of values come first."""
    text = columns.text
    first = at(text, i)
    if first == QUOTE:
        stop = text_end(text, i + 1)
        if stop == REFUSED or not is_known(columns.kinds, name_hash, AS_TEXT):
            return REFUSED
        _add_category(columns, name, i + 1, stop)
        return stop + 1
    if first == ord("n"):
        if columns.options[MISSING_INDICATOR]:
            add_feature(columns, finished(extended_by_equals(name)), 1.0)
        return null_end(text, i)
    if first == OPEN_LIST:
        return _add_list(columns, name, i) if is_known(columns.kinds, name_hash, AS_TEXT) else REFUSED
    if first == ord("t") or first == ord("f"):
        stop = boolean_end(text, i)
        if stop == REFUSED or not is_known(columns.kinds, name_hash, AS_TEXT):
            return REFUSED
        _add_category(columns, name, i, stop)
        return stop
    return _add_number(columns, name, name_hash, i)


@inlined_kernel
def _add_category(columns: Columns, name: Partial, start: int, stop: int) -> None:
    """Add the category `name=text[start:stop]`."""
    category = extended(extended_by_equals(name), columns.text, start, stop)
    add_feature(columns, finished(category), 1.0)


@kernel
def _add_list(columns: Columns, name: Partial, i: int) -> int:
    text = columns.text
    i = after_blanks(text, i + 1)
    while at(text, i) != CLOSE_LIST:
        if at(text, i) != QUOTE:
            return REFUSED
        stop = text_end(text, i + 1)
        if stop == REFUSED:
            return REFUSED
        _add_category(columns, name, i + 1, stop)
        i = next_item(text, stop + 1, CLOSE_LIST)
        if i == REFUSED:
            return REFUSED
    return i + 1


@inlined_kernel
def _add_number(columns: Columns, name: Partial, name_hash: np.uint32, i: int) -> int:
    i, value = read_number(columns.text, i)
    kind = columns.options[NUMBER_KIND]
    most = LARGEST_NUMBER if kind == BUCKET else columns.bounds[MOST_VALUE]
    if i == REFUSED or not -most <= value <= most or not is_known(columns.kinds, name_hash, AS_NUMBER):
        return REFUSED
    feature_hash, value = number_feature(name, kind, columns.bounds[SCALE], value)
    if kind == SCALED and not -most <= value <= most:
        return REFUSED
    add_feature(columns, feature_hash, value)
    return i

"""libsvm (svmlight) text to columns, one pass over the bytes.

    label index:value index:value ... # comment

A feature's name is the text of its index, without leading zeros: what JSON writes as {"12": 0.5}.
"""

import numpy as np

from model_core.kernels.compiled import inlined_kernel, kernel
from model_core.text.columns import (
    FEATURES,
    ROWS,
    Columns,
    KernelOptions,
    add_number,
    at_line_end,
    check_characters,
    end_line,
    fail,
    read_label,
    read_number,
)
from model_core.text.problems import (
    BAD_INDEX,
    BAD_LABEL,
    BLANK_LINE,
    CONTROL_CHARACTER,
    LONG_NAME,
    NO_VALUE,
    OK,
    OUT_OF_BOUNDS,
    TOO_MANY_FEATURES,
)

_WORD, _BLANK, _COMMENT, _CONTROL = 0, 1, 2, 3
_CLASSES = np.zeros(256, np.uint8)
_CLASSES[:32] = _CONTROL
_CLASSES[127] = _CONTROL
_CLASSES[[ord(" "), ord("\t")]] = _BLANK
_CLASSES[ord("#")] = _COMMENT


@kernel
def parse_lines(
    columns: Columns, options: KernelOptions, i: int, stop: int, line: int, is_ascii: bool
) -> None:
    """Parse text[i:stop], whole lines that count from `line`; bad ones leave nothing but a problem."""
    while i < stop:
        first_feature = columns.state[FEATURES]
        code = OK if is_ascii else check_characters(columns.text, i, columns.state)
        if code == OK:
            code, i = _line(columns, options, i)
        i = end_line(columns, i, code, line, first_feature)
        line += 1


@kernel
def _line(columns: Columns, options: KernelOptions, i: int) -> tuple[int, int]:
    """(code, where it was found)."""
    text, state = columns.text, columns.state
    words, code = 0, OK
    columns.weights[state[ROWS]] = 1.0
    while code == OK:
        kind = _CLASSES[text[i]]
        if kind == _BLANK:
            i += 1
        elif kind == _COMMENT or at_line_end(text, i):
            return (OK if words else BLANK_LINE), i
        elif kind == _CONTROL:
            return fail(state, CONTROL_CHARACTER, i, i + 1), i
        else:
            start = i
            while _CLASSES[text[i]] == _WORD:
                i += 1
            code = _word(columns, options, start, i, words)
            words += 1
    return code, i


@inlined_kernel
def _word(columns: Columns, options: KernelOptions, start: int, stop: int, words_before: int) -> int:
    if words_before == 0:
        fine = read_label(columns, options, start, stop)
        return OK if fine else fail(columns.state, BAD_LABEL, start, stop)
    if words_before > options.feature_limit:
        return TOO_MANY_FEATURES
    return _feature(columns, options, start, stop)


@inlined_kernel
def _feature(columns: Columns, options: KernelOptions, start: int, stop: int) -> int:
    text, state = columns.text, columns.state
    colon = start
    while colon < stop and ord("0") <= text[colon] <= ord("9"):
        colon += 1
    if colon == start or (colon < stop and text[colon] != ord(":")):
        return fail(state, BAD_INDEX, start, stop)
    if colon == stop:
        return fail(state, NO_VALUE, start, stop)
    name = start
    while name < colon - 1 and text[name] == ord("0"):
        name += 1
    if colon - name > options.name_limit:
        return fail(state, LONG_NAME, start, stop)
    code, value = read_number(columns, colon + 1, stop)
    if code == OK and not add_number(columns, options, text, name, colon, value, 1.0):
        return fail(state, OUT_OF_BOUNDS, start, stop)
    return code

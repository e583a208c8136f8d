"""Vowpal Wabbit and libsvm (svmlight) text to columns, one pass over the bytes.

Vowpal Wabbit:

    label [weight] ['tag]|namespace[:factor] word word ... |namespace ...

    word    `C1=abc`      the category, hash of the word, value 1
            `C1=abc:2`    the same, value 2
            `age:0.3`     the number 0.3 of the feature `age`, through the contract's transform
            `rare`        hash of the word, value 1, whatever the transform

The factor of a namespace multiplies the value that a feature has in the end.  A `|` always begins a
namespace, the first `:` of a word its number.

libsvm:

    label [qid:number] index:value index:value ... # comment

The number of a query is ignored.  A feature's name is the text of its index, without leading zeros: what JSON
writes as {"12": 0.5}.
"""

import numpy as np

from model_core.hashing.columns import FEATURES, HAS_WEIGHTS, ROWS, Bytes
from model_core.kernels.compiled import inlined_kernel, kernel
from model_core.text.columns import (
    COLON,
    EQUALS,
    PREFIX,
    Columns,
    KernelOptions,
    add_name,
    add_number,
    add_plain_names,
    at_line_end,
    check_characters,
    end_line,
    fail,
    hash_names,
    mark_ends,
    read_label,
    read_number,
    word_end,
)
from model_core.text.problems import (
    BAD_INDEX,
    BAD_LABEL,
    BAD_WEIGHT,
    BLANK_LINE,
    CONTROL_CHARACTER,
    EQUALS_IN_NAMESPACE,
    EXTRA_WORD,
    LONG_NAME,
    NO_BAR,
    NO_LABEL,
    NO_NAME,
    NO_VALUE,
    OK,
    OUT_OF_BOUNDS,
    TOO_MANY_FEATURES,
)

# Classes of bytes.  A word of Vowpal Wabbit text ends where the class is above _COLON, one of libsvm text
# where it is not _WORD; `ends` has a bit wherever it is not _WORD.
_WORD, _COLON, _BLANK, _BAR, _COMMENT, _CONTROL = range(6)
_NAMES_AT_ONCE = 512  # whose places stay in the first-level cache until they are hashed
_QUERY = np.frombuffer(b"qid:", np.uint8)
_QUOTE, _CARET = ord("'"), ord("^")
_VW_ENDS = np.uint8(ord(":")), np.uint8(ord("|"))
_LIBSVM_ENDS = np.uint8(ord("#")), np.uint8(ord("#"))


def _classes(special: dict[str, int]) -> Bytes:
    classes = np.zeros(256, np.uint8)
    classes[:32] = classes[127] = _CONTROL
    for character, kind in ({" ": _BLANK, "\t": _BLANK} | special).items():
        classes[ord(character)] = kind
    return classes


_VW_CLASSES = _classes({"|": _BAR, ":": _COLON})
_LIBSVM_CLASSES = _classes({"#": _COMMENT})


@kernel
def parse_vw_lines(columns: Columns, options: KernelOptions, stop: int, line: int) -> int:
    """Parse text[:stop], whole lines that count from `line`; bad ones leave nothing but a problem.

    Returns the number of the line after the last.
    """
    i = hashed = 0
    is_ascii = mark_ends(columns, stop + 1, _VW_ENDS[0], _VW_ENDS[1])
    while i < stop:
        first_feature = columns.state[FEATURES]
        code = OK if is_ascii else check_characters(columns.text, i, columns.state)
        if code == OK:
            code, i = _vw_line(columns, options, i)
        i = end_line(columns, i, code, line, first_feature)
        line += 1
        if columns.state[FEATURES] >= hashed + _NAMES_AT_ONCE:
            hashed = hash_names(columns, options, hashed)
    hash_names(columns, options, hashed)
    return line


@kernel
def parse_libsvm_lines(columns: Columns, options: KernelOptions, stop: int, line: int) -> int:
    """Parse text[:stop] likewise; a kernel of its own, so that each format compiles without the other."""
    i = hashed = 0
    is_ascii = mark_ends(columns, stop + 1, _LIBSVM_ENDS[0], _LIBSVM_ENDS[1])
    while i < stop:
        first_feature = columns.state[FEATURES]
        code = OK if is_ascii else check_characters(columns.text, i, columns.state)
        if code == OK:
            code, i = _libsvm_line(columns, options, i)
        i = end_line(columns, i, code, line, first_feature)
        line += 1
        if columns.state[FEATURES] >= hashed + _NAMES_AT_ONCE:
            hashed = hash_names(columns, options, hashed)
    hash_names(columns, options, hashed)
    return line


@inlined_kernel
def _vw_line(columns: Columns, options: KernelOptions, i: int) -> tuple[int, int]:
    """Return (code, where it was found); all readers here take and return positions `i` in the text."""
    text, state = columns.text, columns.state
    code, i = _header(columns, options, i)
    first, factor = state[FEATURES], 1.0
    while code == OK:
        kind = _VW_CLASSES[text[i]]
        if kind <= _COLON:
            i, end = add_plain_names(columns, options, i, factor)
            if i < end or text[end] == COLON:
                code, i = _feature(columns, options, i, end, factor)
        elif kind == _BLANK:
            i += 1
        elif kind == _BAR:
            code, i, factor = _namespace(columns, options, i + 1)
        else:
            code = OK if at_line_end(text, i) else fail(state, CONTROL_CHARACTER, i, i + 1)
            break
    if code == OK and state[FEATURES] - first > options.feature_limit:
        return TOO_MANY_FEATURES, i
    return code, i


@inlined_kernel
def _header(columns: Columns, options: KernelOptions, i: int) -> tuple[int, int]:
    """Store label and weight of the next row; ends at the first bar."""
    text, state = columns.text, columns.state
    starts, stops, words, last = (i, i, i), (i, i, i), 0, i
    while _VW_CLASSES[text[i]] != _BAR:
        if at_line_end(text, i):
            return (NO_BAR if words else BLANK_LINE), i
        if _VW_CLASSES[text[i]] == _CONTROL:
            return fail(state, CONTROL_CHARACTER, i, i + 1), i
        if _VW_CLASSES[text[i]] == _BLANK:
            i += 1
            continue
        last, i = i, _word_end(columns, i)
        if words < 3:
            starts, stops = (starts[1], starts[2], last), (stops[1], stops[2], i)
        words += 1
    first = 3 - min(words, 3)
    if words and (text[last] == _QUOTE or _VW_CLASSES[text[i - 1]] != _BLANK):
        words -= 1
    if words == 0:
        return NO_LABEL, i
    if words > 2:
        return fail(state, EXTRA_WORD, starts[2], stops[2]), i
    if not read_label(columns, options, starts[first], stops[first]):
        return fail(state, BAD_LABEL, starts[first], stops[first]), i
    columns.weights[state[ROWS]] = 1.0
    return (_weight(columns, options, starts[first + 1], stops[first + 1]) if words == 2 else OK), i


@kernel
def _weight(columns: Columns, options: KernelOptions, start: int, stop: int) -> int:
    code, weight = read_number(columns, start, stop)
    if code != OK or not 0.0 <= weight <= options.weight_limit:
        return fail(columns.state, BAD_WEIGHT, start, stop)
    columns.weights[columns.state[ROWS]] = weight
    if weight != 1.0:
        columns.state[HAS_WEIGHTS] = 1
    return OK


@inlined_kernel
def _namespace(columns: Columns, options: KernelOptions, i: int) -> tuple[int, int, float]:
    """Return (code, i, factor) of the text after a bar; the prefix of its names goes to scratch."""
    text, state = columns.text, columns.state
    start, code, factor = i, OK, 1.0
    i = word_end(columns.ends, i)
    state[PREFIX] = 0
    if options.prefix_names and i > start:
        code = _prefix(columns, options, start, i)
    if code == OK and _VW_CLASSES[text[i]] == _COLON:
        start = i + 1
        i = _word_end(columns, start)
        code, factor = read_number(columns, start, i)
        if code == OK and not -options.value_limit <= factor <= options.value_limit:
            code = fail(state, OUT_OF_BOUNDS, start, i)
    return code, i, factor


@kernel
def _prefix(columns: Columns, options: KernelOptions, start: int, stop: int) -> int:
    """Set the prefix of the names that follow: the namespace and `^`."""
    state = columns.state
    if stop - start + 1 > options.name_limit:
        return fail(state, LONG_NAME, start, stop)
    for j in range(start, stop):
        if columns.text[j] == EQUALS:
            return fail(state, EQUALS_IN_NAMESPACE, start, stop)
        columns.scratch[j - start] = columns.text[j]
    columns.scratch[stop - start] = _CARET
    state[PREFIX] = stop - start + 1
    return OK


@inlined_kernel
def _word_end(columns: Columns, i: int) -> int:
    """Return where a word with its colons ends."""
    i = word_end(columns.ends, i)
    while columns.text[i] == COLON:
        i = word_end(columns.ends, i + 1)
    return i


@inlined_kernel
def _feature(columns: Columns, options: KernelOptions, start: int, i: int, factor: float) -> tuple[int, int]:
    """Add the feature of the word text[start:i], and of what follows a colon there."""
    text = columns.text
    if i - start + columns.state[PREFIX] > options.name_limit or text[start] == EQUALS or i == start:
        code = _check_name(columns, options, start, i)
        if code != OK:
            return code, i
    if _VW_CLASSES[text[i]] == _COLON:
        return _valued_feature(columns, options, start, i, factor)
    add_name(columns, options, start, i, factor)
    return OK, i


@kernel
def _check_name(columns: Columns, options: KernelOptions, start: int, stop: int) -> int:
    """Check the name of a word, which ends at its first `=`."""
    end = start
    while end < stop and columns.text[end] != EQUALS:
        end += 1
    if end == start:
        return fail(columns.state, NO_NAME, start, stop)
    if end - start + columns.state[PREFIX] > options.name_limit:
        return fail(columns.state, LONG_NAME, start, stop)
    return OK


@inlined_kernel
def _valued_feature(
    columns: Columns, options: KernelOptions, start: int, colon: int, factor: float
) -> tuple[int, int]:
    i = _word_end(columns, colon + 1)
    code, value = read_number(columns, colon + 1, i)
    if code != OK:
        return code, i
    is_category = False
    for j in range(start, colon):
        is_category |= columns.text[j] == EQUALS
    if not is_category:
        code = add_number(columns, options, start, colon, value, factor)
    else:
        fine = abs(value) <= options.value_limit and abs(value * factor) <= options.value_limit
        code = OK if fine else OUT_OF_BOUNDS
        add_name(columns, options, start, colon, value * factor)
    return (OK if code == OK else fail(columns.state, code, start, i)), i


@inlined_kernel
def _libsvm_line(columns: Columns, options: KernelOptions, i: int) -> tuple[int, int]:
    """Return (code, where it was found)."""
    text, state = columns.text, columns.state
    words, code = 0, OK
    columns.weights[state[ROWS]] = 1.0
    while code == OK:
        kind = _LIBSVM_CLASSES[text[i]]
        if kind == _BLANK:
            i += 1
        elif kind == _COMMENT or at_line_end(text, i):
            return (OK if words else BLANK_LINE), i
        elif kind == _CONTROL:
            return fail(state, CONTROL_CHARACTER, i, i + 1), i
        else:
            start = i
            i = word_end(columns.ends, i)
            if words != 1 or not _is_query(text, start, i):
                code = _libsvm_word(columns, options, start, i, words)
                words += 1
    return code, i


@kernel
def _is_query(text: Bytes, start: int, stop: int) -> bool:
    """Test for `qid:` and digits."""
    matching = 0
    for j in range(start, stop):
        if j < start + _QUERY.size:
            matching += text[j] == _QUERY[j - start]
        else:
            matching += ord("0") <= text[j] <= ord("9")
    return matching == stop - start > _QUERY.size


@inlined_kernel
def _libsvm_word(columns: Columns, options: KernelOptions, start: int, stop: int, words_before: int) -> int:
    if words_before == 0:
        fine = read_label(columns, options, start, stop)
        return OK if fine else fail(columns.state, BAD_LABEL, start, stop)
    if words_before > options.feature_limit:
        return TOO_MANY_FEATURES
    return _libsvm_feature(columns, options, start, stop)


@inlined_kernel
def _libsvm_feature(columns: Columns, options: KernelOptions, start: int, stop: int) -> int:
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
    if code == OK:
        code = add_number(columns, options, name, colon, value, 1.0)
        return OK if code == OK else fail(state, code, start, stop)
    return code

"""Columns, labels, numbers and the ends of lines: the part that the kernels of both text formats share.

Kernels return the codes of `problems` and record the bytes at fault in `state`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_core.hashing.columns import (
    BUCKET,
    FEATURES,
    HAS_VALUES,
    ROWS,
    SHARED_CELLS,
    Bytes,
    Floats,
    Integers,
    add_feature,
    number_feature,
    number_value,
)
from model_core.hashing.contract import LARGEST_NUMBER
from model_core.kernels.compiled import (
    BYTES_A_MASK,
    inlined_kernel,
    kernel,
    mask_beyond_ascii,
    mask_of_ends,
    trailing_zeros,
)
from model_core.kernels.murmur import NOT_TO_HASH, Partial, begun, extended, finished, hash_parts
from model_core.kernels.number_text import EXACT, HARD, scan_number
from model_core.text.problems import (
    BLANK_LINE,
    CONTROL_CHARACTER,
    NOT_A_NUMBER,
    NOT_FINITE,
    NOT_UTF8,
    OK,
    OUT_OF_BOUNDS,
)

# Cells of `state` after those that all columns have: how much of the columns is filled, where the last fault
# is, the next known number, and how many bytes at the start of scratch precede each name.
PROBLEMS, HARD_NUMBERS, FAULT_START, FAULT_STOP, CURSOR, PREFIX = range(SHARED_CELLS, SHARED_CELLS + 6)
STATE_CELLS = SHARED_CELLS + 6

EQUALS, COLON = ord("="), ord(":")
_NEWLINE, _RETURN, _SPACE = ord("\n"), ord("\r"), ord(" ")


class KernelOptions(NamedTuple):
    """The contract and the options, as plain numbers."""

    seed: int
    number_kind: int
    number_scale: float
    prefix_names: bool
    minus_plus: bool
    value_limit: float
    weight_limit: float
    name_limit: int
    feature_limit: int


class Columns(NamedTuple):
    """The text, and room for the worst case of what it may hold; only pages that are touched cost memory.

    text uint8: whole lines, then padding.  ends uint64: a bit for each byte, set where it ends a word.
    state int64: the cells above.  scratch uint8: to build names in.
    starts, lengths int32[k]: the names in the text that are yet to be hashed.
    hashes uint32[k], values float64[k] (meant once HAS_VALUES), row_ends int64[r], labels float64[r], weights
    float64[r], problems int64[lines, 4] (line, code, start and stop of the fault).
    hard_numbers int64[h, 2]: start and stop of numbers that only float() can read, and that it has not read
    yet; those that it has are known_values float64, at the ascending positions known_starts int64.
    """

    text: Bytes
    ends: NDArray[np.uint64]
    state: Integers
    scratch: Bytes
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]
    hashes: NDArray[np.uint32]
    values: Floats
    row_ends: Integers
    labels: Floats
    weights: Floats
    problems: Integers
    hard_numbers: Integers
    known_starts: Integers
    known_values: Floats


@kernel
def fail(state: Integers, code: int, start: int, stop: int) -> int:
    """Record where the fault is, and return the code."""
    state[FAULT_START] = start
    state[FAULT_STOP] = stop
    return code


_MASK_BITS, _IN_MASK, _ONE, _ALL = np.uint64(6), np.uint64(63), np.uint64(1), np.uint64(2**64 - 1)


@kernel
def mark_ends(columns: Columns, size: int, first: np.uint8, second: np.uint8) -> bool:
    """Fill `ends` for text[:size] and until its last mask is full; `first` and `second` end words, too.

    A mask is made without a branch, as those of simdjson are.  (Langdale and Lemire 2019, section 3.1)
    Returns whether all of the text is ASCII.
    """
    beyond = np.uint64(0)
    for start in range(0, size, BYTES_A_MASK):
        columns.ends[start // BYTES_A_MASK] = mask_of_ends(columns.text, start, first, second)
        beyond |= mask_beyond_ascii(columns.text, start)
    return not beyond


@inlined_kernel
def word_end(ends: NDArray[np.uint64], i: int) -> int:
    """Return where the word at i ends; the padding of the text ends the last one."""
    at = np.uint64(i) >> _MASK_BITS
    bits = ends[at] >> (np.uint64(i) & _IN_MASK)
    if not bits:
        i += BYTES_A_MASK - i % BYTES_A_MASK
        at += _ONE
        while not ends[at]:
            i += BYTES_A_MASK
            at += _ONE
        bits = ends[at]
    return i + trailing_zeros(bits)


@inlined_kernel
def at_line_end(text: Bytes, i: int) -> bool:
    """Test for a newline, or the carriage return of a CRLF."""
    return bool(text[i] == _NEWLINE or (text[i] == _RETURN and text[i + 1] == _NEWLINE))


@kernel
def check_characters(text: Bytes, i: int, state: Integers) -> int:
    """Check that a line is UTF-8 without C1 control characters; for lines that are not ASCII.  (RFC 3629)"""
    while text[i] != _NEWLINE:
        lead = text[i]
        if lead < 0x80:
            i += 1
            continue
        more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        if lead < 0xC2 or lead > 0xF4:
            return NOT_UTF8
        point = lead & (0x3F >> more)
        for j in range(1, more + 1):
            if text[i + j] & 0xC0 != 0x80:
                return NOT_UTF8
            point = (point << 6) | (text[i + j] & 0x3F)
        if point < (0x80, 0x800, 0x10000)[more - 1] or 0xD800 <= point <= 0xDFFF or point > 0x10FFFF:
            return NOT_UTF8
        if point < 0xA0:
            return fail(state, CONTROL_CHARACTER, i, i + 2)
        i += more + 1
    return OK


@inlined_kernel
def read_number(columns: Columns, start: int, stop: int) -> tuple[int, float]:
    """Return (code, number); a hard number that is not known yet is recorded, and reads as 0."""
    status, value = scan_number(columns.text, start, stop)
    if status == EXACT:
        return OK, value
    return _known_number(columns, status, start, stop)


@kernel
def _known_number(columns: Columns, status: int, start: int, stop: int) -> tuple[int, float]:
    state, known = columns.state, columns.known_starts
    if status != HARD:
        return fail(state, NOT_A_NUMBER, start, stop), 0.0
    while state[CURSOR] < known.size and known[state[CURSOR]] < start:
        state[CURSOR] += 1
    if state[CURSOR] < known.size and known[state[CURSOR]] == start:
        return OK, columns.known_values[state[CURSOR]]
    columns.hard_numbers[state[HARD_NUMBERS], 0] = start
    columns.hard_numbers[state[HARD_NUMBERS], 1] = stop
    state[HARD_NUMBERS] += 1
    return OK, 0.0


@inlined_kernel
def read_label(columns: Columns, options: KernelOptions, start: int, stop: int) -> bool:
    """Store the label of the next row; False unless it is -1 or 1, or a number from 0 to 1."""
    code, label = read_number(columns, start, stop)
    if options.minus_plus and abs(label) == 1.0:
        label = max(label, 0.0)
    elif options.minus_plus or not 0.0 <= label <= 1.0:
        return False
    columns.labels[columns.state[ROWS]] = abs(label)  # of -0, which is a label 0
    return code == OK


@inlined_kernel
def end_line(columns: Columns, i: int, code: int, line: int, first_feature: int) -> int:
    """Complete the row, or remove its features and record the problem; return the start of the next line."""
    text, state = columns.text, columns.state
    if code == OK:
        columns.row_ends[state[ROWS]] = state[FEATURES]
        state[ROWS] += 1
    else:
        state[FEATURES] = first_feature
        if code != BLANK_LINE:
            problem = columns.problems[state[PROBLEMS]]
            problem[0], problem[1] = line, code
            problem[2], problem[3] = state[FAULT_START], state[FAULT_STOP]
            state[PROBLEMS] += 1
    while text[i] != _NEWLINE:
        i += 1
    return i + 1


@inlined_kernel
def add_name(columns: Columns, options: KernelOptions, start: int, stop: int, value: float) -> None:
    """Add a feature whose hash is that of the name text[start:stop], with its prefix."""
    if columns.state[PREFIX]:
        add_hashed(columns, finished(_begun_name(columns, options, start, stop)), value)
    else:
        columns.starts[columns.state[FEATURES]] = start
        columns.lengths[columns.state[FEATURES]] = stop - start
        add_feature(columns, np.uint32(0), value)


@inlined_kernel
def add_plain_names(columns: Columns, options: KernelOptions, i: int, factor: float) -> tuple[int, int]:
    """Add the words from i on that are names alone, up to a word that is more or the end of the namespace.

    Returns where that word starts and ends; the same place twice if there is none.
    """
    text, ends, state = columns.text, columns.ends, columns.state
    at, k = np.uint64(i) >> _MASK_BITS, np.uint64(state[FEATURES])
    bits = ends[at] & (_ALL << (np.uint64(i) & _IN_MASK))
    has_values = state[HAS_VALUES] != 0
    is_plain = state[PREFIX] == 0 and (has_values or factor == 1.0)
    while True:
        while not bits:
            at += _ONE
            bits = ends[at]
        end = int(at << _MASK_BITS) + trailing_zeros(bits)
        length = end - i
        if not (is_plain and 0 < length <= options.name_limit) or text[np.uint64(i)] == EQUALS:
            break
        after = text[np.uint64(end)]
        if after == COLON:
            break
        columns.starts[k] = i
        columns.lengths[k] = length
        if has_values:
            columns.values[k] = factor
        k += _ONE
        bits &= bits - _ONE
        i = end + 1
        if after != _SPACE:
            i = end
            break
    state[FEATURES] = k
    return i, end


@inlined_kernel
def add_hashed(columns: Columns, feature_hash: np.uint32, value: float) -> None:
    """Add a feature whose hash is known."""
    columns.lengths[columns.state[FEATURES]] = NOT_TO_HASH
    add_feature(columns, feature_hash, value)


@kernel
def hash_names(columns: Columns, options: KernelOptions, first: int) -> int:
    """Hash the names of the features from `first` on; returns how many features there are."""
    stop = int(columns.state[FEATURES])
    hash_parts(columns.text, columns.starts, columns.lengths, columns.hashes, first, stop, options.seed)
    return stop


@kernel
def _begun_name(columns: Columns, options: KernelOptions, start: int, stop: int) -> Partial:
    """Begin a hash with the name text[start:stop] and the prefix before it."""
    prefix = columns.state[PREFIX]
    if prefix == 0:
        return extended(begun(options.seed), columns.text, start, stop)
    for j in range(start, stop):
        columns.scratch[prefix + j - start] = columns.text[j]
    return extended(begun(options.seed), columns.scratch, 0, prefix + stop - start)


@inlined_kernel
def add_number(
    columns: Columns, options: KernelOptions, start: int, stop: int, value: float, factor: float
) -> int:
    """Add the feature of a number by its transform, times `factor`; return OK or why it is out of bounds.

    Its name is text[start:stop], with its prefix.
    """
    limit, kind, scale = options.value_limit, options.number_kind, options.number_scale
    if kind == BUCKET:
        if not -LARGEST_NUMBER <= value <= LARGEST_NUMBER:
            return NOT_FINITE
        name = _begun_name(columns, options, start, stop)
        feature_hash, value = number_feature(name, kind, scale, value)
        value *= factor
        add_hashed(columns, feature_hash, value)
    else:
        if not -limit <= value <= limit:
            return OUT_OF_BOUNDS
        value = number_value(kind, scale, value)
        if not -limit <= value <= limit:
            return OUT_OF_BOUNDS
        value *= factor
        add_name(columns, options, start, stop, value)
    return OK if -limit <= value <= limit else OUT_OF_BOUNDS

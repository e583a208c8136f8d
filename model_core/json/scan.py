"""The tokens of JSON as it is ordinarily written (RFC 8259).

Every function takes and returns positions in a text that ends with a zero byte and some padding. A position
of REFUSED means that the text is not ordinary: not JSON, or JSON that is left to the other reader, such as
strings with escapes. The text as a whole is known to be UTF-8.
"""

import numpy as np
from numpy import uint64

from model_core.hashing.columns import Bytes
from model_core.kernels.compiled import inlined_kernel, kernel
from model_core.kernels.murmur import block
from model_core.kernels.number_text import EXACT, scan_number

REFUSED = -1
PADDING = b"\0" * 8

QUOTE, COLON, COMMA, MINUS = ord('"'), ord(":"), ord(","), ord("-")
OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST = ord("{"), ord("}"), ord("["), ord("]")
_ZERO, _NINE, _POINT = ord("0"), ord("9"), ord(".")
_TRUE, _NULL, _ALSE = (int.from_bytes(word, "little") for word in (b"true", b"null", b"alse"))
_MOST_WHOLE_DIGITS = 15  # an integer so long is exact as a float

_IS_BLANK = np.zeros(256, np.bool_)
_IS_BLANK[[ord(" "), ord("\t"), ord("\n"), ord("\r")]] = True
_ENDS_TEXT = np.zeros(256, np.bool_)
_ENDS_TEXT[:32] = True
_ENDS_TEXT[[QUOTE, ord("\\")]] = True
_ENDS_NAME = _ENDS_TEXT.copy()
_C1_LEAD, _FIRST_AFTER_C1 = 0xC2, 0xA0  # U+0080 to U+009F are C2 80 to C2 9F
_ENDS_NAME[[ord("="), 0x7F, _C1_LEAD]] = True


@inlined_kernel
def at(text: Bytes, i: int) -> int:
    """The byte at a position; an unsigned index spares numba's check for negative ones."""
    return text[uint64(i)]


@inlined_kernel
def after_blanks(text: Bytes, i: int) -> int:
    """Return the next position that is not white space."""
    while _IS_BLANK[at(text, i)]:
        i += 1
    return i


@inlined_kernel
def text_end(text: Bytes, i: int) -> int:
    """Return the closing quote of a string whose first character is at `i`."""
    while not _ENDS_TEXT[at(text, i)]:
        i += 1
    return i if at(text, i) == QUOTE else REFUSED


@inlined_kernel
def name_end(text: Bytes, i: int) -> int:
    """Return the same for a string of characters that a feature's name may have."""
    while True:
        while not _ENDS_NAME[at(text, i)]:
            i += 1
        if at(text, i) == QUOTE:
            return i
        if at(text, i) != _C1_LEAD or at(text, i + 1) < _FIRST_AFTER_C1:
            return REFUSED
        i += 2


@inlined_kernel
def value_after_colon(text: Bytes, i: int) -> int:
    """Return the start of the value whose name ends before `i`."""
    i = after_blanks(text, i)
    return after_blanks(text, i + 1) if at(text, i) == COLON else REFUSED


@inlined_kernel
def next_item(text: Bytes, i: int, close: int) -> int:
    """Return what follows an item that ends before `i`: the next item, or the closing bracket."""
    i = after_blanks(text, i)
    if at(text, i) == COMMA:
        i = after_blanks(text, i + 1)
        return REFUSED if at(text, i) == close else i
    return i if at(text, i) == close else REFUSED


@inlined_kernel
def boolean_end(text: Bytes, i: int) -> int:
    """Return the end of `true` or `false`, which begins at `i`."""
    if block(text, uint64(i)) == _TRUE:
        return i + 4
    return i + 5 if at(text, i) == ord("f") and block(text, uint64(i + 1)) == _ALSE else REFUSED


@inlined_kernel
def null_end(text: Bytes, i: int) -> int:
    return i + 4 if block(text, uint64(i)) == _NULL else REFUSED


@inlined_kernel
def read_number(text: Bytes, i: int) -> tuple[int, float]:
    """Return (its end, the number); -0 is 0 as for Python's int, -0.0 is not."""
    negative = at(text, i) == MINUS
    first = i + negative
    i, whole = first, 0
    while _ZERO <= at(text, i) <= _NINE:
        whole = whole * 10 + at(text, i) - _ZERO
        i += 1
    digits = i - first
    if digits == 0 or digits > _MOST_WHOLE_DIGITS or (digits > 1 and at(text, first) == _ZERO):
        return REFUSED, 0.0
    if at(text, i) == _POINT or is_exponent(at(text, i)):
        return _read_fraction(text, first - negative, i)
    return i, float(-whole if negative else whole)


@inlined_kernel
def is_exponent(byte: int) -> bool:
    return byte == ord("e") or byte == ord("E")


@kernel
def _read_fraction(text: Bytes, start: int, i: int) -> tuple[int, float]:
    """Read the rest of the number that begins at `start`, from its point or exponent at `i`."""
    if at(text, i) == _POINT:
        point = i
        i = _digits_end(text, i + 1)
        if i == point + 1:
            return REFUSED, 0.0
    if is_exponent(at(text, i)):
        i += 1
        if at(text, i) == MINUS or at(text, i) == ord("+"):
            i += 1
        first, i = i, _digits_end(text, i)
        if i == first:
            return REFUSED, 0.0
    status, value = scan_number(text, start, i)
    return (i if status == EXACT else REFUSED), value


@inlined_kernel
def _digits_end(text: Bytes, i: int) -> int:
    while _ZERO <= at(text, i) <= _NINE:
        i += 1
    return i

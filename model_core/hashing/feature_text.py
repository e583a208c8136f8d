"""Numbers and values as the texts of categories."""

import re
from typing import NamedTuple

from model_core.errors import InvalidInput, Path
from model_core.kernels.numerics import log1p

_INTEGER_BITS = 256
_TO_ESCAPE = re.compile("([\\\\\x1f])")
# Index 0 is zero's, i and -i those of numbers with floor(log2(1 + |v|)) = i - 1.
BUCKET_TEXTS = ("0", *(f"+{i}" for i in range(1025)), *(f"-{i}" for i in range(1024, -1, -1)))


class Scaled(NamedTuple):
    """A feature value that only text formats write: what `feature` encodes to, times `factor`.

    feature: a text, a number, or None for a bare word, which is the feature `name` itself.
    """

    feature: str | int | float | None
    factor: float


def escaped(text: str) -> str:
    """With a backslash before each separator and each backslash, so that joined texts stay distinct."""
    return _TO_ESCAPE.sub(r"\\\1", text)


def bucket_text(value: float) -> str:
    """Sign and floor(log2(1 + |v|)), "0" for zero; exact, since every bound 2**k - 1 is an integer."""
    if value == 0:
        return BUCKET_TEXTS[0]
    index = (int(abs(value)) + 1).bit_length()
    return BUCKET_TEXTS[index if value > 0 else -index]


def signed_log1p(value: float) -> float:
    """sign(v) * log1p(|v|)."""
    return float(log1p(float(value)) if value >= 0 else -log1p(-float(value)))


def decimal_text(value: float, path: Path) -> str:
    """The shortest decimal text of a number, `1` and `1.0` alike; integers keep every digit."""
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise InvalidInput(path, "a number must be finite", "out_of_range")
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if value.bit_length() > _INTEGER_BITS:
        raise InvalidInput(
            path, f"an integer of more than {_INTEGER_BITS} bits: send it as a string", "out_of_range"
        )
    return str(value)

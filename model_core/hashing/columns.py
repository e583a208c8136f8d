"""Features as columns: what the compiled readers of text and of JSON share.

Both readers do the work of FeatureEncoder, with the same result bit for bit, for contracts that are plain:
where names alone decide nothing, a feature is hashed as it stands in the text.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from model_core.hashing.contract import HashContract, scale_of
from model_core.hashing.feature_text import BUCKET_TEXTS
from model_core.kernels.compiled import inlined_kernel
from model_core.kernels.murmur import Partial, extended, extended_by_equals, finished
from model_core.kernels.numerics import log1p

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# Kinds of numbers: the transforms of a contract.
RAW, LOG, SCALED, BUCKET = 0, 1, 2, 3
_KINDS = {"raw": RAW, "log": LOG, "bucket": BUCKET}

# The first cells of every `state`: how much of the columns is filled, which columns apply, and whether the
# room for features ran out.
FEATURES, ROWS, HAS_VALUES, HAS_WEIGHTS, FULL = range(5)
SHARED_CELLS = 5

_BUCKET_COUNT = len(BUCKET_TEXTS)
_BUCKET_CELLS = 12  # the text of a bucket, room to read ahead, and its length
_BUCKETS = np.frombuffer(
    b"".join(text.encode().ljust(_BUCKET_CELLS - 1, b"\0") + bytes([len(text)]) for text in BUCKET_TEXTS),
    np.uint8,
)


class FeatureColumns(Protocol):
    """state int64[]: the cells above.  hashes uint32[k], values float64[k] (valid once HAS_VALUES)."""

    @property
    def state(self) -> Integers: ...
    @property
    def hashes(self) -> NDArray[np.uint32]: ...
    @property
    def values(self) -> Floats: ...


def is_plain(contract: HashContract) -> bool:
    """Test whether the kernels can hash names and texts as they stand.

    `missing` is not among the conditions: text has no nulls, and the JSON reader knows both of its settings.
    """
    return not (contract.types or contract.transforms or contract.crosses or contract.strict)


def number_kind(contract: HashContract) -> int:
    """The kind of the numbers of a plain contract: RAW, LOG, SCALED or BUCKET."""
    return SCALED if scale_of(contract.numeric) is not None else _KINDS[str(contract.numeric)]


@inlined_kernel
def add_feature(columns: FeatureColumns, feature_hash: np.uint32, value: float) -> None:
    """Add a feature, or set FULL; the column of values begins with the first value that is not 1."""
    state, values = columns.state, columns.values
    k = state[FEATURES]
    if k == columns.hashes.size:
        state[FULL] = 1
        return
    columns.hashes[k] = feature_hash
    if state[HAS_VALUES]:
        values[k] = value
    elif value != 1.0:
        values[:k] = 1.0
        values[k] = value
        state[HAS_VALUES] = 1
    state[FEATURES] = k + 1


@inlined_kernel
def number_feature(name: Partial, kind: int, scale: float, value: float) -> tuple[np.uint32, float]:
    """(hash, value) of a number of the feature `name`, by its transform; a scaled value may be too large."""
    if kind == BUCKET:
        start, stop = _bucket(value)
        return finished(extended(extended_by_equals(name), _BUCKETS, start, stop)), 1.0
    return finished(name), number_value(kind, scale, value)


@inlined_kernel
def number_value(kind: int, scale: float, value: float) -> float:
    """The value of a number by its transform, which is no BUCKET."""
    if kind == LOG:
        return log1p(value) if value >= 0.0 else -log1p(-value)
    return value * scale if kind == SCALED else value


@inlined_kernel
def _bucket(value: float) -> tuple[int, int]:
    """The bounds of feature_text.bucket_text(value) in _BUCKETS."""
    # Beyond 2**53 the sum loses its 1, which moves no number across a power of two.
    index = 0 if value == 0.0 else math.frexp(np.floor(abs(value)) + 1.0)[1]
    start = _BUCKET_CELLS * (index if value >= 0.0 else _BUCKET_COUNT - index)
    return start, start + _BUCKETS[start + _BUCKET_CELLS - 1]

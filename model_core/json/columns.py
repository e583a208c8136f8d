"""The arguments that all kernels of the package share, and how a feature is added to them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_core.kernels.compiled import inlined_kernel
from model_core.text.columns import Bytes, Floats, Integers

# Answers of a kernel.
DONE, NOT_ORDINARY, NO_ROOM = 0, 1, 2

# Cells of `options`: the contract and the limits.
SEED, NUMBER_KIND, MISSING_INDICATOR, MOST_NAME_BYTES, MOST_FEATURES, MOST_EXAMPLES, MOST_INSTANCES = range(7)
OPTION_CELLS = 7

# Cells of `bounds`.
SCALE, MOST_VALUE, MOST_WEIGHT = range(3)

# Cells of `state`: how much of the columns is filled, how much of that is the context's, and which columns
# are in use; whether room ran out; the stamps of a row's names and of the context's.
FEATURES, ROWS, CONTEXT, HAS_VALUES, HAS_WEIGHTS, HAS_TIMES, HAS_IDS = range(7)
FULL, STAMP, CONTEXT_STAMP = range(7, 10)
STATE_CELLS = 10


class Columns(NamedTuple):
    """The text, and the columns that are filled from it.

    text uint8 (or bytes, which numba takes as they are): the body and PADDING.
    options int64, bounds float64, state int64: the cells above.
    hashes uint32[k], values float64[k] (in use once HAS_VALUES), row_ptr int64[r+1], labels uint8[r], weights
    float64[r] (in use once HAS_WEIGHTS), times int64[r] (HAS_TIMES), ids int64[r, 2] (HAS_IDS): where a row's
    id is in the text, 0 and 0 for none.  The first CONTEXT features are not part of any row.
    seen int64[], kinds int64[]: the tables of names.py.
    """

    text: Bytes
    options: Integers
    bounds: Floats
    state: Integers
    hashes: NDArray[np.uint32]
    values: Floats
    row_ptr: Integers
    labels: NDArray[np.uint8]
    weights: Floats
    times: Integers
    ids: Integers
    seen: Integers
    kinds: Integers


@inlined_kernel
def add_feature(columns: Columns, feature_hash: np.uint32, value: float) -> None:
    """Add a feature to the row; the column of values is in use from the first value that is not 1."""
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
def add_context(columns: Columns) -> None:
    """Add the features of the context to the row."""
    for j in range(columns.state[CONTEXT]):
        value = columns.values[j] if columns.state[HAS_VALUES] else 1.0
        add_feature(columns, columns.hashes[j], value)

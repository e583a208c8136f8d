"""The arguments that all kernels of the package share, and how a context is added to them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_core.hashing.columns import HAS_VALUES, SHARED_CELLS, Bytes, Floats, Integers, add_feature
from model_core.kernels.compiled import inlined_kernel

# Answers of a kernel.
DONE, NOT_ORDINARY, NO_ROOM = 0, 1, 2

# Cells of `options`: the contract and the limits.
SEED, NUMBER_KIND, MISSING_INDICATOR, MOST_NAME_BYTES, MOST_FEATURES, MOST_EXAMPLES, MOST_INSTANCES = range(7)
OPTION_CELLS = 7

# Cells of `bounds`.
SCALE, MOST_VALUE, MOST_WEIGHT = range(3)

# Cells of `state` after those that all columns have: how much of them is the context's, and which columns are
# in use; the stamps of a row's names and of the context's.
CONTEXT, HAS_TIMES, HAS_IDS, STAMP, CONTEXT_STAMP = range(SHARED_CELLS, SHARED_CELLS + 5)
STATE_CELLS = SHARED_CELLS + 5


class Columns(NamedTuple):
    """The text, and the columns that are filled from it.

    text uint8 (or bytes, which numba takes as they are): the body and PADDING.
    options int64, bounds float64, state int64: the cells above.
    hashes uint32[k], values float64[k] (in use once HAS_VALUES), row_ptr int64[r+1], labels float64[r],
    weights float64[r] (in use once HAS_WEIGHTS), times int64[r] (HAS_TIMES), ids int64[r, 2] (HAS_IDS): where
    a row's id is in the text, 0 and 0 for none.  The first CONTEXT features are not part of any row.
    seen int64[], kinds int64[]: the tables of names.py.
    """

    text: Bytes
    options: Integers
    bounds: Floats
    state: Integers
    hashes: NDArray[np.uint32]
    values: Floats
    row_ptr: Integers
    labels: Floats
    weights: Floats
    times: Integers
    ids: Integers
    seen: Integers
    kinds: Integers


@inlined_kernel
def add_context(columns: Columns) -> None:
    """Add the features of the context to the row."""
    for j in range(columns.state[CONTEXT]):
        value = columns.values[j] if columns.state[HAS_VALUES] else 1.0
        add_feature(columns, columns.hashes[j], value)

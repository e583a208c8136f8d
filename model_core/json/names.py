"""Names by their hashes: those already seen in an object, and those known as text or as number.

Both tables use open addressing with few probes, and store only the 32-bit hash of a name. Two names with the
same hash count as one, which sends a body to the other reader needlessly and is never wrong.
"""

import numpy as np
from numpy.typing import NDArray

from model_core.kernels.compiled import inlined_kernel, kernel

AS_TEXT, AS_NUMBER = 1, 2

KNOWN_NAMES = 16384  # cells; with few probes, names are dropped well before all cells are taken
_PROBES = 32
_KIND_BITS, _HASH_BITS = 2, 32
_KINDS = (1 << _KIND_BITS) - 1


@inlined_kernel
def is_new(seen: NDArray[np.int64], name_hash: np.uint32, stamp: int, other_stamp: int) -> bool:
    """Enter a name under `stamp`; False if it is there under either stamp, or there is no room.

    seen int64[power of two]: stamp and hash; entries of other stamps count as room, so that a new positive
    stamp empties the table.
    """
    mask = seen.size - 1
    cell = np.int64(name_hash) & mask
    for _ in range(_PROBES):
        entry = seen[np.uint64(cell)]
        its_stamp = entry >> _HASH_BITS
        if its_stamp != stamp and its_stamp != other_stamp:
            seen[np.uint64(cell)] = (stamp << _HASH_BITS) | np.int64(name_hash)
            return True
        if (entry & 0xFFFFFFFF) == np.int64(name_hash):
            return False
        cell = (cell + 1) & mask
    return False


@inlined_kernel
def is_known(kinds: NDArray[np.int64], name_hash: np.uint32, kind: int) -> bool:
    """Return whether a name was entered as this kind; also True if there is no room to enter it.

    kinds int64[KNOWN_NAMES]: hash and kinds, 0 for none.
    """
    entry = kinds[np.uint64(_cell(kinds, name_hash))]
    if entry != 0 and entry >> _KIND_BITS != np.int64(name_hash):
        return True
    return bool(entry & kind)


@kernel
def enter(kinds: NDArray[np.int64], name_hash: np.uint32, kind: int) -> None:
    """Enter a name as this kind, if there is room."""
    cell = _cell(kinds, name_hash)
    entry = kinds[np.uint64(cell)]
    if entry == 0 or entry >> _KIND_BITS == np.int64(name_hash):
        kinds[np.uint64(cell)] = (np.int64(name_hash) << _KIND_BITS) | (entry & _KINDS) | kind


@inlined_kernel
def _cell(kinds: NDArray[np.int64], name_hash: np.uint32) -> np.int64:
    """Return the cell of a name, or the one it would get; another name's cell if there is no room."""
    mask = kinds.size - 1
    cell = np.int64(name_hash) & mask
    for _ in range(_PROBES):
        entry = kinds[np.uint64(cell)]
        if entry == 0 or entry >> _KIND_BITS == np.int64(name_hash):
            break
        cell = (cell + 1) & mask
    return cell

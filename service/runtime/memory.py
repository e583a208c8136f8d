"""The memory of a process: its allocator, and how often it searches for garbage."""

from __future__ import annotations

import ctypes
import gc

MMAP_THRESHOLD_BYTES = 2**20
TOP_PAD_BYTES = 16 * 2**20
_LARGEST_MMAP_THRESHOLD_BYTES, _TRIM_THRESHOLD_BYTES = 32 * 2**20, 256 * 2**20
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
_USUAL = gc.get_threshold()
_AT_START = 100_000


def return_large_blocks() -> bool:
    """Have glibc give each block of MMAP_THRESHOLD_BYTES or more back to the system once it is freed, and
    give it pages only as they are touched, but retain TOP_PAD_BYTES of smaller ones in each heap; return
    False with another C library.

    Without a fixed threshold it rises to the size of the largest block freed so far, up to 32 MiB: from then
    on large blocks come from heaps, which retain what is freed, cost memory for pages that are never touched,
    and fragment. After an outage, when all models load again, a process held two to three times the memory of
    its models, permanently. But by default a heap also gives back what is free at its end beyond 128 KiB:
    the buffers of each request or commit, though the next one needs as many, whose pages are zeroed again.
    """
    returned = _mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
    return _mallopt(_M_TOP_PAD, TOP_PAD_BYTES) and returned


def retain_large_blocks() -> bool:
    """Have glibc retain freed blocks of up to 32 MiB for later ones; return False with another C library.

    For a command that uses blocks of the same sizes over and over: the system zeroes each page that it gives.
    """
    retained = _mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD_BYTES)
    return _mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES) and retained


def _mallopt(parameter: int, value: int) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return bool(mallopt(parameter, value))


def collect_rarely() -> None:
    """Search for garbage only after many new objects, until `collect_as_usual`: nearly all objects that
    imports make are permanent.
    """
    gc.set_threshold(_AT_START, *_USUAL[1:])


def collect_as_usual() -> None:
    """Search as often as Python does by itself, and no longer through the objects that exist by now."""
    gc.freeze()
    gc.set_threshold(*_USUAL)

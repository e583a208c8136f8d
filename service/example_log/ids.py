"""Ids of predictions: for clients a text, in Redis 16 bytes."""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Sequence
from itertools import repeat

_VERSION, _VARIANT = 7 << 76, 2 << 62
_ZEROS, _DIGEST = bytes(2), hashlib.blake2b(digest_size=14, person=b"prediction")
_FRACTION = 4096  # of a millisecond: the 12 bits after the version
_random = random.Random()  # seeded by the system; asking that for every id takes longer than all the rest
os.register_at_fork(after_in_child=_random.seed)


def new_id() -> str:
    """A UUID of version 7 (RFC 9562): in the order of time, to a 4096th of a millisecond."""
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    fraction = nanoseconds * _FRACTION // 1_000_000
    digits = f"{milliseconds << 80 | _VERSION | fraction << 64 | _VARIANT | _random.getrandbits(62):032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def named(ids: Sequence[str | None] | None, count: int) -> list[str]:
    """The ids of so many predictions: the callers' own, new ones for those that have none."""
    return [text or new_id() for text in ids or repeat(None, count)]


def packed_id(text: str) -> bytes:
    """16 bytes that stand for an id: two of 0, then a digest. Parts of that are keys and decide the sampling,
    so it is one whatever the id: those that callers make need not differ in every part.
    """
    digest = _DIGEST.copy()
    digest.update(text.encode())
    return _ZEROS + digest.digest()


def is_sampled(prediction_id: bytes, rate: float) -> bool:
    """Whether a label 0 of this id is learned where only this share of them is: as closing.lua decides it."""
    return rate >= 1 or int.from_bytes(prediction_id[12:], "little") / 2**32 < rate

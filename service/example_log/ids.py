"""Ids of predictions: a text for clients, 16 bytes in Redis."""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Sequence

_VERSION, _VARIANT = 7 << 12, 2 << 62
_FRACTION = 4096  # of a millisecond: the 12 bits after the version
_ZEROS, _DIGEST = bytes(2), hashlib.blake2b(digest_size=14, person=b"prediction")
_random = random.Random()  # seeded by the system once: asking it for every id takes longer than all the rest
os.register_at_fork(after_in_child=_random.seed)


def new_ids(count: int) -> list[str]:
    """Makes UUIDs of version 7 (RFC 9562), ordered by the time of the call to a 4096th of a millisecond."""
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    fraction = nanoseconds * _FRACTION // 1_000_000
    digits = f"{milliseconds << 16 | _VERSION | fraction:016x}"
    moment = f"{digits[:8]}-{digits[8:12]}-{digits[12:]}-"
    rest = [f"{_VARIANT | _random.getrandbits(62):016x}" for _ in range(count)]
    return [f"{moment}{random_digits[:4]}-{random_digits[4:]}" for random_digits in rest]


def named(ids: Sequence[str | None] | None, count: int) -> list[str]:
    """The ids of `count` predictions: those of callers, and new ones for None."""
    if not ids:
        return new_ids(count)
    given = [text for text in ids if text]
    if len(given) == len(ids):
        return given
    made = iter(new_ids(len(ids) - len(given)))
    return [text or next(made) for text in ids]


def packed_id(text: str) -> bytes:
    """The 16 bytes of a prediction id: two zeros, then a digest. Parts of them are keys and decide on
    sampling, so every id is digested: the ids of callers need not differ in every part.
    """
    digest = _DIGEST.copy()
    digest.update(text.encode())
    return _ZEROS + digest.digest()


def is_sampled(prediction_id: bytes, rate: float) -> bool:
    """Returns whether a label 0 of this id is learned at this sample rate, as closing.lua decides it."""
    return rate >= 1 or int.from_bytes(prediction_id[12:], "little") / 2**32 < rate

"""Ids of predictions: for callers a text, in Redis 16 bytes."""

from __future__ import annotations

import hashlib
import os
import re
import time

_UUID_7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_FRACTION = 4096  # of a millisecond: the 12 bits after the version


def new_id() -> str:
    """A UUID of version 7 (RFC 9562): in the order of time, to a 4096th of a millisecond."""
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    random = int.from_bytes(os.urandom(8)) >> 2
    number = (
        (milliseconds << 80) | (7 << 76) | ((nanoseconds * _FRACTION // 1_000_000) << 64) | (2 << 62) | random
    )
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def packed_id(text: str) -> bytes:
    """16 bytes that stand for an id: those that a UUID of version 7 spells, of any other text a digest."""
    if _UUID_7.fullmatch(text):
        return bytes.fromhex(text.replace("-", ""))
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"prediction").digest()

"""Ids of predictions: for callers a text, in Redis 16 bytes."""

from __future__ import annotations

import hashlib
import os
import random
import re
import struct
import time

_UUID_7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_HALVES = struct.Struct(">QQ")
_VERSION, _VARIANT = 7 << 12, 2 << 62
_FRACTION = 4096  # of a millisecond: the 12 bits after the version
_random = random.Random()  # seeded by the system; asking that for every id takes longer than all the rest
os.register_at_fork(after_in_child=_random.seed)


def new_id() -> tuple[str, bytes]:
    """A UUID of version 7 (RFC 9562), as text and packed: in the order of time, to a 4096th millisecond."""
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    fraction = nanoseconds * _FRACTION // 1_000_000
    packed = _HALVES.pack(milliseconds << 16 | _VERSION | fraction, _VARIANT | _random.getrandbits(62))
    digits = packed.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}", packed


def packed_id(text: str) -> bytes:
    """16 bytes that stand for an id: those that a UUID of version 7 spells, of any other text a digest."""
    if _UUID_7.fullmatch(text):
        return bytes.fromhex(text.replace("-", ""))
    return hashlib.blake2b(text.encode(), digest_size=16, person=b"prediction").digest()


def is_sampled(prediction_id: bytes, rate: float) -> bool:
    """Whether a label 0 of this id is learned where only this share of them is: as closing.lua decides it."""
    return rate >= 1 or int.from_bytes(prediction_id[12:], "little") / 2**32 < rate

"""Ids of events: for callers a text, in the log 16 bytes."""

from __future__ import annotations

import hashlib
import re
import secrets

BATCH_ID_BYTES = 12
_MADE = re.compile("ftrl-([0-9a-f]{32})")


def new_batch_id() -> bytes:
    """Of a micro-batch, in which ids of our making begin."""
    return secrets.token_bytes(BATCH_ID_BYTES)


def made_digest(batch_id: bytes, index: int) -> bytes:
    """The id of that example of a micro-batch, where the caller gave none."""
    return batch_id + index.to_bytes(4, "big")


def made_text(digest: bytes) -> str:
    """An id of our making for the caller, who may send it again."""
    return "ftrl-" + digest.hex()


def event_digest(event_id: str) -> bytes:
    """16 bytes that stand for an event id; of one made here, the bytes that it spells."""
    return _spelled(event_id) or hashlib.blake2b(event_id.encode(), digest_size=16).digest()


def batch_of(event_id: str) -> bytes:
    """The micro-batch in which an id of our making was made, empty for any other id."""
    return _spelled(event_id)[:BATCH_ID_BYTES]


def _spelled(event_id: str) -> bytes:
    """Only of the very text that `made_text` gives: no two texts may stand for the same bytes."""
    made = _MADE.fullmatch(event_id)
    return b"" if made is None else bytes.fromhex(made[1])

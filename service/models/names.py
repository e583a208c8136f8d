"""Names of models: in paths, bodies and flags."""

from __future__ import annotations

import re

from service.errors import InvalidModelName

MODEL_NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_NAME = re.compile(MODEL_NAME_PATTERN[1:-1])


def checked_name(name: str) -> str:
    """Raises InvalidModelName."""
    if _NAME.fullmatch(name) is None:
        raise InvalidModelName(name)
    return name

"""Names of models: in paths, bodies and flags."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Path

from service.errors import InvalidModelName
from service.request_schemas import MODEL_NAME_PATTERN

_NAME = re.compile(MODEL_NAME_PATTERN[1:-1])

ModelName = Annotated[str, Path(json_schema_extra={"pattern": MODEL_NAME_PATTERN}, examples=["default"])]


def checked_name(name: str) -> str:
    """Raises InvalidModelName."""
    if _NAME.fullmatch(name) is None:
        raise InvalidModelName(name)
    return name

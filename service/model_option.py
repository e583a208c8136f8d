"""The flag `--model` of commands that reach a model without the HTTP of the service."""

from __future__ import annotations

import re

import typer


def checked_model_name(name: str) -> str:
    """Raises typer.BadParameter."""
    from service.errors import InvalidModelName
    from service.request_schemas import MODEL_NAME_PATTERN

    if re.fullmatch(MODEL_NAME_PATTERN[1:-1], name) is None:
        raise typer.BadParameter(InvalidModelName(name).detail)
    return name

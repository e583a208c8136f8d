"""The flag `--model` of commands that reach a model without the HTTP of the service."""

from __future__ import annotations

import typer


def checked_model_name(name: str) -> str:
    """Raises typer.BadParameter."""
    from service.errors import InvalidModelName
    from service.models.names import checked_name

    try:
        return checked_name(name)
    except InvalidModelName as refusal:
        raise typer.BadParameter(refusal.detail) from None

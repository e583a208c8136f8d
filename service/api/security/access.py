"""The access that a route requires, declared with the route: `**READ.declared` among its arguments, which
also puts it into the OpenAPI document.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

DECLARATION = "x-access"


@dataclass(frozen=True)
class Access:
    """The token that a call needs.

    scope: None accepts any scope.
    models: "one" is the model of the path, or the default model if the path names none; "all"; "any"
        accepts a token for any models.
    token: False needs no token at all.
    """

    scope: Literal["predict", "update", "admin"] | None
    models: Literal["one", "all", "any"]
    token: bool = True

    @property
    def declared(self) -> dict[str, Any]:
        """The declaration as arguments of a route."""
        return {"openapi_extra": {DECLARATION: asdict(self)}}


PUBLIC = Access(None, "any", token=False)
ANYBODY = Access(None, "any")
READ, READ_ALL = Access(None, "one"), Access(None, "all")
PREDICT, UPDATE = Access("predict", "one"), Access("update", "one")
ADMIN, ADMIN_ALL = Access("admin", "one"), Access("admin", "all")

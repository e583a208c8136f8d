"""What a route asks of a token. Each says it where it is made: `**READ.declared` among its arguments, which
also puts it into the OpenAPI document.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

DECLARATION = "x-access"


@dataclass(frozen=True)
class Access:
    """`scope`: None: any will do. `models`: "one": that of the path, or the default where it names none;
    "all"; "any": whichever the token is for. `token`: whether there has to be one at all.
    """

    scope: Literal["predict", "update", "admin"] | None
    models: Literal["one", "all", "any"]
    token: bool = True

    @property
    def declared(self) -> dict[str, Any]:
        """As arguments of a route."""
        return {"openapi_extra": {DECLARATION: asdict(self)}}


PUBLIC = Access(None, "any", token=False)
ANYBODY = Access(None, "any")
READ, READ_ALL = Access(None, "one"), Access(None, "all")
PREDICT, UPDATE = Access("predict", "one"), Access("update", "one")
ADMIN, ADMIN_ALL = Access("admin", "one"), Access("admin", "all")

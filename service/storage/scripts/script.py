"""How a Lua file is sent and run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from redis.exceptions import NoScriptError

from service.storage.channel import Channel


class Script:
    """One Lua file of `service/storage/lua`, run by its digest and sent whole only to a server that lacks it.

    `after`: further files, with what several scripts share, that come before it.
    """

    def __init__(self, name: str, after: Sequence[str] = ()) -> None:
        self.name = name
        files = resources.files("service.storage").joinpath("lua")
        self.text = b"".join(files.joinpath(f"{part}.lua").read_bytes() for part in (*after, name))
        self.digest = hashlib.sha1(self.text, usedforsecurity=False).hexdigest()

    async def __call__(
        self, channel: Channel, keys: Sequence[str | bytes], *arguments: str | bytes | int | float
    ) -> Any:
        """Raises what Channel.call raises."""
        try:
            return await channel.call("EVALSHA", self.digest, len(keys), *keys, *arguments)
        except NoScriptError:  # it did not run
            return await channel.call("EVAL", self.text, len(keys), *keys, *arguments)

"""Other names for models: `/models/{alias}/predict` is answered by whichever model the alias means.

Each process keeps the aliases in memory and asks twice a second what they are; a model that an alias comes to
mean is loaded before it answers, so that a switch is atomic for every request and costs none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from service.errors import ServiceError, StateUnavailable, UnknownModel
from service.models import Models, OpenModel
from service.redis_client import Channel
from service.redis_keys import ALIASES

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.5


class UnknownAlias(ServiceError):
    status = 404
    title = "Unknown alias"

    def __init__(self, alias: str) -> None:
        super().__init__(f"There is no alias {alias!r}.")


class AliasConflict(ServiceError):
    """A name cannot be that of a model and an alias at once."""

    status = 409
    title = "Name is taken"


class Aliases:
    def __init__(self, models: Models) -> None:
        self._models = models
        self._targets: dict[str, str] = {}
        self._changes = 0  # made by this process

    def resolve(self, name: str) -> str:
        """The model that a name means, as this process last heard."""
        return self._targets.get(name, name)

    @property
    def targets(self) -> dict[str, str]:
        """The model of each alias, as this process last heard."""
        return dict(self._targets)

    async def open(self, name: str) -> OpenModel:
        """The model of that name, or that the alias means. Raises what Models.get raises."""
        try:
            return await self._models.get(self.resolve(name))
        except UnknownModel:
            await self.refresh()  # it may be an alias that this process has not heard of
        model = self.resolve(name)
        try:
            return await self._models.get(model)
        except UnknownModel:
            raise UnknownModel(model, alias=name if name != model else None) from None

    async def all(self) -> dict[str, str]:
        async with self._models.channel() as channel:
            return await read_aliases(channel)

    async def model_of(self, alias: str) -> str:
        """Raises UnknownAlias."""
        targets = await self.all()
        if alias not in targets:
            raise UnknownAlias(alias)
        return targets[alias]

    async def set(self, alias: str, model: str) -> None:
        """Raises UnknownModel, AliasConflict, and what Models.get raises."""
        if alias in await self._models.names():
            raise AliasConflict(f"{alias!r} is a model; an alias needs a name of its own.")
        await self._models.get(model)
        async with self._models.channel() as channel:
            await channel.call("HSET", ALIASES, alias, model)
        self._changes += 1
        self._targets[alias] = model

    async def remove(self, alias: str) -> None:
        """Raises UnknownAlias."""
        async with self._models.channel() as channel:
            if not await channel.call("HDEL", ALIASES, alias):
                raise UnknownAlias(alias)
        self._changes += 1
        self._targets.pop(alias, None)

    async def check_free(self, name: str) -> None:
        """Raises AliasConflict where a model cannot have the name."""
        if name in await self.all():
            raise AliasConflict(f"{name!r} is an alias; delete it first, or take another name.")

    async def refresh(self) -> None:
        """Raises StateUnavailable."""
        changes = self._changes
        targets = await self.all()
        for model in set(targets.values()) - set(self._targets.values()):
            with contextlib.suppress(UnknownModel):
                await self._models.get(model)
        if changes == self._changes:  # else it may have been read before what this process has changed
            self._targets = targets

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_SECONDS)
            try:
                await self.refresh()
            except StateUnavailable as away:
                log.debug("aliases are those last heard: %s", away.detail)


async def read_aliases(channel: Channel) -> dict[str, str]:
    """The model of each. Raises what Channel.call raises."""
    flat = await channel.call("HGETALL", ALIASES)
    return {alias.decode(): model.decode() for alias, model in zip(flat[::2], flat[1::2], strict=True)}

"""Other names for models: `/models/{alias}/predict` is answered by whichever model the alias means.

Each process keeps the aliases in memory and asks twice a second what they are; a model that an alias comes to
mean is loaded before it answers, so that a switch is atomic for every request and costs none. Which models it
meant before is known while predictions that they have logged may wait for their labels.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

from service.coalescing import Asked, Coalescer
from service.errors import ContractMismatch, ServiceError, StateUnavailable, UnknownModel
from service.models import Models, OpenModel
from service.redis_client import Channel, set_alias
from service.redis_keys import ALIASES

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.5
LOOK_AGAIN_SECONDS = 0.05
_MOST_AT_ONCE = 1 << 20


class UnknownAlias(ServiceError):
    status = 404
    title = "Unknown alias"

    def __init__(self, alias: str) -> None:
        super().__init__(f"There is no alias {alias!r}.")


class AliasConflict(ServiceError):
    """A name cannot be that of a model and an alias at once."""

    status = 409
    title = "Name is taken"


class Meanings(NamedTuple):
    """Of each alias the model, and those that it meant before, while these may have predictions that wait."""

    targets: Mapping[str, str]
    former: Mapping[str, Sequence[str]]


class Aliases:
    def __init__(self, models: Models) -> None:
        self._models = models
        self._targets: dict[str, str] = {}
        self._former: Mapping[str, Sequence[str]] = {}
        self._changes = 0  # made by this process
        self._looks = Coalescer[None, None](self._look_again, lambda _: 1, _MOST_AT_ONCE)

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

    async def elsewhere(self, name: str, asked: OpenModel) -> AsyncIterator[OpenModel]:
        """Where predictions through an alias may wait that the model `asked` does not know: the models that
        it meant before, and at last what other processes may have made of it meanwhile. None of a model.

        Raises StateUnavailable.
        """
        if name not in self._targets:
            return
        names = {asked.name}
        for looked in (False, True):
            if looked:
                await self._looks.submit(None)
            for model in (self.resolve(name), *self._former.get(name, ())):
                if model not in names:
                    names.add(model)
                    with contextlib.suppress(UnknownModel):
                        yield await self._models.get(model)

    async def all(self) -> dict[str, str]:
        return dict((await self._read()).targets)

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
        await self._switch(alias, model)

    async def remove(self, alias: str) -> None:
        """Raises UnknownAlias."""
        await self.model_of(alias)
        await self._switch(alias, None)

    async def delete_model(self, name: str) -> None:
        """Never through an alias. Raises UnknownModel, AliasConflict."""
        try:
            await self._models.delete(name)
        except UnknownModel:
            model = (await self.all()).get(name)
            if model is None:
                raise
            raise AliasConflict(
                f"{name!r} is an alias of model {model!r}, and nothing was deleted: DELETE /aliases/{name}"
                f" deletes the alias, DELETE /models/{model} the model."
            ) from None

    async def check_free(self, name: str) -> None:
        """As of the function of that name."""
        async with self._models.channel() as channel:
            await check_free(channel, name)

    async def refresh(self) -> None:
        """Raises StateUnavailable."""
        changes = self._changes
        targets, former = await self._read()
        for model in set(targets.values()) - set(self._targets.values()):
            with contextlib.suppress(UnknownModel):
                await self._models.get(model)
        if changes == self._changes:  # else it may have been read before what this process has changed
            self._targets, self._former = dict(targets), former

    async def _switch(self, alias: str, model: str | None) -> None:
        done = False
        while not done:  # until nobody else switches it in between
            so_far = (await self.all()).get(alias)
            wait = await self._longest_wait(so_far) if so_far is not None else 0.0
            async with self._models.channel() as channel:
                done = bool(await set_alias(channel, ALIASES, alias, model or "", so_far or "", wait))
        self._changes += 1
        targets, self._former = await self._read()
        self._targets = dict(targets)

    async def _longest_wait(self, model: str) -> float:
        """Of a prediction that it logged, in seconds; 0 where there is none such model."""
        try:
            return (await self._models.get(model)).config.feedback.longest_wait_seconds
        except (UnknownModel, ContractMismatch):
            return 0.0

    async def _read(self) -> Meanings:
        async with self._models.channel() as channel:
            return await read_aliases(channel)

    async def _look_again(self, together: list[Asked[None, None]]) -> None:
        """However many ask, the server is asked now and then only."""
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
        await self.refresh()
        for asked in together:
            asked.answer(None)

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_SECONDS)
            try:
                await self.refresh()
            except StateUnavailable as away:
                log.debug("aliases are those last heard: %s", away.detail)


async def check_free(channel: Channel, name: str) -> None:
    """Raises AliasConflict where a model cannot have the name, and what Channel.call raises."""
    if name in (await read_aliases(channel)).targets:
        raise AliasConflict(f"{name!r} is an alias; delete it first, or take another name.")


async def read_aliases(channel: Channel) -> Meanings:
    """Raises what Channel.call raises."""
    flat = await channel.call("HGETALL", ALIASES)
    targets: dict[str, str] = {}
    former: dict[str, list[str]] = {}
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        alias, is_former, model = name.decode().partition("/")
        if is_former:
            former.setdefault(alias, []).append(model)
        else:
            targets[alias] = value.decode()
    return Meanings(targets, former)

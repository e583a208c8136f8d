"""Other names for models: `/models/{alias}/predict` is answered by whichever model the alias means.

Each process holds the aliases in memory and polls them twice a second. The new model of an alias is loaded
before the alias is switched, so that a switch is atomic for every request and delays none. While the model
cannot be loaded, that alias alone keeps its former meaning here. The models that an alias meant before are
known as long as predictions that they have logged may be pending.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping

from service.errors import ContractMismatch, NotFound, ServerFull, StateUnavailable, UnknownModel
from service.models.alias_store import Meanings, check_free, read_aliases, switch_alias
from service.models.config.model import checked_config
from service.models.registry import Models, OpenModel
from service.models.replica import ModelGone, read_meta
from service.runtime.coalescer import Asked, Coalescer
from service.runtime.tasks import begin, cancel_all
from service.storage.records import ModelKeys
from service.storage.scripts.aliases import remember_former
from service.storage.scripts.history import Mark, add_marks

log = logging.getLogger(__name__)

ALIASES_POLL_SECONDS = 0.5
REFRESH_DELAY_SECONDS = 0.05
_MAX_AT_ONCE = 1 << 20


class UnknownAlias(NotFound):
    code = "unknown_alias"

    def __init__(self, alias: str) -> None:
        super().__init__(f"There is no alias {alias!r}.")


class Aliases:
    def __init__(self, models: Models) -> None:
        self._models = models
        self._targets: dict[str, str] = {}
        self._stored: Mapping[str, str] = {}  # as last read from the server
        self._unloaded: set[str] = set()  # new targets of aliases
        self._meanings = Meanings({}, {}, "")  # as last read
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._changes = 0  # made by this process
        self._refreshes = Coalescer[None, None](self._refresh_once, _MAX_AT_ONCE)

    def resolve(self, name: str) -> str:
        """The model that a name means here."""
        return self._targets.get(name, name)

    @property
    def targets(self) -> dict[str, str]:
        """The model that each alias means here."""
        return dict(self._targets)

    async def open(self, name: str) -> OpenModel:
        """Opens the model of that name or alias. Raises what Models.get raises."""
        try:
            return await self._models.get(self.resolve(name))
        except UnknownModel:
            await self._ask()  # it may be an alias that is new to this process
        model = self._stored.get(name, name)  # its former model is deleted
        try:
            opened = await self._models.get(model)
        except UnknownModel:
            raise UnknownModel(model, alias=name if name != model else None) from None
        self._means_now(model)
        return opened

    async def elsewhere(self, name: str, asked: OpenModel, deadline: float) -> AsyncIterator[OpenModel]:
        """Models where a prediction through an alias may be pending that the model `asked` does not know:
        those that it meant before, and at last those to which other processes may have switched it meanwhile.
        None for the name of a model.

        Raises StateUnavailable, also if one is not loaded by the deadline (time.monotonic()).
        """
        if name not in self._targets:
            return
        names = {asked.name}
        for refreshed in (False, True):
            if refreshed:
                await self._refreshes.submit(None)
            for model in (self._stored.get(name, name), *self._meanings.former.get(name, ())):
                if model not in names:
                    names.add(model)
                    with contextlib.suppress(UnknownModel, ContractMismatch):  # it knows none
                        yield await self._get_by(deadline, model)

    def former(self, name: str, asked: OpenModel) -> list[str]:
        """Models that an alias meant before `asked`, the earliest first, as long as predictions that they
        logged may be pending. None for the name of a model.
        """
        names = self._pending(name)
        return names[: names.index(asked.name)] if asked.name in names else names

    def switched(self, name: str, asked: OpenModel) -> list[str]:
        """All models but `asked` that an alias has meant and means, as long as predictions logged before its
        last switch may be pending; the earliest first. None for the name of a model.
        """
        names = self._pending(name)
        return [model for model in (*names, self._stored[name]) if model != asked.name] if names else []

    def _pending(self, name: str) -> list[str]:
        if name not in self._targets:
            return []
        now = time.time()
        former = self._meanings.former.get(name, {})
        return [
            model for until, model in sorted((until, model) for model, until in former.items()) if until > now
        ]

    async def required(self, models: Iterable[str], deadline: float) -> AsyncIterator[OpenModel]:
        """Opens those models that exist and that this version can read. Raises StateUnavailable for the first
        that is not loaded by the deadline (time.monotonic()).
        """
        for model in models:
            with contextlib.suppress(UnknownModel, ContractMismatch):
                yield await self._get_by(deadline, model)

    async def opened(self, models: Iterable[str], deadline: float) -> AsyncIterator[OpenModel]:
        """Opens those models that are loaded by the deadline (time.monotonic())."""
        for model in models:
            with contextlib.suppress(UnknownModel, ContractMismatch, StateUnavailable):
                yield await self._get_by(deadline, model)

    async def _get_by(self, deadline: float, model: str) -> OpenModel:
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await self._models.get(model)
        except TimeoutError as late:
            raise StateUnavailable(f"Model {model!r} is still being loaded.") from late

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
        await self.refuse(model)
        await self._models.get(model)
        await self._switch(alias, model)

    async def remove(self, alias: str) -> None:
        """Raises UnknownAlias."""
        await self.model_of(alias)
        await self._switch(alias, None)

    async def named(self, name: str) -> str:
        """The model that a name means, even if there is no such model."""
        if name not in self._targets and name not in {model.name for model in self._models.opened()}:
            with contextlib.suppress(StateUnavailable):
                await self._ask()  # it may be an alias that is new to this process
        return self.resolve(name)

    async def refuse(self, name: str) -> None:
        """Refuses aliases where only the name of a model is allowed, as for creating or changing one.

        Raises AliasConflict, StateUnavailable.
        """
        async with self._models.channel() as channel:
            await check_free(channel, name)

    async def refresh(self) -> list[asyncio.Task[None]]:
        """Reads the aliases; returns the pending loads of their new models. An alias is switched in this
        process when its own load ends. Raises StateUnavailable if the aliases cannot be read.
        """
        await self._ask()
        for model in self._unloaded - self._loading.keys():
            self._loading[model] = begin(self._load(model), f"model {model} is not loaded for its aliases")
        return list(self._loading.values())

    async def _ask(self) -> None:
        changes = self._changes
        meanings = await self._read()
        if changes == self._changes:  # else this process may have changed them after the read
            self._take(meanings)

    def _take(self, meanings: Meanings) -> None:
        """A new alias means its model at once: the first request loads it, or fails with the reason."""
        before, self._stored, self._meanings = self._targets, meanings.targets, meanings
        opened = {model.name for model in self._models.opened()}
        changed = {model for alias, model in self._stored.items() if before.get(alias) != model}
        self._unloaded = ((self._unloaded & {*self._stored.values()}) | changed) - opened
        self._targets = {
            alias: model if model in opened else before.get(alias, model)
            for alias, model in self._stored.items()
        }

    async def _load(self, model: str) -> None:
        try:
            with contextlib.suppress(UnknownModel, ContractMismatch):  # requests for it raise that again
                await self._models.get(model)
            self._means_now(model)
        except StateUnavailable as away:
            log.debug("aliases are not switched to %s yet: %s", model, away.detail)
        finally:
            del self._loading[model]

    def _means_now(self, model: str) -> None:
        """Switches the aliases whose new target it is."""
        self._unloaded.discard(model)
        self._targets |= {alias: model for alias, meant in self._stored.items() if meant == model}

    async def _switch(self, alias: str, model: str | None) -> None:
        done, so_far = False, None
        while not done:  # until no other process changes any in between
            meanings = await self._read()
            so_far = meanings.targets.get(alias)
            wait = await self._longest_wait(so_far) if so_far is not None else 0.0
            async with self._models.channel() as channel:
                done = await switch_alias(channel, alias, model, meanings.changes, wait)
        self._changes += 1
        self._take(await self._read())
        if so_far != model:
            await self._mark(alias, model, [name for name in (so_far, model) if name is not None])

    async def _mark(self, alias: str, model: str | None, models: Iterable[str]) -> None:
        """Adds the switch to the history of the models, if they can be reached."""
        mark = Mark("alias", f"{alias} now means {model}" if model else f"{alias} was deleted")
        for name in models:
            with contextlib.suppress(ModelGone, StateUnavailable, ServerFull):
                async with self._models.channel() as channel:
                    keys = ModelKeys(name, (await read_meta(channel, name)).incarnation)
                    await add_marks(channel, keys, [mark])

    async def _longest_wait(self, model: str) -> float:
        """The longest time in seconds that a prediction it logged is pending; 0 if there is no such model."""
        try:
            async with self._models.channel() as channel:
                config = checked_config(model, await read_meta(channel, model))
            return config.feedback.longest_wait_seconds
        except (ModelGone, ContractMismatch):
            return 0.0

    async def remember_former(self, model: str, wait_seconds: float) -> None:
        """Prolongs the time for which aliases remember that they meant a model, as its predictions may now be
        pending that long. Raises StateUnavailable.
        """
        async with self._models.channel() as channel:
            await remember_former(channel, model, wait_seconds)

    async def _read(self) -> Meanings:
        async with self._models.channel() as channel:
            return await read_aliases(channel)

    async def _refresh_once(self, together: list[Asked[None, None]]) -> None:
        """Reads the aliases once for all requests that have come within REFRESH_DELAY_SECONDS."""
        await asyncio.sleep(REFRESH_DELAY_SECONDS)
        await self._ask()
        for asked in together:
            asked.answer(None)

    async def watch(self) -> None:
        try:
            while True:
                await asyncio.sleep(ALIASES_POLL_SECONDS)
                try:
                    await self.refresh()
                except StateUnavailable as away:
                    log.debug("aliases stay as last read: %s", away.detail)
        finally:
            await cancel_all(self._loading.values())

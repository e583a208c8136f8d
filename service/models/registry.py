"""The models of one process: opened when first asked for, created, deleted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from redis.exceptions import ResponseError

from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from model_core.json.requests import RequestParser
from model_core.learning.rounds import probabilities_with
from service.errors import ContractMismatch, ModelConflict, ModelDeleted, StateUnavailable
from service.models.alias_store import check_free, take_back_claim
from service.models.config.model import ModelConfig, checked_config, config_at_creation, limits_of
from service.models.evaluation.report import with_slices
from service.models.evaluation.slices import SliceFinder, SliceName
from service.models.mirror import Mirror, Outcomes
from service.models.replica import ModelGone, Shortcut, gone_is_unknown, read_meta
from service.runtime.tasks import cancel_all
from service.settings.groups import LimitSettings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, out_of_memory_as_server_full
from service.storage.records import (
    FIGURES,
    FORMAT_VERSION,
    LOG_START,
    META_PATTERN,
    MODELS,
    SLICE_FIGURES,
    Commit,
    LogId,
    ModelKeys,
    checked_name,
    meta_key,
)
from service.storage.scripts.models import Creation, create_model, delete_model
from service.storage.topology import Topology

log = logging.getLogger(__name__)


class OpenModel:
    """A model that this process predicts with: its encoder, and its mirror with the outcomes that it sees."""

    def __init__(
        self, topology: Topology, name: str, settings: LimitSettings, shortcut: Shortcut | None
    ) -> None:
        self.name = name
        self.outcomes = Outcomes()
        self.revision = ""
        self.mirror = Mirror(topology, name, shortcut, self._committed, self._loaded)
        self.encoder: FeatureEncoder
        self.parser: RequestParser
        self.slices: SliceFinder | None = None  # without sliced features
        self._belongings = contextlib.AsyncExitStack()
        self._is_followed = True
        self._settings = settings

    def belongs(self, close: Callable[[str], Awaitable[None]], incarnation: str) -> None:
        """To be closed when the model is no longer followed. Raises ModelDeleted where it is not now."""
        if not self._is_followed:
            raise ModelDeleted(self.name)
        self._belongings.push_async_callback(close, incarnation)

    async def close(self) -> None:
        self._is_followed = False
        await self._belongings.aclose()
        await self.mirror.close()

    async def open(self) -> None:
        try:
            await self.mirror.load()
        except BaseException:
            await self.mirror.close()
            raise
        contract, settings = self.config.hashing, self._settings
        limits = limits_of(settings)
        self.parser = RequestParser(contract, limits, settings.max_examples, settings.max_instances)
        self.encoder = FeatureEncoder(contract, limits, met=self.parser.met)

    def _loaded(self, applied: LogId) -> None:
        """Also when the server is not what it was."""
        self.revision = self.mirror.replica.revision
        self.outcomes.applied_through(applied)
        sliced = self.config.evaluation.slices
        self.slices = SliceFinder(FeatureEncoder(self.config.hashing), sliced) if sliced else None

    def _committed(self, commit: Commit, revision: str) -> None:
        self.revision = revision
        self.outcomes.record(commit, revision)

    @property
    def config(self) -> ModelConfig:
        return self.mirror.replica.config

    def predict(self, batch: ExampleBatch) -> npt.NDArray[np.float64]:
        """Probabilities float64[r] from the mirror: no network, and also while Redis is away."""
        return probabilities_with(self.mirror.replica.state, self.config.coefficients, batch)

    def new_slice_names(self, body: bytes) -> dict[int, SliceName]:
        """The values of sliced features in a request's body that are not in the log yet."""
        return self.slices.found_in(body) if self.slices else {}

    def margins(self, batch: ExampleBatch) -> npt.NDArray[np.float64]:
        """Margins float64[r], of which `predict` gives the sigmoids."""
        return self.config.margins(self.mirror.replica.state, batch)


class Models:
    def __init__(self, topology: Topology, settings: LimitSettings, shortcut: Shortcut | None = None) -> None:
        """`shortcut`: another way to load a model than from its state in Redis."""
        self._topology = topology
        self._shortcut = shortcut
        self._settings = settings
        self._open: dict[str, asyncio.Task[OpenModel]] = {}
        self._followers: set[asyncio.Task[None]] = set()

    async def get(self, name: str) -> OpenModel:
        """Loads the mirror on first use.

        Raises InvalidModelName, UnknownModel, StateUnavailable, ContractMismatch.
        """
        opening = self._open.get(name)
        if opening is None:
            checked_name(name)
            opening = self._open[name] = asyncio.create_task(self._load(name), name=f"loading of {name}")
        if not opening.done():
            await asyncio.wait([opening])
        try:
            return opening.result()
        except BaseException:
            self._forget(name, opening)
            raise

    def opened(self) -> list[OpenModel]:
        """Those whose mirrors are loaded."""
        done = [task for task in self._open.values() if task.done() and not task.cancelled()]
        return [task.result() for task in done if task.exception() is None]

    async def names(self) -> list[str]:
        async with self.channel() as channel:
            return sorted(name.decode() for name in await channel.call("SMEMBERS", MODELS))

    async def create(self, name: str, config: ModelConfig) -> tuple[OpenModel, bool]:
        """With False where the same model existed. Raises ModelConflict where another did, AliasConflict."""
        async with self.channel() as channel:
            created = await ensure_model(channel, name, config)
        if created:  # what may still be open is a deleted one of that name
            self._forget(name, self._open.get(name))
        return await self.get(name), created

    async def delete(self, name: str) -> None:
        """Raises UnknownModel."""
        async with self.channel() as channel:
            # Out of the index first: should another process create the model anew meanwhile, its name stays.
            await channel.call("SREM", MODELS, name)
            keys = ModelKeys(name, (await read_meta(channel, name)).incarnation)
            await delete_model(channel, keys)
        self._forget(name, self._open.get(name))

    async def figures(self, model: OpenModel) -> bytes | None:
        """What its learner told last of how good it is, as JSON; None before it did.

        Raises StateUnavailable.
        """
        async with self.channel() as channel:
            told: list[bytes | None] = await channel.call(
                "HMGET", model.mirror.replica.keys.evaluation, FIGURES, SLICE_FIGURES
            )
            return None if told[0] is None else with_slices(told[0], told[1])

    async def repair_index(self) -> None:
        """Makes the index the models whose meta is there. The index is never the truth."""
        async with self.channel() as channel:
            known = set(await channel.call("SMEMBERS", MODELS))
            for name in known:
                if not await channel.call("EXISTS", meta_key(name.decode())):
                    await channel.call("SREM", MODELS, name)
            missing = {name async for name in _names_of_metas(self._topology)} - known
            if missing:  # a full server refuses SADD, also where it would change nothing
                await channel.call("SADD", MODELS, *missing)

    async def close(self) -> None:
        await cancel_all([*self._open.values(), *self._followers])

    async def _load(self, name: str) -> OpenModel:
        model = OpenModel(self._topology, name, self._settings, self._shortcut)
        try:
            with gone_is_unknown():
                await model.open()
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            raise StateUnavailable(
                f"Model {name!r} is not in memory and Redis does not give it: {failure}"
            ) from failure
        opening = asyncio.current_task()
        follower = asyncio.create_task(self._follow(model, opening), name=f"mirror of {name}")
        self._followers.add(follower)
        follower.add_done_callback(self._followers.discard)
        return model

    async def _follow(self, model: OpenModel, opening: asyncio.Task[Any] | None) -> None:
        try:
            await model.mirror.follow()
        except ModelGone:
            log.info("model %s was deleted", model.name)
        except ContractMismatch as refusal:
            log.error("%s", refusal.detail)  # noqa: TRY400  the message says it all
        finally:
            self._forget(model.name, opening)
            await model.close()

    def _forget(self, name: str, opening: asyncio.Task[Any] | None) -> None:
        if opening is not None and self._open.get(name) is opening:
            del self._open[name]

    @contextlib.asynccontextmanager
    async def channel(self) -> AsyncIterator[Channel]:
        """A connection for one errand. Raises StateUnavailable where Redis is away, ServerFull, and
        UnknownModel where a model is gone.
        """
        channel = Channel(self._topology)
        try:
            with gone_is_unknown(), out_of_memory_as_server_full():
                yield channel
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            raise StateUnavailable(f"Redis does not answer: {failure}") from failure
        finally:
            await channel.close()


async def _names_of_metas(topology: Topology) -> AsyncIterator[bytes]:
    """Of all models on all servers. Raises what Channel.call raises."""
    for node in await topology.masters():
        channel = Channel(topology, node)
        try:
            cursor = None
            while cursor != b"0":
                cursor, found = await channel.call("SCAN", cursor or 0, "MATCH", META_PATTERN, "COUNT", 1000)
                for key in found:
                    yield key[len("ftrl:{") : -len("}:meta")]
        finally:
            await channel.close()


async def ensure_model(channel: Channel, name: str, config: ModelConfig) -> bool:
    """Creates the model unless it is there; says whether it did. The same one is there also where its
    feedback was changed in place since, which stays so.

    Raises ModelConflict where another is, AliasConflict, and what Channel.call raises.
    """
    await check_free(channel, name)
    fields = new_meta(config)
    while (created := await create_model(channel, name, fields)) is Creation.NAME_CLAIMED:
        await take_back_claim(channel, name)
    if created is Creation.EXISTS:
        meta = await read_meta(channel, name)
        stored = checked_config(name, meta)
        same = (stored.canonical(), config_at_creation(name, meta).canonical())
        if config.canonical() not in same:
            raise ModelConflict(
                f"Model {name!r} exists with {difference(stored, config)}; {_way(stored, config)}."
            )
    await channel.call("SADD", MODELS, name)
    return created is Creation.CREATED


def difference(stored: ModelConfig, asked: ModelConfig) -> str:
    """The first field in which they differ, for people."""
    ours, theirs = stored.to_json(), asked.to_json()
    for part, values in ours.items():
        for name, value in values.items():
            if theirs[part].get(name) != value:
                return f"{part}.{name} = {value!r}, not {theirs[part].get(name)!r}"
    return "another configuration"


def _way(stored: ModelConfig, asked: ModelConfig) -> str:
    """From the one to the other."""
    rest = replace(stored, feedback=replace(asked.feedback, exposure=stored.feedback.exposure))
    patched = asked.canonical() == rest.canonical()
    return "PATCH changes that in place" if patched else "delete it first"


def new_meta(config: ModelConfig) -> dict[str, str | bytes | int]:
    """Of a model that has learned nothing, under an incarnation of its own."""
    return {
        "format": FORMAT_VERSION,
        "incarnation": secrets.token_hex(8),
        "generation": 0,
        "token": secrets.token_bytes(8),
        "config": config.canonical(),
        "fingerprint": config.hashing.fingerprint,
        "applied": str(LOG_START),
        **dict.fromkeys(("applied_number", "appended", "t", "commit", "skipped"), 0),
    }

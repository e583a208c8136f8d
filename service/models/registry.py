"""The models of one process: opened when first asked for, created, deleted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import secrets
import time
from collections import deque
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
from service.errors import (
    ContractMismatch,
    ModelConflict,
    ModelDeleted,
    ModelFollows,
    ServerFull,
    StateUnavailable,
)
from service.models.alias_store import check_free, take_back_claim
from service.models.challengers import forget_follower
from service.models.config.model import ModelConfig, checked_config, config_at_creation, limits_of
from service.models.evaluation.report import with_slices
from service.models.evaluation.slices import SliceFinder, SliceName
from service.models.history import Past, Span, read_past
from service.models.lost_models import LostModels
from service.models.mirror import Mirror, Outcomes
from service.models.replica import ModelGone, Replica, Shortcut, gone_is_unknown, read_meta
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
    ModelKeys,
    checked_name,
    meta_key,
)
from service.storage.scripts.models import Creation, create_model, delete_model
from service.storage.topology import Topology

log = logging.getLogger(__name__)

_EXAMPLES_BEFORE_UNMET = 1000
MODELS_POLL_SECONDS = 1.0
SAMPLE_SECONDS = 0.2
SAMPLES, SAMPLE_BYTES = 5, 1 << 14


class OpenModel:
    """A model that this process predicts with: its mirror, the outcomes of log entries, and its encoders.

    slices: None without sliced features.
    """

    def __init__(self, mirror: Mirror, settings: LimitSettings) -> None:
        self.name = mirror.model
        self.mirror = mirror
        self.outcomes = Outcomes()
        self.revision = ""
        self.slices: SliceFinder | None = None
        contract, limits = self.config.hashing, limits_of(settings)
        self.parser = RequestParser(contract, limits, settings.max_examples, settings.max_instances)
        self.encoder = FeatureEncoder(contract, limits, met=self.parser.met)
        self._samples: deque[bytes] = deque(maxlen=SAMPLES)
        self._next_sample = math.inf
        self._belongings = contextlib.AsyncExitStack()
        self._has_warned = False
        self._is_followed = True
        self.loaded(mirror.replica)
        mirror.observe(self)

    def belongs(self, close: Callable[[str], Awaitable[None]], incarnation: str) -> None:
        """Registers what is closed with the model. Raises ModelDeleted if that has happened."""
        if not self._is_followed:
            raise ModelDeleted(self.name)
        self._belongings.push_async_callback(close, incarnation)

    async def close(self) -> None:
        self._is_followed = False
        await self._belongings.aclose()
        await self.mirror.close()

    def loaded(self, replica: Replica) -> None:
        """Starts again with slice names, too: the server may have lost some."""
        self.revision = replica.revision
        self.outcomes.applied_through(replica.applied)
        sliced = replica.config.evaluation.slices
        self.slices = SliceFinder(FeatureEncoder(replica.config.hashing), sliced) if sliced else None

    def committed(self, commit: Commit, revision: str) -> None:
        self.revision = revision
        self.outcomes.record(commit, revision)
        if not self._has_warned and (unmet := self.unmet_names):
            self._has_warned = True
            log.warning(
                "no example or instance of model %r that came here had a feature of these names in its types,"
                " transforms or crosses, which have no effect: %s",
                self.name,
                ", ".join(unmet[:20]) + ("" if len(unmet) <= 20 else f" and {len(unmet) - 20} more"),
            )

    @property
    def unmet_names(self) -> list[str]:
        """Names of the hash contract that none of the first 1,000 examples and instances, or later ones, that
        this process encoded has had; empty before.
        """
        is_known = self.encoder.encoded >= _EXAMPLES_BEFORE_UNMET
        return sorted(self.encoder.unmet_names) if is_known else []

    @property
    def config(self) -> ModelConfig:
        return self.mirror.replica.config

    def require_own_log(self) -> None:
        """Raises ModelFollows for a challenger, which takes no examples, labels and impressions."""
        if follows := self.mirror.replica.follows:
            raise ModelFollows(self.name, follows.model)

    def predict(self, batch: ExampleBatch) -> npt.NDArray[np.float64]:
        """Probabilities float64[r] from the mirror, without a call to Redis."""
        return probabilities_with(self.mirror.replica.state, self.config.coefficients, batch)

    def new_slice_names(self, body: bytes) -> dict[int, SliceName]:
        """The values of sliced features in a request's body that are not in the log yet."""
        return self.slices.found_in(body) if self.slices else {}

    def sample(self, body: bytes) -> None:
        """Put a body aside, or a part of a large one, at most one each SAMPLE_SECONDS; the names of its
        features are noted later (FeatureNames).
        """
        if (now := time.monotonic()) >= self._next_sample:
            self._next_sample = now + SAMPLE_SECONDS
            start = int(now * 1e6) % (len(body) - SAMPLE_BYTES) if len(body) > SAMPLE_BYTES else 0
            self._samples.append(body[start : start + SAMPLE_BYTES])

    def samples_bodies(self) -> None:
        """Sample from now on."""
        if self._next_sample == math.inf:
            self._next_sample = 0.0

    def take_samples(self, most: int) -> list[bytes]:
        """Take the newest bodies that were put aside, and drop the others."""
        taken = list(self._samples)[-most:] if most > 0 else []
        self._samples.clear()
        return taken

    def margins(self, batch: ExampleBatch) -> npt.NDArray[np.float64]:
        """Margins float64[r]; `predict` returns their sigmoids."""
        return self.config.margins(self.mirror.replica.state, batch)


class Models:
    def __init__(self, topology: Topology, settings: LimitSettings, shortcut: Shortcut | None = None) -> None:
        """`shortcut`: a way to load a model other than from its state in Redis."""
        self._topology = topology
        self._shortcut = shortcut
        self._settings = settings
        self.exist = False
        """If there was a model in Redis at the last refresh; refreshed while none is open."""
        self.lost = LostModels()
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
        """The models whose mirrors are loaded."""
        done = [task for task in self._open.values() if task.done() and not task.cancelled()]
        return [task.result() for task in done if task.exception() is None]

    async def names(self) -> list[str]:
        async with self.channel() as channel:
            return sorted(name.decode() for name in await channel.call("SMEMBERS", MODELS))

    async def create(self, name: str, config: ModelConfig) -> tuple[OpenModel, bool]:
        """Returns the model, and True if it is new. Raises ModelConflict if another one of that name exists,
        AliasConflict.
        """
        created = await self.ensure(name, config)
        return await self.get(name), created

    async def ensure(self, name: str, config: ModelConfig) -> bool:
        """Does the same without loading the model."""
        async with self.channel() as channel:
            created = await ensure_model(channel, name, config)
            await self.lost.end(channel, name)
        if created:  # one that is still open was deleted
            self._forget(name, self._open.get(name))
        return created

    async def check(self, name: str) -> None:
        """Raises UnknownModel, StateUnavailable, ContractMismatch if the model could not be loaded."""
        async with self.channel() as channel:
            checked_config(name, await read_meta(channel, name))

    async def delete(self, name: str) -> None:
        """Also of a model that Redis has lost: that is then no longer reported. Raises UnknownModel."""
        async with self.channel() as channel:
            if await self.lost.accept(channel, name):
                return
            # From the index first: if another process re-creates the model meanwhile, its name stays.
            await channel.call("SREM", MODELS, name)
            meta = await read_meta(channel, name)
            await delete_model(channel, ModelKeys(name, meta.incarnation))
            if meta.follows:
                await forget_follower(channel, meta.follows.keys, name)
        self._forget(name, self._open.get(name))

    async def figures(self, model: OpenModel) -> bytes | None:
        """The evaluation that its learner published last, as JSON; None before the first.

        Raises StateUnavailable.
        """
        async with self.channel() as channel:
            found: list[bytes | None] = await channel.call(
                "HMGET", model.mirror.replica.keys.evaluation, FIGURES, SLICE_FIGURES
            )
            return None if found[0] is None else with_slices(found[0], found[1])

    async def past(self, model: OpenModel, span: Span, after_ms: int) -> Past:
        """The history of its figures later than `after_ms`. Raises StateUnavailable."""
        async with self.channel() as channel:
            return await read_past(channel, model.mirror.replica.keys, span, after_ms)

    async def repair_index(self) -> None:
        """Makes the index list the models whose meta exists. The meta decides, never the index."""
        async with self.channel() as channel:
            known = set(await channel.call("SMEMBERS", MODELS))
            for name in known:
                if not await channel.call("EXISTS", meta_key(name.decode())):
                    await channel.call("SREM", MODELS, name)
            missing = {name async for name in _names_of_metas(self._topology)} - known
            if missing:  # a full server refuses SADD even if it changes nothing
                await channel.call("SADD", MODELS, *missing)

    async def watch(self) -> None:
        """Refreshes permanently."""
        while True:
            await asyncio.sleep(MODELS_POLL_SECONDS)
            if self.lost.reports or not self.opened():
                try:
                    await self.refresh()
                except (StateUnavailable, ServerFull) as away:
                    log.debug("the models stay as last read: %s", away.detail)

    async def refresh(self) -> None:
        """Reads whether there is a model, and what was lost. Raises StateUnavailable, ServerFull."""
        async with self.channel() as channel:
            exist = False
            for name in await channel.call("SMEMBERS", MODELS):
                exist = exist or bool(await channel.call("EXISTS", meta_key(name.decode())))
            self.exist = exist
            await self.lost.refresh(channel)

    async def close(self) -> None:
        await cancel_all([*self._open.values(), *self._followers])

    async def _load(self, name: str) -> OpenModel:
        try:
            with gone_is_unknown():
                mirror = await Mirror.open(self._topology, name, self._shortcut)
        except (*CONNECTION_FAILURES, ResponseError) as failure:
            raise StateUnavailable(
                f"Model {name!r} is not in memory and cannot be loaded from Redis: {failure}"
            ) from failure
        model = OpenModel(mirror, self._settings)
        opening = asyncio.current_task()
        follower = asyncio.create_task(self._follow(model, opening), name=f"mirror of {name}")
        self._followers.add(follower)
        follower.add_done_callback(self._followers.discard)
        return model

    async def _follow(self, model: OpenModel, opening: asyncio.Task[Any] | None) -> None:
        try:
            await model.mirror.follow()
        except ModelGone:
            self._forget(model.name, opening)
            await self.report_gone(model.mirror.replica)
        except ContractMismatch as refusal:
            log.error("%s", refusal.detail)  # noqa: TRY400  a trace adds nothing
        finally:
            self._forget(model.name, opening)
            await model.close()

    async def report_gone(self, replica: Replica) -> None:
        """Logs that the model of this copy no longer exists, and reports it as lost unless it was deleted."""
        name = replica.keys.model
        try:
            async with self.channel() as channel:
                if not await self.lost.report_gone(channel, replica):
                    log.info("model %s was deleted", name)
            await self.refresh()
        except (StateUnavailable, ServerFull) as away:
            log.error("model %s is no longer in Redis: %s", name, away.detail)  # noqa: TRY400

    def _forget(self, name: str, opening: asyncio.Task[Any] | None) -> None:
        if opening is not None and self._open.get(name) is opening:
            del self._open[name]

    @contextlib.asynccontextmanager
    async def channel(self) -> AsyncIterator[Channel]:
        """A connection for a few calls. Raises StateUnavailable if Redis does not answer, ServerFull, and
        UnknownModel for ModelGone.
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
    """Names of all models on all servers. Raises what Channel.call raises."""
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
    """Creates the model unless it exists; returns True if it did. An existing model is the same if it
    has this configuration now or had it at creation, also by the defaults of then; changes of its feedback
    since then stay.

    Raises ModelConflict if the existing model is another one, AliasConflict, and what Channel.call raises.
    """
    await check_free(channel, name)
    fields = new_meta(config)
    while (created := await create_model(channel, name, fields)) is Creation.NAME_CLAIMED:
        await take_back_claim(channel, name)
    if created is Creation.EXISTS:
        meta = await read_meta(channel, name)
        stored = checked_config(name, meta)
        same = (stored.canonical(), config_at_creation(name, meta).canonical())
        if not {config.canonical(), config.with_former_defaults().canonical()} & set(same):
            raise ModelConflict(
                f"Model {name!r} exists with {difference(stored, config)}; {_way(stored, config)}."
            )
    await channel.call("SADD", MODELS, name)
    return created is Creation.CREATED


def difference(stored: ModelConfig, asked: ModelConfig) -> str:
    """Describes the first field in which they differ."""
    ours, theirs = stored.to_json(), asked.to_json()
    for part, values in ours.items():
        for name, value in values.items():
            if theirs[part].get(name) != value:
                return f"{part}.{name} = {json.dumps(value)}, not {json.dumps(theirs[part].get(name))}"
    return "another configuration"


def _way(stored: ModelConfig, asked: ModelConfig) -> str:
    """Describes how to get from the one to the other."""
    rest = replace(stored, feedback=replace(asked.feedback, exposure=stored.feedback.exposure))
    patched = asked.canonical() == rest.canonical()
    return "PATCH changes that in place" if patched else "keep it as it is, or delete it with its log first"


def new_meta(config: ModelConfig) -> dict[str, str | bytes | int]:
    """Fields of the meta of a new model, under a new incarnation."""
    evidence = config.evidence_before_learning().text()
    return {
        "format": FORMAT_VERSION,
        "incarnation": secrets.token_hex(8),
        "generation": 0,
        "token": secrets.token_bytes(8),
        "config": config.canonical(),
        "fingerprint": config.hashing.fingerprint,
        "applied": str(LOG_START),
        **dict.fromkeys(("applied_number", "appended", "t", "commit", "skipped"), 0),
        **({"discount": evidence} if evidence else {}),
    }

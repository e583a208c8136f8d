"""The names of each model's most seen features, for people: state, log and snapshots have only their hashes.

An API process puts a body aside from time to time (OpenModel.sample), and looks at the names in it later, so
that no request waits for it. A number halves in a week, compared with those that are added then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json import JSONDecodeError, JSONDecoder
from typing import Any

from mmh3 import mmh3_32_uintdigest as murmur
from redis.exceptions import OutOfMemoryError, ResponseError

from model_core.errors import InvalidInput
from model_core.hashing.contract import HashContract, Limits
from model_core.hashing.encoder import FeatureEncoder, Features
from model_core.learning.explanation import NamedHash, naming_encoder
from service.models.config.model import limits_of
from service.models.registry import Models, OpenModel
from service.models.replica import ModelGone, read_meta
from service.settings.groups import LimitSettings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import Follows, ModelKeys
from service.storage.scripts.names import note_names, read_names
from service.storage.topology import Topology

log = logging.getLogger(__name__)

MAX_NAMES = 10_000
MAX_NAME_BYTES = 300
NAMES_A_CALL = 500
POLL_SECONDS = 1.0
WRITE_SECONDS = 10.0
READ_SECONDS = 10.0
BODIES_A_POLL = 10
EXAMPLES_A_BODY = 5
_HALF_LIFE_SECONDS = 7 * 24 * 3600.0
_SINCE = 1.75e9
"""Unix time at which one more counts 1: float64 holds what it counts until the year 2044."""

_FAILURES = (*CONNECTION_FAILURES, ResponseError)
_decoder = JSONDecoder()

Slots = Mapping[int, list[str]]
"""The names in each slot, the most seen first."""


class FeatureNames:
    """Notes and looks up names, for all models of a process."""

    def __init__(self, topology: Topology, models: Models, limits: LimitSettings, *, enabled: bool) -> None:
        """enabled: otherwise nothing is noted, and what was noted before is deleted."""
        self._channel = Channel(topology, shared="polls")
        self._models = models
        self._limits = limits_of(limits)
        self._enabled = enabled
        self._of_models: dict[ModelKeys, _OfModel] = {}
        self._warned = False

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.poll()

    async def poll(self) -> None:
        """Look at the names in what was put aside, and write those that are due. A name that cannot be
        written now is forgotten.
        """
        opened = {model.mirror.replica.keys: model for model in self._models.opened()}
        self._of_models = {keys: self._known(keys, model) for keys, model in opened.items()}
        bodies = BODIES_A_POLL
        for keys, model in opened.items():
            mine = self._of_models[keys]
            if self._enabled:
                model.samples_bodies()
                bodies -= mine.look_at(model.take_samples(bodies))
            try:
                await self._write(mine)
            except _FAILURES as failure:
                self._report(keys.model, failure)

    async def slots(self, model: OpenModel) -> Slots:
        """Look up the names in each slot, as they were in Redis up to READ_SECONDS ago, or when it last
        answered.
        """
        if not self._enabled:
            return {}
        keys = model.mirror.replica.keys
        mine = self._of_models[keys] = self._known(keys, model)
        if (now := time.monotonic()) >= mine.read_next:
            mine.read_next = now + READ_SECONDS  # also after a failure: no caller waits soon again
            with contextlib.suppress(*_FAILURES):
                noted = await read_names(self._channel, learned_keys(keys, model.mirror.replica.follows))
                mine.slots = slots_of(noted, model.config.hashing)
                mine.read_next = now + (READ_SECONDS if mine.slots else POLL_SECONDS)
        return mine.slots

    def _report(self, model: str, failure: Exception) -> None:
        """Warn once of what may not end by itself, such as a Redis user without the rights for it."""
        lasts = isinstance(failure, ResponseError) and not isinstance(failure, OutOfMemoryError)
        level = logging.WARNING if lasts and not self._warned else logging.DEBUG
        self._warned = self._warned or lasts
        log.log(level, "names of features of model %s are not stored: %s", model, failure)

    def _known(self, keys: ModelKeys, model: OpenModel) -> _OfModel:
        """A promotion gives a model another contract."""
        known, contract = self._of_models.get(keys), model.config.hashing
        if known is not None and known.encoder.contract == contract:
            return known
        return _OfModel(keys, naming_encoder(contract, self._limits))

    async def _write(self, mine: _OfModel) -> None:
        if not self._enabled:
            if not mine.deleted:
                await self._channel.call("UNLINK", mine.keys.names)
                mine.deleted = True
            return
        if mine.seen and (now := time.monotonic()) >= mine.write_next:
            seen, mine.seen = mine.seen, Counter()
            mine.write_next = now + WRITE_SECONDS
            await add_names(self._channel, mine.keys, weighted(seen))
            mine.read_next = 0.0

    async def close(self) -> None:
        await self._channel.close()


class _OfModel:
    def __init__(self, keys: ModelKeys, encoder: FeatureEncoder) -> None:
        self.keys = keys
        self.encoder = encoder
        self.seen: Counter[str] = Counter()
        self.slots: Slots = {}
        self.write_next = self.read_next = 0.0
        self.deleted = False

    def look_at(self, bodies: Sequence[bytes]) -> int:
        """Count the names in bodies; return how many bodies there were."""
        for body in bodies:
            self.seen.update(names_in(features_in(body), self.encoder))
        return len(bodies)


async def add_names(channel: Channel, keys: ModelKeys, seen: Mapping[str, float]) -> None:
    """Add to the numbers of names. Raises what Channel.call raises."""
    names = list(seen.items())
    for start in range(0, len(names), NAMES_A_CALL):
        if not await note_names(channel, keys, dict(names[start : start + NAMES_A_CALL]), MAX_NAMES):
            return


async def note_first_names(channel: Channel, model: str, seen: Mapping[str, float]) -> None:
    """Note names of a model that was just created or loaded. A failure is no matter: requests bring names,
    too.
    """
    with contextlib.suppress(ModelGone, *_FAILURES):
        keys = ModelKeys(model, (await read_meta(channel, model)).incarnation)
        await add_names(channel, keys, seen)


async def copy_names(channel: Channel, source: ModelKeys, clone: str) -> None:
    """Let a clone have the names of its source, with the same remark on failures."""
    with contextlib.suppress(*_FAILURES):
        await note_first_names(channel, clone, await read_names(channel, source))


def learned_keys(keys: ModelKeys, champion: Follows | None) -> ModelKeys:
    """The keys of the model whose log a model learns: a challenger's features come to its champion."""
    return keys if champion is None else champion.keys


def weighted(seen: Mapping[str, float]) -> dict[str, float]:
    """Numbers of now in the units of all times: they grow, where those of before would have to shrink."""
    factor = 2.0 ** ((time.time() - _SINCE) / _HALF_LIFE_SECONDS)
    return {name: number * factor for name, number in seen.items()}


def slots_of(names: Iterable[str], contract: HashContract) -> dict[int, list[str]]:
    """The slots that these features have by the contract, with the names in each, in their order."""
    slots: dict[int, list[str]] = {}
    for name in names:
        slots.setdefault(murmur(name.encode(), contract.seed) & (contract.size - 1), []).append(name)
    return slots


def names_in(examples: Iterable[Features], encoder: FeatureEncoder) -> Iterator[str]:
    """The texts that are hashed, of all features of valid examples; no long ones. `encoder`: naming."""
    for features in examples:
        try:
            hashes = encoder.encode(features).hashes
        except (InvalidInput, TypeError):  # a part of a body, at which a name was taken for a field
            continue
        for one in hashes:
            assert isinstance(one, NamedHash)
            if len(one.name) <= MAX_NAME_BYTES:
                yield one.name


def names_seen(examples: Iterable[Features], contract: HashContract, limits: Limits) -> Counter[str]:
    """How often each name occurs in examples."""
    return Counter(names_in(examples, naming_encoder(contract, limits)))


def features_in(body: bytes) -> list[Features]:
    """The features of at most EXAMPLES_A_BODY examples in the body of a request, or in a part of it."""
    text = body.decode("utf-8", "replace")
    try:
        request = json.loads(text)
    except (JSONDecodeError, RecursionError):
        return _in_part(text)
    if not isinstance(request, dict):
        return []
    items: list[Any] = request.get("examples") or request.get("instances") or [request]
    context = _pairs(request.get("context", {}))
    found = [item["features"] for item in items if "features" in item][:EXAMPLES_A_BODY]
    return [context + _pairs(features) if context else features for features in found]


def _pairs(features: Features) -> list[Any]:
    return [list(pair) for pair in features.items()] if isinstance(features, Mapping) else features


def _in_part(text: str) -> list[Features]:
    """The features of the first example that begins in a part of a body, if the part has all of it."""
    _, field, rest = text.partition('"features"')
    _, colon, value = rest.partition(":")
    with contextlib.suppress(JSONDecodeError, RecursionError):
        if field and colon:
            found, _ = _decoder.raw_decode(value.lstrip())
            return [found] if isinstance(found, dict | list) else []
    return []

"""What models have kept, for whoever does not predict with them: without their states, so that nobody waits
until one is loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

import numpy as np
from redis.exceptions import ResponseError

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from service.errors import ContractMismatch, StateUnavailable, UnknownModel
from service.example_log.ids import packed_id
from service.feedback.recorder import MOST_A_CALL
from service.feedback.store import Sought, Waiting, entries_of
from service.models.config.model import ModelConfig, checked_config
from service.models.registry import Models, RequestHashing
from service.models.replica import ModelGone, read_meta
from service.runtime.coalescer import Asked, Coalescer
from service.settings import Settings
from service.storage.channel import Channel
from service.storage.errors import CONNECTION_FAILURES, was_cut
from service.storage.keys import ModelKeys
from service.storage.topology import Topology

ABSENT_SECONDS = 1.0
"""How long a model that was not there is taken not to be."""

Look = Callable[[RequestHashing], Sequence[Sought]]
"""What is sought, as a model hashes it. Raises InvalidInput where it is none for it."""


class Looks:
    """Of one process, at whichever models it has to."""

    def __init__(self, topology: Topology, models: Models, settings: Settings) -> None:
        self._topology = topology
        self._models = models
        self._settings = settings
        self._kept: dict[str, _Kept] = {}
        self._absent: dict[str, float] = {}  # until when nobody asks again

    async def known(self, model: str, look: Look) -> list[str]:
        """A letter for each as Waiting.known says it. Raises UnknownModel, ContractMismatch, InvalidInput,
        StateUnavailable where the server does not say so within its time-out.
        """
        try:
            async with asyncio.timeout(self._settings.redis_timeout_seconds):
                return await self._known(model, look)
        except (*CONNECTION_FAILURES, ResponseError) as failure:  # TimeoutError is one of them
            raise StateUnavailable(f"Redis does not say what {model!r} has kept: {failure}") from failure

    async def _known(self, model: str, look: Look) -> list[str]:
        if self._absent.get(model, 0.0) > time.monotonic():
            raise UnknownModel(model)
        kept = self._kept.get(model) or await self._found(model)
        try:
            return await kept.known(look(kept.hashing))
        except ModelGone:
            if self._kept.get(model) is kept:
                del self._kept[model]
                await kept.close()
        kept = await self._found(model)  # another one of that name
        try:
            return await kept.known(look(kept.hashing))
        except ModelGone:
            raise StateUnavailable(f"Model {model!r} was deleted or created anew.") from None

    async def _found(self, model: str) -> _Kept:
        try:
            async with self._models.channel() as channel:
                meta = await read_meta(channel, model)
        except UnknownModel:
            self._absent[model] = time.monotonic() + ABSENT_SECONDS
            raise
        config, keys = checked_config(model, meta), ModelKeys(model, meta.incarnation)
        if model not in self._kept:  # nobody else was quicker
            self._kept[model] = _Kept(self._topology, keys, config, meta.feedback, self._settings)
        return self._kept[model]

    async def close(self) -> None:
        while self._kept:
            _, kept = self._kept.popitem()
            await kept.close()


class _Kept:
    """By one incarnation of a model. `stored`: see Meta.feedback."""

    def __init__(
        self, topology: Topology, keys: ModelKeys, config: ModelConfig, stored: bytes, settings: Settings
    ) -> None:
        self.hashing = RequestHashing(config.hashing, settings)
        self._channel = Channel(topology)
        self._waiting = Waiting(keys, config.feedback, settings, stored)
        self._looks = Coalescer[Sequence[Sought], list[str]](self._together, MOST_A_CALL)

    async def known(self, sought: Sequence[Sought]) -> list[str]:
        """Raises ModelGone, ContractMismatch, and what Channel.call raises."""
        letters: list[str] = []
        for start in range(0, len(sought), MOST_A_CALL):
            part = sought[start : start + MOST_A_CALL]
            letters += await self._looks.submit(part, len(part))
        return letters

    async def _together(self, together: list[Asked[Sequence[Sought], list[str]]]) -> None:
        try:
            letters = iter(await self._letters([one for asked in together for one in asked.request]))
        except (ModelGone, ContractMismatch, *CONNECTION_FAILURES, ResponseError) as failure:
            for asked in together:  # if they still wait
                asked.refuse(failure)
            return
        for asked in together:
            asked.answer(list(islice(letters, asked.size)))

    async def _letters(self, sought: Sequence[Sought]) -> str:
        """By a second attempt where the connection ended under the first, as at a restart."""
        try:
            return await self._waiting.known(self._channel, sought)
        except CONNECTION_FAILURES as failure:
            if not was_cut(failure):
                raise
            return await self._waiting.known(self._channel, sought)

    async def close(self) -> None:
        await self._looks.close()
        await self._channel.close()


LAG_SECONDS = 10
"""How long after a switch predictions of the model of before are taken for ones of the alias: another process
goes on with it until it has heard of it and has loaded the other, which may take longer still.
"""


class Earlier:
    """Where those of one request may be that have an id of the caller's. `others`: models that the alias has
    meant. `latest`: until when (Unix seconds) it may have meant them. `read`: the request as a model hashes
    it, which raises InvalidInput where it is none for it.
    """

    def __init__(
        self,
        looks: Looks,
        others: Sequence[str],
        latest: float,
        ids: Sequence[str | None],
        read: Callable[[RequestHashing], ExampleBatch],
    ) -> None:
        self._looks = looks
        self._others = others
        self._latest = int(latest) + LAG_SECONDS
        self._ids = ids
        self._read = read

    async def known(self) -> str:
        """A letter for each: S kept with the same features, X with others, U not known there, or whoever may
        know it does not answer: that it is kept twice does less harm than that it is not kept.
        """
        letters = {row: "U" for row, text in enumerate(self._ids) if text}
        for other in self._others:
            if rows := [row for row, letter in letters.items() if letter == "U"]:
                # Who is not there, or cannot read it, has kept none like this.
                with contextlib.suppress(UnknownModel, ContractMismatch, InvalidInput, StateUnavailable):
                    found = await self._looks.known(other, partial(self._sought, rows))
                    letters |= zip(rows, found, strict=True)
        return "".join(letters.get(row, "U") for row in range(len(self._ids)))

    def _sought(self, rows: Sequence[int], hashing: RequestHashing) -> list[Sought]:
        batch = self._read(hashing)
        packed = [packed_id(text or "") for text in self._ids]
        entries = entries_of(packed, batch, np.zeros(len(batch)), 0, b"")
        return [Sought(entries[2 * k], entries[2 * k + 1], self._latest) for k in rows]

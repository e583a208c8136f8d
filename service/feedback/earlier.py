"""Predictions that may be sent again, through an alias that was switched since they were kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import numpy as np

from model_core.errors import InvalidInput
from model_core.examples import ExampleBatch
from service.errors import ContractMismatch, LabelsUnavailable, LogFull, StateUnavailable
from service.feedback.identity import packed_id
from service.feedback.service import Feedback
from service.feedback.waiting import Sought, entries_of
from service.models import OpenModel

LAG_SECONDS = 10
"""How long after a switch another process may still go on with the model of before: until it has heard of it
and has loaded the other.
"""


class Earlier:
    """Where those of one request may be that have an id of the caller's. `others`: models that the alias has
    meant. `latest`: until when (Unix seconds) it may have meant them. `read`: the request as a model hashes
    it, which raises InvalidInput where it is none for it.
    """

    def __init__(
        self,
        feedback: Feedback,
        others: AsyncIterator[OpenModel],
        latest: float,
        ids: Sequence[str | None],
        read: Callable[[OpenModel], ExampleBatch],
    ) -> None:
        self._feedback = feedback
        self._others = others
        self._latest = int(latest) + LAG_SECONDS
        self._ids = ids
        self._read = read

    async def known(self) -> str:
        """A letter for each: S kept with the same features, X with others, U not known there, or whoever may
        know it does not answer: that it is kept twice does less harm than that it is not kept.
        """
        letters = ["U" if text else "" for text in self._ids]
        try:
            async for other in self._others:
                await self._ask(other, letters)
        except (StateUnavailable, LabelsUnavailable, ContractMismatch, LogFull):
            pass
        return "".join(letter or "U" for letter in letters)

    async def _ask(self, other: OpenModel, letters: list[str]) -> None:
        rows = [k for k, letter in enumerate(letters) if letter == "U"]
        if not rows:
            return
        try:
            batch = self._read(other)
        except InvalidInput:  # so it has kept none like this
            return
        packed = [packed_id(text or "") for text in self._ids]
        entries = entries_of(packed, batch, np.zeros(len(batch)), 0, b"")
        sought = [Sought(entries[2 * k], entries[2 * k + 1], self._latest) for k in rows]
        found = await self._feedback.known(other, sought)
        for k, letter in zip(rows, found, strict=True):
            letters[k] = letter

"""Predictions that may be sent again, through an alias that was switched since they were kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from model_core.errors import InvalidInput
from model_core.examples import ExampleBatch
from service.errors import ContractMismatch, StateUnavailable, UnknownModel
from service.feedback.identity import packed_id
from service.feedback.looking import Looks
from service.feedback.waiting import Sought, entries_of
from service.models import RequestHashing

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

"""Every Redis key name, in one place; the byte layouts are in `records.py`.

Each key of model M carries the hash tag ``{M}``: one model is one cluster slot, so its commits are atomic.
All but ``meta``, ``learner`` and ``alias`` carry the model's incarnation too, so that nothing of a deleted
model is ever taken for its successor's.
"""

from __future__ import annotations

from dataclasses import dataclass

MODELS = "ftrl:models"

ALIASES = "ftrl:aliases"
"""A hash: alias -> the model that it means; alias/model -> until when (Unix seconds) predictions may wait
that this model, which it meant before, has logged; ALIAS_CHANGES -> the number of the last change;
ALIAS_SINCE + alias -> when it came to mean its model (microseconds).
"""

ALIAS_CHANGES = "/changes"

ALIAS_SINCE = "/since/"

META_PATTERN = "ftrl:{*}:meta"

WAITING_SHARDS = 8

_WAITING = "waiting-2:"
"""The number is another one wherever waiting.lua lays out what waits otherwise, so that none is misread."""


def meta_key(model: str) -> str:
    return f"ftrl:{{{model}}}:meta"


def lease_key(model: str) -> str:
    return f"ftrl:{{{model}}}:learner"


def alias_key(name: str) -> str:
    """Says that the name is that of an alias, and so of no model."""
    return f"ftrl:{{{name}}}:alias"


@dataclass(frozen=True, slots=True)
class ModelKeys:
    """The keys of one incarnation of a model."""

    model: str
    incarnation: str

    @property
    def meta(self) -> str:
        return meta_key(self.model)

    @property
    def lease(self) -> str:
        return lease_key(self.model)

    @property
    def log(self) -> str:
        return self._of_incarnation("log")

    @property
    def commits(self) -> str:
        return self._of_incarnation("commits")

    @property
    def evaluation(self) -> str:
        return self._of_incarnation("evaluation")

    @property
    def snapshot_requests(self) -> str:
        """A list in which the learner finds who asks for a snapshot."""
        return self._of_incarnation("snapshot-requests")

    def snapshot_reply(self, request: str) -> str:
        """A list in which who asked finds the answer."""
        return self._of_incarnation(f"snapshot-reply:{request}")

    @property
    def slices(self) -> str:
        return self._of_incarnation("slices")

    @property
    def events_prefix(self) -> str:
        """What the scripts complete with the hour (Unix time / 3600) of the bucket."""
        return self._of_incarnation("events:")

    @property
    def feedback(self) -> str:
        """How many predictions wait, in how many bytes, and how many there were of each fate."""
        return self._of_incarnation(f"{_WAITING}index")

    @property
    def impressions_prefix(self) -> str:
        """What the scripts complete with the shard of the predictions that wait."""
        return self._of_incarnation(f"{_WAITING}impressions:")

    @property
    def impressions(self) -> list[str]:
        """The predictions that wait."""
        return [f"{self.impressions_prefix}{shard}" for shard in range(WAITING_SHARDS)]

    @property
    def due_prefix(self) -> str:
        """What the scripts complete with the kind of predictions and when they are due, in Unix seconds."""
        return self._of_incarnation(f"{_WAITING}due:")

    @property
    def state_prefix(self) -> str:
        return self._of_incarnation("state:")

    def state(self, generation: int) -> str:
        return f"{self.state_prefix}{generation}"

    def _of_incarnation(self, part: str) -> str:
        return f"ftrl:{{{self.model}}}:{self.incarnation}:{part}"

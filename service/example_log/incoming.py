"""Examples and labels as a request brings them: checked and hashed, not yet in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import Encoded

if TYPE_CHECKING:
    from service.models.evaluation.slices import SliceName


class NewExample(NamedTuple):
    """One example of a request; `weight` is its weight over its sample rate."""

    encoded: Encoded
    label: float
    weight: float
    event_id: str | None
    event_time_ms: int | None


class NewExamples(NamedTuple):
    """The examples of a request, in order, the event ids that the caller gave, and the values of sliced
    features that are new here.
    """

    batch: ExampleBatch
    event_ids: Sequence[str | None] | None = None
    slice_names: Mapping[int, SliceName] = MappingProxyType({})

    @classmethod
    def of(cls, examples: Sequence[NewExample]) -> NewExamples:
        batch = ExampleBatch.from_encoded(
            [example.encoded for example in examples],
            [example.label for example in examples],
            [example.weight for example in examples],
            [example.event_time_ms for example in examples],
        )
        return cls(batch, [example.event_id for example in examples])

    @classmethod
    def joined(cls, parts: Sequence[NewExamples]) -> NewExamples:
        """All examples of `parts`, as `of` makes them, in order."""
        batch = ExampleBatch.concatenate([part.batch for part in parts])
        return cls(batch, [event_id for part in parts for event_id in part.event_ids or ()])


class NewLabel(NamedTuple):
    """A label for a logged prediction; `weight` is its weight over its sample rate."""

    prediction_id: str
    label: float
    weight: float

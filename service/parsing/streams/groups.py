"""Consecutive lines of a stream, read: what is appended and answered together."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import Features
from model_core.text.problems import Labels, Namespaces
from service.errors import FieldError, field_error
from service.example_log.incoming import NewExamples, NewLabel
from service.models.evaluation.slices import SliceName
from service.models.registry import OpenModel
from service.settings.groups import LimitSettings

GROUP_LINES = 2000
"""Max lines of a group: about as many as the learner commits together."""
THREAD_BYTES = 1 << 16
"""Lines of this size together are parsed in a thread, since that takes longer than changing to it."""
SAMPLED_LINES = 5
"""Lines of a group without JSON whose features are noted by name."""

OpenNow = Callable[[], Awaitable[OpenModel]]
"""Opens the model that the stream is for: an alias may mean another one from now on."""


class BadLine(NamedTuple):
    """A line that is not taken, and why; `column` counts bytes from 1, None where that is not known."""

    line: int
    error: FieldError
    column: int | None = None


def bad_line(line: int, wrong: InvalidInput, column: int | None = None) -> BadLine:
    """Describe what is wrong with a line."""
    return BadLine(line, field_error(wrong.path, wrong.detail, wrong.code), column)


@dataclass
class Group:
    """Lines `first` to `last`, blank and bad ones included; rows of a table count as lines.

    example_lines: the line of each example. labels: those of logged predictions, by their lines.
    """

    model: OpenModel
    first: int
    last: int
    examples: NewExamples
    example_lines: Sequence[int]
    labels: dict[int, NewLabel] = field(default_factory=dict)
    bad_lines: list[BadLine] = field(default_factory=list)

    def before(self, line: int) -> Group:
        """Return the same group without the lines from `line` on."""
        count = sum(one < line for one in self.example_lines)
        ids = self.examples.event_ids
        examples = self.examples._replace(
            batch=self.examples.batch.slice(0, count), event_ids=None if ids is None else ids[:count]
        )
        labels = {number: label for number, label in self.labels.items() if number < line}
        bad = [wrong for wrong in self.bad_lines if wrong.line < line]
        return Group(self.model, self.first, line - 1, examples, self.example_lines[:count], labels, bad)


class StreamOptions(NamedTuple):
    """What a request says of its lines: `labels` and `namespaces` are of Vowpal Wabbit text."""

    limits: LimitSettings
    labels: Labels = "minus_plus"
    namespaces: Namespaces = "ignore"


class StreamFormat(Protocol):
    """A format, one per module. `media_types` announce it; the first is its own."""

    @property
    def media_types(self) -> tuple[str, ...]: ...

    def check(self) -> None:
        """Raise UnsupportedMediaType if what it needs is not installed."""

    def read(
        self, pieces: AsyncIterator[bytes], open_now: OpenNow, options: StreamOptions
    ) -> AsyncIterator[Group]:
        """Yield the lines of a body in groups, as they come.

        Raises what `pieces` and `open_now` raise, and InvalidInput if the rest of the body cannot be read.
        """


def joined(parts: Sequence[NewExamples]) -> NewExamples:
    """Return the examples of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    names: dict[int, SliceName] = {}
    for part in parts:
        names.update(part.slice_names)
    batch = ExampleBatch.concatenate([part.batch for part in parts])
    if all(part.event_ids is None for part in parts):
        return NewExamples(batch, None, names)
    ids = [one for part in parts for one in part.event_ids or [None] * len(part.batch)]
    return NewExamples(batch, ids, names)


def json_of_features(examples: Iterable[Features]) -> bytes:
    """Return the body of a request that has these features, for what is looked for in bodies."""
    items = [{"features": features} for features in examples]
    return json.dumps({"examples": items}, ensure_ascii=False).encode("utf-8", "replace")

"""JSON lines, each the body of an update of one example, or the label of a logged prediction.

Ordinary lines go through the kernel that reads bodies, many at once. Where it does not read some lines, it is
tried with an eighth of them at a time; a line that it does not read alone is read by pydantic and
FeatureEncoder, which alone define what is valid.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from model_core.errors import InvalidInput
from model_core.json.shape import check_values
from service.example_log.incoming import NewExamples, NewLabel
from service.models.registry import OpenModel
from service.parsing.duplicate_names import name_count, refuse_repeated_names
from service.parsing.event_time import are_plausible
from service.parsing.examples import one_item
from service.parsing.field_errors import field_errors
from service.parsing.large_bodies import LARGE_BYTES, max_values
from service.parsing.schemas import UpdateFields
from service.parsing.streams.groups import (
    THREAD_BYTES,
    BadLine,
    Group,
    StreamOptions,
    bad_line,
    joined,
)
from service.parsing.streams.lines import LineFormat, Lines

_PARTS = 8
_LINES_PER_TURN = 25  # read by FeatureEncoder, before other requests are answered
_BLANKS = b" \t\r"
_COLUMN = re.compile(r" at line 1 column (\d+)")
_REQUEST: TypeAdapter[UpdateFields] = TypeAdapter(UpdateFields)

Numbered = Sequence[tuple[int, bytes]]


@dataclass
class _Found:
    """What has been read of a group so far, in the order of the lines."""

    parts: list[NewExamples] = field(default_factory=list)
    example_lines: list[int] = field(default_factory=list)
    labels: dict[int, NewLabel] = field(default_factory=dict)
    bad_lines: list[BadLine] = field(default_factory=list)


class _Reader:
    def __init__(self, model: OpenModel, options: StreamOptions) -> None:
        self._model = model
        self._parser = model.parser.twin()
        self._max_weight = options.limits.max_weight
        self._max_values = max_values(options.limits.max_features)
        self._max_examples = options.limits.max_examples
        self._careful_lines = 0

    async def read(self, lines: Lines) -> Group:
        found = _Found()
        numbered = [
            (number, text) for number, text in enumerate(lines.texts, lines.first) if text.strip(_BLANKS)
        ]
        for start in range(0, len(numbered), self._max_examples):  # the kernel has room for so many
            await self._read(numbered[start : start + self._max_examples], found)
        examples = joined(found.parts) if found.parts else NewExamples.of([])
        last = lines.first + len(lines.texts) - 1
        return Group(
            self._model, lines.first, last, examples, found.example_lines, found.labels, found.bad_lines
        )

    async def _read(self, lines: Numbered, found: _Found) -> None:
        examples = await self._by_kernel([text.strip(_BLANKS) for _, text in lines])
        if examples is not None:
            found.parts.append(examples)
            found.example_lines += [number for number, _ in lines]
        elif len(lines) == 1:
            await self._carefully(*lines[0], found)
        else:
            size = -(-len(lines) // _PARTS)
            for start in range(0, len(lines), size):
                await self._read(lines[start : start + size], found)

    async def _by_kernel(self, texts: list[bytes]) -> NewExamples | None:
        """Return the examples, or None if not each of the lines is an ordinary one.

        Joined by a comma and a newline, as many lines as there are examples are one example each: no text of
        JSON has a newline, and no object of an example follows on a comma, so that none begins in one line
        and ends in another.
        """
        if not all(text[0] == ord("{") and text[-1] == ord("}") for text in texts):
            return None
        body = b'{"examples":[%b]}' % b",\n".join(texts)
        if len(body) < THREAD_BYTES:
            parsed = self._parser.update(body)
        else:
            parsed = await asyncio.to_thread(self._parser.update, body)
        if parsed is None or len(parsed.batch) != len(texts):
            return None
        if parsed.batch.event_times.size and not are_plausible(parsed.batch.event_times):
            return None
        self._model.sample(body)
        return NewExamples(parsed.batch, parsed.event_ids, self._model.new_slice_names(body))

    async def _carefully(self, number: int, text: bytes, found: _Found) -> None:
        self._careful_lines += 1
        if self._careful_lines % _LINES_PER_TURN == 0:
            await asyncio.sleep(0)
        try:
            if len(text) > LARGE_BYTES:
                await asyncio.to_thread(check_values, text, self._max_values)
            request = _REQUEST.validate_json(text)
            refuse_repeated_names(text, name_count(request, ("features",)))
            item = one_item(self._model.encoder, request, self._max_weight)
        except ValidationError as invalid:
            found.bad_lines.append(_described(number, invalid))
        except InvalidInput as wrong:
            found.bad_lines.append(bad_line(number, wrong))
        else:
            if isinstance(item, NewLabel):
                found.labels[number] = item
                return
            self._model.sample(text)
            names = self._model.new_slice_names(text)
            found.parts.append(NewExamples.of([item])._replace(slice_names=names))
            found.example_lines.append(number)


def _described(line: int, invalid: ValidationError) -> BadLine:
    (first, *_) = field_errors(invalid.errors(include_url=False, include_input=False))
    place = _COLUMN.search(first["detail"])
    if place is None:
        return BadLine(line, first)
    first["detail"] = _COLUMN.sub("", first["detail"])
    return BadLine(line, first, int(place[1]))


NDJSON = LineFormat(("application/x-ndjson", "application/ndjson", "application/jsonl"), _Reader)

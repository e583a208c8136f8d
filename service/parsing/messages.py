"""Messages of a stream, each with one example, to hashed examples; and what is wrong with bad ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

from model_core.errors import InvalidInput
from model_core.hashing.contract import HashContract, Limits
from model_core.hashing.encoder import Encoded, FeatureEncoder
from model_core.json.requests import ParsedUpdate, RequestParser
from model_core.text.problems import LineError
from service.example_log.incoming import NewExample, NewExamples
from service.models.evaluation.slices import SliceFinder
from service.parsing.event_time import are_plausible
from service.parsing.files.json_records import RecordRows, records_of
from service.parsing.files.jsonl import json_row
from service.parsing.files.rows import ReadOptions, Row

MessageFormat = Literal["jsonl", "records"]
MAX_MESSAGES = 1000
_EMPTY = "the message is empty"


class ReadMessages(NamedTuple):
    """The examples of the good messages, in their order; the errors of the others, by their positions."""

    examples: NewExamples
    errors: dict[int, str]


class MessageReader:
    """Reads messages for one model.

    jsonl: each is the body of an update request of one example. records: each is an object, whose members are
    columns as in the lines of a file (see json_records.py). `slices`: of the model, if it has some.
    """

    def __init__(
        self,
        message_format: MessageFormat,
        contract: HashContract,
        limits: Limits,
        options: ReadOptions,
        slices: SliceFinder | None = None,
    ) -> None:
        self._parser = RequestParser(contract, limits, MAX_MESSAGES)
        self._encoder = FeatureEncoder(contract, limits, met=self._parser.met)
        self._slices = slices
        self._rows: RecordRows | None = None
        if message_format == "records":
            lines = options.text_options(message_format)
            self._rows = RecordRows("the message", contract, options, lines)

    def read(self, messages: Sequence[bytes]) -> ReadMessages:
        """Read at most MAX_MESSAGES messages."""
        if not messages:
            return ReadMessages(NewExamples.of([]), {})
        if self._rows is not None:
            return self._read_records(messages, self._rows)
        together = self._read_together(messages)
        return self._read_one_by_one(messages) if together is None else ReadMessages(together, {})

    def _read_records(self, messages: Sequence[bytes], rows: RecordRows) -> ReadMessages:
        found = [self._record(rows, message) for message in messages]
        good = [one for one in found if not isinstance(one, str)]
        examples = NewExamples.of([example for example, _ in good])
        if self._slices is not None:
            texts = (json.dumps(row.features).encode() for _, row in good)
            examples = examples._replace(slice_names=self._slices.found_in(b"\n".join(texts)))
        return ReadMessages(examples, _errors(found))

    def _read_together(self, messages: Sequence[bytes]) -> NewExamples | None:
        """Read messages as the list of one request; None if that is not certain to be one example of each.

        Where one object ends and the next begins, a request has only the next item of its list: so as many
        items as messages means that each message is one.
        """
        if not all(message.startswith(b"{") and message.endswith(b"}") for message in messages):
            return None
        body = b'{"examples":[%b]}' % b",".join(messages)
        parsed = self._ordinary(body)
        if parsed is None or len(parsed.batch) != len(messages):
            return None
        ids = parsed.event_ids or [None] * len(messages)
        return NewExamples(parsed.batch, ids, self._slices.found_in(body) if self._slices else {})

    def _ordinary(self, body: bytes) -> ParsedUpdate | None:
        parsed = self._parser.update(body)
        if parsed is None or (parsed.batch.event_times.size and not are_plausible(parsed.batch.event_times)):
            return None
        return parsed

    def _read_one_by_one(self, messages: Sequence[bytes]) -> ReadMessages:
        found = [self._example(message) for message in messages]
        examples = NewExamples.joined([one for one in found if not isinstance(one, str)])
        errors = _errors(found)
        if self._slices is not None:
            good = b"\n".join(one for i, one in enumerate(messages) if i not in errors)
            examples = examples._replace(slice_names=self._slices.found_in(good))
        return ReadMessages(examples, errors)

    def _example(self, message: bytes) -> NewExamples | str:
        """Return the example, or what is wrong with the message."""
        if not message.strip():
            return _EMPTY
        parsed = self._ordinary(message)
        if parsed is not None and not parsed.many:
            return NewExamples(parsed.batch, parsed.event_ids or [None])
        item = json_row(1, message, self._encoder)
        if isinstance(item, LineError):
            return item.reason
        row, encoded = item
        return NewExamples.of([_example_of(row, encoded)])

    def _record(self, rows: RecordRows, message: bytes) -> tuple[NewExample, Row] | str:
        """Return the example and its row, or what is wrong with the message."""
        item = next(records_of([message]), None)
        if item is None:
            return _EMPTY
        row = item if isinstance(item, LineError) else rows.row(item)
        if isinstance(row, LineError):
            return row.reason
        try:
            return _example_of(row, self._encoder.encode(row.features, ())), row
        except InvalidInput as invalid:
            return str(invalid)


def _example_of(row: Row, encoded: Encoded) -> NewExample:
    return NewExample(encoded, row.label, row.weight, row.event_id, row.event_time_ms)


def _errors(found: Sequence[object]) -> dict[int, str]:
    return {i: one for i, one in enumerate(found) if isinstance(one, str)}

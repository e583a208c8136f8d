"""The Arrow stream format, whose columns are features; `label` and the other fields of an update have the
names that they have in JSON. Rows count as lines.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import Encoded, FeatureEncoder, Features
from model_core.json.fields import EXAMPLE
from model_core.text.problems import LineError
from service.errors import CommandFailure, UnsupportedMediaType
from service.example_log.incoming import NewExamples
from service.models.config.model import limits_of
from service.models.registry import OpenModel
from service.parsing.files.arrow import ArrowFile, arrow_rows, require_pyarrow
from service.parsing.files.arrow_batches import ColumnEncoder, has_columns_alone
from service.parsing.files.columns import RowBuilder
from service.parsing.files.rows import ReadOptions, Row, TimeRule
from service.parsing.files.source import TextSource, UnreadableFile
from service.parsing.streams.arrow_messages import RECORD_BATCH, SCHEMA, MessageCutter
from service.parsing.streams.groups import (
    GROUP_LINES,
    SAMPLED_LINES,
    Group,
    OpenNow,
    StreamOptions,
    bad_line,
    json_of_features,
)

if TYPE_CHECKING:
    import pyarrow as pa

_FACTORS = ("weight", "sample_rate")  # null is 1


class _Arrow(NamedTuple):
    media_types: tuple[str, ...] = ("application/vnd.apache.arrow.stream",)

    def check(self) -> None:
        try:
            require_pyarrow()
        except CommandFailure:
            raise UnsupportedMediaType(
                "Arrow needs pyarrow, which this service does not have: pip install 'ftrl-service[files]', or"
                " send application/x-ndjson."
            ) from None

    async def read(
        self, pieces: AsyncIterator[bytes], open_now: OpenNow, options: StreamOptions
    ) -> AsyncIterator[Group]:
        reader: _Reader | None = None
        next_row = 1
        async for batch in _batches(pieces, int(options.limits.max_update_body_bytes)):
            for first in range(0, batch.num_rows, GROUP_LINES):
                model = await open_now()
                if reader is None or reader.model is not model:
                    reader = _Reader(model, batch.schema, options)
                piece = batch.slice(first, GROUP_LINES)
                try:
                    group = await asyncio.to_thread(reader.read, piece, next_row)
                except UnreadableFile as wrong:
                    raise InvalidInput((), str(wrong)) from wrong
                yield reader.with_slice_names(group, piece)
                next_row += piece.num_rows


ARROW = _Arrow()


async def _batches(pieces: AsyncIterator[bytes], longest: int) -> AsyncIterator[pa.RecordBatch]:
    """Yield the record batches as they are complete. Raises what `pieces` raises, and InvalidInput."""
    import pyarrow as pa
    from pyarrow import ipc

    cutter, inflow = MessageCutter(longest), io.BytesIO()
    stream: ipc.RecordBatchStreamReader | None = None
    async for piece in pieces:
        for message in cutter.cut(piece):
            at = inflow.tell()
            inflow.seek(0, io.SEEK_END)
            inflow.write(message.data)
            inflow.seek(at)
            try:
                if message.kind == SCHEMA and stream is None:
                    stream = ipc.open_stream(cast(BinaryIO, _Unseekable(inflow)))
                elif message.kind == RECORD_BATCH and stream is not None:
                    batch = stream.read_next_batch()
                    batch.validate(full=True)
                    yield batch
                    _drop_what_was_read(inflow)
            except (pa.ArrowException, StopIteration, OSError) as wrong:
                raise InvalidInput((), f"the Arrow stream is damaged: {str(wrong)[:200]}") from wrong
    if not cutter.is_between and not cutter.ended:
        raise InvalidInput((), "the Arrow stream ends within a message")


class _Unseekable(io.RawIOBase):
    """Messages that are complete, to be read once."""

    def __init__(self, inflow: io.BytesIO) -> None:
        self._inflow = inflow

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        return self._inflow.read(size)


def _drop_what_was_read(inflow: io.BytesIO) -> None:
    rest = inflow.read()
    inflow.seek(0)
    inflow.truncate()
    inflow.write(rest)
    inflow.seek(0)


class _Reader:
    """Reads batches of one schema for one model. Raises UnreadableFile if a column cannot be used."""

    def __init__(self, model: OpenModel, schema: pa.Schema, options: StreamOptions) -> None:
        self.model = model
        self._source = TextSource(io.BytesIO())
        self._file = ArrowFile(list(schema.names), list(schema.types), iter(()))
        self._options = _read_options(schema, options)
        contract = model.config.hashing
        lines = self._options.text_options("arrow")
        try:
            self._builder = RowBuilder("the stream", self._file.names, contract, self._options, lines)
        except UnreadableFile as wrong:
            raise InvalidInput((), str(wrong)) from wrong
        self._encoder = FeatureEncoder(contract, self._options.limits)
        alone = has_columns_alone(self._file, self._builder, self._options, self._encoder)
        self._columns = (
            ColumnEncoder(self._source, self._builder, self._encoder, self._options) if alone else None
        )

    def read(self, batch: pa.RecordBatch, first: int) -> Group:
        """Read the rows of a batch, which have the numbers from `first` on."""
        batch = _without_null_factors(batch)
        event_ids: list[str | None] = []
        if self._columns is not None:

            def is_new(event_id: str | None) -> bool:
                event_ids.append(event_id)
                return True

            examples, errors, _ = self._columns.encoded(self._file, batch, first, is_new)
        else:
            file = self._file._replace(batches=iter((batch,)))
            rows = arrow_rows(self._source, file, self._builder, self._options)
            examples, errors, event_ids = self._encoded(rows, first)
        bad = {error.line_number for error in errors}
        last = first + batch.num_rows - 1
        good = [number for number in range(first, last + 1) if number not in bad]
        wrong = [bad_line(error.line_number, InvalidInput((), error.reason)) for error in errors]
        given = event_ids if any(one is not None for one in event_ids) else None
        return Group(self.model, first, last, NewExamples(examples, given), good, {}, wrong)

    def with_slice_names(self, group: Group, batch: pa.RecordBatch) -> Group:
        """Add the values of sliced features that are new. To be called on the event loop."""
        self.model.sample(json_of_features(self._features(batch.slice(0, SAMPLED_LINES))))
        if self.model.slices is not None:
            slice_names = self.model.new_slice_names(json_of_features(self._features(batch)))
            group.examples = group.examples._replace(slice_names=slice_names)
        return group

    def _features(self, batch: pa.RecordBatch) -> Iterator[Features]:
        file = self._file._replace(batches=iter((batch,)))
        for row in arrow_rows(self._source, file, self._builder, self._options):
            if not isinstance(row, LineError):
                yield row.features

    def _encoded(
        self, rows: Iterable[Row | LineError], first: int
    ) -> tuple[ExampleBatch, list[LineError], list[str | None]]:
        good: list[tuple[Row, Encoded]] = []
        errors: list[LineError] = []
        for row in rows:
            number = row.line_number + first - 1
            if isinstance(row, LineError):
                errors.append(row._replace(line_number=number))
                continue
            try:
                good.append((row, self._encoder.encode(row.features, ())))
            except InvalidInput as invalid:
                errors.append(LineError(number, str(invalid)))
        batch = ExampleBatch.from_encoded(
            [encoded for _, encoded in good],
            [row.label for row, _ in good],
            [row.weight for row, _ in good],
            [row.event_time_ms for row, _ in good],
        )
        return batch, errors, [row.event_id for row, _ in good]


def _read_options(schema: pa.Schema, options: StreamOptions) -> ReadOptions:
    """Give the columns that have the names of fields their roles."""
    from pyarrow import types

    role: dict[str, Any] = {name: name if name in schema.names else None for name in EXAMPLE.optional}
    time = None
    if role["event_time"]:
        kind = schema.field("event_time").type
        in_seconds = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
        time = TimeRule("event_time", "s" if in_seconds else "iso")
    return ReadOptions(
        limits=limits_of(options.limits),
        weight_column=role["weight"],
        sample_rate_column=role["sample_rate"],
        event_id_column=role["event_id"],
        time=time,
    )


def _without_null_factors(batch: pa.RecordBatch) -> pa.RecordBatch:
    for name in _FACTORS:
        if name in batch.schema.names and batch.column(name).null_count:
            at = batch.schema.get_field_index(name)
            batch = batch.set_column(at, batch.schema.field(at), batch.column(at).fill_null(1))
    return batch

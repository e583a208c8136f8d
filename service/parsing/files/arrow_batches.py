"""Encodes Parquet and Arrow column by column: each different value of a column once in a batch.

The result is that of the rows, bit for bit: the features of the columns, then those that are missing, then
the parts of the time. Rows with a value that cannot be encoded are read as rows, for the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from model_core.errors import InvalidInput
from model_core.examples.batch import NO_FLOATS, NO_INTEGERS, ExampleBatch
from model_core.examples.records import NO_TIME
from model_core.hashing.encoder import FeatureEncoder
from model_core.text.problems import LineError
from service.parsing.files.arrow import ArrowFile, values_of
from service.parsing.files.columns import RowBuilder
from service.parsing.files.rows import ReadOptions, Row
from service.parsing.files.source import TextSource

if TYPE_CHECKING:
    import pyarrow as pa

_PRESENT, _MISSING, _BAD = range(3)
_MAX_CELLS = 100_000  # of a column; more are encoded again in each batch


class _Cell(NamedTuple):
    """The feature of a value of a column; of a missing one, that which indicates it, if any."""

    feature_hash: int
    value: float
    state: int


class _Features(NamedTuple):
    """Features of n rows in c columns: hashes uint32[n, c], values float64[n, c], states uint8[n, c]."""

    hashes: npt.NDArray[np.uint32]
    values: npt.NDArray[np.float64]
    states: npt.NDArray[np.uint8]


def has_columns_alone(
    file: ArrowFile, builder: RowBuilder, options: ReadOptions, encoder: FeatureEncoder
) -> bool:
    """Test whether the rows can be encoded column by column: without lists, crosses and too many columns."""
    from pyarrow import types

    features = builder.feature_columns
    parts = () if options.time is None else options.time.parts
    if encoder.contract.crosses or options.lists:
        return False
    if len(features) + len(parts) > encoder.limits.features_per_example:
        return False
    return not any(types.is_nested(file.types[i]) for i in features)


class ColumnEncoder:
    """Encodes the batches of one file."""

    def __init__(
        self, source: TextSource, builder: RowBuilder, encoder: FeatureEncoder, options: ReadOptions
    ) -> None:
        self._source = source
        self._builder = builder
        self._encoder = encoder
        self._time = None if options.time is None else options.time.column
        self._cells: dict[str, dict[Any, _Cell]] = {name: {} for name in builder.feature_columns.values()}
        self._parts: dict[tuple[tuple[str, Any], ...], tuple[list[int], list[float]]] = {}
        self._indicates = encoder.contract.missing == "indicator"

    def encoded(
        self, file: ArrowFile, batch: pa.RecordBatch, number: int, is_new: Callable[[str | None], bool]
    ) -> tuple[ExampleBatch, list[LineError], int]:
        """Encode the good rows of a batch that begins with row `number`. Return the errors of the others, and
        the number of those that were left out because their event ids are not new.

        Raises UnreadableFile if a column cannot be used.
        """
        features = self._builder.feature_columns
        heads = self._heads(file, batch, number)
        found = _stacked(
            [self._column(name, batch.column(i)) for i, name in features.items()], batch.num_rows
        )
        bad = (found.states == _BAD).any(axis=1)
        rows: list[Row] = []
        places: list[int] = []
        errors: list[LineError] = []
        duplicates = 0
        for i, head in enumerate(heads):
            if isinstance(head, LineError):
                errors.append(head)
            elif bad[i]:
                errors.append(self._error_of(file, batch.slice(i, 1), number + i))
            elif is_new(head.event_id):
                rows.append(head)
                places.append(i)
            else:
                duplicates += 1
        chosen = _Features(found.hashes[places], found.values[places], found.states[places])
        return self._batch(chosen, rows), errors, duplicates

    def _heads(self, file: ArrowFile, batch: pa.RecordBatch, number: int) -> list[Row | LineError]:
        features = self._builder.feature_columns
        columns = [
            values_of(self._source, name, column, is_time=name == self._time)
            if used and i not in features
            else repeat(None)
            for i, (name, column, used) in enumerate(
                zip(file.names, batch.columns, self._builder.used, strict=True)
            )
        ]
        return [
            self._builder.without_columns(number + i, values)
            for i, values in enumerate(zip(*columns, strict=False))
        ]

    def _column(self, name: str, column: pa.Array) -> _Features:
        """Encode a column of n values: arrays of [n]."""
        from pyarrow import types

        if types.is_decimal(column.type):
            column = column.cast("float64")
        if not types.is_dictionary(column.type):
            column = column.dictionary_encode()
        different = values_of(self._source, name, column.dictionary, is_time=False)
        cells = [*map(self._cell, repeat(name), different), self._new_cell(name, None)]
        codes = column.indices.fill_null(len(cells) - 1).to_numpy(zero_copy_only=False)
        hashes, values, states = zip(*cells, strict=True)
        return _Features(
            np.array(hashes, np.uint32)[codes],
            np.array(values, np.float64)[codes],
            np.array(states, np.uint8)[codes],
        )

    def _cell(self, name: str, value: Any) -> _Cell:
        if isinstance(value, float):  # 0.0 and -0.0 would be one; they hardly recur, either
            return self._new_cell(name, value)
        known = self._cells[name]
        cell = known.get(value)
        if cell is None:
            if len(known) >= _MAX_CELLS:
                known.clear()
            cell = known[value] = self._new_cell(name, value)
        return cell

    def _new_cell(self, name: str, value: Any) -> _Cell:
        try:
            feature = self._builder.feature(name, value)
            hashes, values = self._encoder.encode({name: feature}, ())
        except InvalidInput:
            return _Cell(0, 1.0, _BAD)
        state = _MISSING if feature is None else _PRESENT
        return _Cell(hashes[0] if hashes else 0, 1.0 if values is None else values[0], state)

    def _error_of(self, file: ArrowFile, row: pa.RecordBatch, number: int) -> LineError:
        """Read one bad row as a whole, for the reason."""
        columns = [
            values_of(self._source, name, column, is_time=name == self._time) if used else [None]
            for name, column, used in zip(file.names, row.columns, self._builder.used, strict=True)
        ]
        found = self._builder.row(number, [values[0] for values in columns])
        if isinstance(found, LineError):
            return found
        try:
            self._encoder.encode(found.features, ())
        except InvalidInput as invalid:
            return LineError(number, str(invalid))
        raise AssertionError(f"row {number} has a bad value, and none is found")

    def _batch(self, found: _Features, rows: Sequence[Row]) -> ExampleBatch:
        """Put the features of each row in the order of the encoder: present, missing, parts of the time."""
        hashes, values = [found.hashes], [found.values]
        chosen = [found.states == _PRESENT]
        if self._indicates:
            hashes.append(found.hashes)
            values.append(np.ones_like(found.values))
            chosen.append(found.states == _MISSING)
        if any(row.features for row in rows):
            of_rows = [self._encoded_parts(row) for row in rows]
            counts = np.array([len(hashes) for hashes, _ in of_rows])
            shown = np.arange(counts.max()) < counts[:, None]
            of_parts = np.zeros(shown.shape, np.uint32), np.ones(shown.shape)
            of_parts[0][shown] = np.concatenate([hashes for hashes, _ in of_rows])
            of_parts[1][shown] = np.concatenate([values for _, values in of_rows])
            hashes.append(of_parts[0])
            values.append(of_parts[1])
            chosen.append(shown)
        mask = np.concatenate(chosen, axis=1)
        row_values = np.concatenate(values, axis=1)[mask]
        weights = np.array([row.weight for row in rows], np.float64)
        times = [row.event_time_ms for row in rows]
        return ExampleBatch(
            np.concatenate([np.zeros(1, np.int64), np.cumsum(mask.sum(axis=1))]).astype(np.int64),
            np.concatenate(hashes, axis=1)[mask],
            NO_FLOATS if (row_values == 1.0).all() else row_values,
            np.array([row.label for row in rows], np.float64),
            NO_FLOATS if (weights == 1.0).all() else weights,
            NO_INTEGERS
            if all(time is None for time in times)
            else np.array([NO_TIME if time is None else time for time in times], np.int64),
        )

    def _encoded_parts(self, row: Row) -> tuple[list[int], list[float]]:
        """Return hashes and values of the parts of its time."""
        parts = tuple(dict(row.features).items())
        if parts not in self._parts:
            hashes, values = self._encoder.encode(dict(parts), ())
            self._parts[parts] = hashes, [1.0] * len(hashes) if values is None else values
        return self._parts[parts]


def _stacked(columns: Sequence[_Features], rows: int) -> _Features:
    if not columns:
        return _Features(np.empty((rows, 0), np.uint32), np.empty((rows, 0)), np.empty((rows, 0), np.uint8))
    hashes, values, states = zip(*columns, strict=True)
    return _Features(np.stack(hashes, axis=1), np.stack(values, axis=1), np.stack(states, axis=1))

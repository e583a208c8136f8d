"""Parquet and Arrow files: their values are what they are in JSON."""

from __future__ import annotations

import datetime as dt
import io
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract, Limits
from model_core.hashing.encoder import FeatureEncoder
from model_core.text.problems import LineError
from service.errors import CommandFailure
from service.parsing.files.reader import read_examples, read_rows
from service.parsing.files.rows import Format, ReadOptions, Row
from service.parsing.files.schema import schema_of
from service.parsing.files.source import InputFiles, UnreadableFile
from tests.support.arrow_files import write_arrow

pa = pytest.importorskip("pyarrow", reason="the extra `files` is not installed")

FORMATS: list[Format] = ["parquet", "arrow"]
CONTRACT = HashContract(numeric="raw")
OPTIONS = ReadOptions()
UTC = dt.UTC

COLUMNS = {
    "label": [1, 0, 1],
    "text": ["x", None, ""],
    "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
    "yes": [True, False, None],
    "whole": [7, None, -3],
    "real": [0.5, float("nan"), None],
    "price": [Decimal("1.50"), None, Decimal("2.00")],
    "tags": [["x", None, "y"], [], None],
    "sizes": pa.array([[1.5], [2.0, 3.0], []], pa.list_(pa.float32())),
    "struct": [{"a": 1}, {"a": 2}, None],
}
FEATURES = [
    {
        "text": "x",
        "kind": "a",
        "yes": True,
        "whole": 7,
        "real": 0.5,
        "price": 1.5,
        "tags": ["x", "y"],
        "sizes": [1.5],
    },
    {"kind": "b", "yes": False, "tags": [], "sizes": [2.0, 3.0]},
    {"kind": "a", "whole": -3, "price": 2.0, "sizes": []},
]


def rows_of(path: Path, options: ReadOptions = OPTIONS, contract: HashContract = CONTRACT) -> Any:
    file_format: Format = "parquet" if path.suffix == ".parquet" else "arrow"
    return list(read_rows(path, file_format, contract, options))


@pytest.mark.parametrize("file_format", FORMATS)
def test_values_are_what_they_are_in_json(file_format: Format, tmp_path: Path) -> None:
    path = write_arrow(tmp_path / f"clicks.{file_format}", COLUMNS)
    rows = rows_of(path, ReadOptions(ignored_columns=frozenset({"struct"})))
    assert [(row.line_number, row.label) for row in rows] == [(1, 1), (2, 0), (3, 1)]
    assert [row.features for row in rows] == FEATURES


@pytest.mark.parametrize("file_format", FORMATS)
def test_batches_and_rows_hold_the_same_examples(file_format: Format, tmp_path: Path) -> None:
    columns = {"label": [i % 3 for i in range(20_000)], "a": [f"v{i % 7}" for i in range(20_000)]}
    path = write_arrow(tmp_path / f"clicks.{file_format}", columns)
    rows = rows_of(path)
    with InputFiles(path) as log:
        chunks = list(read_examples(log, file_format, CONTRACT, OPTIONS))
        assert log.size == path.stat().st_size
    batch = ExampleBatch.concatenate([chunk.batch for chunk in chunks])
    good = [row for row in rows if isinstance(row, Row)]
    assert np.array_equal(batch.labels, [row.label for row in good])
    assert [e for chunk in chunks for e in chunk.errors] == [
        row for row in rows if isinstance(row, LineError)
    ]
    assert rows[2] == LineError(3, "the label '2' is no number from 0 to 1")
    progress = [chunk.bytes_read for chunk in chunks]
    assert progress == sorted(progress)


CONTRACTS = [
    {},
    {"numeric": "raw"},
    {"numeric": "log", "missing": "indicator", "types": {"whole": "category", "text": "number"}},
    {"numeric": {"scale": 100}, "types": {"real": "number", "yes": "category"}},
    {"crosses": [["text", "whole"]], "missing": "indicator"},
]


def random_columns(rows: int, seed: int) -> dict[str, Any]:
    chance = np.random.default_rng(seed)

    def drawn(*values: Any) -> list[Any]:
        return [values[i] for i in chance.integers(0, len(values), rows)]

    return {
        "label": drawn(0, 1, 1, 0, 2),
        "w": drawn(1.0, 1.0, 0.5, -1.0),
        "id": drawn(*range(rows), None),
        "t": pa.array(drawn(1_500_000_000_000, 1_500_003_600_000, None), pa.timestamp("ms")),
        "text": drawn("7", "x", "", "NULL", None, "7.0"),
        "kind": pa.array(drawn("a", "b", None)).dictionary_encode(),
        "yes": drawn(True, False, None),
        "whole": drawn(0, 7, -3, 2**40, None),
        "real": drawn(0.5, -0.0, 0.0, 7.0, 1e7, float("nan"), None),
        "price": drawn(Decimal("1.50"), None, Decimal("2.00")),
    }


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize(
    "document",
    [{}, {"time": {"column": "t", "parts": ["hour", "day_sin", "week_cos", "weekday"]}, "weight": "w"}],
)
def test_columns_and_rows_are_encoded_alike(contract: Any, document: Any, tmp_path: Path) -> None:
    asked = schema_of({"event_id": "id", "null": ["NULL"], **(document or {"drop": ["t"]})}, "it")
    options = asked.options(Limits())
    hashing = HashContract.from_json(contract)
    path = write_arrow(tmp_path / "clicks.parquet", random_columns(500, len(str(contract))))
    rows = list(read_rows(path, "parquet", hashing, options))
    chunks = list(read_examples(path, "parquet", hashing, options, chunk_rows=64))
    seen: set[str | None] = {None}
    kept = []
    for row in rows:
        if isinstance(row, Row) and (row.event_id is None or row.event_id not in seen):
            seen.add(row.event_id)
            kept.append(row)
    encoder = FeatureEncoder(hashing)
    expected = ExampleBatch.from_encoded(
        [encoder.encode(row.features) for row in kept],
        [row.label for row in kept],
        [row.weight for row in kept],
        [row.event_time_ms for row in kept],
    )
    found = ExampleBatch.concatenate([chunk.batch for chunk in chunks])
    for name in ("row_ptr", "hashes", "values", "labels", "weights", "event_times"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes()), name
    assert [e for chunk in chunks for e in chunk.errors] == [
        row for row in rows if isinstance(row, LineError)
    ]
    good = sum(isinstance(row, Row) for row in rows)
    assert sum(chunk.duplicates for chunk in chunks) == good - len(kept) > 0


def test_labels_weights_and_ids_have_any_type(tmp_path: Path) -> None:
    path = write_arrow(
        tmp_path / "clicks.parquet",
        {"label": [True, False], "w": [2, 0.5], "id": [7, None], "n": [1, 2], "c": [7, 8]},
    )
    asked = schema_of({"weight": "w", "event_id": "id", "types": {"c": "category"}}, "it")
    contract = HashContract.from_json(asked.hashing)
    rows = rows_of(path, asked.options(Limits()), contract)
    assert rows == [
        Row(1, {"n": 1, "c": 7}, 1, 2.0, "7"),
        Row(2, {"n": 2, "c": 8}, 0, 0.5),
    ]


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_timestamp_is_the_time_of_the_example(file_format: Format, tmp_path: Path) -> None:
    moment = dt.datetime(2017, 7, 14, 2, 40, 0, 250_000, tzinfo=UTC)
    for name, values in {
        "naive": pa.array([moment.replace(tzinfo=None)], pa.timestamp("ns")),
        "aware": pa.array([moment], pa.timestamp("ms", "Asia/Tokyo")),
        "date": pa.array([moment.date()]),
    }.items():
        path = write_arrow(tmp_path / f"{name}.{file_format}", {"label": [1], "t": values})
        asked = schema_of({"time": {"column": "t", "parts": ["hour"]}}, "it")
        (row,) = rows_of(path, asked.options(Limits()))
        day = 1499990400000
        assert row.event_time_ms == (day if name == "date" else 1500000000250)
        assert row.features == {"hour": "0" if name == "date" else "2"}
        with pytest.raises(UnreadableFile, match=r"the column 't' is of type .*name it as the time"):
            rows_of(path)


@pytest.mark.parametrize("file_format", FORMATS)
def test_what_is_no_such_file_is_named_with_the_reason(file_format: Format, tmp_path: Path) -> None:
    path = tmp_path / f"clicks.{file_format}"
    path.write_text("label,a\n1,x\n" * 10)
    with pytest.raises(UnreadableFile, match=f"this is no {file_format} file: "):
        rows_of(path)
    write_arrow(path, {"label": [1] * 1000, "struct": [{"a": i} for i in range(1000)]})
    with pytest.raises(UnreadableFile, match=r"the column 'struct' is of type struct<.*leave it out"):
        rows_of(path, ReadOptions())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnreadableFile, match=f"this is no {file_format} file|the file is damaged"):
        rows_of(path)


def test_an_arrow_stream_is_read_from_a_pipe(tmp_path: Path) -> None:
    write_arrow(tmp_path / "clicks.stream", {"label": [1, 0], "a": ["x", "y"]})

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    stream = Pipe((tmp_path / "clicks.stream").read_bytes())
    assert [
        row.features for row in read_rows(stream, "arrow", CONTRACT, OPTIONS) if isinstance(row, Row)
    ] == [
        {"a": "x"},
        {"a": "y"},
    ]
    with pytest.raises(UnreadableFile, match="a Parquet file cannot be read from a pipe"):
        list(read_rows(Pipe(b"PAR1"), "parquet", CONTRACT, OPTIONS))


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "clicks.parquet", {"label": [1]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CommandFailure, match=r"pip install 'ftrl-service\[files\]'"):
        rows_of(path)

"""Files of examples in every format, read as batches and as rows."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import zstandard

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract, Limits
from model_core.hashing.encoder import Encoded, FeatureEncoder
from model_core.text.problems import LineError
from service.parsing.files.columns import parse_columns
from service.parsing.files.reader import Chunk, EventIds, Format, ReadOptions, Row, read_examples, read_rows
from service.parsing.files.source import InputFiles, TextSource, UnreadableFile, files_of
from tests.support.shared_data import shared_file
from tests.support.waiting import wait_until

CONTRACT = HashContract(numeric="raw")
OPTIONS = ReadOptions()
CRITEO = parse_columns("label,I1-I13,C1-C26")

VW = b"1 2.0 |f a=x b:0.5\nwhat\n\n-1 |f a=y\n"
CSV = b'label,a,b\n1,x,0.5\n0,"y, z",\n1,x\n2,x,1\n'
JSONL = (
    b'{"features": {"a": "x", "b": 0.5}, "label": 1, "weight": 2}\n'
    b'{"features": {"a": "x"}, "label": -1}\n'
    b"\n"
    b'{"features": {"a": "y"}, "label": false, "event_id": "e1", "event_time": "2000-01-01T00:00:01Z"}\n'
)


def rows_of(
    data: bytes, file_format: Format, options: ReadOptions = OPTIONS, contract: HashContract = CONTRACT
) -> Any:
    return list(read_rows(io.BytesIO(data), file_format, contract, options))


def chunks_of(data: bytes, file_format: Format, options: ReadOptions = OPTIONS, **sizes: Any) -> list[Chunk]:
    return list(read_examples(io.BytesIO(data), file_format, CONTRACT, options, **sizes))


def joined(chunks: list[Chunk]) -> ExampleBatch:
    return ExampleBatch.concatenate([chunk.batch for chunk in chunks])


def encoded_rows(batch: ExampleBatch) -> list[tuple[list[int], list[float], int, float]]:
    values = batch.values if batch.values.size else np.ones(batch.hashes.size)
    weights = batch.weights if batch.weights.size else np.ones(len(batch))
    bounds = batch.row_ptr.tolist()
    return [
        (batch.hashes[a:b].tolist(), values[a:b].tolist(), int(label), float(weight))
        for a, b, label, weight in zip(bounds, bounds[1:], batch.labels, weights, strict=False)
    ]


def encoded(row: Row, contract: HashContract = CONTRACT) -> tuple[list[int], list[float], float, float]:
    features: Encoded = FeatureEncoder(contract).encode(row.features)
    return features.hashes, features.values or [1.0] * len(features.hashes), row.label, row.weight


@pytest.mark.parametrize(
    ("data", "file_format"), [(VW, "vw"), (JSONL, "jsonl"), (b"1 3:0.5\n-1 4:1\n", "libsvm")]
)
def test_batches_and_rows_hold_the_same_examples(data: bytes, file_format: Format) -> None:
    rows = rows_of(data, file_format)
    chunks = chunks_of(data, file_format)
    assert encoded_rows(joined(chunks)) == [encoded(row) for row in rows if isinstance(row, Row)]
    assert [e for chunk in chunks for e in chunk.errors] == [
        row for row in rows if isinstance(row, LineError)
    ]


def test_vw_rows_are_the_features_of_their_json() -> None:
    rows = rows_of(VW, "vw")
    assert rows[0] == Row(1, {"a": "x", "b": 0.5}, 1, 2.0)
    assert rows[1].line_number == 2
    assert rows[2] == Row(4, {"a": "y"}, 0)


def test_a_row_that_cannot_be_sent_is_an_error() -> None:
    rows = rows_of(b"1 | a:1e7\n1 | a=x:2\n", "vw")
    assert [type(row) for row in rows] == [LineError, Row]
    assert "1e+06" in rows[0].reason


def test_an_empty_file_has_no_examples() -> None:
    for file_format in ("vw", "libsvm", "csv", "tsv", "jsonl"):
        assert rows_of(b"", file_format) == []
        assert sum(len(chunk.batch) for chunk in chunks_of(b"", file_format)) == 0


@pytest.mark.parametrize("chunk_bytes", [1, 7, 100])
def test_vw_chunks_of_any_size_give_the_same(chunk_bytes: int) -> None:
    lines = b"".join(b"%d | a=%d b\n" % (1 - 2 * (i % 2), i) for i in range(50)) + b"bad\n1 | last"
    whole, pieces = chunks_of(lines, "vw"), chunks_of(lines, "vw", chunk_bytes=chunk_bytes)
    assert encoded_rows(joined(pieces)) == encoded_rows(joined(whole))
    assert [e for chunk in pieces for e in chunk.errors] == whole[0].errors
    assert whole[0].errors[0].line_number == 51


def test_rows_come_in_chunks_of_the_requested_size() -> None:
    data = b"".join(b'{"features": {}, "label": %d}\n' % (i % 2) for i in range(10)) + b"bad\n"
    chunks = chunks_of(data, "jsonl", chunk_rows=4)
    assert [len(chunk.batch) for chunk in chunks] == [4, 4, 2]
    assert [e.line_number for e in chunks[2].errors] == [11]


def test_csv_has_a_header_and_its_values_are_text() -> None:
    rows = rows_of(CSV, "csv")
    assert rows[:2] == [Row(2, {"a": "x", "b": "0.5"}, 1), Row(3, {"a": "y, z"}, 0)]
    assert rows[2] == LineError(4, "2 values for 3 columns")
    assert rows[3].line_number == 5
    assert "'2'" in rows[3].reason


def test_columns_can_be_named_for_a_file_without_a_header() -> None:
    options = ReadOptions(columns=("a", "label", "b"))
    assert rows_of(b"x\t1\ty\n\t0\t\n", "tsv", options) == [Row(1, {"a": "x", "b": "y"}, 1), Row(2, {}, 0)]


def test_label_weight_and_ignored_columns_are_no_features() -> None:
    options = ReadOptions(
        label_column="click", weight_column="w", ignored_columns=frozenset({"id"}), labels="minus_plus"
    )
    rows = rows_of(b"id,click,w,a\n7,-1,0.5,x\n8,1,-3,x\n", "csv", options)
    assert rows[0] == Row(2, {"a": "x"}, 0, 0.5)
    assert "weight" in rows[1].reason


def test_declared_numbers_are_numbers_and_must_be() -> None:
    contract = HashContract(types={"n": "number", "id": "category"}, numeric="raw")
    rows = rows_of(
        b"label,n,id\n1,0.5,007\n0,7,7\n1,,x\n1,h1f,x\n1,nan,x\n1,2e6,x\n", "csv", contract=contract
    )
    assert rows[:3] == [
        Row(2, {"n": 0.5, "id": "007"}, 1),
        Row(3, {"n": 7, "id": "7"}, 0),
        Row(4, {"id": "x"}, 1),
    ]
    assert ["decimal number" in row.reason for row in rows[3:5]] == [True, True]
    assert "1e+06" in rows[5].reason


def test_an_empty_value_is_null_for_the_missing_indicator() -> None:
    rows = rows_of(b"label,a,b\n1,,x\n", "csv", contract=HashContract(missing="indicator"))
    assert rows == [Row(2, {"b": "x", "a": None}, 1)]


def test_newlines_in_quotes_keep_line_numbers_right() -> None:
    rows = rows_of(b'label,a\r\n1,"x\ny"\r\n\r\n0,"it""s"\r\n7,z\r\n', "csv")
    assert rows[:2] == [Row(2, {"a": "x\ny"}, 1), Row(5, {"a": 'it"s'}, 0)]
    assert rows[2].line_number == 6


def test_malformed_quotes_are_errors_of_their_line() -> None:
    rows = rows_of(b'label,a\n1,"x"y\n0,z\n1,"open\n', "csv")
    assert [type(row) for row in rows] == [LineError, Row, LineError]
    assert [row.line_number for row in rows] == [2, 3, 4]


def test_tsv_has_no_quotes() -> None:
    assert rows_of(b'label\ta\n1\t"x\n0\ty"z\n', "tsv") == [Row(2, {"a": '"x'}, 1), Row(3, {"a": 'y"z'}, 0)]


def test_invalid_utf8_is_an_error_of_its_line() -> None:
    rows = rows_of(b"label,a\n1,\xff\n0,\xc3\xa9\n", "csv")
    assert rows[0].line_number == 2
    assert "UTF-8" in rows[0].reason
    assert rows[1] == Row(3, {"a": "é"}, 0)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"a,b\n", "no column 'label' among a, b: give that of the file with --label-column"),
        (b"label,a,a\n", "'a'"),
        (b"label,a=b\n", "'='"),
        (b'label,"a"x\n', "line 1"),
        (b"label,\xff\n", "UTF-8"),
    ],
)
def test_useless_columns_are_an_error_of_the_file(data: bytes, says: str) -> None:
    with pytest.raises(UnreadableFile, match="the file: ") as caught:
        rows_of(data, "csv")
    assert says in str(caught.value)


def test_a_label_of_the_other_kind_names_the_flag_that_reads_it() -> None:
    (error,) = rows_of(b"0 1:2\n", "libsvm")
    assert (
        error.reason
        == "the label '0' is neither 1 nor -1: --labels zero_one reads 0 and 1, and what is between"
    )
    (error,) = rows_of(b"label,a\n-1,x\n", "csv")
    assert error.reason == "the label '-1' is no number from 0 to 1: --labels minus_plus reads -1 and 1"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"features": {}}', "label: this field is required"),
        ('{"label": 1}', "features: this field is required"),
        ('{"features": 1, "label": 1}', "features: must be an object, or a list of pairs of name and value"),
        ('{"features": {}, "label": 1, "weight": "2"}', "weight: must be a number"),
        ('{"features": {}, "label": 1, "event_id": ""}', "event_id: must not be empty"),
    ],
)
def test_a_wrong_json_line_is_described_as_a_request_is(line: str, reason: str) -> None:
    assert rows_of(f"{line}\n".encode(), "jsonl") == [LineError(1, reason)]


def test_a_name_that_is_given_to_two_columns_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is there twice: each column needs a name of its own"):
        parse_columns("label,I1-I3,I2")


def test_ranges_of_columns_are_spelt_out() -> None:
    assert CRITEO[:3] == ("label", "I1", "I2")
    assert (len(CRITEO), CRITEO[-1]) == (40, "C26")
    assert parse_columns("a-b,x9-x7,x1-y2,1-3") == ("a-b", "x9-x7", "x1-y2", "1", "2", "3")
    with pytest.raises(InvalidInput):
        parse_columns("a,,b")


def test_json_lines_are_bodies_of_update_requests() -> None:
    rows = rows_of(JSONL, "jsonl")
    assert rows[0] == Row(1, {"a": "x", "b": 0.5}, 1, 2.0)
    assert rows[1].line_number == 2
    assert "use 0" in rows[1].reason
    assert rows[2] == Row(4, {"a": "y"}, 0, 1.0, "e1", 946684801000)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "JSON"),
        ("[]", "object"),
        ('{"features": {}}', "label"),
        ('{"label": 1}', "features"),
        ('{"features": {"a": [null]}, "label": 1}', "features.a[0]"),
        ('{"features": {"a": NaN}, "label": 1}', "features.a"),
        ('{"features": {}, "label": 1, "wait": true}', "wait"),
        ('{"features": {}, "label": 1, "weight": "2"}', "weight"),
        ('{"features": {}, "label": 1, "weight": -1}', "weight"),
        ('{"features": {}, "label": 1, "event_time": 14102100}', "YYMMDDHH"),
        ('{"examples": []}', "examples"),
    ],
)
def test_bad_json_lines_are_errors(line: str, says: str) -> None:
    rows = rows_of(f"{line}\n".encode(), "jsonl")
    assert [row.line_number for row in rows] == [1]
    assert says in rows[0].reason


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        (".gz", gzip.compress),
        (".GZ", gzip.compress),
        (".xz", lzma.compress),
        (".bz2", bz2.compress),
        (".ZST", zstandard.compress),
        (".zst", lambda data: zstandard.compress(data[:100]) + zstandard.compress(data[100:])),
        (".lzma", partial(lzma.compress, format=lzma.FORMAT_ALONE)),
    ],
)
def test_compressed_files_are_decompressed(tmp_path: Path, suffix: str, compress: Any) -> None:
    path = tmp_path / f"clicks.vw{suffix}"
    path.write_bytes(compress(VW * 1000))
    with TextSource(path) as source:
        chunks = list(read_examples(source, "vw", CONTRACT, OPTIONS))
        assert source.size == path.stat().st_size == chunks[-1].bytes_read
    assert sum(len(chunk.batch) for chunk in chunks) == 2000


def test_progress_counts_bytes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "clicks.vw"
    path.write_bytes(VW * 1000)
    progress = [
        chunk.bytes_read for chunk in read_examples(path, "vw", CONTRACT, OPTIONS, chunk_bytes=10_000)
    ]
    assert progress == sorted(progress)
    assert progress[0] < progress[-1] == path.stat().st_size


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "piped").write_bytes(VW)
    with (tmp_path / "piped").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        (chunk,) = read_examples("-", "vw", CONTRACT, OPTIONS)
    assert (len(chunk.batch), chunk.bytes_read) == (2, len(VW))


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[VW * 10])
    writer.start()
    assert sum(len(chunk.batch) for chunk in read_examples(path, "vw", CONTRACT, OPTIONS)) == 20
    writer.join()


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert rows_of(b"\xef\xbb\xbf" + CSV, "csv")[0] == Row(2, {"a": "x", "b": "0.5"}, 1)
    assert rows_of(b"\xef\xbb\xbf" + VW, "vw")[0].label == 1
    assert rows_of(b"\xef\xbb\xbf", "vw") == []


def test_an_unreadable_file_is_named_with_the_reason(tmp_path: Path) -> None:
    truncated, garbage = tmp_path / "a.gz", tmp_path / "b.xz"
    truncated.write_bytes(gzip.compress(os.urandom(5000))[:3000])
    garbage.write_bytes(b"not xz")
    for path in (tmp_path / "none.vw", tmp_path, truncated, garbage, tmp_path / "a.zip"):
        with pytest.raises(UnreadableFile, match=str(path)):
            list(read_examples(path, "vw", CONTRACT, OPTIONS))


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress), (".zst", zstandard.compress)],
)
def test_a_truncated_or_damaged_archive_is_named_as_such(tmp_path: Path, suffix: str, compress: Any) -> None:
    path = tmp_path / f"clicks.vw{suffix}"
    whole = compress(b"".join(b"1 | a%d\n" % (i * 7919 % 100_003) for i in range(100_000)))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnreadableFile, match=r"the archive is cut off after .* bytes of text"):
        list(read_examples(path, "vw", CONTRACT, OPTIONS))
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes(64) + whole[middle + 64 :])
    with pytest.raises(UnreadableFile, match="a damaged archive"):
        list(read_examples(path, "vw", CONTRACT, OPTIONS))


def test_an_endless_line_is_refused_in_time() -> None:
    formats: list[Format] = ["vw", "jsonl"]
    for file_format in formats:
        source = TextSource(io.BytesIO(b"x" * 600_000), longest_line=1000)
        with pytest.raises(UnreadableFile, match="a line of over 1000 bytes"):
            list(read_examples(source, file_format, CONTRACT, OPTIONS, chunk_bytes=100))


class WatchedBytes(io.BytesIO):
    """Tells when it is read for the third time."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads = 0
        self.read_three_times = threading.Event()

    def read(self, count: int | None = -1, /) -> bytes:
        self.reads += 1
        if self.reads == 3:
            self.read_three_times.set()
        return super().read(count)


def test_an_event_id_that_came_before_is_a_duplicate_across_chunks() -> None:
    lines = [f'{{"features": {{"a": "{i}"}}, "label": 1, "event_id": "e{i % 3}"}}\n' for i in range(9)]
    lines.insert(0, '{"features": {"a": 1}, "label": 7, "event_id": "e0"}\n')  # a bad line takes no id
    lines += ['{"features": {}, "label": 0}\n'] * 2
    chunks = chunks_of("".join(lines).encode(), "jsonl", chunk_rows=2)
    assert sum(len(chunk.batch) for chunk in chunks) == 5
    assert sum(chunk.duplicates for chunk in chunks) == 6


def test_as_many_event_ids_are_remembered_as_stated() -> None:
    ids = EventIds(max_ids=2)
    assert [ids.is_new(i) for i in ("a", "b", "a", "c", "a", None, None)] == [
        *(True, True, False, True),  # c takes the place of a, which came first
        *(True, True, True),
    ]


def test_the_next_chunk_is_read_ahead() -> None:
    source = WatchedBytes(b"1 | a\n" * 1000)
    chunks = read_examples(source, "vw", CONTRACT, OPTIONS, chunk_bytes=60)
    next(chunks)
    assert source.read_three_times.wait(60)
    chunks.close()
    assert source.reads < 6


def test_a_reader_can_be_abandoned_half_way(tmp_path: Path) -> None:
    path = tmp_path / "clicks.vw"
    path.write_bytes(VW * 1000)
    threads = threading.active_count()
    chunks = read_examples(path, "vw", CONTRACT, OPTIONS, chunk_bytes=100)
    next(chunks)
    chunks.close()
    wait_until(lambda: threading.active_count() <= threads, "the reading thread ends")
    assert list(chunks) == []


def criteo_as_vw(rows: Iterator[Row]) -> bytes:
    return b"".join(
        "{} |f {}\n".format(
            2 * row.label - 1, " ".join(f"{n}={v}" for n, v in dict(row.features).items())
        ).encode()
        for row in rows
    )


def test_real_clicks_are_the_same_in_every_format() -> None:
    path = shared_file("criteo_1tb_day0_first10000.tsv.xz")
    options = ReadOptions(columns=CRITEO)
    batch = joined(list(read_examples(path, "tsv", CONTRACT, options)))
    rows = [row for row in read_rows(path, "tsv", CONTRACT, options) if isinstance(row, Row)]
    assert (len(batch), len(rows), int(batch.labels.sum())) == (10_000, 10_000, 265)
    expected = batch.to_bytes()
    assert joined(chunks_of(criteo_as_vw(iter(rows)), "vw")).to_bytes() == expected
    lines = "".join(json.dumps({"features": row.features, "label": row.label}) + "\n" for row in rows)
    assert joined(chunks_of(lines.encode(), "jsonl")).to_bytes() == expected


def test_a_real_table_with_a_header_is_read_by_its_names() -> None:
    path = shared_file("avazu_first9999.csv.xz")
    options = ReadOptions(label_column="click", ignored_columns=frozenset({"id"}))
    chunks = list(read_examples(path, "csv", CONTRACT, options, chunk_rows=4000))
    assert [len(chunk.batch) for chunk in chunks] == [4000, 4000, 1999]
    assert int(joined(chunks).labels.sum()) == 1706


def test_real_libsvm_is_read_exactly() -> None:
    path = shared_file("rcv1_vw_union.svm.xz")
    options = ReadOptions(limits=Limits(features_per_example=10_000))
    chunks = list(read_examples(path, "libsvm", CONTRACT, options))
    batch = joined(chunks)
    assert [error for chunk in chunks for error in chunk.errors] == []
    assert (len(batch), int(batch.labels.sum()), np.unique(batch.hashes).size) == (1846, 874, 12_709)
    rows = (row for row in read_rows(path, "libsvm", CONTRACT, options))
    for row, expected in zip(rows, encoded_rows(batch), strict=True):
        assert isinstance(row, Row)
        assert encoded(row) == expected


def write_parts(directory: Path) -> list[str]:
    """Three files of one log: of different columns, compressed and not, the last with a bad line."""
    (directory / "part-1.csv").write_text("label,a,b\n1,x,y\n0,z,y\n")
    (directory / "part-2.csv.gz").write_bytes(gzip.compress(b"b,label,a\nw,1,x\n"))
    (directory / "part-3.csv").write_text("label,a,b\n7,x,y\n1,u,v\n")
    return [str(directory / name) for name in ("part-1.csv", "part-2.csv.gz", "part-3.csv")]


def test_several_files_are_one_log_in_their_order(tmp_path: Path) -> None:
    files = write_parts(tmp_path)
    with InputFiles(*files) as log:
        rows: Any = list(read_rows(log, "csv", CONTRACT, OPTIONS))
    assert [(row.features, row.label) for row in rows if isinstance(row, Row)] == [
        ({"a": "x", "b": "y"}, 1),
        ({"a": "z", "b": "y"}, 0),
        ({"a": "x", "b": "w"}, 1),
        ({"a": "u", "b": "v"}, 1),
    ]
    assert [(row.file, row.line_number) for row in rows if isinstance(row, LineError)] == [(files[2], 2)]
    with InputFiles(*files) as log:
        chunks = list(read_examples(log, "csv", CONTRACT, OPTIONS))
    assert encoded_rows(joined(chunks)) == [encoded(row) for row in rows if isinstance(row, Row)]
    assert [error.file for chunk in chunks for error in chunk.errors] == [files[2]]
    assert log.size == sum(Path(file).stat().st_size for file in files) == chunks[-1].bytes_read


def test_an_event_id_that_came_in_an_earlier_file_is_a_duplicate(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text('{"features": {}, "label": 1, "event_id": "e1"}\n')
    with InputFiles(tmp_path / "a.jsonl", tmp_path / "b.jsonl") as log:
        chunks = list(read_examples(log, "jsonl", CONTRACT, OPTIONS))
    assert [(len(chunk.batch), chunk.duplicates) for chunk in chunks] == [(1, 0), (0, 1)]


def test_a_pattern_names_the_files_that_it_matches_in_order(tmp_path: Path) -> None:
    files = write_parts(tmp_path)
    literal = tmp_path / "part-[1].vw"
    literal.write_bytes(VW)
    assert files_of([f"{tmp_path}/part-?.csv*"]) == tuple(files)
    assert files_of([files[2], files[0]]) == (files[2], files[0])
    assert files_of([str(literal)]) == (str(literal),)
    for words, says in ((["x*.csv"], "no file matches x"), (["-", files[0]], "cannot be combined")):
        with pytest.raises(UnreadableFile, match=says):
            files_of(words)


def test_a_file_that_is_missing_is_reported_before_any_is_read(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match=r"none\.csv: No such file"):
        InputFiles(write_parts(tmp_path)[0], tmp_path / "none.csv")


def test_files_are_read_from_any_store_that_fsspec_supports() -> None:
    store: Any = fsspec.filesystem("memory")
    for number, content in enumerate((VW, VW * 2)):
        store.pipe(f"/clicks/part-{number}.vw.gz", gzip.compress(content))
    with InputFiles(*files_of(["memory://clicks/part-*.vw.gz"])) as log:
        chunks = list(read_examples(log, "vw", CONTRACT, OPTIONS))
    assert sum(len(chunk.batch) for chunk in chunks) == 6
    assert log.size == chunks[-1].bytes_read == sum(store.sizes(store.ls("/clicks", detail=False)))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("memory://clicks/none.vw", "memory://clicks/none.vw: no such file"),
        ("nowhere://clicks.vw", "nowhere://clicks.vw: Protocol not known"),
        ("memory://clicks.zip", "pipe it, `unzip -p"),
    ],
)
def test_a_url_that_cannot_be_read_is_named_with_the_reason(url: str, says: str) -> None:
    with pytest.raises(UnreadableFile, match=says):
        TextSource(url)

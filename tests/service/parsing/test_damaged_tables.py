"""Tables with stray quotes, nameless columns, other people's labels and missing values."""

from __future__ import annotations

import io
import logging
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from model_core.examples.batch import ExampleBatch
from model_core.hashing.contract import HashContract
from model_core.text.problems import LineError
from service.parsing.files.reader import Format, ReadOptions, Row, read_examples, read_rows
from service.parsing.files.records import MAX_VALUE_CHARACTERS
from service.parsing.files.source import UnreadableFile

CONTRACT = HashContract(numeric="raw")


def rows_of(
    data: bytes,
    file_format: Format = "csv",
    contract: HashContract = CONTRACT,
    **options: Any,
) -> Any:
    return list(read_rows(io.BytesIO(data), file_format, contract, ReadOptions(**options)))


def line_numbers(rows: Any, kind: type[Row] | type[LineError]) -> list[int]:
    return [row.line_number for row in rows if isinstance(row, kind)]


@pytest.mark.parametrize("good", [3, 20_000])
@pytest.mark.parametrize("ending", ["", '0,"b",c\n', '0,"b,c\n'])
def test_a_stray_quote_takes_its_own_line_alone(good: int, ending: str) -> None:
    text = "label,a,b\n1,x,y\n" + '1,"abc,def\n' + "0,x,y\n" * good + ending
    rows = rows_of(text.encode())
    assert line_numbers(rows, LineError)[0] == 3
    assert line_numbers(rows, Row)[: good + 1] == [2, *range(4, good + 4)]
    assert all(row.features == {"a": "x", "b": "y"} for row in rows[2 : good + 2])


def test_a_quoted_value_has_a_limit_that_the_error_names() -> None:
    longest = "x\n" * (MAX_VALUE_CHARACTERS // 2)
    assert rows_of(f'label,a\n1,"{longest}"\n0,y\n'.encode()) == [
        Row(2, {"a": longest}, 1),
        Row(3 + MAX_VALUE_CHARACTERS // 2, {"a": "y"}, 0),
    ]
    rows = rows_of(f'label,a\n1,"{longest}x"\n0,y\n'.encode())
    assert rows[0] == LineError(2, "a value of more than 131,072 characters, perhaps after a stray quote")
    assert rows[-1] == Row(3 + MAX_VALUE_CHARACTERS // 2, {"a": "y"}, 0)


def test_a_bad_record_of_several_lines_counts_its_lines() -> None:
    rows = rows_of(b'label,a\n7,"x\ny\nz"\n1,a\n')
    assert [(row.line_number, row.lines) for row in rows[:1]] == [(2, 3)]
    assert rows[1:] == [Row(5, {"a": "a"}, 1)]


def test_a_lone_carriage_return_in_a_line_is_named() -> None:
    rows = rows_of(b"label,a\n1,x\ry\n0,z\n")
    assert rows[0].reason == "a carriage return inside the line, outside quotes"
    assert rows[1] == Row(3, {"a": "z"}, 0)


@pytest.mark.parametrize(
    "data", [b",label,a\n0,1,x\n1,0,y\n", b"label,a,\n1,x,\n0,y,\n", b"label,,a,,\n1,7,x,,\n0,8,y,,\n"]
)
def test_nameless_columns_are_left_out_with_a_word(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert rows_of(data) == [Row(2, {"a": "x"}, 1), Row(3, {"a": "y"}, 0)]
    assert "has no name in the first line and is left out" in caplog.text


def test_spaces_around_the_names_of_columns_are_no_part_of_them() -> None:
    assert rows_of(b"label, ad ,b\n1,x,y\n") == [Row(2, {"ad": "x", "b": "y"}, 1)]
    assert rows_of(b'label, "a d", b\n1, "x, y", z\n0, x,  z\n') == [
        Row(2, {"a d": "x, y", "b": "z"}, 1),
        Row(3, {"a d": "x", "b": "z"}, 0),
    ]
    with pytest.raises(UnreadableFile, match=r"two columns are called 'a': .* give the names with --columns"):
        rows_of(b"label,a, a\n")


@pytest.mark.parametrize("labels", [None, "minus_plus"])
@pytest.mark.parametrize(("yes", "no"), [("True", "False"), ("true", "false"), ("TRUE", "FALSE")])
def test_labels_may_be_true_and_false(labels: Any, yes: str, no: str) -> None:
    rows = rows_of(f"label,a\n{yes},x\n{no},y\n".encode(), labels=labels)
    assert rows == [Row(2, {"a": "x"}, 1), Row(3, {"a": "y"}, 0)]
    assert isinstance(rows_of(b"label,a\nyes,x\n")[0], LineError)


@pytest.mark.parametrize(("file_format", "comma"), [("csv", ","), ("tsv", "\t")])
def test_what_stands_for_a_missing_value_is_missing(file_format: Format, comma: str) -> None:
    data = "label,a,b,n\n1,\\N,x,\\N\n0,NULL,\\N,2\n".replace(",", comma).encode()
    contract = HashContract(types={"n": "number"}, numeric="raw")
    assert rows_of(data, file_format, contract) == [
        Row(2, {"b": "x"}, 1),
        Row(3, {"a": "NULL", "n": 2}, 0),
    ]
    assert rows_of(data, file_format, contract, nulls=frozenset({"NULL"}))[1] == Row(3, {"n": 2}, 0)


def hashes(data: str, file_format: Format, contract: HashContract) -> tuple[list[int], list[float]]:
    options = ReadOptions(labels="zero_one")
    chunks = list(read_examples(io.BytesIO(data.encode()), file_format, contract, options))
    assert [error for chunk in chunks for error in chunk.errors] == []
    batch = ExampleBatch.concatenate([chunk.batch for chunk in chunks])
    return batch.hashes.tolist(), batch.values.tolist()


NUMBERS = [
    "7",
    "7.0",
    "7.50",
    "0",
    "-0",
    "-0.0",
    "0.1",
    "-3.25",
    "1e+3",
    "1E-3",
    "1e+16",
    "9007199254740993",
    "12345678901234567890",
    "1.0e+2",
]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("kind", ["category", "number"])
def test_a_number_is_one_feature_in_every_format(number: str, kind: Any) -> None:
    if kind == "number" and abs(float(number)) > 1e6:
        pytest.skip("out of bounds in every format")
    contract = HashContract(types={"12": kind}, numeric="raw")
    written: dict[Format, str] = {
        "jsonl": f'{{"features": {{"12": {number}}}, "label": 1}}\n',
        "vw": f"1 | 12:{number}\n",
        "libsvm": f"1 12:{number}\n",
        "csv": f"label,12\n1,{number}\n",
        "tsv": f"label\t12\n1\t{number}\n",
    }
    found = {file_format: hashes(data, file_format, contract) for file_format, data in written.items()}
    for one, other in combinations(found, 2):
        assert found[one] == found[other], (one, other)


@pytest.mark.parametrize("text", ["007", "+7", "12e34567", "7.", "1e5", "1_0", "v1.10", "", "9" * 100])
def test_what_json_would_not_write_as_a_number_stays_text(text: str) -> None:
    contract = HashContract(types={"a": "category"})
    expected = hashes(f'{{"features": {{"a": "{text}"}}, "label": 1}}\n', "jsonl", contract)
    if text:
        assert hashes(f"label,a\n1,{text}\n", "csv", contract) == expected


def test_booleans_of_a_declared_category_are_those_of_json() -> None:
    contract = HashContract(types={"a": "category"})
    expected = hashes('{"features": {"a": true}, "label": 1}\n', "jsonl", contract)
    assert hashes("label,a\n1,True\n", "csv", contract) == expected


@pytest.mark.parametrize("file_format", ["vw", "libsvm"])
def test_latin_1_is_an_error_of_its_line_with_the_way_out(file_format: Format) -> None:
    [row] = rows_of(b"1 caf\xe9\n", file_format)
    assert "iconv -f latin1" in row.reason


def test_latin_1_in_a_table_or_json_is_named() -> None:
    for data, file_format in (
        (b"label,a\n1,caf\xe9\n0,x\n", "csv"),
        (b"label\ta\n1\tcaf\xe9\n0\tx\n", "tsv"),
        (b'\n{"features": {"a": "caf\xe9"}, "label": 1}\n{"features": {"a": "x"}, "label": 0}\n', "jsonl"),
    ):
        rows = rows_of(data, file_format)  # type: ignore[arg-type]
        assert rows[0].line_number == 2
        assert "iconv -f latin1" in rows[0].reason
        assert rows[1] == Row(3, {"a": "x"}, 0)
    with pytest.raises(UnreadableFile, match="iconv -f latin1"):
        rows_of(b"label,caf\xe9\n1,x\n")


@pytest.mark.parametrize("file_format", ["vw", "libsvm", "csv", "tsv", "jsonl"])
@pytest.mark.parametrize(
    ("beginning", "says"),
    [
        (b"1 | a\r0 | b\r", r"lines end with \\r alone.*tr "),
        (b"\x1f\x8b\x08\0\0\0\0\0", "gzip data.*gzip -dc"),
        (b"PK\x03\x04\0\0\0", "zip archive.*unzip -p"),
        (b"\x28\xb5\x2f\xfd\0\0\0", "zstd data.*zstd -dc"),
        (b"\xfd7zXZ\0\0\0", "xz data.*xz -dc"),
        (b"BZh91AY&SY", "bzip2 data.*bzip2 -dc"),
        (b"PAR1\x15\0\0\0", "Parquet.*--format parquet"),
        (b"\xff\xfel\0a\0", "UTF-16.*iconv"),
    ],
)
def test_a_file_that_is_something_else_is_named(file_format: Format, beginning: bytes, says: str) -> None:
    with pytest.raises(UnreadableFile, match=says):
        rows_of(beginning, file_format)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv.zip", b"PK", "unzip -p"),
        ("a.csv.zst", b"label,a\n1,x\n", "no .zst archive, though its name says so"),
        ("a.csv.7z", b"", "7z x -so"),
        ("a.csv.gz", b"label,a\n1,x\n", "no .gz archive, though its name says so"),
        ("a.csv.xz", b"label,a\n1,x\n", "no .xz archive, though its name says so"),
        ("a.csv.bz2", b"label,a\n1,x\n", "no .bz2 archive, though its name says so"),
    ],
)
def test_an_archive_that_cannot_be_read_says_what_to_do(
    name: str, content: bytes, says: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnreadableFile, match=says):
        list(read_rows(tmp_path / name, "csv", CONTRACT, ReadOptions()))

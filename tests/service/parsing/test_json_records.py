"""JSON lines of any objects, read by a schema."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from model_core.hashing.contract import HashContract, Limits
from model_core.text.problems import LineError
from service.parsing.files.reader import read_rows
from service.parsing.files.rows import ReadOptions, Row
from service.parsing.files.schema import schema_of
from service.parsing.files.source import UnreadableFile
from service.parsing.inspection.report import inspect_file
from tests.support.messy_log import rows


def rows_of(data: str, **document: Any) -> Any:
    schema = schema_of({"format": "records", **document}, "it")
    contract = HashContract.from_json(schema.hashing)
    return list(read_rows(io.BytesIO(data.encode()), "records", contract, schema.options(Limits())))


def test_members_are_columns_and_those_of_objects_have_both_names() -> None:
    data = (
        '{"clicked": true, "user": {"id": 7, "geo": {"city": "x"}}, "tags": ["a", "b"], "price": 0.5}\n'
        "\n"
        '{"price": null, "clicked": 0, "user": {"id": "u8"}, "new": false}\n'
    )
    found = rows_of(data, label="clicked", types={"user.id": "category"})
    assert found == [
        Row(1, {"user.id": 7, "user.geo.city": "x", "tags": ["a", "b"], "price": 0.5}, 1),
        Row(3, {"user.id": "u8", "new": False}, 0),
    ]


def test_roles_are_read_from_members() -> None:
    data = '{"y": 1, "at": 1500000000250, "id": 7, "rate": 0.5, "null": "-"}\n{"y": 0}\n'
    found = rows_of(
        data,
        label="y",
        event_id="id",
        sample_rate="rate",
        time={"column": "at", "format": "ms", "parts": ["weekday"]},
        null=["-"],
    )
    assert found[0] == Row(1, {"weekday": "friday"}, 1, 2.0, "7", 1500000000250)
    assert found[1].reason == "rate: '' is not a decimal number"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "no JSON: "),
        ("[1]", "must be an object"),
        ('{"label": 1, "a": NaN}', "no JSON: NaN is no number of JSON"),
        ('{"a": 1}', "the label '' is no number from 0 to 1"),
        ('{"label": 1, "a": [[1]]}', "a[0]: a list holds only strings and numbers"),
        ('{"label": 1, "a=b": 1}', "columns.a=b: a feature's name cannot contain '='"),
    ],
)
def test_a_bad_line_is_an_error_of_its_own(line: str, says: str) -> None:
    found = rows_of(f'{{"label": 0, "a": 1}}\n{line}\n{{"label": 1}}\n')
    assert [type(item) for item in found] == [Row, LineError, Row]
    assert found[1].line_number == 2
    assert says in found[1].reason


def test_a_column_that_no_object_has_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        UnreadableFile, match=r"no column 'pric' among label, price \(did you mean 'price'\?\)"
    ):
        rows_of('{"label": 1, "price": 2}\n' * 3, types={"pric": "number"})
    assert rows_of("") == []


@pytest.mark.parametrize("name", ["clicks.jsonl", "clicks.log"])
def test_a_draft_is_made_of_records(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    kept = ("request_id", "ts", "app", "views", "tags", "clicked")
    records = [
        {key: value.split("|") if key == "tags" else value for key, value in row.items() if key in kept}
        | {"nested": [{"a": 1}]}
        for row in rows(500)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = inspect_file(str(path), None if name.endswith(".log") else "jsonl", ReadOptions(), None, 10**5)
    assert found.schema.to_json() == {
        "format": "records",
        "label": {"column": "clicked", "positive": ["yes"], "negative": ["no"]},
        "event_id": "request_id",
        "time": {"column": "ts", "format": "iso", "parts": ["hour"]},
        "drop": ["nested"],
        "types": {"app": "category", "views": "number"},
    }
    contract = HashContract.from_json(found.schema.hashing)
    read = list(read_rows(path, "records", contract, found.schema.options(Limits())))
    assert [type(item) for item in read] == [Row] * 500

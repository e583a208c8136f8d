"""The schema that is drafted from the first rows of a log, and the reasons."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_core.hashing.contract import HashContract
from model_core.text.problems import LineError
from service.errors import CommandFailure
from service.parsing.files.known_schemas import KNOWN_SCHEMAS
from service.parsing.files.reader import read_rows
from service.parsing.files.rows import Format, ReadOptions, Row
from service.parsing.files.schema import TimeColumn, schema_of
from service.parsing.inspection.columns import Column, judge, progressive_loss
from service.parsing.inspection.report import Inspection, inspect_file
from service.parsing.inspection.sniff import Sniffed, sniff
from tests.support.arrow_files import write_arrow
from tests.support.known_logs import KNOWN_LOGS
from tests.support.messy_log import NAMES, as_table, rows
from tests.support.shared_data import shared_file

OPTIONS = ReadOptions()


def inspected(path: Path, file_format: Format | None = None, **options: Any) -> Inspection:
    return inspect_file(str(path), file_format, ReadOptions(**options), None, 100_000)


def written(directory: Path, text: str) -> Path:
    path = directory / "clicks.log"
    path.write_text(text)
    return path


def kinds(found: Inspection) -> dict[str, str]:
    return {column.name: column.kind for column in found.columns}


def assert_reads_all(found: Inspection, path: Path) -> None:
    """The draft, as it is written to a file, reads every row of the log."""
    schema = schema_of(json.loads(json.dumps(found.schema.to_json())), "the draft")
    assert schema.format is not None
    contract = HashContract.from_json(schema.hashing)
    read = list(read_rows(path, schema.format, contract, schema.options(OPTIONS.limits)))
    assert [item for item in read if isinstance(item, LineError)] == []
    labels = [row.label for row in read if isinstance(row, Row)]
    assert (len(labels), sum(labels)) == (found.rows, found.clicks)


def test_the_draft_says_what_each_column_is(tmp_path: Path) -> None:
    path = written(tmp_path, as_table())
    found = inspected(path)
    assert kinds(found) == {
        "request_id": "id",
        "ts": "time",
        "app": "category",
        "ip": "category",
        "position": "category",
        "price": "number",
        "views": "number",
        "zip": "category",
        "tags": "list",
        "city": "text",
        "attributed": "leak",
        "clicked": "label",
        "state": "leak",
    }
    assert found.schema.to_json() == {
        "format": "csv",
        "null": ["NULL"],
        "label": {"column": "clicked", "positive": ["yes"], "negative": ["no"]},
        "event_id": "request_id",
        "time": {"column": "ts", "format": "iso", "parts": ["hour", "weekday"]},
        "drop": ["attributed", "state"],
        "types": {
            "price": "number",
            "views": "number",
            "app": "category",
            "ip": "category",
            "position": "category",
            "zip": "category",
        },
        "lists": {"tags": "|"},
    }
    reasons = {column.name: column.reason for column in found.columns}
    assert reasons["attributed"] == "empty exactly where the label is 0: it is known after the click only"
    assert reasons["state"].startswith("its value gives the label away: log loss 0.0")
    assert reasons["tags"].endswith("are made of 20 items")
    assert reasons["zip"] == "codes with leading zeros"
    assert "as a number" in reasons["views"]
    assert found.times is not None
    assert dt.datetime.fromtimestamp(found.times[0] / 1000, dt.UTC).date() == dt.date(2017, 11, 6)
    assert_reads_all(found, path)


@pytest.mark.parametrize("separator", ["\t", ";", "\x01"])
def test_tables_without_a_header_are_read_with_any_separator(tmp_path: Path, separator: str) -> None:
    columns = (*NAMES[1:9], "state")
    path = written(
        tmp_path, as_table(separator, header=False, columns=columns).replace(f"{separator}2\n", "\n")
    )
    text = "\n".join(
        f"{line}{separator}1" if line.count(separator) == 7 else line[:-1] + "0"
        for line in path.read_text().splitlines()
    )
    path.write_text(text + "\n")
    found = inspected(path)
    document = found.schema.to_json()
    assert document["columns"] == ["c1-c9"]
    assert document["label"] == "c9"
    assert document.get("separator") == {"\t": None}.get(separator, separator)
    assert document["format"] == ("tsv" if separator == "\t" else "csv")
    assert_reads_all(found, path)


@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_a_draft_of_typed_columns(tmp_path: Path, file_format: Format) -> None:
    pytest.importorskip("pyarrow", reason="the extra `files` is not installed")
    found_rows = list(rows())
    columns: dict[str, Any] = {
        "clicked": [row["clicked"] == "yes" for row in found_rows],
        "ts": [dt.datetime.fromisoformat(row["ts"]) for row in found_rows],
        "app": [row["app"] for row in found_rows],
        "price": [float(row["price"]) for row in found_rows],
        "tags": [row["tags"].split("|") if row["tags"] else None for row in found_rows],
        "nested": [{"a": 1}] * len(found_rows),
    }
    path = write_arrow(tmp_path / f"clicks.{file_format}", columns)
    found = inspected(path, file_format)
    assert found.schema.to_json() == {
        "format": file_format,
        "label": "clicked",
        "time": {"column": "ts", "format": "iso", "parts": ["hour", "weekday"]},
        "drop": ["nested"],
        "types": {"app": "category", "price": "number"},
    }
    assert kinds(found)["tags"] == "list"
    assert_reads_all(found, path)


@pytest.mark.parametrize("name", KNOWN_SCHEMAS)
def test_known_logs_are_recognised_by_their_columns(tmp_path: Path, name: str) -> None:
    found = inspected(written(tmp_path, KNOWN_LOGS[name] * 3 if name == "criteo" else KNOWN_LOGS[name]))
    assert found.known == name


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["1 |f a=x b:0.5", "-1 'tag |f a=y"], Sniffed("vw")),
        (["1 3:0.5 7:1 # note", "-1 qid:3 4:1"], Sniffed("libsvm")),
        (['{"features": {}, "label": 1}'], Sniffed("jsonl")),
        (["label,a", "1,x"], Sniffed("csv", None, True)),
        (["1,x", "0,y"], Sniffed("csv", None, False)),
        (["1|a|b", "0|a|c"], Sniffed("csv", "|", False)),
        (["label|a|b", "0|a|c"], Sniffed("csv", "|", True)),
        (['label;"a;b"', '1;"c;d"'], Sniffed("csv", ";", True)),
        (["a b c", "d e f"], None),
        ([""], None),
    ],
)
def test_a_format_is_recognised_by_its_lines(lines: list[str], expected: Sniffed | None) -> None:
    assert sniff([line.encode() + b"\n" for line in lines]) == expected


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("1 |f a=x\n-1 |f a=y n:3\n", None),
        ("1 |f a=x\n0 |f a=y n:3\n", "zero_one"),
        ("1 2:3\n0 4:5\n", "zero_one"),
    ],
)
def test_text_with_labels_of_its_own_is_counted(tmp_path: Path, text: str, labels: str | None) -> None:
    found = inspected(written(tmp_path, text * 10))
    assert (found.rows, found.clicks, found.bad_lines) == (20, 10, 0)
    assert found.schema.labels == labels


def column(values: list[Any], name: str = "x") -> Column:
    return Column.of(name, values, frozenset())


@pytest.mark.parametrize(
    ("name", "value", "form"),
    [
        ("t", "2017-07-14T02:40:00Z", "iso"),
        ("ts", "1500000000", "s"),
        ("ts", "1500000000.25", "s"),
        ("time", "1500000000250", "ms"),
        ("time", "1500000000250000", "us"),
        ("hour", "17071402", "%y%m%d%H"),
        ("day", "20170714", "%Y%m%d"),
        ("timestamp", "20170714024000008", "%Y%m%d%H%M%S%f"),
        ("when", "14/Jul/2017:02:40:00 +0000", "%d/%b/%Y:%H:%M:%S %z"),
        ("user", "1500000000", None),
        ("t", "x", None),
    ],
)
def test_times_are_recognised_by_form_and_name(name: str, value: str, form: str | None) -> None:
    verdict = judge(column([value] * 40, name), np.arange(40, dtype=np.float64) % 2)
    assert (verdict.detail if verdict.kind == "time" else None) == form


def test_digits_that_never_go_back_are_times() -> None:
    labels = np.arange(40, dtype=np.float64) % 2
    ascending = [str(1500000000 + 7 * (i // 3)) for i in range(40)]
    assert judge(column(ascending), labels).kind == "time"
    assert judge(column(ascending[::-1]), labels).kind != "time"


def test_a_progressive_loss_is_that_of_a_plain_loop() -> None:
    chance = np.random.default_rng(3)
    codes = chance.integers(0, 5, 300)
    labels = (chance.uniform(size=300) < 0.2 + 0.1 * codes).astype(np.float64)
    rate, losses = labels.mean(), []
    seen: dict[int, tuple[int, int]] = {}
    for code, label in zip(codes.tolist(), labels.tolist(), strict=True):
        n, clicks = seen.get(code, (0, 0))
        p = (clicks + 2 * rate) / (n + 2)
        losses.append(-np.log(p if label else 1 - p))
        seen[code] = n + 1, clicks + label
    assert progressive_loss(codes, labels) == pytest.approx(np.mean(losses), rel=1e-12)


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("label,a\n", {}, "there is no row"),
        ("a,b\nx,y\nz,w\nx,v\n", {}, "no column looks like a label"),
        ("click,a\n1,x\n0,z\n", {"label_column": "klick"}, "no column 'klick' (did you mean 'click'?)"),
        ("label,a,a\n1,x,y\n0,x,z\n", {}, "two columns are called 'a'"),
        ("word\nother\n", {}, "the format is not clear from its first lines: give --format"),
        ("", {}, "the format is not clear"),
    ],
)
def test_what_cannot_be_drafted_is_said(tmp_path: Path, text: str, options: Any, says: str) -> None:
    with pytest.raises(CommandFailure) as caught:
        inspected(written(tmp_path, text), **options)
    assert says in str(caught.value)


def test_a_label_may_be_a_part_of_a_click(tmp_path: Path) -> None:
    path = written(tmp_path, "dwell,a\n" + "".join(f"{i % 5 / 4},{i % 3}\n" for i in range(600)))
    found = inspected(path, label_column="dwell")
    assert (kinds(found)["dwell"], found.clicks) == ("label", 300)
    assert found.schema.to_json()["label"] == "dwell"
    with pytest.raises(CommandFailure, match="no column looks like a label"):
        inspected(path)


def test_a_time_that_cannot_be_read_is_a_bad_line_of_its_own(tmp_path: Path) -> None:
    lines = [f"{i % 2},2017-07-14 02:{i % 60:02}:00" for i in range(600)]
    path = written(tmp_path, "\n".join(["label,ts", *lines, "1,yesterday"]) + "\n")
    found = inspected(path)
    assert kinds(found)["ts"] == "time"
    assert found.times == (1499997600000, 1500001140000)


def test_what_no_feature_can_be_is_dropped_or_text(tmp_path: Path) -> None:
    lines = "".join(f"{i % 2},1e400,{i % 5}\n" for i in range(100))
    path = written(tmp_path, f"label,huge,a=b\n{lines}")
    found = inspected(path)
    assert kinds(found) == {"label": "label", "huge": "text", "a=b": "unusable"}
    assert found.schema.drop == ["a=b"]
    assert_reads_all(found, path)


def test_bad_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = "label,a\n1,x\n0\n0,y\n" + "1,z\n0,x\n" * 20 + '1,"open\n'
    path = tmp_path / "clicks.log"
    path.write_bytes(lines.encode().replace(b"0,y", b"0,\xe9"))
    found = inspected(path)
    assert (found.rows, found.bad_lines) == (41, 3)


def test_the_draft_of_a_real_log_is_its_known_schema() -> None:
    found = inspected(shared_file("avazu_first9999.csv.xz"))
    assert found.known == "avazu"
    known = schema_of(KNOWN_SCHEMAS["avazu"], "avazu")
    assert (found.schema.label, found.schema.event_id) == (known.label, known.event_id)
    assert found.schema.time == TimeColumn(column="hour", format="%y%m%d%H", parts=[])  # one hour
    types = known.hashing["types"].items() - {"hour": "category", "weekday": "category"}.items()
    assert found.schema.hashing["types"].items() == types

"""Random files in every format: every way in gives the same state bit for bit, or the same complaint."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.cli.replay.http import replay_over_http
from service.cli.replay.offline import replay_offline, replay_without_loading
from service.cli.replay.summary import ReplayPlan, ReplaySummary
from service.parsing.files.rows import Format, ReadOptions
from service.parsing.streams.formats import STREAM_FORMATS
from service.settings import Settings
from tests.support.arrow_files import write_arrow
from tests.support.processes import ServiceProcess
from tests.support.replays import assert_same_figures
from tests.support.servers import ServerProcess
from tests.support.system import stored_now
from tests.support.waiting import wait_until

CONTRACTS: dict[str, dict[str, Any]] = {
    "default": {},
    "raw": {"numeric": "raw"},
    "typed": {
        "numeric": "log",
        "types": {"a": "category", "7": "number"},
        "transforms": {"b": "raw"},
        "crosses": [["a", "b"], ["7", "c"]],
        "missing": "indicator",
    },
}
NUMBERS = st.sampled_from(["0", "1", "-1", "2.5", "7.0", "1e3", "-0.1", "007", "1e7", "x", ""])
TEXTS = st.sampled_from(["x", "y", "7", "7.0", "true", "", "ü", "\\N"])
NAMES = st.sampled_from(["a", "b", "c", "7", "d", "e"])

WORDS = st.one_of(
    st.builds("{}={}".format, NAMES, TEXTS),
    st.builds("{}:{}".format, NAMES, NUMBERS),
    st.builds("{}={}:{}".format, NAMES, TEXTS, NUMBERS),
    NAMES,
)
VW = st.builds(
    "{} |{} {} |{} {}\n".format,
    st.sampled_from(["1", "-1", "1 2.5", "-1 0", "0"]),
    st.sampled_from(["f", "f:2", "", ":0.1"]),
    st.lists(WORDS, max_size=6).map(" ".join),
    st.sampled_from(["g", "g:3"]),
    st.lists(WORDS, max_size=2).map(" ".join),
)
LIBSVM = st.builds(
    "{} {}\n".format,
    st.sampled_from(["1", "-1", "1 qid:3", "2"]),
    st.lists(st.builds("{}:{}".format, st.integers(6, 9), NUMBERS), max_size=6).map(" ".join),
)
CELLS = TEXTS | NUMBERS
SCALARS: st.SearchStrategy[Any] = TEXTS | st.sampled_from([0, 1, -1, 2.5, 7.0, 1e7, True, None])
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=3),
    st.fixed_dictionaries({"times": SCALARS}, optional={"value": SCALARS}),
)
JSON_LINES = st.fixed_dictionaries(
    {
        "features": st.dictionaries(NAMES, VALUES, max_size=5)
        | st.lists(st.tuples(NAMES, VALUES).map(list), max_size=5),
        "label": st.sampled_from([0, 1, True, 0.25, 2]),
    },
    optional={
        "weight": st.sampled_from([1, 0.5, -1]),
        "sample_rate": st.sampled_from([0.25, 0]),
        "event_id": st.sampled_from(["e1", "e2", ""]),
        "event_time": st.sampled_from([1.7e9, 14102100]),
    },
).map(lambda row: json.dumps(row) + "\n")


def table(separator: str) -> st.SearchStrategy[str]:
    row = st.tuples(st.sampled_from(["0", "1", "0.25", "2"]), CELLS, CELLS, CELLS).map(separator.join)
    return row.map(lambda line: line + "\n")


TYPED = st.fixed_dictionaries(
    {
        "label": st.sampled_from([0, 1, 0.25, 2]),
        "a": st.none() | TEXTS,
        "b": st.sampled_from([None, 0.0, -1.0, 2.5, 7.0, 1e7, math.nan]),
        "7": st.sampled_from([None, 0, 7, -3]),
        "c": st.none() | st.booleans(),
    }
).map(lambda row: json.dumps(row) + "\n")
"""Rows of Parquet and Arrow, as lines until the file is written."""
RECORDS = st.dictionaries(
    NAMES, SCALARS | st.lists(TEXTS, max_size=3) | st.dictionaries(NAMES, SCALARS, max_size=2)
).flatmap(
    lambda record: st.sampled_from([0, 1, True, 0.25, 2, None]).map(
        lambda label: json.dumps({**record, "label": label}) + "\n"
    )
)


LINES: dict[Format, st.SearchStrategy[str]] = {
    "vw": VW,
    "libsvm": LIBSVM,
    "csv": table(","),
    "tsv": table("\t"),
    "jsonl": JSON_LINES,
    "records": RECORDS,
    "parquet": TYPED,
}
HEADERS: dict[Format, str] = {"csv": "label,a,b,7\n", "tsv": "label\ta\tb\t7\n"}


numbers = count()


class Ways:
    """The ways in, each into a model of its own with the same configuration."""

    def __init__(
        self,
        server: ServerProcess,
        service: ServiceProcess,
        path: Path,
        errors: pytest.CaptureFixture[str],
    ) -> None:
        self._server = server
        self._service = service
        self._path = path
        self._errors = errors
        self._settings = Settings(redis_url=server.url)

    def assert_alike(self, file_format: Format, contract: str, text: str) -> None:
        if file_format in ("parquet", "arrow"):
            self._path = write_rows(self._path.with_suffix(f".{file_format}"), text)
        else:
            self._path.write_text(HEADERS.get(file_format, "") + text)
        config = {"hashing": {"bits": 10, **CONTRACTS[contract]}}
        number = next(numbers)
        names = [f"{way}{number}" for way in ("url", "offline")]
        streamed = f"stream{number}"
        over_url, offline, dry = (
            ReplayPlan((str(self._path),), file_format, ReadOptions(), name, config, "skip")
            for name in [*names, "dry"]
        )
        for name in (names[0], streamed):
            self._service.put(f"/models/{name}", config)
        wait_until(lambda: self._service.metric("ftrl_learner_active", model=names[0]) == 1)
        self._errors.readouterr()
        try:
            found = [
                (replay_over_http(over_url, self._service.url), complaints(self._errors)),
                (replay_offline(offline, self._settings), complaints(self._errors)),
                (replay_without_loading(dry, self._settings), complaints(self._errors)),
            ]
            self._assert_same(found, names)
            if file_format in STREAMED:
                bad = self._stream(file_format, streamed)
                assert bad[: len(found[0][1])] == found[0][1]
                assert len(bad) == found[0][0].bad_lines
                self._assert_same(found, [streamed, names[1]])
        finally:
            for name in (*names, streamed):
                self._service.delete(f"/models/{name}")

    def _stream(self, file_format: Format, model: str) -> list[str]:
        """Send the file as the body of an update; returns the numbers of its bad lines."""
        media_type, body_of = STREAMED[file_format]
        reply = httpx.post(
            f"{self._service.url}/models/{model}/update",
            content=body_of(self._path),
            headers={"content-type": media_type},
            timeout=60,
        ).raise_for_status()
        lines = [json.loads(line) for line in reply.text.splitlines()]
        assert lines[-1]["end"] == "complete", lines[-1]
        return [str(line["line"]) for line in lines if line.get("status") == "invalid"]

    def _assert_same(self, found: list[tuple[ReplaySummary, list[str]]], names: list[str]) -> None:
        (first, first_complaints), *others = found
        for summary, said in others:
            assert said == first_complaints
            assert_same_figures(summary.to_json(), first.to_json())
        wait_until(lambda: stored_now(self._server.url, names[0]).state.t == first.rows)
        states = [stored_now(self._server.url, name).state for name in names]
        assert states[0].t == states[1].t
        assert states[0].digest() == states[1].digest()


def arrow_stream(path: Path) -> bytes:
    pytest.importorskip("pyarrow", reason="the extra `files` is not installed")
    import pyarrow as pa
    from pyarrow.parquet import read_table

    rows, body = read_table(path), io.BytesIO()
    with pa.ipc.new_stream(body, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=7)
    return body.getvalue()


STREAMED: dict[Format, tuple[str, Callable[[Path], bytes]]] = {
    "vw": ("text/x-vw", Path.read_bytes),
    "jsonl": ("application/x-ndjson", Path.read_bytes),
    "parquet": ("application/vnd.apache.arrow.stream", arrow_stream),
}
"""The formats that can be streamed, by those of files: the media type, and the body."""


def test_every_format_of_streams_is_compared() -> None:
    compared = {STREAM_FORMATS[media_type] for media_type, _ in STREAMED.values()}
    assert compared == set(STREAM_FORMATS.values())


@pytest.fixture
def ways(
    server: ServerProcess, service: ServiceProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Ways:
    return Ways(server, service, tmp_path / "file", capsys)


def write_rows(path: Path, lines: str) -> Path:
    pa = pytest.importorskip("pyarrow", reason="the extra `files` is not installed")
    kinds = {
        "label": pa.int64(),
        "a": pa.string(),
        "b": pa.float64(),
        "7": pa.int32(),
        "c": pa.bool_(),
    }
    rows = [json.loads(line) for line in lines.splitlines()]
    return write_arrow(
        path, {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
    )


def complaints(errors: pytest.CaptureFixture[str]) -> list[str]:
    """The numbers of the bad lines; the reasons are worded for each reader."""
    return re.findall(r":(\d+): ", errors.readouterr().err)


REPEATING: dict[Format, str] = {
    "vw": "1 |f rare rare\n-1 |f a=x b a=y:2 7:1 7:2\n1 |f:2 a=x b:3 c\n" * 4,
    "libsvm": "1 7:1 7:1\n-1 7:1 8:2 7:3\n" * 4,
    "jsonl": '{"features": {"a": [3, "x"], "b": {"times": 2}}, "label": 1}\n' * 4,
}


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("file_format", REPEATING)
def test_a_repeated_name_is_learned_alike_by_every_way_in(
    ways: Ways, file_format: Format, contract: str
) -> None:
    ways.assert_alike(file_format, contract, REPEATING[file_format])


@pytest.mark.parametrize("file_format", LINES)
def test_a_random_file_is_learned_alike_by_every_way_in(ways: Ways, file_format: Format) -> None:
    @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(LINES[file_format], min_size=10, max_size=60).map("".join), st.sampled_from(list(CONTRACTS))
    )
    def check(text: str, contract: str) -> None:
        ways.assert_alike(file_format, contract, text)

    check()

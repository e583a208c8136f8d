"""`ftrl replay` with weights, several passes, a holdout, a curve, slices and predictions."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from model_core.evaluation.measures import summarize
from service.cli.main import application
from service.cli.replay.offline import replay_without_loading
from service.cli.replay.parts import MAX_SLICES
from service.cli.replay.summary import ReplaySummary, print_summary
from service.errors import CommandFailure
from service.parsing.files.rows import Format
from service.settings import Settings
from tests.support.replays import ROWS, plan, write

FORMATS: list[Format] = ["vw", "libsvm", "csv", "tsv", "jsonl"]


def replayed(path: Path, **fields: Any) -> ReplaySummary:
    return replay_without_loading(replace(plan(path, "m"), **fields), Settings())


def loss(label: int, probability: float) -> float:
    return -math.log(probability if label else 1.0 - probability)


def table_of(summary: ReplaySummary, capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    print_summary(summary)
    lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
    return {line[:20].strip(): line[20:].split() for line in lines}


def test_with_weights_the_table_shows_the_weighted_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sampled.jsonl"
    path.write_text(
        "".join(
            json.dumps({"features": {"ad": f"a{i % 7}"}, "label": int(i % 5 == 0)} | rate) + "\n"
            for i in range(600)
            for rate in ({"sample_rate": 0.1} if i % 5 else {},)
        )
    )
    summary = replayed(path)
    table = table_of(summary, capsys)
    assert table[""] == ["by", "weight", "unweighted"]
    assert table["click rate"] == [f"{120 / (120 + 4800):.4f}", "0.2000"]
    assert table["log loss"] == [f"{summary.weighted.log_loss:.5f}", f"{summary.log_loss:.5f}"]
    entropies = [summary.weighted.normalized_entropy, summary.normalized_entropy]
    assert table["normalized entropy"] == [f"{entropy:.5f}" for entropy in entropies]
    assert table["rows"] == ["600"]


def test_without_weights_the_table_has_one_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = table_of(replayed(write(tmp_path, "libsvm", rows=50)), capsys)
    assert {name: len(cells) for name, cells in table.items()} == dict.fromkeys(table, 1)


@pytest.mark.parametrize("file_format", FORMATS)
def test_predictions_are_those_of_the_figures(file_format: Format, tmp_path: Path) -> None:
    written = tmp_path / "predictions.csv"
    path = write(tmp_path, file_format)
    summary = replayed(path, predictions=written, holdout=100)
    rows = list(csv.DictReader(written.read_text().splitlines()))
    assert [int(row["row"]) for row in rows] == list(range(1, ROWS + 1))
    assert [row["held_out"] for row in rows] == ["0"] * (ROWS - 100) + ["1"] * 100
    parts = [[row for row in rows if row["held_out"] == flag] for flag in "01"]
    found = []
    for part in parts:
        weights = [float(row["weight"]) for row in part]
        losses = [loss(int(row["label"]), float(row["probability"])) for row in part]
        found.append(np.average(losses, weights=weights))
    (only,) = summary.passes
    assert only.holdout is not None
    assert found == pytest.approx([summary.weighted.log_loss, only.holdout.log_loss])
    assert (summary.rows, summary.held_out) == (ROWS - 100, 100)


def test_a_holdout_is_predicted_by_what_the_rows_before_it_leave(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    lines = write(tmp_path, "vw").read_text().splitlines(keepends=True)
    for directory, some in ((whole, lines), (cut, lines[:-200])):
        directory.mkdir()
        (directory / "clicks.vw").write_text("".join(some))
    held, alone = replayed(whole / "clicks.vw", holdout=200), replayed(cut / "clicks.vw")
    assert (held.rows, held.log_loss, held.nonzero) == (alone.rows, alone.log_loss, alone.nonzero)
    with pytest.raises(CommandFailure, match=r"--holdout 9999: .* has 1,234 examples, and none is left"):
        replayed(whole / "clicks.vw", holdout=9999)


def test_several_passes_learn_what_the_repeated_file_teaches(tmp_path: Path) -> None:
    path = write(tmp_path, "vw")
    once, twice = replayed(path), replayed(path, passes=2)
    (tmp_path / "double").mkdir()
    double = tmp_path / "double" / "clicks.vw"
    double.write_text(path.read_text() * 2)
    repeated = replayed(double)
    assert (twice.rows, twice.log_loss, twice.weighted) == (once.rows, once.log_loss, once.weighted)
    assert (twice.features_seen, twice.nonzero) == (repeated.features_seen, repeated.nonzero)
    losses = [one.log_loss for one in twice.passes]
    assert np.mean([value or 0.0 for value in losses]) == pytest.approx(repeated.weighted.log_loss)
    assert (once.passes, twice.passes[1].holdout) == ((), None)


def test_bad_lines_are_reported_in_the_first_pass_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mixed.vw"
    path.write_text("".join(f"1 |f a={i}\nbroken\n" for i in range(5)))
    summary = replay_without_loading(replace(plan(path, "m", on_error="skip"), passes=3), Settings())
    assert (summary.rows, summary.bad_lines) == (5, 5)
    assert capsys.readouterr().err.count("no '|' before the features") == 5


def test_a_curve_has_the_figures_of_consecutive_parts(tmp_path: Path) -> None:
    path, written = write(tmp_path, "csv"), tmp_path / "predictions.csv"
    curve = replayed(path, curve=True, predictions=written).curve
    rows = list(csv.DictReader(written.read_text().splitlines()))
    assert len(curve) == 20
    assert (curve[0].name, curve[-1].name) == ("1-61", "1,173-1,234")
    first = 0
    for part in curve:
        some = rows[first : first + part.rows]
        first += part.rows
        labels = np.array([int(row["label"]) for row in some], np.uint8)
        p = np.array([float(row["probability"]) for row in some])
        weights = np.array([float(row["weight"]) for row in some])
        expected = summarize(np.log(p) - np.log1p(-p), labels, weights).weighted
        figures = (part.log_loss, part.normalized_entropy, part.calibration_ratio)
        wanted = (expected.log_loss, expected.normalized_entropy, expected.calibration_ratio)
        assert figures == pytest.approx(wanted)
    assert first == ROWS
    assert curve[-1].log_loss_so_far == pytest.approx(replayed(path).weighted.log_loss)


@pytest.mark.parametrize("file_format", ["vw", "csv", "tsv", "jsonl"])
def test_slices_add_up_to_the_whole_and_change_nothing(file_format: Format, tmp_path: Path) -> None:
    path = write(tmp_path, file_format)
    sliced, plain = replayed(path, slices=("ad",)), replayed(path)
    assert (sliced.log_loss, sliced.nonzero) == (plain.log_loss, plain.nonzero)
    names = [part.name for part in sliced.slices]
    assert set(names) == {f"ad=a{i}" for i in range(20)}
    counts = [part.rows for part in sliced.slices]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == ROWS
    text = path.read_text()
    if file_format == "vw":
        assert dict(zip(names, counts, strict=True)) == {n: text.count(f"{n} ") for n in names}


def test_rare_values_are_one_slice_and_numbers_have_those_of_buckets(tmp_path: Path) -> None:
    (tmp_path / "clicks.vw").write_text(
        "".join(f"{1 if i % 3 else -1} |f user=u{i % 40} n:{i % 8}\n" for i in range(400))
    )
    bucketed = {"hashing": {"bits": 14, "numeric": "bucket"}}
    slices = replayed(tmp_path / "clicks.vw", slices=("user", "n"), config=bucketed).slices
    of_users = [part for part in slices if part.name.startswith("user")]
    assert len(of_users) == MAX_SLICES + 1
    assert (of_users[-1].name, of_users[-1].rows) == ("user (other values)", 200)
    assert {part.name: part.rows for part in slices if part.name.startswith("n")} == {
        "n=0": 50,
        "n=+1": 100,
        "n=+2": 200,
        "n=+3": 50,
    }
    with pytest.raises(CommandFailure, match=r"--slices n: no example has a category of this feature"):
        replayed(tmp_path / "clicks.vw", slices=("n",))


def test_details_are_printed_and_are_in_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "vw")
    summary = replayed(path, passes=2, holdout=50, curve=True, slices=("ad",))
    print_summary(summary)
    printed = capsys.readouterr().out
    assert [line.split()[:2] for line in printed.splitlines() if line.startswith("pass")] == [
        ["pass", "1"],
        ["pass", "2"],
    ]
    assert "log loss so far" in printed
    assert "\nad=a" in printed
    document = json.loads(json.dumps(summary.to_json()))
    assert {name: len(document[name]) for name in ("passes", "curve", "slices")} == {
        "passes": 2,
        "curve": 20,
        "slices": 20,
    }
    assert document["passes"][1]["holdout"]["auc"] is not None
    assert not {"passes", "curve", "slices"} & replayed(path).to_json().keys()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--url", "http://x", "--passes", "2"), "--passes: only with --offline or --dry-run"),
        (("--url", "http://x", "--slices", "ad"), "--slices: only with --offline or --dry-run"),
        (("--url", "http://x", "--holdout", "9"), "--holdout: only with --offline or --dry-run"),
        (("--url", "http://x", "--predictions", "p"), "--predictions: only with --offline or --dry-run"),
        (("--dry-run", "--passes", "2"), "--passes: standard input can be read once only"),
    ],
)
def test_flags_that_do_not_fit_are_refused(words: tuple[str, ...], says: str) -> None:
    arguments = ["replay", "-", "--format", "vw", *words]
    result = CliRunner().invoke(application("replay"), arguments, env={"COLUMNS": "500", "TERM": "dumb"})
    assert result.exit_code == 2
    assert says in " ".join(result.stderr.split())


def test_a_file_of_predictions_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailure, match=r"--predictions .*absent/p.csv: No such file or directory"):
        replayed(write(tmp_path, "vw", rows=5), predictions=tmp_path / "absent" / "p.csv")

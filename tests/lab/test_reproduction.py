"""`ftrl reproduce`: stopped and gone on with, over several processors, and with what can be wrong."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from lab.experiments.data_files import load, names
from lab.experiments.reproduction import (
    ReproductionPlan,
    reproduce_pareto,
    reproduce_table1,
    reproduce_weights,
)
from lab.experiments.table1 import count_passes
from service.errors import CommandFailure
from tests.support.commands import FTRL, environment, run
from tests.support.small_data import examples, write_all, write_sentiment
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("data"))


def quiet(data: Path, out: Path, *only: str, jobs: int = 1) -> ReproductionPlan:
    return ReproductionPlan(data, out, only, jobs, progress=False)


def quick(data: Path, out: Path, *only: str) -> ReproductionPlan:
    return replace(quiet(data, out, *only), quick=True)


def unmeasured(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name != "measured"}


def test_every_file_is_read_as_what_it_holds(data: Path) -> None:
    found = list(examples(200))
    for name in names():
        loaded = load(name, data)
        assert loaded.rows == 200
        if name in ("news20", "rcv1"):
            assert loaded.batch.labels.tolist() == [e.label for e in found]
            assert np.diff(loaded.batch.row_ptr).tolist() == [len(e.features) for e in found]
            assert loaded.features == len({f for e in found for f in e.features})
    books = load("books", data)
    lengths = np.add.reduceat(books.batch.values**2, books.batch.row_ptr[:-1])
    assert lengths == pytest.approx(np.ones(200))


def test_jobs_change_nothing(data: Path, tmp_path: Path) -> None:
    one = reproduce_table1(quiet(data, tmp_path / "one", "books", "criteo"))
    two = reproduce_table1(quiet(data, tmp_path / "two", "books", "criteo", jobs=3))
    assert unmeasured(one.figures) == unmeasured(two.figures)
    assert (tmp_path / "one" / "table1-books-criteo.md").read_text() == (
        tmp_path / "two" / "table1-books-criteo.md"
    ).read_text()


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_sentiment(data, 1500)
    out = tmp_path / "out"
    words = ("reproduce", "table1", "--data", str(data), "--out", str(out), "--jobs", "1")
    only = ("--only", "books,dvd,electronics,kitchen", "--json")
    with subprocess.Popen([*FTRL, *words, *only], env=environment(), stdout=subprocess.DEVNULL) as killed:
        wait_until(lambda: killed.poll() is not None or list((out / "cells").glob("*.json")))
        assert killed.poll() is None, "it has ended by itself"
        killed.kill()
    kept = len(list((out / "cells").glob("*.json")))
    finished = run(*words, *only)
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout)
    assert report["measured"]["passes_found"] >= kept > 0
    assert report["measured"]["passes_run"] > 0
    undisturbed = reproduce_table1(quiet(data, tmp_path / "other", *only[1].split(",")))
    assert unmeasured(report) == unmeasured(undisturbed.figures)


def test_other_data_does_not_take_the_results_of_this(data: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    other.mkdir()
    write_sentiment(other, 150)
    reproduce_table1(quiet(data, out, "books"))
    mixed = reproduce_table1(quiet(other, out, "books"))
    alone = reproduce_table1(quiet(other, tmp_path / "alone", "books"))
    assert mixed.figures["measured"]["passes_found"] == alone.figures["measured"]["passes_found"]
    assert unmeasured(mixed.figures) == unmeasured(alone.figures)


def test_a_damaged_result_is_made_again(data: Path, tmp_path: Path) -> None:
    whole = reproduce_table1(quiet(data, tmp_path, "books"))
    damaged, swapped, *_ = sorted((tmp_path / "cells").glob("*.json"))
    content = damaged.read_text()
    damaged.write_text(content[:40])
    swapped.write_text(content)
    again = reproduce_table1(quiet(data, tmp_path, "books"))
    assert again.figures["measured"]["passes_run"] == 2
    assert unmeasured(again.figures) == unmeasured(whole.figures)
    assert damaged.read_text()[:40] == content[:40]


def test_the_table_puts_our_figures_beside_the_papers(data: Path, tmp_path: Path) -> None:
    report = reproduce_table1(quiet(data, tmp_path, "news20", "books"))
    heading, _, *rows = report.markdown.splitlines()[:8]
    columns = [column.strip() for column in heading.split("|")[1:-1]]
    assert columns[:3] == ["data", "algorithm", "gamma"]
    assert columns[3:] == ["AUC", "paper", "difference", "density", "paper", "difference"]
    assert [row.split("|")[1:3] for row in rows] == [
        [f" {data:6} ", f" {algorithm:13} "]
        for data in ("books", "news20")
        for algorithm in ("FTRL-Proximal", "RDA", "FOBOS")
    ]
    assert rows[3].split("|")[5].strip() == "0.989"
    assert "* |" in rows[0], "made-up reviews do not agree with the paper, and it shows"
    assert "0 of 6 cells" in report.markdown
    assert len({len(row) for row in [heading, *rows]}) == 1
    written = json.loads((tmp_path / "table1-news20-books.json").read_text())
    cell = written["cells"][0]
    assert cell["difference"]["auc"] == pytest.approx(cell["auc"] - cell["paper"]["auc"])
    assert [c["paper"] for c in written["cells"]].count(None) == 2 * 5


def test_missing_files_are_reported(tmp_path: Path) -> None:
    write_sentiment(tmp_path, 60)
    report = reproduce_table1(quiet(tmp_path, tmp_path / "out"))
    assert report.figures["missing"] == ["news20", "rcv1", "criteo"]
    assert "Left out, because their files are not there: news20, rcv1, criteo." in report.markdown


def test_plots_are_pictures_and_the_same_each_time(data: Path, tmp_path: Path) -> None:
    for out in ("one", "two"):
        reproduce_pareto(quiet(data, tmp_path / out, "criteo"))
    for suffix in ("png", "svg"):
        one, two = ((tmp_path / out / f"pareto-criteo.{suffix}").read_bytes() for out in ("one", "two"))
        assert one == two
    assert (tmp_path / "one" / "pareto-criteo.png").read_bytes().startswith(b"\x89PNG")
    picture = ET.parse(tmp_path / "one" / "pareto-criteo.svg")
    assert picture.getroot().tag.endswith("svg")
    shown = "".join(picture.getroot().itertext())
    assert all(name in shown for name in ("FTRL-Proximal", "RDA", "FOBOS", "AOGD", "criteo"))


def test_weights_compare_both_updates(data: Path, tmp_path: Path) -> None:
    report = reproduce_weights(quiet(data, tmp_path))
    assert [(c["rate"], c["largest_weight"]) for c in report.figures["comparisons"]] == [
        (rate, weight) for rate in ("adaptive", "constant") for weight in (1.0, 10.0, 100.0, 1000.0)
    ]
    assert len(report.markdown.splitlines()) == 2 + 8


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "has no sentiment_processed_acl.tar.xz: give --data, or set FTRL_DATA"),
        (("--only", "news"), "no data set 'news' here; there are books, dvd, electronics, kitchen, news20"),
        (("--jobs", "0"), "must be at least 1"),
    ],
)
def test_wrong_calls_say_what_to_do(words: tuple[str, ...], told: str, tmp_path: Path) -> None:
    result = run("reproduce", "table1", "--data", str(tmp_path), "--out", str(tmp_path / "out"), *words)
    assert result.returncode != 0
    assert told in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_a_file_of_something_else_is_named(data: Path, tmp_path: Path) -> None:
    for path in data.iterdir():
        (tmp_path / path.name).symlink_to(path)
    wrong = tmp_path / "news20_like.tsv.xz"
    wrong.unlink()
    wrong.symlink_to(data / "rcv1_vw_union.svm.xz")
    with pytest.raises(CommandFailure, match=r"news20_like.tsv.xz is not what docs/experiments.md says"):
        reproduce_table1(quiet(tmp_path, tmp_path / "out", "news20"))


def test_without_the_extra_it_says_what_to_install(data: Path, tmp_path: Path) -> None:
    """The interpreter is started as if joblib had never been installed."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['joblib'] = None\n")
    path = f"{tmp_path}:{environment()['PYTHONPATH']}"
    out = str(tmp_path / "out")
    result = run(
        "reproduce", "table1", "--data", str(data), "--out", out, PYTHONPATH=path, new_interpreter=True
    )
    assert result.returncode == 1
    assert result.stderr.strip() == (
        "ftrl: this needs joblib, which is not installed: pip install 'ftrl-service[experiments]'"
    )


def test_a_report_of_one_data_set_leaves_the_whole_one(data: Path, tmp_path: Path) -> None:
    reproduce_weights(quick(data, tmp_path))
    (tmp_path / "table1.md").write_text("whole")
    report = reproduce_table1(quick(data, tmp_path, "books"))
    assert (tmp_path / "table1.md").read_text() == "whole"
    assert (tmp_path / "table1-books-quick.md").read_text() == report.markdown
    assert json.loads((tmp_path / "table1-books-quick.json").read_text())["quick"] is True
    assert "figures are approximate" in report.markdown
    assert len(json.loads((tmp_path / "weights-quick.json").read_text())["comparisons"]) == 4


def test_the_trade_off_runs_on_any_data_set_that_is_named(data: Path, tmp_path: Path) -> None:
    report = reproduce_pareto(quick(data, tmp_path, "books"))
    assert [one["dataset"] for one in report.figures["datasets"]] == ["books"]
    values = dict.fromkeys(point["lambda_T"] for point in report.figures["datasets"][0]["points"])
    assert list(values) == [0.0, 0.01, 0.05, 0.2, 1.0]
    assert (tmp_path / "pareto-books-quick.svg").exists()
    assert (tmp_path / "pareto-books-quick.md").exists()


def test_a_quick_run_makes_fewer_passes(data: Path, tmp_path: Path) -> None:
    report = reproduce_table1(quick(data, tmp_path, "books"))
    assert report.figures["measured"]["passes_run"] == count_passes("books", quick=True) == 8 * (3 + 1)

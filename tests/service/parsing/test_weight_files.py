"""Files of weights: what is read of them, and what is refused, with its line and its code."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mmh3 import mmh3_32_uintdigest as murmur

from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from model_core.text.problems import Namespaces
from service.parsing.files.reader import read_examples
from service.parsing.files.rows import ReadOptions
from service.parsing.files.source import TextSource
from service.parsing.files.vw_model import VowpalWabbitModel
from service.parsing.files.weights import BadWeights, TableOfWeights, WeightsFile, read_weights
from service.snapshots.restore.warm_start import Evidence, WarmStart, config_for, warm_start

SINGLE = {"hyper": {"l1": 0.5}}


def started(file: WeightsFile, body: dict[str, Any] | None = None, **evidence: float) -> WarmStart:
    read = read_weights(file, config_for(body or SINGLE).hashing.seed)
    return warm_start(file, read, config_for(body or SINGLE, read), Evidence(**evidence))


def from_table(
    directory: Path, text: str, body: dict[str, Any] | None = None, name: str = "names.csv", **evidence: float
) -> WarmStart:
    (directory / name).write_text(text)
    with TextSource(directory / name) as source:
        return started(TableOfWeights(source, 256), body, **evidence)


def from_dump(file: Path, namespaces: Namespaces = "ignore", body: dict[str, Any] | None = None) -> WarmStart:
    with TextSource(file) as source:
        return started(VowpalWabbitModel(source, 256, namespaces), body)


def margin(start: WarmStart, features: dict[str, Any]) -> float:
    encoded = FeatureEncoder(start.config.hashing).encode(features)
    return float(start.config.margins(start.state, ExampleBatch.from_encoded([encoded]))[0])


def n_of(start: WarmStart, text: str) -> float:
    slot = murmur(text.encode(), 0) % start.state.size
    return float(start.state.rows[slot, 1])


def test_a_table_gives_each_feature_its_weight_and_its_evidence(tmp_path: Path) -> None:
    start = from_table(
        tmp_path,
        "name,value,weight,count\n"
        "ad,a17,0.31,1200\n"
        '"ad","b,4",-0.2,10\n'
        "age,,0.02,5000\n"
        "site=news.example,,0.1,0\n"
        "(Intercept),,-3.5,\n"
        "hour,14,0.25,7\n"
        "hour,-0.5,1,7\n",
        click_rate=0.1,
    )
    hashing = start.config.hashing
    assert (hashing.numeric, hashing.prior_probability) == ("raw", None)
    assert dict(hashing.types) == {"hour": "category"}
    features = {"ad": "a17", "age": 30, "site": "news.example", "hour": 14}
    assert margin(start, features) == pytest.approx(0.31 + 0.6 + 0.1 - 3.5 + 0.25, abs=1e-13)
    assert margin(start, {"ad": "b,4", "hour": -0.5}) == pytest.approx(-0.2 + 1 - 3.5, abs=1e-13)
    assert n_of(start, "ad=a17") == pytest.approx(1200 * 0.09)
    assert n_of(start, "site=news.example") == 0
    assert (start.state.t, start.weights, start.sharing, start.without_evidence) == (5000, 7, 0, 0)
    assert start.state.rows[-1, 1] == pytest.approx(5000 * 0.09)


def test_without_counts_each_weight_stands_for_the_same(tmp_path: Path) -> None:
    start = from_table(tmp_path, "weight\tname\n1.5\tad=a1\n-2\tbias\n", name="names.tsv")
    p = 1 / (1 + np.exp(2.0))
    assert n_of(start, "ad=a1") == pytest.approx(100 * p * (1 - p))
    assert (start.without_evidence, start.state.t) == (1, 100)
    other = from_table(tmp_path, "name,weight\nad=a1,1.5\n", count=8)
    assert n_of(other, "ad=a1") == 2.0
    assert margin(other, {"ad": "a1"}) == pytest.approx(1.5)


def test_names_in_one_slot_have_their_mean_and_are_counted(tmp_path: Path) -> None:
    lines = "".join(f"ad,a{i},{i % 7},{i + 1}\n" for i in range(2000))
    start = from_table(tmp_path, f"name,value,weight,count\n{lines}", {"hashing": {"bits": 10}})
    slots = np.array([murmur(f"ad=a{i}".encode(), 0) % 1024 for i in range(2000)])
    _, counts = np.unique(slots, return_counts=True)
    assert start.sharing == counts[counts > 1].sum()
    assert start.state.features_seen == counts.size
    evidence = np.arange(1, 2001.0)
    where = slots == slots[0]
    mean = (evidence * (np.arange(2000) % 7))[where].sum() / evidence[where].sum()
    assert margin(start, {"ad": "a0"}) == pytest.approx(mean)


def test_what_the_caller_declares_is_not_overruled(tmp_path: Path) -> None:
    hashing = {"types": {"hour": "number"}, "numeric": "log", "transforms": {"day": "raw"}}
    text = "name,value,weight\nhour,1,1\nday,2,1\nweek,3,1\n"
    found = from_table(tmp_path, text, {"hashing": hashing}).config.hashing
    assert (found.numeric, dict(found.types)) == ("log", {"week": "category", "hour": "number"})
    with pytest.raises(InvalidInput, match="prior_probability: must be null"):
        config_for({"hashing": {"prior_probability": 0.02}})


HEAD = "name,value,weight,count\n"


@pytest.mark.parametrize(
    ("text", "line", "code"),
    [
        ("", None, "no_weights"),
        (HEAD, None, "no_weights"),
        ("ad,0.3\n", 1, "wrong_columns"),
        ("name,weight,colour\n", 1, "wrong_columns"),
        ("name,weight,weight\n", 1, "wrong_columns"),
        (f"{HEAD}ad,a1,0.3\n", 2, "malformed_line"),
        (f'{HEAD}ad,a1,0.3,\nad,"a2,0.3,\n', 3, "malformed_line"),
        (f"{HEAD}ad,a1,nan,1\n", 2, "bad_weight"),
        (f"{HEAD}ad,a1,1e7,1\n", 2, "bad_weight"),
        (f"{HEAD}ad,a1,,1\n", 2, "bad_weight"),
        (f"{HEAD}ad,a1,0.3,1\n\nad,a2,0.3,-1\n", 4, "bad_count"),
        (f"{HEAD},a1,0.3,1\n", 2, "bad_name"),
        (f"{HEAD}{'n' * 257},a1,0.3,1\n", 2, "bad_name"),
        (f"{HEAD}ad,a1,0.3,1\nsite,s,1,1\nad=a1,,0.4,1\n", 4, "repeated_name"),
        (f"{HEAD}bias,,1,1\nintercept,,1,1\n", 3, "repeated_name"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, line: int | None, code: str) -> None:
    with pytest.raises(BadWeights) as refused:
        from_table(tmp_path, text)
    assert (refused.value.line, refused.value.code) == (line, code)


def test_weights_that_the_model_cannot_hold_are_named(tmp_path: Path) -> None:
    text = f"{HEAD}ad,a1,0.3,1\nad,a2,2.5,1\nbias,,-4,1\n"
    with pytest.raises(BadWeights, match=r"line 3: the weight 2.5 is outside the model's box of 2"):
        from_table(tmp_path, text, {"hyper": {"box": 2}})
    with pytest.raises(BadWeights, match="line 4: the model's hash contract has no bias"):
        from_table(tmp_path, text, {"hashing": {"bias": False}})


# Vowpal Wabbit itself writes the dumps and the predictions.

ROWS = [
    f"{1 if (i * i + ad) % 5 < 2 else -1} |user site=s{i % 7} |ad ad=a{ad} |more age:{i % 11 / 4} w{i % 3}"
    for i in range(400)
    for ad in (i * 7 % 13,)
]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("vw") / "rows.vw"
    file.write_text("\n".join(ROWS) + "\n")
    return file


def trained(rows: Path, options: str, *more: str) -> Any:
    """Train, and return a workspace that predicts; the dump is in model.txt beside the rows."""
    vw = pytest.importorskip("vowpalwabbit")
    model, dump = rows.with_name("model.bin"), rows.with_name("model.txt")
    written = more or ("--invert_hash", str(dump))
    learner = vw.Workspace(f"-d {rows} --quiet -f {model} {' '.join(written)} {options}")
    learner.finish()
    return vw.Workspace(f"-i {model} -t --quiet --link logistic")


@pytest.mark.parametrize(
    ("options", "without_evidence"),
    [
        ("", 0),
        ("--ftrl --ftrl_alpha 0.5", 0),
        ("--sgd -l 0.1", 24),
        ("--noconstant --adaptive -l 0.1", 0),
        ("--l1 0.001 --l2 0.0001", 0),
        ("--ignore m -q ua", 0),
    ],
)
@pytest.mark.parametrize("body", [SINGLE, {}], ids=["single", "mixture"])
def test_a_model_of_vowpal_wabbit_predicts_the_same_here(
    rows: Path, options: str, without_evidence: int, body: dict[str, Any]
) -> None:
    there = trained(rows, f"--loss_function logistic {options}")
    start = from_dump(rows.with_name("model.txt"), body=body)
    hashing, config = start.config.hashing, start.config
    assert hashing.crosses == ((("site", "ad"),) if "-q" in options else ())
    predicted = [
        config.predict(start.state, chunk.batch)
        for chunk in read_examples(rows, "vw", hashing, ReadOptions())
    ]
    expected = [there.predict(row.partition(" ")[2]) for row in ROWS]
    assert np.concatenate(predicted) == pytest.approx(np.array(expected), abs=2e-6)
    assert (start.sharing, start.without_evidence) == (0, without_evidence)
    assert start.state.t == len(ROWS)


def test_namespaces_and_evidence_are_those_of_the_dump(rows: Path) -> None:
    trained(rows, "--loss_function logistic")
    dump = rows.with_name("model.txt")
    sums = {line.split(":")[0]: float(line.split()[1]) for line in dump.read_text().splitlines()[-24:]}
    start = from_dump(dump, "prefix")
    assert n_of(start, "user^site=s3") == sums["user^site=s3"] > 1
    assert n_of(start, "more^age") == sums["more^age"]
    assert start.state.rows[-1, 1] == sums["Constant"]
    assert n_of(from_dump(dump), "site=s3") == sums["user^site=s3"]


@pytest.mark.parametrize(
    ("options", "line", "code"),
    [
        ("--loss_function squared", None, "unsupported_option"),
        ("--loss_function logistic --coin", None, "unsupported_option"),
        ("--loss_function logistic --oaa 2", None, "unsupported_option"),
        ("--loss_function logistic -q am", 32, "not_a_cross"),
    ],
)
def test_what_is_no_linear_model_of_log_odds_is_refused(
    rows: Path, options: str, line: int | None, code: str
) -> None:
    trained(rows, options)
    with pytest.raises(BadWeights) as refused:
        from_dump(rows.with_name("model.txt"))
    assert (refused.value.code, refused.value.line is None) == (code, line is None)


def test_a_model_without_words_is_refused_with_the_way(rows: Path, tmp_path: Path) -> None:
    readable = tmp_path / "readable.txt"
    trained(rows, "--loss_function logistic", "--readable_model", str(readable))
    with pytest.raises(BadWeights, match="--invert_hash") as refused:
        from_dump(readable)
    assert refused.value.code == "only_hashes"


def test_a_dump_that_is_damaged_is_refused(rows: Path, tmp_path: Path) -> None:
    trained(rows, "--loss_function logistic")
    lines = rows.with_name("model.txt").read_text().splitlines()
    file = tmp_path / "model.txt.gz"
    damages = {
        "not_a_dump": [line.replace("l1_state 0", "l1_state x") for line in lines],
        "malformed_line": [*lines, "site=s1"],
        "bad_weight": [*lines, "user^site=new:7:nan 1 1"],
        "repeated_name": [*lines, "other^site=s1:7:0.5 1 1"],
        "no_weights": lines[:3],
    }
    for code, damaged in damages.items():
        file.write_bytes(gzip.compress("\n".join(damaged).encode()))
        with pytest.raises(BadWeights) as refused:
            from_dump(file)
        assert refused.value.code == code
    file.write_bytes(gzip.compress(b"ad=a1:3:0.5\n"))
    with pytest.raises(BadWeights, match="line 1: no text of a Vowpal Wabbit model"):
        from_dump(file)

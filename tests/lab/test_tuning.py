"""`ftrl tune`: models from one pass are what each would be alone, and the best can be created as told."""

from __future__ import annotations

import json
import math
import random
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.experiments.file_source import FileSource
from lab.experiments.race import RacePlan, size_of
from lab.experiments.score import Difference, Paired, Score
from lab.experiments.space import Space
from lab.experiments.tuning import Ranking, rank
from model_core.errors import InvalidInput
from model_core.examples.batch import ExampleBatch
from model_core.learning.hyperparameters import AdaptiveRate, HalfLife, Hyperparameters
from service.cli.replay.offline import replay_without_loading
from service.errors import CommandFailure
from service.models.config.model import ModelConfig
from service.parsing.files.rows import Format, ReadOptions
from service.settings import Settings
from tests.support.commands import FTRL, ServingProcess, environment, run
from tests.support.replays import plan as replay_plan
from tests.support.replays import write

SINGLE: dict[str, Any] = {"hyper": {"rate": {"kind": "adaptive"}}}
HASHING = {"bits": 14, "numeric": "raw"}
SMALL = Space(hashings=({"bits": 12},), families=("ftrl", "rda"), alphas=(0.1, 0.5), l1s=(0.0, 0.5))


def source(path: Path, file_format: Format = "vw", **fields: Any) -> FileSource:
    weighted = ReadOptions(weight_column="weight" if file_format == "csv" else None)
    return FileSource((str(path),), file_format, weighted, **fields)


def ranked(examples: FileSource, space: Space, present: dict[str, Any] | None = None, **plan: Any) -> Ranking:
    options, left_out = space.options()
    compared = space.present(present or {})
    return rank(RacePlan(**plan), examples, options, compared, left_out, progress=False)


def write_clicks(directory: Path, rows: int = 4000) -> Path:
    """Text in which the ad decides, so that candidates differ; a number is large once in a while."""
    chance = random.Random(7)
    path = directory / "clicks.vw"
    with path.open("w") as file:
        for _ in range(rows):
            ad = chance.randrange(20)
            label = 1 if chance.random() < (ad + 1) / 40 else -1
            file.write(f"{label} |f ad=a{ad} site=s{chance.randrange(9)} n:{chance.randrange(1, 400)}\n")
    return path


@pytest.mark.parametrize("file_format", ["vw", "libsvm", "csv", "tsv", "jsonl"])
def test_a_candidate_is_what_a_replay_of_it_alone_is(file_format: Format, tmp_path: Path) -> None:
    path = write(tmp_path, file_format)
    space = Space(hashings=(HASHING,), families=("ftrl", "rda"), alphas=(0.05, 0.3), l1s=(0.1,))
    ranking = ranked(source(path, file_format), space)
    assert [result.is_tried for result in ranking.results].count(True) == 4
    assert len(ranking.results) == 5
    for result in ranking.results:
        config = {"hyper": result.option.config.hyper.to_json(), "hashing": HASHING}
        alone = replay_without_loading(replace(replay_plan(path, "m"), config=config), Settings())
        figures = result.figures
        assert (result.rows, result.features_seen, result.nonzero) == (
            alone.rows,
            alone.features_seen,
            alone.nonzero,
        )
        assert figures.log_loss == pytest.approx(alone.weighted.log_loss)
        assert figures.normalized_entropy == pytest.approx(alone.weighted.normalized_entropy)
        assert figures.calibration_ratio == pytest.approx(alone.weighted.calibration_ratio)
        assert figures.auc_error_bound is not None
        assert abs(figures.auc - alone.weighted.auc) <= figures.auc_error_bound  # type: ignore[operator]
    losses = [result.figures.log_loss or math.inf for result in ranking.results]
    assert losses == sorted(losses)


@pytest.mark.slow
def test_the_body_makes_the_best_model_on_a_real_server(tmp_path: Path) -> None:
    path = write_clicks(tmp_path)
    words = ("tune", str(path), "--families", "ftrl,comid", "--gammas", "0.1,1", "--bits", "12,14")
    told = run(
        *words,
        "--hyper",
        '{"schedule": {"kind": "constant"}}',
        "--l1",
        "0,0.001",
        "--out",
        str(tmp_path / "body.json"),
    )
    assert told.returncode == 0, told.stderr
    body = json.loads(told.stdout.strip().splitlines()[-1])
    assert json.loads((tmp_path / "body.json").read_text()) == body
    process = ServingProcess("serve", directory=tmp_path)
    try:
        process.wait_until_ready()
        created = process.put("/models/tuned", body)
        assert (created["hyper"], created["hashing"]) == (body["hyper"], body["hashing"])
        replayed = run("replay", str(path), "--url", process.url, "--model", "tuned", "--json")
        best = json.loads(run(*words, "--hyper", '{"schedule": {"kind": "constant"}}', "--json").stdout)
        assert json.loads(replayed.stdout)["log_loss"] == pytest.approx(
            best["candidates"][best["recommended"]]["log_loss"]
        )
    finally:
        process.stop()
        process.remove()


def test_halving_ends_with_the_best_of_those_that_stayed(tmp_path: Path) -> None:
    path = write_clicks(tmp_path)
    space = Space(
        hashings=({"bits": 12},), families=("ftrl", "rda"), alphas=(0.01, 0.05, 0.3), l1s=(0.0, 1.0, 30.0)
    )
    present = {"hyper": {"rate": {"kind": "adaptive", "alpha": 0.01}, "l1": 30.0}}
    whole = ranked(source(path), space, present)
    halved = ranked(source(path), space, present, search="halving")
    rows = [result.rows for result in halved.results]
    assert len(rows) == 18
    assert rows.count(4000) == 4
    assert halved.present in halved.results[:4], "the present configuration never leaves"
    assert rows == sorted(rows, reverse=True)
    assert len(set(rows)) == 3, "a third stayed at each of two places"
    ends = {repr(r.option.varied): r.figures for r in whole.results}
    for result in halved.results[:2]:
        assert result.figures.log_loss == pytest.approx(ends[repr(result.option.varied)].log_loss, rel=1e-12)
    assert halved.results[0].figures.log_loss < whole.results[5].figures.log_loss  # type: ignore[operator]


def test_jobs_change_nothing(tmp_path: Path) -> None:
    path = write_clicks(tmp_path)
    one, four = (ranked(source(path), SMALL, jobs=jobs).to_json() for jobs in (1, 4))
    assert one | {"seconds": 0} == four | {"seconds": 0}


def test_several_ways_of_hashing_learn_the_same_lines(tmp_path: Path) -> None:
    path = write_clicks(tmp_path)
    both = Space(
        hashings=({"bits": 12}, {"bits": 12, "crosses": [["ad", "site"]]}),
        families=("ftrl", "rda"),
        alphas=(0.1,),
        l1s=(0.5,),
    )
    together = ranked(source(path), both, SINGLE)
    assert together.varied == ["hashing", "family"]
    for result in together.results:
        alone = replace(both, hashings=(both.hashings[result.option.varied["hashing"]],))
        figures = {r.option.varied["family"]: r.figures for r in ranked(source(path), alone).results}
        assert result.figures == figures[result.option.varied["family"]]


def test_what_is_given_once_for_all_is_not_varied(tmp_path: Path) -> None:
    path = write_clicks(tmp_path, 200)
    space = Space({"family": "rda", "rate": {"kind": "gamma", "gamma": 1.0, "floor": 5.0}, "l1": 0.3})
    (only,) = [result for result in ranked(source(path), space).results if result.is_tried]
    hyper = only.option.config.hyper.to_json()
    assert (hyper["family"], hyper["rate"]["floor"], hyper["l1"]) == ("rda", 5.0, 0.3)
    floors = {
        o.config.hyper.to_json()["rate"]["floor"] for o in replace(space, gammas=(0.5, 2.0)).options()[0]
    }
    assert floors == {5.0}


def test_what_the_service_refuses_is_left_out_with_its_reason(tmp_path: Path) -> None:
    options, left_out = replace(SMALL, families=("ftrl", "comid")).options()
    assert [o.varied["family"] for o in options] == ["ftrl"] * 4
    assert [one.varied["family"] for one in left_out] == ["comid"] * 4
    assert "schedule once with family comid applies l1 on round 1 only" in left_out[0].reason
    with pytest.raises(CommandFailure, match="the service would refuse every candidate: schedule once"):
        ranked(source(write_clicks(tmp_path, 10)), replace(SMALL, families=("aogd",)))


def test_equal_models_are_tried_once() -> None:
    options, _ = replace(SMALL, families=("ftrl", "ftrl"), alphas=(0.1, 0.10)).options()
    assert len(options) == 2


def test_a_wrong_value_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"hyper\.rate\.alpha"):
        replace(SMALL, alphas=(-1.0,)).options()


def test_candidates_beyond_the_memory_are_refused_before_reading(tmp_path: Path) -> None:
    needed = 8 * 17 * 2**12
    path = write_clicks(tmp_path, 100)
    assert len(ranked(source(path), SMALL, SINGLE, memory=needed).results) == 8
    with pytest.raises(
        CommandFailure, match=r"8 candidates of up to 2\^12 slots take 1 MiB at once, more than"
    ):
        ranked(source(tmp_path / "absent.vw"), SMALL, SINGLE, memory=needed - 1)


def test_who_skips_examples_is_ranked_last() -> None:
    batch = ExampleBatch.from_encoded([([1], None)] * 2, [1, 0])
    bad, skipping = Score(), Score()
    bad.add(np.array([-5.0, 5.0]), batch)
    skipping.add(np.array([1.0, np.nan]), batch)
    assert bad.rank < skipping.rank
    assert (skipping.rows, skipping.skipped) == (2, 1)
    assert skipping.figures().log_loss == pytest.approx(math.log1p(math.exp(-1)))


def write_random(directory: Path, rows: int = 3000) -> Path:
    """Clicks that no feature explains."""
    chance = random.Random(3)
    path = directory / "random.vw"
    path.write_text("".join(f"{chance.choice((-1, 1))} |f ad=a{chance.randrange(5)}\n" for _ in range(rows)))
    return path


def test_a_difference_is_that_of_the_means_of_blocks() -> None:
    chance = np.random.default_rng(5)
    losses, others = chance.exponential(size=(2, 64 * 40))
    weights = np.repeat(chance.uniform(1.0, 3.0, 40), 64)
    paired, apart = Paired(), Paired()
    paired.add(losses * weights, others * weights, weights)
    for some in (slice(0, 640), slice(640, None)):
        apart.add((losses * weights)[some], (others * weights)[some], weights[some])
    found = paired.difference(1)
    assert found is not None
    in_parts = apart.difference(1)
    assert in_parts is not None
    assert (in_parts.mean, in_parts.high) == pytest.approx((found.mean, found.high))
    d, w = ((column * weights).reshape(40, 64).sum(axis=1) for column in (losses - others, np.ones(64 * 40)))
    mean = d.sum() / w.sum()
    error = math.sqrt(np.sum((d - mean * w) ** 2) * 40 / 39) / w.sum()
    assert (found.mean, found.low, found.high) == pytest.approx(
        (mean, mean - 1.959964 * error, mean + 1.959964 * error), rel=1e-6
    )


def test_intervals_cover_the_truth_for_all_candidates_together() -> None:
    chance = np.random.default_rng(11)
    trials, candidates = 200, 20
    missed = 0
    for _ in range(trials):
        present = chance.normal(size=64 * 30)
        wrong = False
        for _ in range(candidates):
            paired = Paired()
            paired.add(chance.normal(size=64 * 30), present, np.empty(0))
            found = paired.difference(candidates)
            assert found is not None
            wrong |= not (found.low or 0.0) <= 0.0 <= (found.high or 0.0)
        missed += wrong
    assert missed <= 0.12 * trials


def test_rows_that_one_of_them_skips_are_not_compared() -> None:
    paired = Paired()
    paired.add(np.array([1.0, np.nan, 3.0]), np.array([0.5, 1.0, 2.0]), np.empty(0))
    assert paired.difference(4) == Difference(0.75, None, None)
    assert Paired().difference(4) is None


def test_a_better_model_is_recommended_with_its_interval(tmp_path: Path) -> None:
    bad = {"hyper": {"rate": {"kind": "adaptive", "alpha": 0.0001}}}
    ranking = ranked(source(write_clicks(tmp_path)), SMALL, bad)
    best = ranking.results[0]
    assert ranking.recommended is best
    assert best.difference is not None
    assert best.difference.high is not None
    assert best.difference.high < 0.0
    assert ranking.verdict().startswith(f"Set family {best.option.varied['family']}, alpha ")
    assert " instead of family ftrl, alpha 0.0001, l1 0.5: log loss -0.05" in ranking.verdict()
    assert ranking.body["hyper"] == best.option.config.hyper.to_json()
    assert ranking.present.difference == Difference(0.0, 0.0, 0.0)


def test_a_present_mixture_is_called_one(tmp_path: Path) -> None:
    bad = {"rate": {"kind": "mixture", "experts": [{"alpha": 0.0001}, {"alpha": 0.0002}]}}
    ranking = ranked(source(write_clicks(tmp_path)), SMALL, {"hyper": bad})
    assert " instead of family ftrl, rate mixture: log loss -0.0" in ranking.verdict()


def test_a_present_configuration_that_is_as_good_is_kept(tmp_path: Path) -> None:
    ranking = ranked(source(write_random(tmp_path)), replace(SMALL, alphas=(0.1, 0.11)), SINGLE)
    assert ranking.results[0] is not ranking.present
    assert ranking.verdict().startswith("Keep the present: it is as good as far as 3,000 rows can tell.")
    assert ranking.body["hyper"] == Hyperparameters().to_json()
    best = ranked(source(write_random(tmp_path)), Space(l1s=(0.5,), alphas=(0.1,)), SINGLE)
    assert best.verdict() == "Keep the present: no other candidate has a lower log loss."


def test_the_grid_has_larger_alphas_and_betas_unless_a_rate_is_given() -> None:
    *options, mixture = Space().options()[0]
    assert len(options) == 7 * 2 * 2 * 2
    assert mixture.varied == {"rate": "mixture"}
    assert size_of(mixture) == (4 * 16 + 1) << 22
    assert max(o.varied["alpha"] for o in options) == 2.0
    assert {o.varied["beta"] for o in options} == {0.1, 1.0}
    assert {o.varied["half_life"] for o in options} == {"none", 100_000.0}
    assert sum(map(size_of, options)) < 5 * 2**30, "of the default --memory"
    assert sum(o.config.hyper == Hyperparameters() for o in options) == 1
    assert mixture.config == ModelConfig()
    assert not [o for o in Space({"l1": 0.1}).options()[0] if o.varied.get("rate") == "mixture"]
    one_rate = {"rate": {"kind": "adaptive", "alpha": 0.3, "beta": 0.7}}
    assert {str(o.varied) for o in Space(one_rate, l1s=(0.0,)).options()[0]} == {
        "{'family': 'ftrl', 'l1': 0.0}"
    }
    both = Space(one_rate, alphas=(0.1, 0.2), betas=(3.0,), gammas=(1.0,), l1s=(0.0,)).options()[0]
    rates = [o.config.hyper.to_json()["rate"] for o in both]
    assert rates == [
        {"kind": "adaptive", "alpha": 0.1, "beta": 3.0},
        {"kind": "adaptive", "alpha": 0.2, "beta": 3.0},
        {"kind": "gamma", "gamma": 1.0, "floor": 0.0},
    ]
    only_betas = Space(one_rate, betas=(1.0, 2.0), l1s=(0.0,)).options()[0]
    assert [(o.config.hyper.rate) for o in only_betas] == [AdaptiveRate(0.3, 1.0), AdaptiveRate(0.3, 2.0)]


def write_shock(directory: Path) -> Path:
    """Clicks whose probability changes from one ad to the other halfway."""
    chance = random.Random(7)
    path = directory / "shock.vw"
    with path.open("w") as file:
        for row in range(6000):
            ad = chance.randrange(2)
            label = 1 if chance.random() < (0.8 if ad == (row < 3000) else 0.1) else -1
            file.write(f"{label} |f ad=a{ad}\n")
    return path


def test_half_lives_are_tried_and_a_model_that_forgets_can_be_the_best(tmp_path: Path) -> None:
    forgetful = Space(hashings=({"bits": 12},), alphas=(0.1,), l1s=(0.0,), half_lives=(None, 300.0, 30_000.0))
    ranking = ranked(source(write_shock(tmp_path)), forgetful, SINGLE)
    assert [r.option.varied["half_life"] for r in ranking.results if r.is_tried] == [300.0, 30_000.0, "none"]
    assert ranking.recommended.option.config.hyper.forgetting == HalfLife("examples", 300.0)
    assert ranking.body["hyper"]["forgetting"] == {"half_life_examples": 300.0}
    assert "Set l1 0, half-life 300 instead of l1 0.5, half-life none" in ranking.verdict()
    assert list(ranking.hints()) == [
        "the best half-life, 300, is the smallest that was tried: try smaller ones, too"
    ]
    one = ranked(source(write_shock(tmp_path)), replace(forgetful, half_lives=(None, 300.0)))
    assert list(one.hints()) == ["the best half-life, 300, is the only one that was tried: try others, too"]
    endless = ranked(source(write_random(tmp_path)), replace(forgetful, half_lives=(None, 300.0)))
    assert list(endless.hints()) == []


def test_half_lives_are_left_out_where_nothing_can_be_forgotten() -> None:
    options, left_out = Space({"schedule": {"kind": "constant"}}).options()
    assert len(options) == len(left_out) == 28
    assert "is not defined for schedule constant" in left_out[0].reason
    fixed = Space({"forgetting": {"half_life_examples": 500}}, l1s=(0.0,)).options()[0]
    assert {o.config.hyper.forgetting for o in fixed} == {HalfLife("examples", 500.0)}
    by_time = {"hyper": {"forgetting": {"half_life_seconds": 3600}}}
    assert Space().present(by_time).varied["half_life"] == "3600 s"


def test_the_present_line_is_shown_below_the_best_ones(tmp_path: Path) -> None:
    body = tmp_path / "present.json"
    body.write_text(json.dumps({"hyper": {"rate": {"kind": "adaptive", "alpha": 0.0001}}}))
    words = ("--bits", "12", "--alphas", "0.05,0.1", "--top", "2", "--present", str(body), "--search", "grid")
    result = run("tune", str(write_clicks(tmp_path)), *words)
    assert result.returncode == 0, result.stderr
    heading, *rows = result.stdout.splitlines()[:4]
    assert heading.split()[:5] == ["alpha", "l1", "log", "loss", "minus"]
    assert "calibration" in heading
    assert [row.split()[0] for row in rows] == ["1", "2", "5"]
    assert rows[2].split()[1:4] == ["present", "0.0001", "0.5"]
    assert "±" in rows[0]
    assert "and 2 more (--top shows them)" in result.stdout


def test_the_model_default_of_the_settings_is_the_present_one(tmp_path: Path) -> None:
    (tmp_path / "default.json").write_text('{"hyper": {"l1": 0.25}, "hashing": {"bits": 12}}')
    words = ("tune", str(write_clicks(tmp_path, 300)), "--bits", "12", "--alphas", "0.1", "--json")
    told = json.loads(run(*words, FTRL_DEFAULT_MODEL=str(tmp_path / "default.json")).stdout)
    (present,) = [c for c in told["candidates"] if c["is_present"]]
    assert present["varied"] | {"family": ""} == {"family": "", "bits": 12, "alpha": 0.1, "l1": 0.25}


def test_hints_say_where_the_best_lies_at_the_end_of_a_list(tmp_path: Path) -> None:
    path = write_clicks(tmp_path)
    ranking = ranked(source(path), Space(hashings=({"bits": 12},), alphas=(0.0001, 0.0002), l1s=(0.0, 0.5)))
    assert list(ranking.hints()) == [
        "the best alpha, 0.0002, is the largest that was tried: try larger ones, too"
    ]


def test_bad_lines_stop_it_or_are_counted(tmp_path: Path) -> None:
    path = write_clicks(tmp_path, 50)
    path.write_text(path.read_text() + "nonsense |f a=b\n")
    with pytest.raises(CommandFailure, match=r"clicks.vw:51: .*\(--on-error skip leaves such lines out\)"):
        ranked(source(path), SMALL)
    ranking = ranked(source(path, on_error="skip"), SMALL)
    assert (ranking.rows, ranking.bad_lines) == (50, 1)


def test_a_file_without_examples_is_reported(tmp_path: Path) -> None:
    (tmp_path / "empty.vw").touch()
    with pytest.raises(CommandFailure, match=r"empty\.vw holds no examples"):
        ranked(source(tmp_path / "empty.vw"), SMALL)


@pytest.mark.slow
def test_standard_input_is_read_once(tmp_path: Path) -> None:
    text = write_clicks(tmp_path, 300).read_text()
    words = ("tune", "-", "--format", "vw", "--bits", "12")

    def piped(*more: str) -> subprocess.CompletedProcess[str]:
        command = [*FTRL, *words, *more]
        return subprocess.run(
            command, input=text, env=environment(), capture_output=True, text=True, timeout=60, check=False
        )

    assert json.loads(piped("--json").stdout)["rows"] == 300
    assert "halving has to know how long the file is" in piped("--search", "halving").stderr
    assert "standard input can be read once only" in piped("--numeric", "bucket,log").stderr


def test_the_table_shows_what_differs_and_needs_no_extra(tmp_path: Path) -> None:
    """The interpreter is started as if the extra had never been installed."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfor name in ('joblib', 'matplotlib'):\n    sys.modules[name] = None\n"
    )
    path = write_clicks(tmp_path, 500)
    out = tmp_path / "body.json"
    result = run(
        *("tune", str(path), "--bits", "12", "--top", "3", "--out", str(out)),
        new_interpreter=True,
        PYTHONPATH=f"{tmp_path}:{environment()['PYTHONPATH']}",
    )
    assert result.returncode == 0, result.stderr
    heading, *rows = result.stdout.splitlines()[:4]
    assert heading.split()[:5] == ["rate", "alpha", "beta", "l1", "half-life"]
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert "and 53 more (--top shows them)" in result.stdout
    assert json.loads(out.read_text()) == json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--alphas", "much"), "'much' is no list of numbers"),
        (("--half-lives", "none,long"), "'long' is no list of numbers"),
        (("--half-lives", "0.5"), "hyper.forgetting.half_life_examples"),
        (("--memory", "lots"), "'lots' is no size, such as 2GiB"),
        (("--families", "sgd"), "hyper.family"),
        (("--hashing", "{"), "no JSON object nor a file of one"),
        (("--bits", "30"), "hashing.bits"),
    ],
)
def test_wrong_calls_say_what_is_wrong(words: tuple[str, ...], told: str, tmp_path: Path) -> None:
    result = run("tune", str(write_clicks(tmp_path, 10)), *words)
    assert result.returncode == 2
    assert told in " ".join(result.stderr.replace("│", " ").split())


EXPERTS = [{"alpha": 0.1, "l1": 0.0}, {"alpha": 0.1, "l1": 0.0, "half_life_examples": 300.0}]


def test_a_mixture_is_tried_beside_single_rates_and_with_each_contract(tmp_path: Path) -> None:
    space = Space(hashings=({}, {"crosses": [["ad", "site"]]}), bits=(12,), l1s=(0.0,))
    mixtures = [o for o in space.options()[0] if o.varied.get("rate") == "mixture"]
    assert [o.varied for o in mixtures] == [{"hashing": i, "bits": 12, "rate": "mixture"} for i in (0, 1)]
    given = Space({"rate": {"kind": "mixture", "experts": EXPERTS}}, hashings=({"bits": 12},))
    ranking = ranked(source(write_shock(tmp_path)), given, {"hyper": {"rate": {"kind": "adaptive"}}})
    (mixture,) = [result for result in ranking.results if result.is_tried]
    assert ranking.recommended is mixture
    assert ranking.body["hyper"]["rate"]["experts"][1]["half_life_examples"] == 300.0
    alone = [
        {"hyper": {"rate": {"kind": "adaptive", "alpha": 0.1}, "l1": 0.0, "forgetting": forgetting}}
        for forgetting in (None, {"half_life_examples": 300.0})
    ]
    losses = [ranked(source(write_shock(tmp_path)), given, one).present.figures.log_loss for one in alone]
    assert mixture.figures.log_loss is not None
    assert mixture.figures.log_loss <= min(loss for loss in losses if loss is not None) + math.log(2) / 6000


def test_the_best_model_has_what_the_schema_says(tmp_path: Path) -> None:
    (tmp_path / "clicks.log").write_text("y,n\n" + "".join(f"{i % 2},{i % 7}\n" for i in range(60)))
    (tmp_path / "schema.json").write_text('{"format": "csv", "label": "y", "types": {"n": "number"}}')
    words = ("--schema", str(tmp_path / "schema.json"), "--bits", "12", "--alphas", "0.1", "--json")
    result = run("tune", str(tmp_path / "clicks.log"), *words)
    assert result.returncode == 0, result.stderr
    ranking = json.loads(result.stdout)
    assert ranking["body"]["hashing"]["types"] == {"n": "number"}

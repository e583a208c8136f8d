"""The click simulator against a real service: what it counts is what the service learned."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
import redis

from lab.simulation.demo import SHOWS, create, run_all
from lab.simulation.experts import WeightSample, experts_for, names_of
from lab.simulation.figures import Accounts, Quality, Report
from lab.simulation.policies import POLICIES, Plan, simulate
from lab.simulation.world import SEASONS, SEGMENTS, WORLDS, DriftingWorld, SeasonalWorld, World
from service.cli.http_client import Refused
from service.cli.simulate import print_reports
from service.errors import CommandFailure
from tests.service.api.conftest import LiveApi
from tests.support.commands import run
from tests.support.waiting import wait_until

PLAN = Plan(
    url="",
    model="simulated",
    rate=100,
    seconds=3,
    window=2,
    delay=0.25,
    seed=7,
    click_rate=0.2,
    candidates=3,
    lost=0.05,
    repeated=0.5,
    early=0.1,
    retried=0.1,
    shock_at=0.5,
    negative_sample_rate=1,
)


def test_a_world_is_the_same_for_the_same_seed_and_clicks_at_its_rate() -> None:
    worlds = [World(5, 0.05, 4) for _ in range(2)]
    impressions = [[world.next() for _ in range(500)] for world in worlds]
    assert [one.candidates for one in impressions[0]] == [one.candidates for one in impressions[1]]
    assert [one.chances for one in impressions[0]] == [one.chances for one in impressions[1]]
    truth = np.concatenate([one.probabilities for one in impressions[0]])
    assert truth.mean() == pytest.approx(0.05, rel=0.15)
    assert impressions[0][0].candidates != World(6, 0.05, 4).next().candidates


@pytest.mark.parametrize("name", WORLDS)
def test_each_world_is_the_same_for_the_same_seed(name: str) -> None:
    one, other = (WORLDS[name](5, 0.05, 2, 300) for _ in range(2))
    for _ in range(300):
        a, b = one.next(), other.next()
        assert a.candidates == b.candidates
        assert a.probabilities.tolist() == b.probabilities.tolist()


def test_seasons_come_back_and_a_drift_does_not() -> None:
    """Correlation of the tastes at the start with those a season and half a season later."""
    length = 4_000
    found = {}
    for kind in (SeasonalWorld, DriftingWorld, World):
        world = kind(3, 0.05, 1, length)
        tastes = [tastes_of(world)]
        for _ in range(2):
            for _ in range(length // SEASONS // 2):
                world.next()
            tastes.append(tastes_of(world))
        found[kind] = [float(np.corrcoef(tastes[0], later)[0, 1]) for later in tastes[1:]]
    assert found[SeasonalWorld] == pytest.approx([-1.0, 1.0], abs=0.02)
    half, whole = found[DriftingWorld]
    assert 0.9 > half > whole > 0.0
    assert found[World] == pytest.approx([1.0, 1.0])


def tastes_of(world: World) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.concatenate([world._tastes_of(segment) for segment in range(SEGMENTS)])


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["close", "arrival", "close-append", "close-sampled"])
def test_each_impression_is_learned_once(live_api: LiveApi, policy: str) -> None:
    delay = 1.5 if policy == "close-append" else 0.25
    report = simulate(dataclasses.replace(PLAN, url=live_api.url, delay=delay), policy)
    assert report.events["impressions"] == 300
    assert report.events["not_logged"] == 0
    assert report.events["click_duplicate"] > 0
    assert report.events["clicks_early"] > 0
    assert (report.accounts.lost, report.accounts.doubled, report.accounts.foreign) == (0, 0, 0)
    assert (report.accounts.learned == 300) == (policy in ("close", "arrival"))
    assert report.phases["end"].predictions > 0


@pytest.mark.slow
def test_lost_doubled_and_foreign_examples_are_distinguished(live_api: LiveApi) -> None:
    plan = dataclasses.replace(
        PLAN, url=live_api.url, model="harmed", click_rate=0.5, window=4, delay=0.05, patience_seconds=1
    )
    with ThreadPoolExecutor() as executor:
        simulation = executor.submit(simulate, plan, "close")
        lose_clicks(live_api, plan.model, 3)
        show_two_more(live_api.client, f"/models/{plan.model}")
        update = {"features": {"ad": "a"}, "label": 1}
        for _ in range(4):
            assert live_api.client.post(f"/models/{plan.model}/update", json=update).status_code == 200
        found = simulation.result()
    assert found.accounts == Accounts("counts", 300 - 3 + 2 + 4, 3, 3, 2, 0, 4)


def lose_clicks(live_api: LiveApi, model: str, number: int) -> None:
    """Takes impressions with a click out of Redis, as soon as there are any."""
    with redis.Redis.from_url(live_api.settings.redis_url or "") as client:
        while number:
            for key in client.scan_iter(f"ftrl:{{{model}}}:*:impressions:*"):
                for identifier, value in client.hgetall(key).items():
                    if number and value.startswith(b"1") and client.hdel(key, identifier):
                        number -= 1


def show_two_more(client: httpx.Client, path: str) -> None:
    """Which the simulation knows nothing of."""
    ids = ["one", "two"]
    instances = [{"features": {"ad": "a"}, "id": name} for name in ids]
    reply = client.post(f"{path}/predict", json={"instances": instances, "log": True})
    assert reply.json()["logged"]
    assert client.post(f"{path}/impressions", json={"ids": ids}).status_code == 200


@pytest.mark.slow
def test_the_demo_reports_that_it_lives_and_learns_sliced_models(live_api: LiveApi, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    words = ("-m", "lab.simulation", "--url", live_api.url, "--alive", str(alive))
    demo = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: health(alive) == 0)
        models = [live_api.client.get(f"/models/{show.model}").json() for show in SHOWS]
        assert [model["evaluation"]["slices"] for model in models] == [["device", "site", "position"]] * 3
        for show in SHOWS:
            create(live_api.url, show)  # again, as when it restarts
        follows = live_api.client.get("/models/news-challenger").json()["follows"]
        assert (follows["model"], follows["promote"]["when"]) == ("news", "better")
        with pytest.raises(Refused, match="display-ads"):
            create(live_api.url, dataclasses.replace(SHOWS[0], click_rate=0.1))
    finally:
        demo.terminate()
        demo.communicate()


def health(file: Path) -> int:
    """The exit code of the demo's health check."""
    check = (sys.executable, "-m", "lab.simulation.alive", str(file))
    return subprocess.run(check, capture_output=True, timeout=60, check=False).returncode


def test_a_demo_is_unhealthy_before_it_sends_and_when_it_no_longer_does(tmp_path: Path) -> None:
    file = tmp_path / "alive"
    assert health(file) == 1
    file.touch()
    assert health(file) == 0
    os.utime(file, (0, time.time() - 61))
    assert health(file) == 1


def test_the_demo_ends_with_the_reason_if_no_service_answers(tmp_path: Path) -> None:
    with pytest.raises(CommandFailure, match="no ftrl service answers"):
        run_all("http://127.0.0.1:1", tmp_path / "alive")
    assert not (tmp_path / "alive").exists()


@pytest.mark.slow
def test_the_command_prints_a_report_for_programs(live_api: LiveApi) -> None:
    words = ("simulate", "--url", live_api.url, "--model", "by-command", "--seconds", "1", "--window", "1")
    done = run(*words, "--policies", "close-sampled", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["policy"] == "close-sampled"
    assert report["learned"] < report["events"]["impressions"]


def test_a_model_that_no_simulation_made_is_not_deleted(live_api: LiveApi) -> None:
    words = ("simulate", "--url", live_api.url, "--seconds", "1", "--window", "1")
    done = run(*words, "--model", "default")
    assert done.returncode == 1
    assert "No simulation has made the model default" in done.stderr
    assert "choose another --model" in done.stderr


def test_the_policies_side_by_side_fit_into_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    quality = Quality(12_000, 1.0234, 0.3123, 0.0213, 0.0361)
    phases = dict.fromkeys(("first_window", "second_window", "before_shock", "after_shock", "end"), quality)
    accounts = Accounts("counts", 6000, 0, 0, 0, 0, 0)
    weights = [WeightSample(5.0, (0.25, 0.25, 0.25, 0.25))]
    experts = names_of(experts_for(600_000))
    print_reports([Report(policy, 100, 60, phases, {}, accounts, experts, weights) for policy in POLICIES])
    table = capsys.readouterr().out.rpartition("Calibration of what was served")[2]
    assert table.count("1.0234") == len(POLICIES) * len(phases)
    assert all(name in table for name in ("second window", "arrival-", "sampled", "doubled"))
    assert "…" not in table


@pytest.mark.slow
def test_the_weights_of_the_experts_are_reported_over_the_time(live_api: LiveApi) -> None:
    report = simulate(dataclasses.replace(PLAN, url=live_api.url, model="weighed", world="drift"), "arrival")
    assert report.experts[1] == "alpha 0.1, half-life 30"
    assert len(report.weights) > 1
    seconds = [sample.seconds for sample in report.weights]
    assert seconds == sorted(seconds)
    assert all(sum(sample.weights) == pytest.approx(1.0) for sample in report.weights)
    assert report.weights[-1].weights != report.weights[0].weights
    assert report.to_json()["weights"][0].keys() == {"seconds", "weights"}


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    done = run("simulate", "--policies", "never")
    assert done.returncode == 2
    assert all(policy in done.stderr for policy in POLICIES)


def test_a_sample_rate_beside_a_policy_that_has_its_own_is_refused() -> None:
    done = run("simulate", "--policies", "close,close-sampled", "--negative-sample-rate", "0.5")
    assert done.returncode == 2
    assert "close-sampled" in done.stderr
    assert "0.1" in done.stderr

"""`ftrl whatif`: the log of a model, learned again with other configurations."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.experiments.grid import options_of
from lab.experiments.log_window import LogWindow, Wanted, find_window
from lab.experiments.model_log import LogSource, Start
from lab.experiments.race import RacePlan
from lab.experiments.tuning import Ranking, rank
from lab.simulation.day import examples_of
from model_core.errors import InvalidInput
from service.errors import CommandFailure
from service.example_log.inspect import skip_through
from service.models.config.model import ModelConfig
from service.models.registry import OpenModel
from service.snapshots.store.catalogue import SnapshotStore
from service.snapshots.take.archiver import LogArchiver
from service.storage.channel import open_channel
from tests.conftest import SettingsFactory
from tests.support.commands import run
from tests.support.processes import ServiceProcess
from tests.support.proxy import Proxy
from tests.support.servers import ServerProcess
from tests.support.snapshot_systems import CONFIG, catalogue, take
from tests.support.system import System, read_log, stored
from tests.support.waiting import until, wait_until

GRID = {"alpha": [0.05, 0.5], "half_life": [None, 50], "bits": [12, 16]}
SINGLE = {"hyper": {"rate": {"kind": "adaptive"}}, "hashing": {"bits": 16}}
MINUTE = 60
FIRST = 1_764_547_200
"""The time of the first example: 2025-12-01T00:00:00Z."""


class Site:
    """A service, and the data that `ftrl whatif` reads beside it."""

    def __init__(self, service: ServiceProcess, server: ServerProcess, directory: Path) -> None:
        self.service = service
        self.place = ("--redis-url", server.url, "--data-dir", str(directory))

    def learn(self, model: str, config: dict[str, Any], rows: int = 120, an_entry: int = 1) -> None:
        """A new model, with an example a minute, of different weights."""
        chance = random.Random(3)
        self.service.put(f"/models/{model}", config)
        examples = [
            {
                "features": {"ad": f"a{row % 7}", "site": f"s{chance.randrange(5)}"},
                "label": int(chance.random() < (row % 7 + 2) / 9),
                "weight": chance.choice((1, 1, 2.5)),
                "event_time": FIRST + row * MINUTE,
            }
            for row in range(rows)
        ]
        for first in range(0, rows, an_entry):
            body = {"examples": examples[first : first + an_entry]}
            self.service.post(f"/models/{model}/update", body)

    def whatif(self, model: str, *words: str, grid: object = GRID) -> dict[str, Any]:
        done = run("whatif", "--model", model, "--grid", json.dumps(grid), "--json", *words, *self.place)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def refused(self, model: str, *words: str) -> tuple[int, str]:
        done = run("whatif", "--model", model, "--grid", json.dumps(GRID), *words, *self.place)
        return done.returncode, " ".join(done.stderr.replace("│", " ").split())

    def live(self, model: str) -> dict[str, Any]:
        """The live evaluation of all that the model has learned, once it has been published."""
        learned = self.service.get(f"/models/{model}")["t"]
        while True:
            report = self.service.get(f"/models/{model}/evaluation")
            if report["t"] == learned:
                found: dict[str, Any] = report["sources"]["progressive"]["windows"]["all"]
                return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    server = ServerProcess(appendonly=False).start()
    directory = tmp_path_factory.mktemp("site")
    service = ServiceProcess("serve", server.url, directory, data_dir=directory)
    try:
        service.wait_until_ready()
        yield Site(service, server, directory)
    finally:
        service.remove()
        server.remove()


def present_of(found: dict[str, Any]) -> dict[str, Any]:
    (present,) = [one for one in found["candidates"] if one["is_present"]]
    return present


FIGURES = ("log_loss", "normalized_entropy", "auc", "auc_error_bound", "calibration_ratio", "clicks")


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("single", SINGLE | {"evaluation": {"slices": ["ad"]}, "feedback": {"window_seconds": 60}}),
        ("mixture", {"hashing": {"bits": 12}}),
        ("by-time", {"hyper": {"forgetting": {"half_life_seconds": 3600}}, "hashing": {"bits": 12}}),
    ],
)
def test_the_present_figures_are_those_of_the_live_evaluation_to_the_last_digit(
    site: Site, model: str, config: dict[str, Any]
) -> None:
    site.learn(model, config, rows=700, an_entry=50)
    before = site.service.get(f"/models/{model}")
    live = site.live(model)
    found = site.whatif(model)
    present = present_of(found)
    assert {name: present[name] for name in FIGURES} == {name: live[name] for name in FIGURES}
    assert present["rows"] == live["examples"] == 700
    assert (present["features_seen"], present["nonzero"]) == (before["features_seen"], before["nonzero"])
    assert site.service.get(f"/models/{model}") == before, "nothing of the model has changed"
    assert found["source"]["since"] == "2025-12-01T00:00:00Z"
    assert found["source"]["until"] == "2025-12-01T11:39:00Z"


@pytest.fixture(scope="module")
def minutes(site: Site) -> str:
    """A model with an entry a minute, for two hours."""
    site.learn("minutes", SINGLE)
    site.live("minutes")  # as the newest time is published with it
    return "minutes"


@pytest.mark.slow
def test_a_window_goes_by_the_time_of_the_model(site: Site, minutes: str) -> None:
    last = site.whatif(minutes, "--last", "30m")
    assert (last["rows"], last["source"]["since"]) == (31, "2025-12-01T01:29:00Z")
    hour = site.whatif(minutes, "--since", "2025-12-01T00:10:00Z", "--until", str(FIRST + 70 * MINUTE))
    assert (hour["rows"], hour["source"]["first_example"], hour["source"]["last_example"]) == (60, 10, 69)
    before = site.whatif(minutes, "--last", "10m", "--until", "2025-12-01T01:00:00Z")
    assert (before["source"]["first_example"], before["rows"]) == (50, 10)


@pytest.mark.slow
def test_a_window_can_begin_with_the_state_that_the_model_then_had(site: Site, minutes: str) -> None:
    live = site.live(minutes)
    first = present_of(site.whatif(minutes, "--until", str(FIRST + 90 * MINUTE)))
    found = site.whatif(minutes, "--last", "29.5m", "--start", "snapshot")
    last = present_of(found)
    assert (first["rows"], last["rows"]) == (90, 30)
    parts = first["log_loss"] * total_weight(0, 90) + last["log_loss"] * total_weight(90, 120)
    assert parts == pytest.approx(live["log_loss"] * total_weight(0, 120), rel=1e-12)
    assert found["source"]["start"] == "nothing"
    assert {one["varied"]["bits"]: one["began_empty"] for one in found["candidates"]} == {12: True, 16: False}


def total_weight(first: int, end: int) -> float:
    """The weights of some examples of Site.learn."""
    chance, weights = random.Random(3), []
    for _ in range(end):
        chance.randrange(5), chance.random()
        weights.append(chance.choice((1, 1, 2.5)))
    return float(sum(weights[first:]))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ("--since", "2025-12-02T00:00:00Z"),
            1,
            "holds no learned example from 2025-12-02T00:00:00Z; its newest",
        ),
        (("--until", "2025-11-30T00:00:00Z"), 1, "holds no learned example before 2025-11-30T00:00:00Z"),
        (("--last", "1w"), 2, "'1w' is no duration, such as 90m, 24h or 7d"),
        (("--last", "1h", "--since", "2025-12-01T00:00:00Z"), 2, "give --last or --since, not both"),
        (("--since", "yesterday"), 2, "must be an RFC 3339 text"),
        (("--since", str(FIRST), "--until", str(FIRST)), 2, "must be after --since"),
        (("--memory", "1MiB"), 1, "more than the 1 MiB of --memory"),
        (("--label-column", "y"), 2, "flags that say how a file is read need a FILE"),
        (("clicks.csv",), 2, "give files, or a window of the log of a model, not both"),
    ],
)
def test_wrong_calls_say_what_is_wrong(
    site: Site, minutes: str, words: tuple[str, ...], code: int, said: str
) -> None:
    returned, error = site.refused(minutes, *words)
    assert (returned, said in error) == (code, True), error


def test_a_model_that_has_learned_nothing_is_reported(site: Site) -> None:
    site.service.put("/models/new", SINGLE)
    assert site.refused("new") == (1, "ftrl: new has learned no example yet")
    assert "There is no model 'none'" in site.refused("none")[1]


def test_an_alias_stands_for_the_model_that_it_means(site: Site, minutes: str) -> None:
    site.service.put("/aliases/live", {"model": minutes})
    assert site.whatif("live", "--last", "5m", grid=[{}])["source"]["model"] == minutes


def test_tune_tries_its_grid_on_the_log(site: Site, minutes: str) -> None:
    words = ("tune", "--model", minutes, "--alphas", "0.05,0.5", "--bits", "12", "--json", *site.place)
    found = json.loads(run(*words).stdout)
    assert found["source"]["model"] == minutes
    assert present_of(found)["varied"]["bits"] == 16, "the configuration of the model"
    assert {one["varied"]["bits"] for one in found["candidates"] if one["is_present"] is False} == {12}
    refused = run(*words, "--numeric", "log")
    assert refused.returncode == 2
    assert "hashing.numeric: must be 'bucket'" in " ".join(refused.stderr.replace("│", " ").split())


@pytest.mark.slow
def test_the_best_goes_on_as_a_challenger_from_the_state_that_it_has_reached(
    site: Site, tmp_path: Path
) -> None:
    site.learn("champion", SINGLE | {"hyper": {"rate": {"kind": "adaptive", "alpha": 0.001}}}, rows=300)
    words = ("--challenge", "best", "--challenger", "better")
    found = site.whatif("champion", *words, grid=[{"hyper": {"rate": {"kind": "adaptive"}, "l1": 0.0}}])
    assert found["challenger"] == "better"
    created = site.service.get("/models/better")
    assert (created["hyper"]["rate"]["alpha"], created["hyper"]["l1"]) == (0.1, 0.0)
    assert created["follows"]["start"] == "what-if"
    best = found["candidates"][0]
    assert (created["t"], created["features_seen"]) == (300, best["features_seen"])
    example = {"features": {"ad": "a1", "site": "s1"}, "label": 1}
    site.service.post("/models/champion/update", example)
    wait_until(lambda: site.service.get("/models/better")["t"] == 301, "the challenger learns on")
    again = site.whatif("champion", grid=[{"hyper": created["hyper"]}])
    assert again["candidates"][0]["features_seen"] == site.service.get("/models/better")["features_seen"]
    rebuilt = run("rebuild", "--model", "better", *site.place)
    assert rebuilt.returncode == 0, rebuilt.stderr
    worse = {"rate": {"kind": "adaptive", "alpha": 1000.0}, "l1": 0.0}
    assert site.whatif("champion", "--challenge", "best", grid=[{"hyper": worse}])["challenger"] is None
    site.service.put("/models/other", SINGLE)
    code, said = site.refused("champion", "--challenge", "best", "--challenger", "other")
    assert (code, "'other' exists and has a log of its own; delete it first" in said) == (1, True), said


def test_files_are_learned_as_a_log_is(tmp_path: Path) -> None:
    (tmp_path / "clicks.csv").write_text("label,n\n" + "".join(f"{i % 2},{i % 7}\n" for i in range(300)))
    words = ("whatif", str(tmp_path / "clicks.csv"), "--json", "--grid")
    found = json.loads(run(*words, '{"numeric": ["bucket", "log"], "bits": [12]}').stdout)
    assert [one["rows"] for one in found["candidates"]] == [300, 300, 300]
    named = json.loads(run(*words, '[{"name": "small", "hashing": {"bits": 12}}]').stdout)
    assert sorted(one["varied"]["name"] for one in named["candidates"]) == ["present", "small"]


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ({"alpah": [1]}, "alpah: unknown dimension (did you mean 'alpha'?)"),
        ({"alpha": 0.1}, "alpha: must be an array of the values to try"),
        ({"alpha": [-1]}, "hyper.rate.alpha: must be a number"),
        ({}, "no dimension; a grid has family"),
        ([], "must be an object of dimensions"),
        ([3], "[0]: must be an object"),
        ([{}, {"hypr": {}}], "[1].hypr: unknown field (did you mean 'hyper'?)"),
        ([{"hyper": {"l_1": 1}}], "[0].hyper.l_1: unknown; allowed"),
        ([{"hyper": {"l_1": 1}}], "(did you mean 'l1'?)"),
        ([{"hashing": {"bits": 9}}], "[0].hashing.bits: must be"),
    ],
)
def test_a_wrong_grid_is_refused_with_the_field(grid: object, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        options_of(grid, ModelConfig())
    assert said in str(refused.value)


def test_a_grid_varies_the_present_configuration() -> None:
    config = ModelConfig.from_json({"hyper": {"family": "rda", "l1": 0.3}, "hashing": {"bits": 14}})
    options, present, _ = options_of({"alpha": [0.2], "bits": [12, 14]}, config)
    hypers = [option.config.hyper.to_json() for option in options]
    assert [(hyper["family"], hyper["l1"], hyper["rate"]["alpha"]) for hyper in hypers] == [
        ("rda", 0.3, 0.2)
    ] * 2
    assert present.varied == {"alpha": 0.1, "bits": 14}
    single, _, _ = options_of({"alpha": [0.2]}, ModelConfig())
    assert single[0].config.hyper.number_of_experts == 1
    mixtures, _, _ = options_of({"bits": [12, 13]}, ModelConfig())
    assert {option.config.hyper for option in mixtures} == {ModelConfig().hyper}
    with pytest.raises(CommandFailure, match="2,500 combinations are more than the 1,000"):
        options_of({name: [i / 100 for i in range(50)] for name in ("l1", "l2")}, config)


@pytest.fixture
async def system(valkey: ServerProcess, make_settings: SettingsFactory) -> AsyncIterator[System]:
    async with System(make_settings(valkey)) as system:
        system.learn()
        yield system


@pytest.fixture
async def model(system: System) -> OpenModel:
    """With 60 examples in 6 entries, and snapshots after each half."""
    model = await system.model(CONFIG)
    for start in range(0, 60, 10):
        await system.update(model, 10, start=start)
        if start in (20, 50):
            await take(system, model)
    return model


async def window_of(system: System, wanted: Wanted | None = None) -> LogWindow:
    async with open_channel(system.settings) as channel:
        return await find_window(channel, catalogue(system), wanted or Wanted())


async def raced(system: System, window: LogWindow, start: Start = "empty", url: str | None = None) -> Ranking:
    settings = system.settings if url is None else system.settings.model_copy(update={"redis_url": url})
    source = LogSource(settings, window, start)
    options, present, _ = options_of({"alpha": [0.05, 0.5], "l1": [0.0, 0.5]}, source.present)
    return await asyncio.to_thread(rank, RacePlan(), source, options, present, progress=False)


async def archived(system: System, model: OpenModel) -> None:
    settings = system.settings.model_copy(update={"log_archive_seconds": 86_400.0})
    archiver = LogArchiver(system.topology, model.name, settings, SnapshotStore(settings), system.metrics)
    archiver.start_if_due(model.mirror.replica)
    await until(lambda: archiver.through >= model.mirror.replica.applied)
    await archiver.close()


async def trim(system: System, model: OpenModel, kept: int) -> None:
    await system.client.xtrim(model.mirror.replica.keys.log, maxlen=kept, approximate=False)


async def test_the_archive_is_read_where_the_log_begins_later(system: System, model: OpenModel) -> None:
    whole = await raced(system, await window_of(system))
    await archived(system, model)
    await trim(system, model, 2)
    again = await raced(system, await window_of(system))
    assert again.to_json() | {"seconds": 0} == whole.to_json() | {"seconds": 0}


async def test_a_log_that_was_trimmed_before_says_where_it_begins(system: System, model: OpenModel) -> None:
    await trim(system, model, 2)
    window = await window_of(system)
    assert (window.begin.number, window.end.number, window.reaches_back) == (40, 60, False)
    ranking = await raced(system, window)
    assert ranking.rows == 20
    assert "neither the log nor its archive reaches further back" in ranking.remarks
    with pytest.raises(CommandFailure, match=r"snapshot .* to example 40 .* --start empty"):
        await raced(system, window, "snapshot")


async def test_what_is_trimmed_meanwhile_is_named(system: System, model: OpenModel) -> None:
    window = await window_of(system)
    await trim(system, model, 2)
    with pytest.raises(CommandFailure, match=r"does not hold example 0, .*goes on with entry.*Begin later"):
        await raced(system, window)


async def test_the_archive_goes_on_for_what_is_trimmed_meanwhile(system: System, model: OpenModel) -> None:
    window = await window_of(system)
    await archived(system, model)
    await trim(system, model, 2)
    assert (await raced(system, window)).rows == 60


async def test_a_model_that_is_deleted_meanwhile_is_reported(system: System, model: OpenModel) -> None:
    window = await window_of(system)
    await system.models.delete(model.name)
    with pytest.raises(CommandFailure, match="clicks was deleted while its log was read"):
        await raced(system, window)


async def test_a_lost_connection_is_opened_again(
    valkey: ServerProcess, system: System, model: OpenModel
) -> None:
    window = await window_of(system)
    async with Proxy(valkey.socket_path) as proxy:
        cut = proxy.lose_request("XRANGE")
        assert (await raced(system, window, url=proxy.url)).rows == 60
        assert cut.happened == 1


def test_a_simulated_day_is_a_log_of_a_day() -> None:
    first, *_, last = examples_of("drift", 300)
    assert last["event_time"] - first["event_time"] == pytest.approx(86_400 * 299 / 300)
    assert first == next(examples_of("drift", 300))
    assert {first["label"], last["label"]} <= {0, 1}
    assert first["features"]["ad"].startswith("ad")


async def test_what_an_operator_had_skipped_is_left_out(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(valkey)) as system:
        learning = system.learn()
        model = await system.model(CONFIG)
        await system.update(model, 20)
        for rows, start in ((20, 20), (30, 40)):
            learning.cancel()
            await asyncio.wait([learning])
            await system.update(model, 10, start=start, wait=False)
            last = (await read_log(system.topology, await stored(system.topology)))[-1]
            async with open_channel(system.settings) as channel:
                assert await skip_through(channel, model.name, str(last.id)) == 10
            assert (await raced(system, await window_of(system))).rows == rows
            learning = system.learn()
            await system.update(model, 10, start=start + 10)
        ranking = await raced(system, await window_of(system))
        assert ranking.rows == 40
        assert ranking.present.features_seen == (await stored(system.topology)).state.features_seen


async def test_a_start_is_rebuilt_from_the_latest_snapshot_before_it(
    system: System, model: OpenModel
) -> None:
    since = (await read_log(system.topology, await stored(system.topology)))[4].id.milliseconds
    window = await window_of(system, Wanted(since=since))
    (older, _) = catalogue(system).entries()
    ranking = await raced(system, window, "snapshot")
    assert ranking.facts["start"] == f"snapshot {older.id}"
    assert not any(result.began_empty for result in ranking.results)
    state = (await raced(system, await window_of(system))).present
    assert ranking.present.features_seen == state.features_seen

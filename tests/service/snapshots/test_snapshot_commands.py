"""`ftrl snapshot ...`, as a person calls it, and what it writes."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner

from docs import serving_reader
from model_core.examples.batch import ExampleBatch
from model_core.hashing.encoder import FeatureEncoder
from model_core.learning.state import ModelState
from service.cli.main import application
from service.models.config.model import ModelConfig
from service.snapshots.store.catalogue import Catalogue, Entry
from service.snapshots.store.objects import open_store
from service.snapshots.take.capture import capture
from tests.support.commands import ServingProcess, run
from tests.support.servers import ServerProcess
from tests.support.snapshot_samples import CONFIG, replica_of, sample
from tests.support.waiting import wait_until


class Store:
    """A directory of snapshots, and the command on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.catalogue = Catalogue(open_store(str(directory / "snapshots")), "clicks")

    def ftrl(self, *words: str, code: int = 0) -> str:
        done = CliRunner().invoke(
            application("snapshot"),
            ["snapshot", *words, "--model", "clicks", "--data-dir", str(self.directory)],
        )
        assert done.exit_code == code, done.output
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            return str(done.exception)
        return done.stdout if not code else done.output


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def pair(store: Store) -> tuple[Entry, Entry]:
    return store.catalogue.write(sample(100, commit=1)), store.catalogue.write(sample(300, commit=2, seed=0))


def test_snapshots_are_listed_shown_tagged_and_deleted(store: Store, pair: tuple[Entry, Entry]) -> None:
    store.ftrl("tag", pair[0].id, "good")
    listed = json.loads(store.ftrl("list", "--json"))
    assert [(one["id"], one["tags"], one["t"]) for one in listed] == [
        (pair[0].id, ["good"], 100),
        (pair[1].id, [], 300),
    ]
    assert pair[1].id[:20] in store.ftrl("list")
    assert json.loads(store.ftrl("show", "good"))["revision"] == "01234567-0-1-746f6b65"
    store.ftrl("tag", "good", "good", "--remove")
    assert "has no snapshot with the id or tag 'good'" in store.ftrl("show", "good", code=1)
    assert store.ftrl("delete", "newest") == f"deleted {pair[1].id}\n"
    assert [entry.id for entry in store.catalogue.entries()] == [pair[0].id]


def test_a_damaged_snapshot_is_named(store: Store, pair: tuple[Entry, Entry]) -> None:
    file = store.directory / "snapshots" / "clicks" / f"{pair[0].id}.safetensors.zst"
    file.write_bytes(file.read_bytes()[:-100])
    assert pair[0].id in store.ftrl("show", pair[0].id, code=1)
    assert [one["id"] for one in json.loads(store.ftrl("list", "--json"))] == [pair[1].id]


def test_a_difference_names_the_weights_that_moved_most(store: Store, pair: tuple[Entry, Entry]) -> None:
    found = json.loads(store.ftrl("diff", pair[0].id, "newest", "--most", "5"))
    a, b = (store.catalogue.load(entry) for entry in pair)
    hyper = CONFIG.hyper
    slots = np.arange(2**16 + 1, dtype=np.uint32)
    moved = np.abs(b.state().weights(slots, hyper) - a.state().weights(slots, hyper))
    moved[np.setdiff1d(slots, np.union1d(a.slots, b.slots))] = 0
    assert len(found["moved_most"]) == 5
    largest = found["moved_most"][0]
    assert abs(largest["b"] - largest["a"]) == moved.max()
    assert found["weights_changed"] == np.count_nonzero(moved)
    assert (found["a"]["t"], found["b"]["t"]) == (100, 300)
    assert json.loads(store.ftrl("diff", "newest", "newest"))["weights_changed"] == 0


def test_snapshots_of_different_contracts_are_not_compared(store: Store, pair: tuple[Entry, Entry]) -> None:
    store.catalogue.write(sample(10, ModelConfig.from_json({"hashing": {"bits": 15}})))
    assert "different contracts" in store.ftrl("diff", pair[0].id, "newest", code=1)


@pytest.mark.parametrize("kind", ["safetensors", "npz"])
def test_all_of_a_snapshot_is_exported(store: Store, pair: tuple[Entry, Entry], kind: str) -> None:
    file = store.directory / f"model.{kind}"
    assert "bytes" in store.ftrl("export", "newest", str(file), "--format", kind)
    snapshot = store.catalogue.load(pair[1])
    loaded = safetensors.numpy.load_file(file) if kind == "safetensors" else all_of(file)
    assert np.array_equal(loaded["slots"], snapshot.slots)
    assert np.array_equal(np.column_stack([loaded["z"], loaded["n"]]), snapshot.rows)
    if kind == "npz":
        weights = snapshot.state().weights(snapshot.slots, CONFIG.hyper)
        assert np.array_equal(loaded["weights"], weights)


def test_what_was_exported_is_imported_elsewhere(
    store: Store, pair: tuple[Entry, Entry], tmp_path: Path
) -> None:
    file = tmp_path / "model.safetensors"
    store.ftrl("export", pair[1].id, str(file))
    other = Store(tmp_path / "elsewhere")
    imported = other.ftrl("import", str(file), "--tag", "good").strip()
    assert other.catalogue.find("good").id == imported
    assert other.catalogue.load(other.catalogue.find("good")).state().digest() == (
        store.catalogue.load(pair[1]).state().digest()
    )
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert "altered" in other.ftrl("import", str(file), code=1)
    assert "cannot be read" in other.ftrl("import", str(tmp_path / "nothing"), code=1)


def all_of(npz: Path) -> dict[str, Any]:
    with np.load(npz) as arrays:
        return dict(arrays)


EXPERTS = [{"alpha": 1.0, "l1": 0.0}, {"half_life_examples": 100.0, "l1": 0.01}, {"l1": 5.0}]
MIXTURE = {"hyper": {"rate": {"kind": "mixture", "experts": EXPERTS}}}
CONTRACTS: list[dict[str, Any]] = [
    {},
    {"hashing": {"prior_probability": None}},
    {"hashing": {"bits": 14, "bias": False, "seed": 7}},
    {
        "hashing": {
            "bits": 16,
            "crosses": [["ad", "site"], ["tags", "hour"], ["new", "price"], ["visits", "shown", "rare"]],
            "types": {"hour": "number"},
            "missing": "indicator",
            "prior_probability": 0.02,
        }
    },
]


@pytest.mark.parametrize("body", [*CONTRACTS, MIXTURE, MIXTURE | CONTRACTS[2]])
def test_the_standalone_reader_predicts_like_the_service(store: Store, body: dict[str, Any]) -> None:
    config = ModelConfig.from_json(body)
    encoder, rng = FeatureEncoder(config.hashing), random.Random(1)
    features = [some_features(rng) for _ in range(400)]
    state = config.empty_state()
    batch = ExampleBatch.from_encoded(
        [encoder.encode(one) for one in features], [int(one["hour"] % 3 == 0) for one in features]
    )
    config.learn(state, batch)
    model = serving_reader.load(exported(store, state, config))
    assert len(model["weights"]) == model["count"] == state.nonzero(config.hyper)
    margins = config.margins(state, batch).tolist()
    assert len(set(margins)) > 100
    if config.hyper.number_of_experts > 1:
        found = [serving_reader.margin(model, one) for one in features]
        assert found == pytest.approx(margins, rel=1e-13, abs=1e-13)
        return
    assert [serving_reader.margin(model, one) for one in features] == margins
    assert [serving_reader.margin(model, [*map(list, one.items())]) for one in features] == margins
    for one, expected in zip(features, config.predict(state, batch).tolist(), strict=True):
        assert math.isclose(serving_reader.predict(model, one), expected, rel_tol=2**-51)


@pytest.mark.parametrize(
    ("hashing", "needs"),
    [
        ({"numeric": "raw"}, 'numbers by the transform "raw"'),
        ({"transforms": {"price": {"scale": 0.25}}}, 'numbers by the transform {"scale": 0.25}'),
        ({"types": {"hour": "category"}}, "numbers as categories"),
    ],
)
def test_the_reader_refuses_what_it_does_not_know(store: Store, hashing: dict[str, Any], needs: str) -> None:
    config = ModelConfig.from_json({"hashing": hashing})
    file = exported(store, config.empty_state(), config)
    with pytest.raises(ValueError, match=f"this reader knows no .*{re.escape(needs)}"):
        serving_reader.load(file)


def exported(store: Store, state: ModelState, config: ModelConfig) -> Path:
    store.catalogue.write(capture(replica_of(state, config), {}).snapshot("test"))
    file = store.directory / "model.serving"
    store.ftrl("export", "newest", str(file), "--format", "serving")
    return file


def some_features(rng: random.Random) -> dict[str, Any]:
    return {
        "ad": f"a{rng.randrange(20)}",
        "site": rng.choice(["news.example", "vidéo\x1f\\", "", None]),
        "tags": [f"t{rng.randrange(5)}" for _ in range(rng.randrange(4))],
        "hour": rng.randrange(24),
        "price": rng.choice([0, -3, 2.5, 1e6, -0.1, 7.0]),
        "new": rng.random() < 0.5,
        "visits": [rng.choice([3, "x", 0.5]) for _ in range(rng.randrange(3))],
        "shown": {"value": rng.choice(["x", 7]), "times": rng.choice([0, 0.3, -2.5])},
        "rare": {"times": rng.choice([0.1, 2])},
    }


@pytest.fixture
def service(fresh_valkey: ServerProcess, tmp_path: Path) -> Iterator[ServingProcess]:
    process = ServingProcess("serve", directory=tmp_path, FTRL_REDIS_URL=fresh_valkey.url)
    process.wait_until_ready()
    yield process
    process.remove()


def names_that_moved(compared: CompletedProcess[str]) -> list[str]:
    """Of the features, without the bias."""
    assert compared.returncode == 0, compared.stderr
    moved = json.loads(compared.stdout)["moved_most"]
    return [name for one in moved if one["slot"] != "bias" for name in one["names"]]


@pytest.mark.slow
def test_a_running_model_is_saved_and_restored(
    service: ServingProcess, fresh_valkey: ServerProcess, tmp_path: Path
) -> None:
    def ftrl(*words: str) -> Any:
        return run("snapshot", *words, FTRL_REDIS_URL=fresh_valkey.url, FTRL_DATA_DIR=str(tmp_path / "data"))

    def click() -> float:
        return float(service.post("/update", {"features": {"ad": "a1"}, "label": 1})["probability"])

    assert click() == 0.5
    created = ftrl("create", "--tag", "good")
    assert created.returncode == 0, created.stderr
    second = click()
    assert ftrl("restore", "good").returncode == 2
    done = ftrl("restore", "good", "--from-now")
    assert done.returncode == 0, done.stderr
    assert f"restored default from {created.stdout.strip()}: t = 1" in done.stdout
    assert click() == second
    back = re.search(r"^to take it back: ftrl snapshot (.*)$", done.stdout, re.MULTILINE)
    assert back
    done = ftrl(*back[1].split())
    assert done.returncode == 0, done.stderr
    assert click() > second

    def named() -> list[str]:
        """A process samples the updates of a model that was opened up to a second ago."""
        click()
        assert ftrl("create").returncode == 0
        return names_that_moved(ftrl("diff", "newest", "good"))

    assert wait_until(named, "the name of the feature is known") == ["ad=a1"]
    assert "no snapshot" in ftrl("restore", "bad", "--from-now").stderr
    missing = ftrl("create", "--model", "absent")
    hint = f"The data is at {fresh_valkey.url}; --data-dir or --redis-url selects that of another service."
    assert (missing.returncode, missing.stderr) == (1, f"ftrl: There is no model 'absent'. {hint}\n")

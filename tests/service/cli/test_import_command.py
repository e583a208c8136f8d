"""`ftrl import`: a model that begins with weights, on a service that runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.commands import run
from tests.support.processes import ServiceProcess
from tests.support.servers import ServerProcess

TABLE = "name,value,weight,count\nad,a17,0.75,400\nhour,14,-0.25,90\nprice,,0.5,30\nbias,,-2,1000\n"
EXAMPLE = {"ad": "a17", "hour": 14, "price": 1.5}
EXPECTED = 1 / (1 + math.exp(-(0.75 - 0.25 + 0.75 - 2)))

Ftrl = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def service(server: ServerProcess, data: Path) -> Iterator[ServiceProcess]:
    service = ServiceProcess("serve", server.url, data, data_dir=data)
    try:
        service.wait_until_ready()
        yield service
    finally:
        service.remove()


@pytest.fixture
def ftrl(server: ServerProcess, data: Path, tmp_path: Path) -> Ftrl:
    (tmp_path / "names.csv").write_text(TABLE)

    def call(*words: str) -> CompletedProcess[str]:
        return run(*words, directory=tmp_path, FTRL_REDIS_URL=server.url, FTRL_DATA_DIR=str(data))

    return call


def test_a_model_begins_with_the_weights_and_learns_on(service: ServiceProcess, ftrl: Ftrl) -> None:
    done = ftrl("import", "warm", "--weights", "names.csv")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("model warm: 4 weights, t = 1,000\nnumbers of these names are categories: hour\n")
    predicted = service.post("/models/warm/predict", {"features": EXAMPLE})["probability"]
    assert predicted == pytest.approx(EXPECTED, abs=1e-12)
    described = service.get("/models/warm")
    assert (described["t"], described["features_seen"], len(described["hyper"]["rate"]["experts"])) == (
        *(1000, 3),
        4,
    )
    listed = service.get("/models/warm/features?by=weight")["features"]
    assert [(one["names"], round(one["weight"], 12)) for one in listed] == [
        (["ad=a17"], 0.75),
        (["price"], 0.5),
        (["hour=14"], -0.25),
    ]
    assert service.post("/models/warm/update", {"features": EXAMPLE, "label": 1})["status"] == "learned"
    assert service.post("/models/warm/predict", {"features": EXAMPLE})["probability"] > predicted
    rebuilt = ftrl("rebuild", "--model", "warm")
    assert (rebuilt.returncode, rebuilt.stdout[:5]) == (0, "equal"), rebuilt.stderr
    again = ftrl("import", "warm", "--weights", "names.csv")
    assert (again.returncode, again.stderr.count("already exists")) == (1, 1)
    assert service.get("/models/warm")["t"] == 1001


def test_hyperparameters_and_contract_can_be_given(service: ServiceProcess, ftrl: Ftrl) -> None:
    hyper = {"l1": 0.1, "rate": {"kind": "adaptive", "alpha": 0.3}}
    given = ("--hyper", json.dumps(hyper), "--hashing", '{"bits": 12}')
    done = ftrl("import", "single", "--weights", "names.csv", "--json", *given)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert (made["model"], made["weights"], made["t"], made["without_evidence"]) == ("single", 4, 1000, 0)
    assert (made["hashing"]["bits"], made["hashing"]["types"]) == (12, {"hour": "category"})
    parts = service.post("/models/single/explain", {"features": EXAMPLE})["features"]
    found = {part["name"]: part for part in parts}
    assert found["ad=a17"]["weight"] == pytest.approx(0.75, abs=1e-14)
    p = 1 / (1 + math.exp(2))
    assert found["ad=a17"]["n"] == pytest.approx(400 * p * (1 - p))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--weights", "bad.csv"), "bad.csv, line 3: the weight 'x' is not a number"),
        (("--weights", "missing.csv"), "missing.csv: No such file"),
        (("--vw", "names.csv"), "line 1: no text of a Vowpal Wabbit model: write it with"),
        ((), "give one of --weights and --vw"),
        (("--weights", "names.csv", "--vw", "names.csv"), "give one of --weights and --vw"),
        (("--weights", "names.csv", "--hyper", '{"l1": -1}'), "hyper.l1: must be a number"),
        (("--weights", "names.csv", "--hashing", '{"prior_probability": 0.1}'), "must be null"),
    ],
)
def test_what_is_refused_leaves_nothing(
    service: ServiceProcess, ftrl: Ftrl, data: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "bad.csv").write_text("name,weight\nad=a1,1\nad=a2,x\n")
    done = ftrl("import", "never", *words)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "never" not in service.get("/models")["models"]
    assert not (data / "snapshots" / "never").exists()

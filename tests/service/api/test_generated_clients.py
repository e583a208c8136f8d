"""Clients that common generators make of `/openapi.json`, used on a real service."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.service.api.conftest import LiveApi

pytestmark = pytest.mark.slow

TOOLS = Path(sys.prefix) / "clients" / "bin"
"""Generators, and what their clients need, in an environment of their own (`Makefile`)."""

PRINT = """
print(json.dumps({
    "probability": one.probability,
    "ids": [prediction.id for prediction in many.predictions],
    "status": getattr(learned.status, "value", learned.status),
    "names": [feature.name for feature in explained.features],
    "code": problem.code,
}))
"""
OPENAPI_PYTHON_CLIENT = """
import json, sys
from client import Client
from client.api.predict import explain, predict, predict_for_model
from client.api.update import update
from client.models import Example, ExplainRequest, FeaturesType0, Instance, PredictManyRequest
from client.models import PredictOneRequest

client = Client(base_url=sys.argv[1])
features = FeaturesType0.from_dict({"ad": "a17", "hour": 14, "tags": ["sport", "video"]})
one = predict.sync(client=client, body=PredictOneRequest(features=features, id="request-1"))
instances = [Instance(features=features, id=ad) for ad in ("a17", "b4")]
many = predict.sync(client=client, body=PredictManyRequest(instances=instances))
learned = update.sync(client=client, body=Example(features=features, label=1))
explained = explain.sync(client=client, body=ExplainRequest(features=features))
problem = predict_for_model.sync("no-such-model", client=client, body=PredictOneRequest(features=features))
"""
OPENAPI_GENERATOR = """
import json, sys
from client import ApiClient, ApiException, Configuration, Example, ExplainRequest, FeatureItem, Features
from client import FeatureValue, Instance, Label, PredictApi, PredictManyRequest, PredictOneRequest
from client import PredictRequest, UpdateApi, UpdateRequest

client = ApiClient(Configuration(host=sys.argv[1]))
predicting, updating = PredictApi(client), UpdateApi(client)
tags = FeatureValue([FeatureItem("sport"), FeatureItem("video")])
features = Features({"ad": FeatureValue("a17"), "hour": FeatureValue(14), "tags": tags})
one = predicting.predict(PredictRequest(PredictOneRequest(features=features, id="request-1"))).actual_instance
instances = [Instance(features=features, id=ad) for ad in ("a17", "b4")]
many = predicting.predict(PredictRequest(PredictManyRequest(instances=instances))).actual_instance
learned = updating.update(UpdateRequest(Example(features=features, label=Label(1)))).actual_instance
explained = predicting.explain(ExplainRequest(features=features))
try:
    predicting.predict_for_model("no-such-model", PredictRequest(PredictOneRequest(features=features)))
except ApiException as error:
    problem = error.data
"""
DATAMODEL_CODE_GENERATOR = """
import json, sys
import httpx
from client import Example, ExplainReply, ExplainRequest, Features, Instance, PredictAnswer
from client import PredictManyRequest, PredictOneRequest, Problem, UpdateAnswer

client = httpx.Client(base_url=sys.argv[1], headers={"Content-Type": "application/json"})

def call(path, body):
    return client.post(path, content=body.model_dump_json(exclude_unset=True)).content

features = Features.model_validate({"ad": "a17", "hour": 14, "tags": ["sport", "video"]})
one = PredictAnswer.model_validate_json(call("/predict", PredictOneRequest(features=features, id="r-1"))).root
instances = [Instance(features=features, id=ad) for ad in ("a17", "b4")]
many = PredictAnswer.model_validate_json(call("/predict", PredictManyRequest(instances=instances))).root
learned = UpdateAnswer.model_validate_json(call("/update", Example(features=features, label=1))).root
explained = ExplainReply.model_validate_json(call("/explain", ExplainRequest(features=features)))
nowhere = "/models/no-such-model/predict"
problem = Problem.model_validate_json(call(nowhere, PredictOneRequest(features=features)))
"""

TYPESCRIPT = Path(__file__).parent / "typescript"
NODE_MODULES = TOOLS.parent / "typescript" / "node_modules"


class Generator(NamedTuple):
    """`words`: its command, with the places of the document and of a directory. `program`: what uses the
    client, which is the module `client`.
    """

    words: tuple[str, ...]
    program: str


GENERATORS = {
    "openapi-python-client": Generator(
        (
            *(
                "openapi-python-client",
                "generate",
                "--path",
                "{document}",
                "--output-path",
                "{directory}/client",
            ),
            *("--meta", "none", "--config", "{directory}/config.yml", "--fail-on-warning"),
        ),
        OPENAPI_PYTHON_CLIENT,
    ),
    "openapi-generator": Generator(
        (
            *("openapi-generator-cli", "generate", "-g", "python", "-i", "{document}", "-o", "{directory}"),
            *("--package-name", "client"),
        ),
        OPENAPI_GENERATOR,
    ),
    "datamodel-code-generator": Generator(
        (
            *("datamodel-codegen", "--input", "{document}", "--input-file-type", "openapi"),
            *("--output-model-type", "pydantic_v2.BaseModel", "--formatters", "builtin"),
            *("--output", "{directory}/client.py"),
        ),
        DATAMODEL_CODE_GENERATOR,
    ),
}


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    if not TOOLS.is_dir():
        assert not os.environ.get("CI"), "CI has no generators of clients (make .venv/.clients)"
        pytest.skip("generators of clients are not installed (make .venv/.clients)")


def run(words: list[str], **variables: str) -> str:
    environment = os.environ | {"PATH": f"{TOOLS}:{os.environ['PATH']}"} | variables
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generated_client_predicts_updates_and_reads_an_error(
    name: str, live_api: LiveApi, tmp_path: Path
) -> None:
    document, directory = tmp_path / "openapi.json", tmp_path / name
    directory.mkdir()
    document.write_bytes(live_api.client.get("/openapi.json").content)
    (directory / "config.yml").write_text("post_hooks: []\n")
    run([word.format(document=document, directory=directory) for word in GENERATORS[name].words])
    program = GENERATORS[name].program + PRINT
    check(run(["python", "-c", program, live_api.url], PYTHONPATH=str(directory)))


@pytest.mark.skipif(not NODE_MODULES.is_dir(), reason="needs npm (then make .venv/.clients)")
def test_a_client_in_typescript_is_compiled_and_does_the_same(live_api: LiveApi, tmp_path: Path) -> None:
    for file in TYPESCRIPT.iterdir():
        shutil.copy(file, tmp_path)
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    (tmp_path / "openapi.json").write_bytes(live_api.client.get("/openapi.json").content)
    programs = NODE_MODULES / ".bin"
    document, types = str(tmp_path / "openapi.json"), str(tmp_path / "schema.ts")
    run([str(programs / "openapi-typescript"), document, "--output", types])
    run([str(programs / "tsc"), "--project", str(tmp_path)])
    check(run(["node", str(tmp_path / "use.js"), live_api.url]))


def check(printed: str) -> None:
    said = json.loads(printed)
    assert 0.0 < said.pop("probability") < 1.0
    assert said == {
        "ids": ["a17", "b4"],
        "status": "learned",
        "names": ["bias", "ad=a17", "hour=+3", "tags=sport", "tags=video"],
        "code": "unknown_model",
    }

"""The OpenAPI document: it is complete, and its examples work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema_rs import validator_for

from service.app import create_app
from service.settings import Settings

METHODS = ("get", "put", "post", "patch", "delete")


@pytest.fixture
def document(api: httpx.Client) -> dict[str, Any]:
    document: dict[str, Any] = api.get("/openapi.json").json()
    return document


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_the_document_lists_every_call(document: dict[str, Any]) -> None:
    assert {(method, path) for path, method, _ in operations(document)} == {
        ("post", "/predict"),
        ("post", "/update"),
        ("post", "/models/{name}/predict"),
        ("post", "/models/{name}/update"),
        ("post", "/explain"),
        ("post", "/models/{name}/explain"),
        ("post", "/impressions"),
        ("post", "/models/{name}/impressions"),
        ("get", "/models"),
        ("get", "/models/{name}"),
        ("put", "/models/{name}"),
        ("patch", "/models/{name}"),
        ("delete", "/models/{name}"),
        ("get", "/models/{name}/snapshots"),
        ("post", "/models/{name}/snapshots"),
        ("get", "/models/{name}/snapshots/{snapshot}"),
        ("get", "/models/{name}/evaluation"),
        ("get", "/models/{name}/history"),
        ("get", "/models/{name}/challengers"),
        ("get", "/models/{name}/promotions"),
        ("post", "/models/{name}/promote"),
        ("get", "/models/{name}/log"),
        ("post", "/models/{name}/restore"),
        ("post", "/models/{name}/clone"),
        ("get", "/models/{name}/features"),
        ("get", "/aliases"),
        ("get", "/aliases/{name}"),
        ("put", "/aliases/{name}"),
        ("delete", "/aliases/{name}"),
        ("get", "/livez"),
        ("get", "/readyz"),
        ("get", "/metrics"),
    }


def test_every_refusal_is_documented_as_a_problem(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        for status, response in operation["responses"].items():
            if status >= "400" and path != "/readyz":
                schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
                assert response["content"] == {"application/problem+json": schema}


def test_calls_that_a_full_server_refuses_document_429(document: dict[str, Any]) -> None:
    for path in ("/update", "/impressions"):
        assert "429" in document["paths"][path]["post"]["responses"], path


def test_every_example_of_a_body_works(api: httpx.Client, document: dict[str, Any]) -> None:
    api.post("/models/default/snapshots").raise_for_status()
    tried = 0
    for path, method, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {})
        for media_type, described in content.items():
            for name, example in described["examples"].items():
                target = path.replace("{name}", f"example-{name}" if method == "put" else "default")
                headers = {"content-type": media_type}
                reply = api.request(method, target, json=example["value"], headers=headers)
                assert reply.is_success, (path, name, reply.text)
                tried += 1
    assert tried >= 10


def test_the_documentation_page_is_served(api: httpx.Client) -> None:
    assert "swagger" in api.get("/docs").text


def test_each_call_has_a_plain_name_a_summary_and_a_described_tag(document: dict[str, Any]) -> None:
    described = {tag["name"] for tag in document["tags"] if tag["description"]}
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)
    assert {"predict", "predict_for_model", "update", "list_models", "take_snapshot"} <= set(names)
    for path, method, operation in operations(document):
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", operation["operationId"]), path
        assert 0 < len(operation["summary"]) <= 60, (method, path)
        assert operation["description"].endswith("."), (method, path)
        assert set(operation["tags"]) <= described, (method, path)


def test_each_schema_each_property_and_each_parameter_is_described(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        assert "anyOf" in schema or schema["description"], name
        for field, described in schema.get("properties", {}).items():
            assert "$ref" in described or described.get("description"), (name, field)
    for path, _, operation in operations(document):
        assert all(parameter["description"] for parameter in operation.get("parameters", ())), path


def test_each_reply_has_examples_that_its_schema_allows(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        for status, response in operation["responses"].items():
            content = response.get("content", {}).get("application/json", {})
            if status.startswith("2") and content:
                assert content["examples"], (method, path)
                validator = validator_for(content["schema"] | {"components": document["components"]})
                for name, example in content["examples"].items():
                    wrong = [error.message for error in validator.iter_errors(example["value"])]
                    assert wrong == [], (method, path, name)


@pytest.mark.parametrize("tokens", [False, True])
def test_calls_say_whether_they_need_a_token(tokens: bool, tmp_path: Path) -> None:
    file = tmp_path / "tokens.jsonl"
    file.touch()
    settings = Settings(tokens_file=file) if tokens else Settings()
    document = create_app(settings, run_learner=False).api.openapi()
    (name,) = document["components"]["securitySchemes"]
    assert document["components"]["securitySchemes"][name]["scheme"] == "bearer"
    needed: list[dict[str, list[str]]] = [{name: []}] if tokens else [{name: []}, {}]
    for path, _, operation in operations(document):
        open_to_all = path in ("/livez", "/readyz")
        assert operation.get("security") == (None if open_to_all else needed), path
        assert ({"401", "403"} <= operation["responses"].keys()) is not open_to_all, path

"""The OpenAPI document: it is complete, and its examples work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

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
        ("post", "/models/{name}/restore"),
        ("post", "/models/{name}/clone"),
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


def test_the_summary_of_each_call_is_a_sentence(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        assert operation["description"], (method, path)

"""schemathesis sends what the OpenAPI document allows, and what it does not, to the real application."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from service.app import create_app
from service.settings import Settings
from tests.conftest import PATIENT
from tests.service.api.conftest import LiveApi
from tests.support.servers import ServerProcess

pytestmark = pytest.mark.slow

# schemathesis takes the document when tests are collected, so no server can be running yet.
schema = schemathesis.openapi.from_dict(create_app(Settings(), run_learner=False).api.openapi())

SECTIONS = re.compile("^(hyper|hashing|evaluation|feedback|snapshots)")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of an application of its own: models are made and deleted at will."""
    server = ServerProcess(appendonly=False).start()
    api = LiveApi(Settings(redis_url=server.url, data_dir=tmp_path_factory.mktemp("data"), **PATIENT)).start()
    yield api.url
    api.stop()
    server.remove()


@schema.parametrize()
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_service_does_what_its_document_says(case: schemathesis.Case, url: str) -> None:
    response = case.call(base_url=url, timeout=30)
    beyond: list[Any] = [positive_data_acceptance] if says_what_no_schema_can(response) else []
    if response.status_code == 413:  # a refusal that it does not expect
        beyond.append(negative_data_rejection)
    if case.path == "/readyz":  # 503 is an answer of it
        beyond.append(not_a_server_error)
    case.validate_response(response, excluded_checks=beyond)


def says_what_no_schema_can(response: schemathesis.Response) -> bool:
    """Refusals of model configurations, of dates before 1970, and of names in a context and its instance."""
    if response.status_code != 422:
        return False
    return any(
        SECTIONS.search(error["path"])
        or error["code"] == "duplicate_name"
        or (error["code"] == "out_of_range" and error["path"].endswith("event_time"))
        for error in response.json().get("errors", [])
    )

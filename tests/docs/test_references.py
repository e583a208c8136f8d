"""What the documentation names exists, and its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from fastapi.routing import APIRoute

from model_core.errors import InputCode
from service.api.problems import HTTP_CODES, INTERNAL_ERROR
from service.app import create_app
from service.cli import main as cli
from service.cli.flags import variable_name
from service.cli.http_client import TOKEN
from service.cli.remote import URL_VARIABLE
from service.models.bulk_load import ModelMoved
from service.settings import Settings
from service.snapshots.store.objects import UnusableStore
from tests.support.declared_errors import service_errors
from tests.support.documents import DOCUMENTS
from tests.support.reference_tables import DOCUMENT, metrics_table, with_tables
from tests.support.shared_data import REPOSITORY

DOCS = REPOSITORY / "docs"
ONLY_OF_COMMANDS = {ModelMoved, UnusableStore}
# Of tests, of commands, and the beginning of several.
OTHERS = {"FTRL_DATA", "FTRL_COMPOSE_UP", TOKEN, URL_VARIABLE, "FTRL_MAX_"}


def everything() -> str:
    return "\n".join(document.read_text() for document in DOCUMENTS)


def heading_anchors(document: Path) -> set[str]:
    """As GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_tables_of_settings_and_metrics_match_the_code() -> None:
    text = DOCUMENT.read_text()
    assert text == with_tables(text), "run `python -m tests.support.reference_tables`"


def test_every_call_has_its_place_in_the_http_reference() -> None:
    text = (DOCS / "http.md").read_text()
    app = create_app(Settings(), run_learner=False)
    paths = {route.path for route in app.api.routes if isinstance(route, APIRoute)}
    assert paths >= {"/predict", "/models/{name}/update", "/readyz"}
    for path in paths:
        assert path in text, path


def section_on_errors() -> str:
    return (DOCS / "http.md").read_text().partition("\n## Errors\n")[2].partition("\n## ")[0]


def test_the_http_reference_lists_every_error_code() -> None:
    listed = re.findall(r"^\| `([a-z_]+)` \| (\d{3}) \|", section_on_errors(), re.MULTILINE)
    assert len(set(listed)) == len(listed)
    assert set(listed) == {
        *((error.code, str(error.status)) for error in service_errors() if error not in ONLY_OF_COMMANDS),
        *((code, str(status)) for status, code in HTTP_CODES.items()),
        (INTERNAL_ERROR, "500"),
    }


def test_the_http_reference_lists_every_code_of_an_item() -> None:
    listed = re.findall(r"^\| `([a-z_]+)` \| [^|]+ \|$", section_on_errors(), re.MULTILINE)
    assert listed == list(get_args(InputCode))


def test_every_variable_and_every_metric_that_is_named_exists() -> None:
    variables = {variable_name(name) for name in Settings.model_fields} | OTHERS
    assert set(re.findall(r"\bFTRL_[A-Z_]+\b", everything())) <= variables
    known = set(re.findall(r"`(ftrl_\w+)`", metrics_table()))
    for name in set(re.findall(r"\bftrl_[a-z_]+\b", everything())) - {"ftrl_client"}:
        assert re.sub(r"_(bucket|sum|count)$", "", name) in known, name


def test_every_flag_that_is_named_exists() -> None:
    commands = [typer.main.get_command(cli.application())]
    known = {"--help"}
    while commands:
        command: Any = commands.pop()
        known.update(
            flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)
        )
        commands.extend(getattr(command, "commands", {}).values())
    named = set(re.findall(r"`(--[a-z0-9-]+)", everything()))
    for call in re.findall(r"\bftrl (?:serve|api|learn|replay|models|log) [^`\n]+", everything()):
        named.update(re.findall(r"(?<= )--[a-z0-9-]+", call))
    assert named
    assert named <= known, named - known


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", document.read_text()):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.exists(), target
        assert not anchor or anchor in heading_anchors(path), target


def test_named_files_and_make_targets_exist() -> None:
    text = everything()
    for name in re.findall(r"`((?:model_core|service|tests|bench|docs|deploy)/[\w./]*)`", text):
        assert (REPOSITORY / name).exists(), name
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", text)) <= targets


def test_functions_named_with_a_file_are_defined_there() -> None:
    found = re.findall(r"`([\w.]+)` \(`((?:model_core|service)/[\w/]+\.py)`\)", everything())
    for name, file in found:
        definition = rf"\b(?:def|class) {re.escape(name.split('.')[-1])}\b"
        assert re.search(definition, (REPOSITORY / file).read_text()), (name, file)

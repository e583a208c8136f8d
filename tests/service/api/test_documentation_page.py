"""`/docs` in a real browser, before a real service."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from service.api.security.tokens import Grant, digest_of, new_token
from tests.service.api.conftest import ApiFactory, LiveApi
from tests.support.browser import Visit, chromium, visit
from tests.support.servers import ServerProcess

DESKTOP = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def assert_undisturbed(tab: Visit, api: LiveApi) -> None:
    """It asked nothing of elsewhere, and the browser complained of nothing."""
    own = (f"{api.url}/", "data:image/svg+xml")  # of its style sheet
    assert [url for url in tab.requests if not url.startswith(own)] == []
    assert tab.complaints == []


def run(tab: Visit, operation: str) -> str:
    """Send an operation's example, and return the status that the page shows."""
    block = tab.page.locator(f"[id$='-{operation}']")
    block.locator("button.opblock-summary-control").click()
    block.get_by_role("button", name="Execute").click()
    return block.locator(".live-responses-table td.response-col_status:not(.col_header)").inner_text()


@pytest.mark.slow
def test_it_lists_the_calls_and_sends_one(browser: Browser, live_api: LiveApi) -> None:
    with visit(browser, viewport=DESKTOP) as tab:
        tab.page.goto(f"{live_api.url}/docs")
        tab.page.locator(".opblock").nth(25).wait_for()
        assert run(tab, "predict").startswith("200")
        assert_undisturbed(tab, live_api)


@pytest.mark.slow
def test_a_token_that_is_entered_is_sent(
    browser: Browser, valkey: ServerProcess, start_api: ApiFactory, tmp_path: Path
) -> None:
    reader, writer = new_token(), new_token()
    grants = [
        Grant(digest_of(reader.encode()), "reader", frozenset({"predict"}), None),
        Grant(digest_of(writer.encode()), "writer", frozenset({"update"}), None),
    ]
    file = tmp_path / "tokens.jsonl"
    file.write_text("\n".join(json.dumps(grant.to_json()) for grant in grants))
    api = start_api(valkey, tokens_file=file)
    asked = {"username": "any", "password": reader}
    with visit(browser, viewport=DESKTOP, http_credentials=asked) as tab:
        tab.page.goto(f"{api.url}/docs")
        tab.page.get_by_role("button", name="Authorize").first.click()
        tab.page.locator(".modal-ux input").fill(writer)
        tab.page.locator(".modal-ux").get_by_role("button", name="Apply credentials").click()
        tab.page.locator(".modal-ux").get_by_role("button", name="Close").first.click()
        assert run(tab, "update").startswith("200")
        assert_undisturbed(tab, api)


@pytest.mark.slow
def test_the_reference_can_be_read(browser: Browser, live_api: LiveApi) -> None:
    with visit(browser, viewport=DESKTOP) as tab:
        tab.page.goto(f"{live_api.url}/redoc")
        tab.page.get_by_role("heading", name="ftrl-service").first.wait_for()
        tab.page.get_by_role("menuitem").filter(has_text="predict").first.click()
        tab.page.get_by_text("/models/{name}/predict").first.wait_for()
        menu = tab.page.locator(".menu-content").bounding_box()
        assert menu is not None
        assert menu["width"] < DESKTOP["width"] / 2, "its style sheets apply"
        assert_undisturbed(tab, live_api)


@pytest.mark.parametrize("path", ["/", "/docs", "/redoc"])
def test_every_page_has_a_strict_policy(api: httpx.Client, path: str) -> None:
    reply = api.get(path)
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in reply.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert re.fullmatch(r"'self'( 'sha256-[\w+/=]{44}')*", policy["style-src"])


@pytest.mark.parametrize("path", ["/docs/oauth2-redirect", "/docs/swagger-ui/LICENSE", "/redoc/"])
def test_there_is_no_other_page(api: httpx.Client, path: str) -> None:
    assert api.get(path).status_code == 404


def test_the_licence_of_foreign_files_is_kept() -> None:
    for package, folder in (
        ("dashboard", "uplot"),
        ("documentation", "swagger-ui"),
        ("documentation", "redoc"),
    ):
        licence = resources.files(f"service.api.{package}") / "static" / folder / "LICENSE"
        assert "Permission" in licence.read_text() or "Apache License" in licence.read_text()

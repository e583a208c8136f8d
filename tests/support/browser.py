"""Debian's Chromium, driven by Playwright: pages that must not ask anything of elsewhere, nor complain."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Skips the test where there is none, except in CI, which has to have it."""
    path = shutil.which("chromium")
    if path is None:
        assert not os.environ.get("CI"), "CI has no chromium (Debian: apt install chromium)"
        pytest.skip("chromium is not installed (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """A page and all that it asked for and complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def listen(self) -> Visit:
        self.page.on("request", self._asked)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return self

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def wait_for_text(self, selector: str, text: str, seconds: float = 20) -> None:
        """Until the element has the text in it."""
        self.page.locator(selector, has_text=text).wait_for(timeout=seconds * 1000)

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


@contextlib.contextmanager
def visit(browser: Browser, **context: Any) -> Iterator[Visit]:
    """A tab of its own; `context` are options of Browser.new_context."""
    opened = browser.new_context(**context)
    try:
        yield Visit(opened.new_page()).listen()
    finally:
        opened.close()

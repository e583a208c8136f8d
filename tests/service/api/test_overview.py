"""`/overview`: what the page's list of all models shows."""

from __future__ import annotations

from typing import Any

import httpx

from service.api.dashboard.overview import most_urgent_first
from tests.support.clicks import Clicks
from tests.support.waiting import wait_until

LEVELS = ("none", "good", "bad", "watch", "bad")


def test_each_model_has_a_line_with_its_figures_and_aliases(api: httpx.Client) -> None:
    for name in ("listed", "listed-empty"):
        api.put(f"/models/{name}", json={"hashing": {"bits": 10}}).raise_for_status()
    api.put("/aliases/shown", json={"model": "listed"}).raise_for_status()
    examples = Clicks().examples(1000)
    api.post("/models/listed/update", json={"examples": examples}).raise_for_status()

    def line(name: str = "listed") -> dict[str, Any]:
        lines = api.get("/overview").raise_for_status().json()["models"]
        return next((line for line in lines if line["model"] == name), {})

    wait_until(lambda: line().get("auc"), "a line with figures")
    found = line()
    evaluation = api.get("/models/listed/evaluation").json()["sources"]["progressive"]["windows"]["30m"]
    assert (found["t"], found["window"], found["aliases"]) == (1000, "30m", ["shown"])
    assert (found["auc"], found["auc_interval"]) == (evaluation["auc"], evaluation["auc_interval"])
    assert (found["lag"]["examples"], found["snapshot"]) == (0, None)
    empty = line("listed-empty")
    assert (empty["t"], empty["auc"], empty["aliases"]) == (0, None, [])
    api.delete("/aliases/shown").raise_for_status()
    for name in ("listed", "listed-empty"):
        api.delete(f"/models/{name}").raise_for_status()


def test_what_is_bad_comes_first() -> None:
    lines = [{"model": name, "level": level} for name, level in zip("abcde", LEVELS, strict=True)]
    assert "".join(line["model"] for line in most_urgent_first(lines)) == "cedba"

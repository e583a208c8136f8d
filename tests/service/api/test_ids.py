"""An id may be any text, with any characters; only other JSON types are refused."""

from __future__ import annotations

import httpx
import pytest

from tests.support.problem_replies import invalid, problem

LOGGED = {"hashing": {"bits": 12}, "feedback": {"log": True, "learn_at": "arrival", "exposure": "on_predict"}}
FEATURES = {"ad": "a1"}
ODD = [
    "a\0",
    "\0",
    "a\nb",
    "\r\n",
    "\x7f",
    "\x85",
    "\x1b[31m",
    "\u2028",
    "\ufeff",
    "'\"\\",
    " ",
    "\u00e9",
    "e\u0301",
    "ftrl-" + "ab" * 15 + "  ",
    "ftrl-" + "AB" * 16,
]
ODD_IDS = pytest.mark.parametrize("odd", ODD, ids=[one.encode("unicode_escape").decode() for one in ODD])


@pytest.fixture(scope="module")
def logging_model(live_api: object) -> str:
    client: httpx.Client = live_api.client  # type: ignore[attr-defined]
    client.put("/models/odd-ids", json=LOGGED).raise_for_status()
    return "/models/odd-ids"


@ODD_IDS
def test_a_prediction_is_logged_shown_and_labelled_under_any_text(
    api: httpx.Client, logging_model: str, odd: str
) -> None:
    plain = odd.replace("\0", "") + "-plain"
    for one in (odd, plain):
        logged = api.post(f"{logging_model}/predict", json={"features": FEATURES, "id": one}).json()
        assert (logged["id"], logged["logged"]) == (one, True)
    shown = api.post(f"{logging_model}/impressions", json={"ids": [odd, odd + odd]}).json()["results"]
    assert shown == [{"id": odd, "status": "duplicate"}, {"id": odd + odd, "status": "unknown"}]
    learned = api.post(f"{logging_model}/update", json={"id": odd, "label": 1}).json()
    assert (learned["id"], learned["status"]) == (odd, "learned")
    conflict = api.post(f"{logging_model}/update", json={"id": odd, "label": 0})
    assert (conflict.status_code, conflict.json()["id"]) == (409, odd)
    unknown = api.post(f"{logging_model}/update", json={"id": odd + odd, "label": 0})
    assert (unknown.status_code, unknown.json()["id"]) == (404, odd + odd)
    assert api.post(f"{logging_model}/update", json={"id": plain, "label": 0}).json()["status"] == "learned"


@ODD_IDS
def test_an_event_is_learned_once_under_any_text(api: httpx.Client, model: str, odd: str) -> None:
    example = {"features": FEATURES, "label": 1}
    answers = [
        api.post(f"{model}/update", json=example | {"event_id": event}).json()
        for event in (odd, odd, odd * 2)
    ]
    assert [one["event_id"] for one in answers] == [odd, odd, odd * 2]
    assert [one["status"] for one in answers] == ["learned", "duplicate", "learned"]


@pytest.mark.parametrize(
    "text",
    [rb'"\ud800"', rb'"\udc00a"', b'"a\x00b"', b'"a\nb"', b'"\xff"', b'"\xed\xa0\x80"', b'""', b"3", b"[]"],
)
@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("predict", b'{"features": {}, "id": %s}'),
        ("predict", b'{"instances": [{"features": {}, "id": %s}]}'),
        ("update", b'{"features": {}, "label": 1, "event_id": %s}'),
        ("update", b'{"id": %s, "label": 1}'),
        ("impressions", b'{"ids": [%s]}'),
    ],
)
def test_an_id_that_is_not_a_json_text_is_refused(
    api: httpx.Client, logging_model: str, verb: str, body: bytes, text: bytes
) -> None:
    headers = {"Content-Type": "application/json"}
    refused = api.post(f"{logging_model}/{verb}", content=body % text, headers=headers)
    problem(refused, 422, "unprocessable")


@pytest.mark.parametrize("tag", ["", "a%00", "%00", "good%0A", "a%7f", "%C2%85", "newest", "a" * 33, "%FF"])
def test_a_tag_has_plain_characters_only(api: httpx.Client, model: str, tag: str) -> None:
    refused = api.post(f"{model}/snapshots?tag={tag}")
    assert "a tag is 1 to 32 of a-z, 0-9, - and _" in invalid(refused, "tag", "invalid_value")


@pytest.mark.parametrize("name", ["a%00", "%00", "a%0A", "%FF", "a%7f", "%C2%85", "a%1f"])
def test_names_have_no_control_characters(api: httpx.Client, model: str, name: str) -> None:
    assert api.put(f"/models/{name}", json={}).status_code == 422
    assert api.put(f"/aliases/{name}", json={"model": "default"}).status_code == 422
    assert api.post(f"/models/{name}/predict", json={"features": {}}).status_code == 422
    assert api.get(f"{model}/snapshots/{name}").status_code == 404

"""Patience with a service, and words for what is none. The answers are scripted."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

from service import __version__
from service.cli.doctor import service_findings
from service.cli.explain import explain
from service.cli.http_client import Refused, ServiceClient
from service.cli.models import list_models
from service.cli.replay.http import replay_over_http
from service.errors import CommandFailure
from tests.support.replays import plan
from tests.support.waiting import wait_until

MODEL = {"hashing": {"numeric": "raw"}, "features_seen": 4, "nonzero": 2}
LEARNED = {
    "status": "learned",
    "probability": 0.5,
    "loss": 0.6931471805599453,
    "event_id": "x",
    "revision": "r",
}
APPENDED = LEARNED | {"status": "appended", "probability": None, "loss": None}


class Scripted:
    """Answers requests in order with what it is told to, and remembers them."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any, dict[str, str]]] = []
        self.requests: list[tuple[str, Any]] = []
        self.closed = 0
        """Connections that have ended."""
        self._handler: type[_Handler] = type("Handler", (_Handler,), {"script": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def will_answer(self, status: int, body: Any, **headers: str) -> Self:
        self.answers.append((status, body, headers))
        return self

    def keep_connections(self, seconds: float) -> None:
        """Until they are idle for so long; without this, each has one answer."""
        self._handler.protocol_version = "HTTP/1.1"
        self._handler.timeout = seconds

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    script: Scripted

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        text = self.rfile.read(length)
        self.script.requests.append((f"{self.command} {self.path}", json.loads(text) if text else None))
        status, body, headers = self.script.answers.pop(0)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def finish(self) -> None:
        super().finish()
        self.script.closed += 1

    do_GET = do_PUT = do_POST = _answer  # noqa: N815  the names that http.server looks for

    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""


@pytest.fixture
def service() -> Iterator[Scripted]:
    service = Scripted().start()
    yield service
    service.stop()


def clicks(tmp_path: Path, rows: int) -> Path:
    path = tmp_path / "clicks.vw"
    path.write_text("1 |f a=b\n" * rows)
    return path


def refusal(status: int, **members: Any) -> dict[str, Any]:
    return {"title": "No", "status": status, "detail": "not now", **members}


@pytest.mark.parametrize("status", [429, 503, 507])
def test_temporary_refusals_are_retried_under_the_same_event_ids(service: Scripted, status: int) -> None:
    service.will_answer(status, refusal(status, event_ids=["e1", "e2"]), Retry_After="0")
    service.will_answer(status, refusal(status), Retry_After="0").will_answer(200, {"results": []})
    examples = [{"features": {"a": "b"}, "label": 1} for _ in range(2)]
    assert ServiceClient(service.url).call("POST", "/update", {"examples": examples}) == {"results": []}
    first, second, third = (body["examples"] for _, body in service.requests)
    assert [example.get("event_id") for example in first] == [None, None]
    assert [example["event_id"] for example in second] == ["e1", "e2"]
    assert third == second


def test_patience_ends(service: Scripted) -> None:
    service.will_answer(503, refusal(503), Retry_After="2")
    with pytest.raises(Refused, match=f"GET {service.url}/models/m: not now"):
        ServiceClient(service.url, retry_seconds=1.0).call("GET", "/models/m")


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500])
def test_any_other_refusal_is_final(service: Scripted, status: int) -> None:
    service.will_answer(status, refusal(status))
    with pytest.raises(Refused, match="not now") as refused:
        ServiceClient(service.url).call("GET", "/models/m")
    assert refused.value.status == status


@pytest.mark.parametrize("answer", [b"<html>Welcome</html>", b"[]", b"\xff"])
def test_what_answers_otherwise_is_no_service(service: Scripted, answer: bytes) -> None:
    service.will_answer(200, answer)
    with pytest.raises(CommandFailure, match=r"is not an ftrl service: GET /models/m: .*: b"):
        ServiceClient(service.url).call("GET", "/models/m")


def test_json_of_another_service_is_recognised(service: Scripted, tmp_path: Path) -> None:
    service.will_answer(200, {"hello": "world"})
    with pytest.raises(CommandFailure, match=r"not an ftrl service: \{'hello': 'world'\}"):
        replay_over_http(plan(clicks(tmp_path, 1), "m"), service.url)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:y", "http://x:99999", "", "http://x:0"])
def test_an_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(CommandFailure, match="is not the http:// or https:// address"):
        ServiceClient(url)


@pytest.mark.parametrize("url", ["127.0.0.1:1", "http://127.0.0.1:1/", "http://no.such.host.invalid"])
def test_without_an_answer_the_address_is_named(url: str) -> None:
    with pytest.raises(CommandFailure, match=f"no ftrl service answers at {url} ") as failure:
        ServiceClient(url, retry_seconds=0).call("GET", "/models/m")
    assert "start it, or give its address with --url" in str(failure.value)
    assert "whether" not in str(failure.value)


def test_models_lists_what_can_be_read(service: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    readable = {"name": "b", "hyper": {"family": "ftrl"}, "revision": "r", "t": 1, "features_seen": 1}
    service.will_answer(200, {"models": ["a", "b", "c"]})
    service.will_answer(404, {"code": "unknown_model", "detail": "There is no model 'a'."})
    service.will_answer(200, readable)
    service.will_answer(409, {"code": "contract_mismatch", "detail": "Model 'c' is stored in format 2."})
    list_models(service.url, as_json=True)
    written = capsys.readouterr()
    assert json.loads(written.out) == [readable]
    assert written.err == f"ftrl: GET {service.url}/models/c: Model 'c' is stored in format 2.\n"


def test_the_doctor_names_each_model_that_is_bad(service: Scripted) -> None:
    service.will_answer(200, {"status": "live"})
    service.will_answer(200, {"predict": "fresh", "update": "available", "reasons": []})
    service.will_answer(200, {"info": {"version": __version__}})
    bad = {"model": "ads", "level": "bad", "headline": "Not learning: no learner runs"}
    well = {"model": "well", "level": "good", "headline": "Healthy"}
    service.will_answer(200, {"models": [bad, well], "left_out": ["further"]})
    found = list(service_findings(service.url, service.url))
    assert [(one.check, one.level) for one in found] == [
        ("service", "ok"),
        ("models", "bad"),
        ("models", "warn"),
    ]
    assert found[1].text == "ads: Not learning: no learner runs"


def test_the_doctor_says_that_it_may_not_see_the_models(service: Scripted) -> None:
    service.will_answer(200, {"status": "live"})
    service.will_answer(200, {"predict": "fresh", "update": "available", "reasons": []})
    service.will_answer(200, {"info": {"version": __version__}})
    service.will_answer(403, {"code": "forbidden", "detail": "The token may not do that."})
    found = list(service_findings(service.url, service.url))
    assert [(one.check, one.level) for one in found] == [("service", "ok"), ("models", "warn")]
    assert "The token may not do that." in found[1].text


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ({"features": [["ad", "a1"], ["ad", "a2"]]}, {"features": [["ad", "a1"], ["ad", "a2"]]}),
        ({"features": {"ad": "a1"}, "context": {}}, {"features": {"ad": "a1"}, "context": {}}),
        ({"features": ["new", "hot"], "ad": "a1"}, {"features": {"features": ["new", "hot"], "ad": "a1"}}),
        ({"ad": "a1"}, {"features": {"ad": "a1"}}),
    ],
)
def test_explain_sends_features_or_a_whole_body(
    service: Scripted, tmp_path: Path, written: dict[str, Any], sent: dict[str, Any]
) -> None:
    (tmp_path / "body.json").write_text(json.dumps(written))
    service.will_answer(200, {})
    explain(str(tmp_path / "body.json"), service.url, "m", as_json=True)
    assert service.requests == [("POST /models/m/explain", sent)]


def test_a_service_may_live_below_a_path(service: Scripted) -> None:
    service.will_answer(200, {})
    ServiceClient(f"{service.url}/ads/").call("GET", "/models/m")
    assert service.requests == [("GET /ads/models/m", None)]


def test_a_connection_that_may_have_been_closed_is_not_reused(service: Scripted) -> None:
    service.keep_connections(1.0)
    client = ServiceClient(service.url, idle_seconds=0.5)
    for number in (1, 2):
        service.will_answer(200, {})
        client.call("POST", "/update", {"examples": []})
        wait_until(lambda: service.closed == number, "the service closes the idle connection")  # noqa: B023
    assert service.requests == [("POST /update", {"examples": []})] * 2
    client.close()


def test_an_update_that_gets_no_answer_is_called_unknown(service: Scripted, tmp_path: Path) -> None:
    service.will_answer(200, MODEL)  # and then nothing: the connection ends
    with pytest.raises(CommandFailure, match=r"whether .* is not known; 0 rows were learned before"):
        replay_over_http(plan(clicks(tmp_path, 3), "m"), service.url)


def test_examples_accepted_without_a_prediction_are_counted_apart(service: Scripted, tmp_path: Path) -> None:
    service.will_answer(200, MODEL).will_answer(202, {"results": [LEARNED, APPENDED, APPENDED]})
    service.will_answer(200, MODEL)
    summary = replay_over_http(plan(clicks(tmp_path, 3), "m"), service.url)
    assert (summary.rows, summary.unscored, summary.duplicates) == (1, 2, 0)
    assert (summary.density, summary.features_seen) == (0.5, 4)


def test_an_example_that_was_skipped_counts_as_a_row_without_figures(
    service: Scripted, tmp_path: Path
) -> None:
    skipped = LEARNED | {"status": "skipped", "probability": None, "loss": None}
    service.will_answer(200, MODEL).will_answer(200, {"results": [LEARNED, skipped]})
    service.will_answer(200, MODEL)
    summary = replay_over_http(plan(clicks(tmp_path, 2), "m"), service.url)
    assert (summary.rows, summary.positives) == (2, 2)
    assert summary.log_loss == pytest.approx(LEARNED["loss"])


def test_a_body_that_is_too_large_is_sent_in_halves(service: Scripted, tmp_path: Path) -> None:
    service.will_answer(200, MODEL).will_answer(413, refusal(413))
    service.will_answer(200, {"results": [LEARNED]}).will_answer(413, refusal(413))
    service.will_answer(200, {"results": [LEARNED]}).will_answer(200, {"results": [LEARNED]})
    service.will_answer(200, MODEL)
    assert replay_over_http(plan(clicks(tmp_path, 3), "m"), service.url).rows == 3


def test_one_example_that_is_too_large_for_a_body_is_the_end(service: Scripted, tmp_path: Path) -> None:
    service.will_answer(200, MODEL).will_answer(413, refusal(413))
    with pytest.raises(CommandFailure, match="not now; 0 rows were learned before"):
        replay_over_http(plan(clicks(tmp_path, 1), "m"), service.url)

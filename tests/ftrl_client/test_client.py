"""Both clients against the real service, over a network that loses replies, and with scripted refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from ftrl_client import (
    AsyncClient,
    Client,
    Example,
    FtrlError,
    Instance,
    Label,
    NoReply,
    Problem,
    Update,
)
from tests.service.api.conftest import LiveApi

LEARNED: dict[str, Any] = {
    "status": "learned",
    "probability": 0.5,
    "loss": 0.7,
    "revision": "r",
    "event_id": "e",
}
NO_MODEL = {"code": "unknown_model", "title": "No such model", "detail": "There is no model 'm'."}
CLICK = {"ad": "a17", "site": "news.example"}

Calls = Callable[..., Any]


@dataclass
class Network(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends requests for real, or to `answer`; loses the replies to those of these numbers."""

    answer: Callable[[httpx.Request], httpx.Response] | None = None
    lost: tuple[int, ...] = ()
    bodies: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sync = (
            httpx.HTTPTransport(verify=False) if self.answer is None else httpx.MockTransport(self.answer)
        )
        self._async = (
            httpx.AsyncHTTPTransport(verify=False)
            if self.answer is None
            else httpx.MockTransport(self.answer)
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        reply = self._sync.handle_request(request)
        reply.read()
        return self._after(request, reply)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        reply = await self._async.handle_async_request(request)
        await reply.aread()
        return self._after(request, reply)

    def _after(self, request: httpx.Request, reply: httpx.Response) -> httpx.Response:
        is_json = request.headers.get("Content-Type") == "application/json"
        self.bodies.append(json.loads(request.content) if is_json else request.content.splitlines())
        if len(self.bodies) - 1 in self.lost:
            raise httpx.ReadTimeout("lost", request=request)
        return reply

    def close(self) -> None:
        self._sync.close()

    async def aclose(self) -> None:
        await self._async.aclose()


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Calls:
    """`call("predict", ..., url=..., network=...)`: what that method of a new client returns."""

    def use(
        method: str, *arguments: Any, url: str = "http://service", network: Network, **options: Any
    ) -> Any:
        named = {name: options.pop(name) for name in ("context", "log", "id", "wait") if name in options}
        if request.param == "sync":
            with Client(url, transport=network, **options) as client:
                if method == "stream":
                    return list(client.stream(*arguments))
                return getattr(client, method)(*arguments, **named)

        async def run() -> Any:
            async with AsyncClient(url, transport=network, **options) as client:
                if method == "stream":
                    return [update async for update in client.stream(*arguments)]
                return await getattr(client, method)(*arguments, **named)

        return asyncio.run(run())

    return use


def scripted(*replies: tuple[int, object], **headers: str) -> Network:
    """Answers with these in order; the headers are those of every refusal."""
    left: Iterator[tuple[int, object]] = iter(replies)

    def answer(request: httpx.Request) -> httpx.Response:
        status, body = next(left)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx.Response(status, content=content, headers=headers if status >= 400 else {})

    return Network(answer)


def learned(api: httpx.Client, model: str) -> int:
    return int(api.get(model).json()["t"])


def test_an_example_whose_reply_is_lost_is_sent_again_and_learned_once(
    call: Calls, live_api: LiveApi, model: str
) -> None:
    network = Network(lost=(0, 1))
    name = model.rpartition("/")[2]
    result = call("update", Example(CLICK, label=1), url=live_api.url, model=name, network=network)
    assert result.status == "duplicate"  # of itself
    assert result.probability == 0.5
    assert len({body["event_id"] for body in network.bodies}) == 1
    assert len(network.bodies) == 3
    assert learned(live_api.client, model) == 1


def test_batches_keep_their_order_and_are_learned_once(call: Calls, live_api: LiveApi, model: str) -> None:
    examples = [Example({"n": f"v{number}"}, label=number % 2 == 0) for number in range(501)]
    network = Network(lost=(0,))
    name = model.rpartition("/")[2]
    results = call("update_many", examples, url=live_api.url, model=name, network=network)
    assert [result.event_id for result in results] == [example.event_id for example in examples]
    assert [len(body["examples"]) for body in network.bodies] == [500, 500, 1]
    assert learned(live_api.client, model) == 501
    again = call("update_many", examples, url=live_api.url, model=name, network=Network())
    assert {result.status for result in again} == {"duplicate"}
    assert learned(live_api.client, model) == 501


def test_a_stream_is_learned_once_and_reports_what_is_invalid(
    call: Calls, live_api: LiveApi, model: str
) -> None:
    examples = [Example({"n": f"v{number}"}, label=number % 2) for number in range(2001)]
    examples[5] = Example({"n": "x"}, label=2)
    network = Network(lost=(0,))
    results = call("stream", examples, url=live_api.url, model=model.rpartition("/")[2], network=network)
    assert [len(body) for body in network.bodies] == [2000, 2000, 1]
    assert (results[5].status, results[5].detail) == (
        "invalid",
        "must be a number from 0 to 1, true or false",
    )
    others = [result for result in results if result.status != "invalid"]
    assert [one.event_id for one in others] == [one.event_id for one in examples if one.label != 2]
    assert learned(live_api.client, model) == 2000


@pytest.mark.parametrize(
    "refusal",
    [
        [
            {
                "line": 1,
                "lines": 1,
                "statuses": {"unavailable": 1},
                "code": "update_unavailable",
                "detail": "away",
            }
        ],
        [{"end": "stopping", "through": 0, "statuses": {}}],
    ],
    ids=["unavailable", "stopping"],
)
def test_a_stream_that_was_not_taken_is_sent_again(call: Calls, refusal: list[Any]) -> None:
    end = {"end": "complete", "through": 1, "statuses": {}}
    replies = iter([[*refusal, *([] if "end" in refusal[0] else [end])], [{"line": 1, **LEARNED}, end]])

    def answer(_: httpx.Request) -> httpx.Response:
        content = "".join(json.dumps(line) + "\n" for line in next(replies))
        return httpx.Response(200, content=content, headers={"Content-Type": "application/x-ndjson"})

    network = Network(answer)
    assert call("stream", [Example(CLICK, 1)], network=network)[0].status == "learned"
    assert len(network.bodies) == 2


def test_a_label_that_comes_late_joins_its_prediction(call: Calls, live_api: LiveApi, model: str) -> None:
    name = model.rpartition("/")[2]
    options = {"url": live_api.url, "model": name}
    prediction = call("predict", CLICK, log=True, network=Network(lost=(0,)), **options)
    assert prediction.logged
    assert prediction.id
    shown = call("impressions", [prediction.id], network=Network(lost=(0,)), **options)
    assert shown == {prediction.id: "duplicate"}  # its first report did arrive
    label = Label(prediction.id, label=1)
    first = call("update", label, network=Network(), **options)
    assert (first.status, first.id) == ("waiting", prediction.id)
    assert call("update_many", [label], network=Network(), **options)[0].status == "duplicate"
    with pytest.raises(Problem) as conflict:
        call("update", Label(prediction.id, label=0), network=Network(), **options)
    assert (conflict.value.status, conflict.value.code) == (409, "label_conflict")


def test_candidates_are_predicted_in_order(call: Calls, live_api: LiveApi, model: str) -> None:
    name = model.rpartition("/")[2]
    candidates = [Instance({"ad": "a"}, "first"), {"ad": "b"}, [("ad", "c"), ("ad", "d")]]
    network = Network()
    predictions = call(
        "predict_many",
        candidates,
        context={"hour": 3},
        log=False,
        url=live_api.url,
        model=name,
        network=network,
    )
    assert [one.id for one in predictions] == ["first", None, None]
    assert {one.probability for one in predictions} == {0.5}
    assert len({one.revision for one in predictions}) == 1


def test_an_invalid_example_is_a_problem_that_names_its_place(
    call: Calls, live_api: LiveApi, model: str
) -> None:
    with pytest.raises(Problem) as found:
        call(
            "update",
            Example(CLICK, label=7),
            url=live_api.url,
            model=model.rpartition("/")[2],
            network=Network(),
        )
    assert (found.value.status, found.value.code) == (422, "unprocessable")
    assert [error["path"] for error in found.value.errors] == ["label"]
    assert learned(live_api.client, model) == 0


@pytest.mark.parametrize("status", [429, 503, 507])
def test_a_refusal_is_waited_out_as_long_as_it_says(call: Calls, status: int) -> None:
    network = scripted(
        (status, {"detail": "not now"}), (status, b"<html>"), (200, LEARNED), **{"Retry-After": "0"}
    )
    assert call("update", Example(CLICK, 1), network=network) == Update(**LEARNED, id=None)
    assert len(network.bodies) == 3


def test_a_refusal_for_longer_than_the_patience_is_a_problem(call: Calls) -> None:
    network = scripted((503, {"code": "update_unavailable", "detail": "not now"}), **{"Retry-After": "60"})
    with pytest.raises(
        Problem, match=r"POST /models/default/update: not now \(update_unavailable\)"
    ) as found:
        call("update", Example(CLICK, 1), network=network)
    assert (found.value.status, len(network.bodies)) == (503, 1)


@pytest.mark.parametrize("status", [400, 404, 409, 413, 500])
def test_any_other_error_is_a_problem_at_once(call: Calls, status: int) -> None:
    network = scripted((status, NO_MODEL))
    with pytest.raises(Problem) as found:
        call("predict", CLICK, model="m", network=network)
    assert found.value.code == "unknown_model"
    assert found.value.document == NO_MODEL


def test_without_patience_a_lost_reply_is_reported(call: Calls) -> None:
    network = scripted((200, LEARNED))
    network.lost = (0,)
    with pytest.raises(NoReply, match="no reply") as found:
        call("update", Example(CLICK, 1), network=network, retry_seconds=0)
    assert isinstance(found.value.__cause__, httpx.ReadTimeout)


def test_what_may_not_be_repeated_is_not(call: Calls) -> None:
    network = scripted((201, {"id": "one"}), (201, {"id": "two"}))
    network.lost = (0,)
    with pytest.raises(NoReply):
        call("request", "POST", "/models/default/snapshots", {}, network=network)
    assert network.bodies == [{}]


def test_an_update_is_repeated_under_the_ids_that_a_refusal_gives_it(call: Calls) -> None:
    unnamed = {"features": {"ad": "a1"}, "label": 1}
    given, own = unnamed | {"event_id": "given"}, unnamed | {"event_id": "own"}
    bodies: list[dict[str, Any]] = [unnamed, {"examples": [unnamed, own]}]
    repeated = [given, {"examples": [given, own]}]
    for body, again in zip(bodies, repeated, strict=True):
        event_ids = ["given", "own"][: len(body.get("examples", [body]))]
        network = scripted((503, {"event_ids": event_ids}), (200, LEARNED), **{"Retry-After": "0"})
        assert call("request", "POST", "/update", body, network=network) == LEARNED
        assert network.bodies == [body, again]


def test_an_update_without_id_is_not_repeated_if_it_may_have_been_learned(call: Calls) -> None:
    example = {"features": {"ad": "a1"}, "label": 1}
    network = scripted((429, {}), (503, {"code": "update_unavailable"}), **{"Retry-After": "0"})
    with pytest.raises(Problem) as found:
        call("request", "POST", "/update", example, network=network)
    assert (found.value.code, network.bodies) == ("update_unavailable", [example, example])


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ftp://service"])
def test_a_service_that_is_not_there_is_no_reply(call: Calls, url: str) -> None:
    with pytest.raises(NoReply, match="POST /models/default/predict: no reply"):
        call("predict", CLICK, url=url, retry_seconds=0.05, network=Network())


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b"{}", b""])
def test_another_server_is_recognised(call: Calls, answer: bytes) -> None:
    with pytest.raises(FtrlError, match="not the reply of an ftrl service"):
        call("predict", CLICK, network=scripted((200, answer)))


@pytest.mark.parametrize("token", ["ftrl_abc", "ftrl_abc\n"])
def test_a_token_is_sent(call: Calls, token: str) -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("Authorization"))
        return httpx.Response(204)

    assert call("request", "DELETE", "/models/m", network=Network(answer), token=token) == {}
    assert seen == ["Bearer ftrl_abc"]


@pytest.mark.parametrize("token", ["one\ntwo", "\xe9"])
def test_what_cannot_be_a_token_is_refused_without_showing_it(call: Calls, token: str) -> None:
    with pytest.raises(ValueError, match=r"^a token is one line of printable ASCII$"):
        call("predict", CLICK, network=scripted(), token=token)

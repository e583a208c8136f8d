"""Updates whose bodies are streamed: lines in, lines out, on one connection."""

from __future__ import annotations

import gzip
import io
import json
import threading
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Any

import httpx
import pytest
import zstandard

from tests.service.api.conftest import ApiFactory, LiveApi
from tests.support.duplex import NDJSON, Duplex
from tests.support.duplex import stream_example as example
from tests.support.problem_replies import problem
from tests.support.servers import ServerProcess
from tests.support.waiting import wait_until

VW = "text/x-vw"
ARROW = "application/vnd.apache.arrow.stream"


def lines_of(reply: httpx.Response) -> list[dict[str, Any]]:
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == NDJSON
    return [json.loads(line) for line in reply.text.splitlines()]


def sent(
    api: httpx.Client, model: str, body: bytes | Iterable[bytes], media_type: str = NDJSON, **headers: str
) -> list[dict[str, Any]]:
    """The lines of the reply to a stream."""
    path, _, query = model.partition("?")
    url = f"{path}/update?{query}"
    return lines_of(api.post(url, content=body, headers={"content-type": media_type, **headers}))


def learned(api: httpx.Client, model: str) -> int:
    t: int = api.get(model).json()["t"]
    return t


def test_lines_are_answered_while_more_can_come(live_api: LiveApi, model: str) -> None:
    with Duplex(live_api.url, f"{model}/update") as client:
        assert client.begin() == 200
        client.send(example(1, 1))
        first = client.line()
        assert (first["line"], first["lines"], first["statuses"]) == (1, 1, {"learned": 1})
        half = len(example(3)) // 2
        client.send(example(2) + example(3)[:half])
        assert client.line()["line"] == 2
        client.send(example(3)[half:])
        assert client.line()["line"] == 3
        client.end()
        assert client.line() == {"end": "complete", "through": 3, "statuses": {"learned": 3}}
    assert learned(live_api.client, model) == 3


def test_a_bad_line_is_answered_with_its_place_and_the_others_are_learned(
    api: httpx.Client, model: str
) -> None:
    body = example(1) + example(2, -1) + b'{"features": {} "label": 1}\n' + b"[1]\n" + example(3)
    *bad, group, end = sent(api, model, body)
    assert [(one["line"], one["code"], one["path"], one["column"]) for one in bad] == [
        (2, "invalid_value", "label", None),
        (3, "invalid_json", "", 17),
        (4, "wrong_type", "", None),
    ]
    assert {one["status"] for one in bad} == {"invalid"}
    assert group["statuses"] == end["statuses"] == {"learned": 2, "invalid": 3}
    assert learned(api, model) == 2


def test_a_stream_may_end_at_its_first_bad_line(api: httpx.Client, model: str) -> None:
    body = example(1) + example(2) + example(3, "x") + example(4)
    bad, group, end = sent(api, f"{model}?on_error=stop", body)
    assert (bad["line"], group["statuses"]) == (3, {"learned": 2, "invalid": 1})
    assert (end["end"], end["through"], end["code"]) == ("error", 2, "invalid_value")
    assert learned(api, model) == 2


def test_a_client_that_goes_on_after_the_last_line_is_disconnected(live_api: LiveApi, model: str) -> None:
    with Duplex(live_api.url, f"{model}/update?on_error=stop") as client:
        client.begin()
        client.send(b"[]\n")
        assert [client.line()["line"], client.line()["lines"], client.line()["end"]] == [1, 0, "error"]
        with pytest.raises(ConnectionError):
            send_for(60.0, client)


def send_for(seconds: float, client: Duplex) -> None:
    end = monotonic() + seconds
    while monotonic() < end:
        client.send(b"\n" * 100_000)


def test_each_line_can_be_answered_by_itself(api: httpx.Client, model: str) -> None:
    body = example(1, 1, event_id="e1") + b"\n" + example(2, 7) + example(1, 1, event_id="e1")
    first, bad, again, end = sent(api, f"{model}?each=true", body)
    assert (first["line"], first["status"], first["probability"]) == (1, "learned", 0.5)
    assert (bad["line"], bad["status"]) == (3, "invalid")
    assert (again["line"], again["status"], again["event_id"]) == (4, "duplicate", "e1")
    assert end["statuses"] == {"learned": 1, "duplicate": 1, "invalid": 1}


def test_a_stream_of_text_may_have_a_mark_returns_blank_lines_and_no_last_newline(
    api: httpx.Client, model: str
) -> None:
    body = b"\xef\xbb\xbf" + example(1).replace(b"\n", b"\r\n") + b"\n \t\r\n" + example(2).strip()
    group = sent(api, model, body)[0]
    assert (group["statuses"], group["lines"]) == ({"learned": 1}, 3)
    assert learned(api, model) == 2
    assert sent(api, model, b"") == [{"end": "complete", "through": 0, "statuses": {}}]


def test_two_halves_of_an_object_are_no_line(api: httpx.Client, model: str) -> None:
    """The kernel reads many lines at once, but none across two of them."""
    body = b'{"features":{"a":"x}\n{y"},"label":1}\n{"features":{},"label":1},{"features":{},"label":0}\n\n'
    *bad, _, end = sent(api, model, body)
    assert [one["line"] for one in bad] == [1, 2, 3]
    assert end["statuses"] == {"invalid": 3}


def test_a_line_that_is_too_long_is_dropped(start_api: ApiFactory, valkey: ServerProcess) -> None:
    api = start_api(valkey, max_update_body_bytes=100_000).client
    long = (b'{"features": {"a": "%b"}, "label": 1}' % (b"x" * 40_000), b"x" * 50_000)
    body = [example(1), long[0], b"x" * 60_000, *[long[1]] * 30, b"\n", example(2), long[0] + b"\n"]
    *lines, end = sent(api, "/models/default", iter(body))
    assert [(line["line"], line["code"]) for line in lines if "code" in line] == [(2, "wrong_length")]
    assert end["statuses"] == {"learned": 3, "invalid": 1}


def test_text_of_vowpal_wabbit_is_read(api: httpx.Client, model: str) -> None:
    body = b"1 |f ad=a1 price:3\n-1 2.5 |f ad=a2\n0 |f ad=a3\n1 |f price:x\n\n1 |f ad=a4"
    zero, number, group, last, end = sent(api, model, body, VW)
    assert (zero["line"], zero["code"], zero["column"]) == (3, "invalid_value", 1)
    assert (number["line"], number["column"]) == (4, 12)
    assert (group["statuses"], last["statuses"]) == ({"learned": 2, "invalid": 2}, {"learned": 1})
    assert sent(api, f"{model}?labels=zero_one", b"0 |f ad=a3\n", VW)[-1]["statuses"] == {"learned": 1}
    assert end["through"] == 6


def test_labels_of_logged_predictions_may_be_among_the_lines(api: httpx.Client, model: str) -> None:
    path = f"{model}-feedback"
    api.put(path, json={"hashing": {"bits": 12}, "feedback": {"exposure": "on_predict"}}).raise_for_status()
    shown = {"features": {"ad": "a"}, "id": "view-1", "log": True}
    api.post(f"{path}/predict", json=shown).raise_for_status()
    body = example(1) + b'{"id": "view-1", "label": 1}\n{"id": "view-2", "label": 0}\n'
    statuses = [line["status"] for line in sent(api, f"{path}?each=true", body)[:-1]]
    assert statuses == ["learned", "waiting", "unknown"]
    api.delete(path)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_stream_may_be_packed(api: httpx.Client, model: str, coding: str) -> None:
    pack = gzip.compress if coding == "gzip" else zstandard.ZstdCompressor().compress
    packed = pack(b"".join(map(example, range(300)))) + pack(b"".join(map(example, range(300, 310))))
    pieces = [packed[start : start + 700] for start in range(0, len(packed), 700)]
    end = sent(api, model, iter(pieces), **{"content-encoding": coding})[-1]
    assert (end["end"], end["statuses"]) == ("complete", {"learned": 310})
    cut = sent(api, model, packed[:-10], **{"content-encoding": coding})[-1]
    assert (cut["end"], cut["code"]) == ("error", "invalid_value")
    assert coding in cut["detail"]


def test_a_packed_bomb_is_unpacked_in_bounded_pieces(api: httpx.Client, model: str) -> None:
    """A line of 200 MB of blanks: it is dropped as it comes."""
    packed = zstandard.ZstdCompressor().compress(b" " * 200_000_000 + b"\n" + example(1))
    bad, *_, end = sent(api, model, packed, **{"content-encoding": "zstd"})
    assert (bad["line"], bad["code"], end["statuses"]) == (1, "wrong_length", {"learned": 1, "invalid": 1})


def test_rows_of_arrow_are_read(api: httpx.Client, model: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra `files` is not installed")
    columns = {
        "ad": pa.array(["a1", "a2", None, "a1"]).dictionary_encode(),
        "price": pa.array([0.5, None, 2.0, 1e7]),
        "label": pa.array([1, 0, 7, 1]),
        "weight": pa.array([2.0, None, 1.0, 1.0]),
        "event_id": pa.array(["e1", None, "e3", "e1"]),
    }
    body = io.BytesIO()
    with pa.ipc.new_stream(body, pa.table(columns).schema) as writer:
        writer.write_table(pa.table(columns), max_chunksize=3)
    pieces = [body.getvalue()[start : start + 100] for start in range(0, len(body.getvalue()), 100)]
    first, second, bad, again, end = sent(api, f"{model}?each=true", iter(pieces), ARROW)
    assert [(one["line"], one["status"]) for one in (first, second, bad, again)] == [
        (1, "learned"),
        (2, "learned"),
        (3, "invalid"),
        (4, "duplicate"),
    ]
    assert end["through"] == 4
    cut = sent(api, model, body.getvalue()[:-300], ARROW)[-1]
    assert (cut["end"], cut["code"]) == ("error", "invalid_value")


@pytest.mark.parametrize("damage", ["no arrow", "compressed", "huge", "without a label"])
def test_a_stream_of_arrow_that_cannot_be_read_ends_with_the_reason(
    api: httpx.Client, model: str, damage: str
) -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra `files` is not installed")
    table = pa.table({"ad": ["a"] * 2000, ("ad2" if damage == "without a label" else "label"): [1] * 2000})
    body = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if damage == "compressed" else None)
    with pa.ipc.new_stream(body, table.schema, options=options) as writer:
        writer.write_table(table)
    data = body.getvalue()
    if damage == "no arrow":
        data = b"PAR1" + data
    if damage == "huge":
        data = data[:4] + b"\xff\xff\xff\x7f" + data[8:]
    (end,) = sent(api, model, data, ARROW)
    said = {
        "no arrow": "no Arrow",
        "compressed": "compressed",
        "huge": "at most",
        "without a label": "'label'",
    }
    assert end["end"] == "error"
    assert said[damage] in end["detail"]


def test_a_stream_that_cannot_begin_is_a_problem(api: httpx.Client, model: str) -> None:
    headers = {"content-type": NDJSON}
    problem(api.post("/models/none-such/update", content=b"", headers=headers), 404, "unknown_model")
    problem(api.post(f"{model}/update?on_error=no", content=b"", headers=headers), 422, "unprocessable")
    document = problem(
        api.post(f"{model}/update", content=b"x", headers={"content-type": "text/plain"}),
        415,
        "unsupported_media_type",
    )
    assert NDJSON in document["detail"]
    packed = headers | {"content-encoding": "br"}
    problem(api.post(f"{model}/update", content=b"", headers=packed), 415, "unsupported_content_encoding")


def test_streams_are_bounded_in_number_and_in_idleness(start_api: ApiFactory, valkey: ServerProcess) -> None:
    live = start_api(valkey, max_update_streams=1, stream_idle_seconds=0.3)
    with Duplex(live.url, "/update") as client:
        client.begin()
        refused = live.client.post("/update", content=b"", headers={"content-type": NDJSON})
        problem(refused, 503, "stream_refused")
        client.send(example(1) + b'{"fea')
        assert client.line()["line"] == 1
        end = client.line()
        assert (end["end"], end["through"], end["code"]) == ("idle", 1, "slow_body")
    headers = {"content-type": NDJSON}
    wait_until(lambda: live.client.post("/update", content=example(2), headers=headers).is_success)


def test_a_stream_outlasts_the_time_of_other_bodies(start_api: ApiFactory, valkey: ServerProcess) -> None:
    live = start_api(valkey, body_timeout_seconds=0.1, header_timeout_seconds=0.1, send_timeout_seconds=0.1)
    with Duplex(live.url, "/update") as client:
        client.begin()
        for i in range(1, 5):
            client.send(example(i))
            assert client.line()["line"] == i
            threading.Event().wait(0.3)  # longer than other requests may take in all
        client.end()
        assert client.line()["end"] == "complete"


def test_a_stop_ends_a_stream_with_the_line_through_which_it_was_taken(
    start_api: ApiFactory, valkey: ServerProcess
) -> None:
    live = start_api(valkey)
    with Duplex(live.url, "/update") as client:
        client.begin()
        client.send(example(1) + example(2) + b'{"features"')
        assert client.line()["lines"] == 2
        stopping = threading.Thread(target=live.stop)
        stopping.start()
        assert client.line() == {"end": "stopping", "through": 2, "statuses": {"learned": 2}}
        client.end()
        stopping.join(60)
        assert not stopping.is_alive()


def test_lines_wait_while_the_log_is_full(start_api: ApiFactory, valkey: ServerProcess) -> None:
    """Nothing is refused: without a learner the log fills up, and with one the rest is taken."""
    waiting = start_api(valkey, run_learner=False, backlog_limit_examples=10)
    with Duplex(waiting.url, "/update?wait=false") as client:
        client.begin()
        client.send(b"".join(map(example, range(8))))
        assert client.line()["statuses"] == {"appended": 8}
        client.send(b"".join(map(example, range(8, 16))))
        assert client.line()["code"] == "log_full"
        start_api(valkey)
        reply = client.line()
        while reply.get("waiting"):
            reply = client.line()
        assert (reply["line"], reply["lines"]) == (9, 8)
        client.end()
        assert client.line()["through"] == 16


def test_a_client_that_leaves_does_not_take_with_it_what_was_answered(live_api: LiveApi, model: str) -> None:
    client = Duplex(live_api.url, f"{model}/update")
    client.begin()
    client.send(example(1, event_id="e1") + example(2, event_id="e2") + b'{"features": {}, "label"')
    assert client.line()["lines"] == 2
    client.close()
    body = b"".join(example(i, event_id=f"e{i}") for i in (1, 2, 3))
    wait_until(lambda: "ftrl_update_streams 0.0" in live_api.client.get("/metrics").text)
    assert sent(live_api.client, model, body)[-1]["statuses"] == {"duplicate": 2, "learned": 1}


def send_much(client: Duplex) -> None:
    """Lines whose answers are more than the buffers of the system hold."""
    for _ in range(5000):
        client.send(b"{}\n" * 1000)


@pytest.mark.slow
def test_a_client_that_does_not_read_its_answers_is_disconnected(
    start_api: ApiFactory, valkey: ServerProcess
) -> None:
    live = start_api(valkey, send_timeout_seconds=0.2)
    with Duplex(live.url, "/update?each=true", receive_buffer=4096) as client:
        with pytest.raises(ConnectionError):
            send_much(client)
        wait_until(lambda: "ftrl_update_streams 0.0" in live.client.get("/metrics").text)


def test_two_streams_flow_at_once(api: httpx.Client, model: str) -> None:
    ends: list[dict[str, Any]] = []

    def pieces(start: int) -> Iterator[bytes]:
        for i in range(start, start + 5000, 100):
            yield b"".join(map(example, range(i, i + 100)))

    def run(start: int) -> None:
        ends.append(sent(api, model, pieces(start))[-1])

    threads = [threading.Thread(target=run, args=(start,)) for start in (0, 5000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [end["statuses"] for end in ends] == [{"learned": 5000}] * 2
    assert learned(api, model) == 10_000


def test_a_stream_follows_an_alias(live_api: LiveApi, model: str) -> None:
    api, other = live_api.client, f"{model}-other"
    api.put(other, json={"hashing": {"bits": 11}}).raise_for_status()
    alias = f"/aliases/{model.removeprefix('/models/')}-live"
    api.put(alias, json={"model": model.removeprefix("/models/")}).raise_for_status()
    with Duplex(live_api.url, f"/models/{alias.removeprefix('/aliases/')}/update") as client:
        client.begin()
        client.send(example(1))
        client.line()
        api.put(alias, json={"model": other.removeprefix("/models/")}).raise_for_status()
        client.send(example(2) + example(3))
        client.line()
        client.end()
        assert client.line()["statuses"] == {"learned": 3}
    assert (learned(api, model), learned(api, other)) == (1, 2)
    api.delete(alias)
    api.delete(other)


def test_the_model_of_a_stream_may_be_deleted(live_api: LiveApi, model: str) -> None:
    with Duplex(live_api.url, f"{model}/update") as client:
        client.begin()
        client.send(example(1))
        client.line()
        live_api.client.delete(model).raise_for_status()
        client.send(example(2))
        end = client.line()
        while "end" not in end:
            client.send(example(3))
            end = client.line()
        assert (end["end"], end["code"]) == ("error", "unknown_model")

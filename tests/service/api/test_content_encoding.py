"""Bodies that are packed, or begin with a byte order mark."""

from __future__ import annotations

import gzip
import zlib

import httpx
import pytest
import zstandard

from tests.support.problem_replies import problem

MIB = 1 << 20
BODY = b'{"features": {"a": "b"}}'
PACK = {"gzip": gzip.compress, "x-gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}


def post(api: httpx.Client, body: bytes, coding: str, path: str = "/predict") -> httpx.Response:
    headers = {"content-type": "application/json", "content-encoding": coding}
    return api.post(path, content=body, headers=headers)


@pytest.mark.parametrize("coding", PACK)
def test_a_packed_body_is_read(api: httpx.Client, model: str, coding: str) -> None:
    plain = api.post("/predict", content=BODY, headers={"content-type": "application/json"}).json()
    assert post(api, PACK[coding](BODY), coding).json() == plain
    learned = post(api, PACK[coding](BODY[:-1] + b', "label": 1}'), coding.upper(), f"{model}/update")
    assert learned.json()["status"] == "learned"


@pytest.mark.parametrize("coding", PACK)
def test_every_route_with_a_body_reads_packed_ones(api: httpx.Client, model: str, coding: str) -> None:
    headers = {"content-type": "application/json", "content-encoding": coding}
    name = f"{model.rpartition('/')[2]}-packed"
    alias = PACK[coding](b'{"model": "%b"}' % model.rpartition("/")[2].encode())
    assert api.put(f"/aliases/{name}", content=alias, headers=headers).status_code == 200
    assert api.delete(f"/aliases/{name}").status_code == 204


def test_a_body_may_be_of_several_members(api: httpx.Client) -> None:
    assert post(api, gzip.compress(BODY[:9]) + gzip.compress(BODY[9:]), "gzip").status_code == 200
    assert post(api, PACK["zstd"](BODY[:9]) + PACK["zstd"](BODY[9:]), "zstd").status_code == 200
    problem(post(api, gzip.compress(b" ") * 1000 + gzip.compress(BODY), "gzip"), 422, "unprocessable")


@pytest.mark.parametrize("coding", PACK)
def test_the_limit_is_that_of_the_unpacked_size(api: httpx.Client, coding: str) -> None:
    assert post(api, PACK[coding](BODY.ljust(MIB)), coding).status_code == 200
    document = problem(post(api, PACK[coding](BODY.ljust(MIB + 1)), coding), 413, "too_large")
    assert str(MIB) in document["detail"]
    problem(post(api, PACK[coding](bytes(200 * MIB)), coding), 413, "too_large")


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda _: BODY, lambda body: body[:-9], lambda b: b + b"x"]
)
def test_a_body_that_is_not_what_the_header_says_is_named(api: httpx.Client, coding: str, damage) -> None:
    problem(post(api, damage(PACK[coding](BODY)), coding), 422, "unprocessable")


@pytest.mark.parametrize("coding", ["br", "deflate", "compress", "gzip, gzip", "aws-chunked", "x" * 500])
def test_any_other_coding_is_refused_by_name(api: httpx.Client, coding: str) -> None:
    reply = post(api, zlib.compress(BODY), coding)
    document = problem(reply, 415, "unsupported_content_encoding")
    assert "Content-Encoding" in document["detail"]
    assert len(document["detail"]) < 300
    assert reply.headers["accept-encoding"] == "gzip, zstd"


def test_a_body_that_is_not_packed_may_say_so(api: httpx.Client) -> None:
    assert post(api, BODY, "identity").status_code == 200


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_a_byte_order_mark_is_ignored(api: httpx.Client, model: str, coding: str) -> None:
    pack = PACK.get(coding, bytes)
    marked = b"\xef\xbb\xbf" + BODY
    assert post(api, pack(marked), coding).json() == post(api, pack(BODY), coding).json()
    learned = b'\xef\xbb\xbf{"features": {"a": "b"}, "label": 1}'
    assert post(api, pack(learned), coding, f"{model}/update").json()["status"] == "learned"
    problem(post(api, b"\xef\xbb\xbf" + marked, "identity"), 422, "unprocessable")

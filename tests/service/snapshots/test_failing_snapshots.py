"""A snapshot that cannot be written is reported and counted by its reason, and learning continues."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from service.errors import (
    ServerFull,
    ServiceError,
    SnapshotFailed,
    StateUnavailable,
    StoreUnavailable,
)
from service.models.registry import OpenModel
from service.settings import Settings
from service.snapshots.take.requests import SnapshotRequest, request_snapshot
from service.storage.channel import open_channel
from tests.conftest import SettingsFactory
from tests.support.commands import ServingProcess
from tests.support.proxy import Proxy
from tests.support.servers import ServerProcess
from tests.support.snapshot_systems import CONFIG, catalogue, take
from tests.support.system import System, stored
from tests.support.waiting import until

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

EMPTY_LIST = b'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>'


@contextlib.asynccontextmanager
async def object_server(monkeypatch: pytest.MonkeyPatch, put: Answer) -> AsyncIterator[str]:
    """The URL of a store that has nothing, and of which `put` decides what becomes of an upload."""

    handlers: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers[asyncio.current_task()] = writer
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                if head.startswith(b"PUT"):
                    await put(reader, writer)
                    break
                answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(EMPTY_LIST)}\r\n\r\n".encode()
                writer.write(answer + EMPTY_LIST)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    yield "s3://bucket/models"
    server.close()
    for writer in handlers.values():
        writer.transport.abort()
    await asyncio.wait([handler for handler in handlers if handler is not None])


def failures(system: System, reason: str) -> float:
    metrics = system.metrics.render().decode()
    found = re.search(rf'ftrl_snapshot_failures_total{{model="clicks",reason="{reason}"}} (\S+)', metrics)
    return float(found[1]) if found else 0.0


async def test_an_internal_error_is_reported_and_learning_continues(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    async with System(make_settings(valkey)) as system:
        system.learn()
        model = await system.model(CONFIG)
        await system.update(model, 5)
        async with open_channel(system.settings) as channel:  # as no route and no command would ask for it
            with pytest.raises(SnapshotFailed, match="could not be made: InvalidInput: tag: a tag is"):
                await request_snapshot(channel, model.mirror.replica.keys, "request", "Not Good")
        assert failures(system, "error") == 1
        await system.update(model, 5, start=5)
        assert (await take(system, model))["t"] == 10


@pytest.mark.slow
async def test_an_aborted_upload_is_reported_and_counted(
    valkey: ServerProcess, make_settings: SettingsFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await reader.read(100)
        writer.transport.abort()

    async with (
        object_server(monkeypatch, break_off) as url,
        System(make_settings(valkey, snapshots=url, snapshot_seconds=0)) as system,
    ):
        system.learn()
        model = await system.model(CONFIG)
        await system.update(model, 5)
        with pytest.raises(StoreUnavailable, match="Cannot write to the snapshot store"):
            await take(system, model)
        assert failures(system, "store") == 1
        await system.update(model, 5, start=5)
        assert (await stored(system.topology)).state.t == 10


async def test_a_stopped_learner_leaves_the_request_to_the_next(
    valkey: ServerProcess, make_settings: SettingsFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploading, stop = asyncio.Event(), asyncio.Event()

    async def hang(*_: object) -> None:
        uploading.set()
        await stop.wait()

    async with object_server(monkeypatch, hang) as url:
        hanging = make_settings(valkey, snapshots=url, snapshot_seconds=0, shutdown_grace_seconds=0.1)
        async with System(hanging) as system, System(make_settings(valkey)) as other:
            learning = system.learn()
            model = await system.model(CONFIG)
            await system.update(model, 5)
            taking = asyncio.create_task(take(system, model))
            await uploading.wait()
            other.learn()
            learning.cancel()
            await until(learning.done)
            assert failures(system, "stopped") == 1
            assert (await taking)["t"] == 5
            assert [entry.id for entry in catalogue(other).entries()] == [taking.result()["id"]]
            stop.set()


@contextlib.asynccontextmanager
async def system_behind(proxy: Proxy, settings: Settings) -> AsyncIterator[tuple[System, OpenModel]]:
    async with proxy, System(settings.model_copy(update={"redis_url": proxy.url})) as system:
        system.learn()
        model = await system.model(CONFIG)
        await system.update(model, 5)
        yield system, model


async def test_a_lost_reply_is_sent_again_without_another_snapshot(
    valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    settings, proxy = make_settings(valkey), Proxy(valkey.socket_path)
    async with system_behind(proxy, settings) as (system, model):
        cut = proxy.lose_request("answer_request", times=3)
        async with open_channel(settings) as channel:  # past the proxy: only the answers are lost
            taken = await request_snapshot(channel, model.mirror.replica.keys, "request", "good")
        assert cut.happened == 3
        assert [entry.id for entry in catalogue(system).entries()] == [taken["id"]]


async def test_a_refused_reply_is_sent_again_without_another_snapshot(
    valkey: ServerProcess, make_settings: SettingsFactory, caplog: pytest.LogCaptureFixture
) -> None:
    settings, proxy = make_settings(valkey), Proxy(valkey.socket_path)
    async with system_behind(proxy, settings) as (system, model):
        answering, keys = proxy.hold("answer_request"), model.mirror.replica.keys
        request = SnapshotRequest("one", "request", "good")
        await system.client.rpush(keys.snapshot_requests, request.packed())
        await answering.reached.wait()
        await system.client.config_set("min-replicas-to-write", 1)
        answering.release()
        try:
            await until(lambda: caplog.text.count("is not delivered yet") >= 3)
        finally:
            await system.client.config_set("min-replicas-to-write", 0)
        (reply,) = await until(lambda: system.client.lrange(keys.snapshot_reply("one"), 0, -1))
        assert [entry.id for entry in catalogue(system).entries()] == [json.loads(reply)["id"]]
        assert not await system.client.exists(keys.snapshot_requests)


async def test_a_request_is_answered_although_the_server_has_become_full(
    fresh_valkey: ServerProcess, make_settings: SettingsFactory
) -> None:
    settings, proxy = make_settings(fresh_valkey), Proxy(fresh_valkey.socket_path)
    async with system_behind(proxy, settings) as (system, model), open_channel(settings) as channel:
        answering, keys = proxy.hold("answer_request"), model.mirror.replica.keys
        taking = asyncio.create_task(request_snapshot(channel, keys, "request", "good"))
        await answering.reached.wait()
        await system.client.config_set("maxmemory", 1)
        answering.release()
        assert [entry.id for entry in catalogue(system).entries()] == [(await taking)["id"]]
        assert not await system.client.exists(keys.snapshot_requests)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refusal", "error", "why"),
    [
        ("maxmemory", ServerFull, "memory limit"),
        ("min-replicas-to-write", StateUnavailable, "NOREPLICAS"),
    ],
)
async def test_a_request_without_a_learner_has_the_reason_of_the_server(
    fresh_valkey: ServerProcess,
    make_settings: SettingsFactory,
    refusal: str,
    error: type[ServiceError],
    why: str,
) -> None:
    async with System(make_settings(fresh_valkey)) as system, open_channel(system.settings) as channel:
        keys = (await system.model(CONFIG)).mirror.replica.keys
        taking = asyncio.create_task(request_snapshot(channel, keys, "request"))
        await until(lambda: system.client.exists(keys.snapshot_requests))
        await system.client.config_set(refusal, 1)
        with pytest.raises(error, match=why):
            await taking


@pytest.mark.skipif(sys.platform != "linux", reason="limits another process")
def test_a_full_disk_is_reported_and_learning_continues(valkey: ServerProcess, tmp_path: Path) -> None:
    service = ServingProcess("serve", directory=tmp_path, FTRL_REDIS_URL=valkey.url)
    try:
        service.wait_until_ready()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (100, limits[1]))
        with pytest.raises(httpx.HTTPStatusError) as refused:
            service.post("/models/default/snapshots", {})
        assert refused.value.response.status_code == 503
        assert "File too large" in refused.value.response.json()["detail"]
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, limits)
        service.post("/update", {"features": {"ad": "a1"}, "label": 1})
        assert service.post("/models/default/snapshots", {})["t"] == 1
    finally:
        service.remove()


async def test_an_error_of_a_background_task_is_logged(
    valkey: ServerProcess, make_settings: SettingsFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    of_model = tmp_path / "snapshots" / "clicks"
    of_model.mkdir(parents=True)
    no_time = of_model / "20241399T000000000000Z-ab-0-0.safetensors.zst"  # as this service never writes it
    no_time.write_bytes(b"")
    async with System(make_settings(valkey, snapshots=str(tmp_path / "snapshots"))) as system:
        system.learn()
        model = await system.model(CONFIG)
        await until(lambda: "earlier snapshots of clicks are not known" in caplog.text)
        assert "does not match format" in caplog.text
        await system.update(model, 5)

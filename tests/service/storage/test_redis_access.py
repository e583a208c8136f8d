"""Who may do what on Redis, and over which connection: ACL users, TLS with client certificates."""

from __future__ import annotations

import asyncio
import re

import numpy as np
import pytest
import redis
from redis.asyncio.connection import SSLConnection

from model_core.examples.batch import ExampleBatch
from service.errors import NoLearner
from service.example_log.incoming import NewExamples
from service.example_log.inspect import describe_log, skip_through
from service.feedback.reconfigure import change_feedback
from service.feedback.store import PendingStore, entries_of, key_of
from service.models.aliases import Aliases
from service.models.bulk_load import bulk_load
from service.models.config.model import ModelConfig
from service.models.registry import OpenModel
from service.settings import Settings
from service.snapshots.take.requests import request_snapshot
from service.storage.channel import Channel, open_channel
from service.storage.errors import CONNECTION_FAILURES
from service.storage.records import LogId
from service.storage.topology import connect
from tests.conftest import ServerFactory, SettingsFactory
from tests.support.certificates import Certificates
from tests.support.servers import free_port
from tests.support.shared_data import REPOSITORY
from tests.support.system import System, stored
from tests.support.waiting import until

SHORT = {"window_seconds": 1, "unshown_seconds": 1, "grace_seconds": 1, "late_seconds": 1}
SMALL_MODEL = ModelConfig.from_json(
    {"hashing": {"bits": 16}, "evaluation": {"slices": ["ad"]}, "feedback": SHORT}
)
PASSWORD = "only-for-this-test"
PATIENT = {"redis_timeout_seconds": 4}  # a busy machine is no outage, however long a handshake takes it
ADMINISTRATION = {
    "acl|setuser",
    "acl|log",
    "config|resetstat",
    "acl|dryrun",
    "auth",
    "hello",
    "client|setinfo",
}


def documented_user() -> str:
    text = (REPOSITORY / "docs" / "redis.md").read_text()
    found = re.search(r"^ACL SETUSER .*$", text, re.MULTILINE)
    assert found is not None
    return found[0].replace("PASSWORD", PASSWORD)


def allowed_commands() -> set[str]:
    return set(re.findall(r"\+(\S+)", documented_user()))


def called_commands() -> set[str]:
    """The names of those that the code calls, without subcommands."""
    service = REPOSITORY / "service"
    in_scripts = [re.findall(r"redis\.call\('(\w+)'", file.read_text()) for file in service.rglob("*.lua")]
    in_python = [
        re.findall(r"\bcall\(\s*\*?\(?\"([A-Z]+)\"", file.read_text()) for file in service.rglob("*.py")
    ]
    return {name.lower() for names in in_scripts + in_python for name in names}


def test_the_documented_user_may_call_exactly_the_used_commands() -> None:
    not_for_it = {"config", "post", "put", "patch", "get", "delete"}  # the first, or those of HTTP
    allowed = {name.split("|")[0] for name in allowed_commands()}
    assert allowed - not_for_it == called_commands() - not_for_it


async def use_everything(settings: Settings) -> None:
    """Every way in which the service uses Redis, but for what only a cluster needs."""
    async with System(settings) as system:
        learning = system.learn()
        model = await system.model(SMALL_MODEL)
        await system.update(model, 300, event_ids=True)
        await system.update(model, 300, event_ids=True)  # all of it again
        await system.models.repair_index()
        async with System(settings) as other:  # loads and follows
            await other.models.get("clicks")
            await system.update(model, 50, 1000)
            assert await other.models.names() == ["clicks"]
        await use_slices(system, model)
        async with open_channel(settings) as channel:
            await request_snapshot(channel, model.mirror.replica.keys, "request")
            await use_feedback(channel, model, settings)
        aliases = Aliases(system.models)
        await aliases.set("live", "clicks")
        await aliases.remember_former("clicks", 3600)
        await aliases.remove("live")
        learner_asks_for_lag = 1.2
        await asyncio.sleep(learner_asks_for_lag)
        learning.cancel()
        await asyncio.wait([learning])
        async with open_channel(settings) as channel:
            with pytest.raises(NoLearner):
                await request_snapshot(channel, model.mirror.replica.keys, "request")
            base = await stored(system.topology)
            await bulk_load(channel, base, base.state)
            await system.update(model, 1, 2000, wait=False)
            await describe_log(channel, "clicks", None, 5)
            newest = (await channel.call("XREVRANGE", base.keys.log, "+", "-", "COUNT", 1))[0][0]
            await skip_through(channel, "clicks", str(LogId.parse(newest)))
            await channel.call("UNLINK", base.keys.state(99))  # as a bulk load that is given up does
        await system.models.delete("clicks")
        await system.models.repair_index()


async def use_slices(system: System, model: OpenModel) -> None:
    names = model.new_slice_names(b'{"features": {"ad": "a1"}, "label": 1}')
    batch = ExampleBatch.from_encoded([model.encoder.encode({"ad": "a1"})], [1])
    await system.submit(model, NewExamples(batch, None, names), True)


async def use_feedback(channel: Channel, model: OpenModel, settings: Settings) -> None:
    """A prediction waits, is shown, and is closed without a label, at other times than it was to be."""
    waiting = PendingStore(model.mirror.replica.keys, SMALL_MODEL.feedback, settings)
    batch = ExampleBatch.from_encoded([([1], None)])
    await waiting.log(channel, entries_of([bytes(16)], batch, np.zeros(1), 7, b"token"), False)
    await waiting.expose(channel, [key_of(bytes(16))])
    await change_feedback(channel, model.name, {"window_seconds": 2})

    async def none_is_left() -> bool:
        return not sum((await waiting.sweep(channel, 500)).pending.values())

    await until(none_is_left)


@pytest.mark.slow
async def test_the_documented_user_may_do_all_that_is_needed_and_no_more(
    server_factory: ServerFactory, make_settings: SettingsFactory
) -> None:
    server = server_factory(kind="redis", port=free_port())
    with server.client() as admin:
        admin.execute_command(documented_user())
        admin.execute_command("CONFIG RESETSTAT")
        await use_everything(make_settings(server, redis_username="ftrl", redis_password=PASSWORD, **PATIENT))
        assert admin.execute_command("ACL LOG") == []
        used = {name.removeprefix("cmdstat_") for name in admin.info("commandstats")}
        assert used - ADMINISTRATION <= allowed_commands()
        assert len(used) > 25
        for command in (
            ["CONFIG", "GET", "requirepass"],
            ["FLUSHALL"],
            ["KEYS", "*"],
            ["SET", "another", "1"],
            ["GET", "ftrl"],
            ["SHUTDOWN"],
        ):
            answer = admin.execute_command("ACL DRYRUN", "ftrl", *command)
            assert b"no permissions" in answer or b"no access" in answer, (command, answer)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.slow
async def test_tls_needs_a_client_certificate_and_works_with_it(
    server_factory: ServerFactory, make_settings: SettingsFactory, certificates: Certificates
) -> None:
    port = free_port()
    server_factory(kind="redis", tls_port=port, **certificates.of_server)
    own = {"redis_url": f"rediss://127.0.0.1:{port}", **certificates.authority, **PATIENT}
    await use_everything(make_settings(None, **own, **certificates.pair))
    with pytest.raises(CONNECTION_FAILURES):
        await use_everything(make_settings(None, **own))
    other = {"redis_ca_cert": certificates.pair["redis_client_cert"]}  # did not sign the server's
    with pytest.raises(CONNECTION_FAILURES):
        await use_everything(make_settings(None, **own | other, **certificates.pair))
    with redis.Redis(port=port) as plain, pytest.raises(redis.ConnectionError):
        plain.ping()


async def test_renewed_certificates_are_read_and_others_only_once(
    server_factory: ServerFactory, make_settings: SettingsFactory, certificates: Certificates
) -> None:
    port = free_port()
    server_factory(kind="redis", tls_port=port, **certificates.of_server)
    settings = make_settings(None, redis_url=f"rediss://127.0.0.1:{port}", **certificates.settings)
    topology = connect(settings, str(settings.redis_url))

    async def context_of_a_connection() -> object:
        connection = await topology.open()
        await connection.disconnect()
        assert isinstance(connection, SSLConnection)
        return connection.ssl_context.get()

    first = await context_of_a_connection()
    assert await context_of_a_connection() is first
    trusted = (certificates.home / "ca.pem").read_bytes()
    (certificates.home / "ca.pem").write_bytes((certificates.home / "client.pem").read_bytes())
    with pytest.raises(CONNECTION_FAILURES):
        await topology.open()
    (certificates.home / "ca.pem").write_bytes(trusted)
    renewed = await context_of_a_connection()
    assert renewed is not first
    await topology.close()

"""How many connections to Redis a service needs, and what it reports where it gets no more."""

from __future__ import annotations

from functools import partial

import httpx
import pytest

from tests.service.api.test_health import samples
from tests.support.servers import ServerProcess
from tests.support.waiting import wait_until

MODELS = [f"model-{number}" for number in range(40)]
FEW = 16
EXAMPLE = {"features": {"ad": "a"}, "label": 1, "event_id": "first"}


@pytest.mark.slow
def test_many_models_are_learned_over_a_few_connections(server_factory, start_api) -> None:
    api = start_api(server_factory(maxclients=FEW)).client
    for name in MODELS:
        assert api.put(f"/models/{name}", json={"hashing": {"bits": 10}}).status_code == 201
    for name in MODELS:
        wait_until(partial(is_learned, api, name))
        assert api.get(f"/models/{name}").json()["t"] == 1
    assert samples(api)[("ftrl_redis_connections_refused_total",)] == 0


def is_learned(api: httpx.Client, model: str) -> bool:
    """A retry after a timeout on a busy machine is a duplicate."""
    return updated(api, model) in ("learned", "duplicate")


def updated(api: httpx.Client, model: str) -> str | None:
    """The status of the example; None where the update failed."""
    status: str | None = api.post(f"/models/{model}/update", json=EXAMPLE).json().get("status")
    return status


@pytest.mark.slow
def test_a_server_with_too_many_clients_is_named(
    fresh_valkey: ServerProcess, start_api, caplog: pytest.LogCaptureFixture
) -> None:
    api = start_api(fresh_valkey).client
    wait_until(lambda: api.get("/readyz?for=update").status_code == 200)
    with fresh_valkey.client() as client:
        client.config_set("maxclients", 1)
        client.client_kill_filter(_type="normal", skipme=True)
        refused = wait_until(lambda: not_ready(api))
        assert any("maxclients" in reason for reason in refused["reasons"])
        assert samples(api)[("ftrl_redis_connections_refused_total",)] > 0
        assert "maxclients" in caplog.text
        client.config_set("maxclients", 100)
    wait_until(lambda: api.get("/readyz?for=update").status_code == 200)
    assert updated(api, "default") == "learned"


def not_ready(api: httpx.Client) -> dict[str, list[str]] | None:
    """The report, once it names a limit."""
    reply = api.get("/readyz?for=update")
    report: dict[str, list[str]] = reply.json()
    limited = any("maxclients" in reason for reason in report["reasons"])
    return report if reply.status_code == 503 and limited else None

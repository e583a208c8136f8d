"""Tokens: the calls that each allows, their file, and the addresses that need them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from httpx import ASGITransport, AsyncClient, Client, Response

from service.api.security.access import DECLARATION
from service.api.security.tokens import TokenFile, TokenFileError, digest_of, new_token
from service.app import create_app
from service.settings import Settings, is_loopback
from tests.conftest import PATIENT, SettingsFactory
from tests.service.api.conftest import LiveApi
from tests.support.commands import run
from tests.support.problem_replies import problem
from tests.support.servers import ServerProcess, free_port
from tests.support.waiting import wait_until

EXAMPLE = {"features": {"ad": "a"}}
MINE, OTHER = "default", "other"


def line(token: str, scopes: list[str], models: object = "*") -> str:
    entry = {"name": scopes[0], "sha256": digest_of(token.encode()).hex(), "scopes": scopes, "models": models}
    return json.dumps(entry) + "\n"


TOKENS = {name: new_token() for name in ("PREDICTS", "UPDATES", "RULES", "ADMIN", "SECOND", "BOTH")}
PREDICTS, UPDATES, RULES, ADMIN, SECOND, BOTH = TOKENS.values()


@pytest.fixture(scope="module")
def tokens_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tokens") / "tokens.jsonl"
    file.write_text(
        "# callers\n\n"
        + line(PREDICTS, ["predict"], [MINE])
        + line(UPDATES, ["update", "predict"])
        + line(RULES, ["admin"], [MINE])
        + line(ADMIN, ["admin"])
        + line(SECOND, ["admin"], ["second"])
        + line(BOTH, ["admin"], ["second", MINE])
    )
    return file


@pytest.fixture(scope="module")
def service(tokens_file: Path) -> Iterator[Client]:
    server = ServerProcess(appendonly=False).start()
    api = LiveApi(
        Settings(redis_url=server.url, tokens_file=tokens_file, data_dir=tokens_file.parent, **PATIENT)
    ).start()
    yield api.client
    api.stop()
    server.remove()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(token: str, **further: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"any:{token}".encode()).decode()} | further


@pytest.mark.parametrize(
    ("token", "method", "path", "status"),
    [
        ("PREDICTS", "POST", "/predict", 200),
        ("PREDICTS", "POST", f"/models/{MINE}/predict", 200),
        ("PREDICTS", "POST", f"/models/{OTHER}/predict", 403),
        ("PREDICTS", "POST", "/update", 403),
        ("PREDICTS", "GET", f"/models/{MINE}", 200),
        ("PREDICTS", "GET", f"/models/{OTHER}", 403),
        ("PREDICTS", "GET", "/models", 403),
        ("PREDICTS", "DELETE", f"/models/{MINE}", 403),
        ("PREDICTS", "GET", "/openapi.json", 200),
        ("PREDICTS", "GET", "/metrics", 200),
        ("UPDATES", "POST", "/update", 200),
        ("UPDATES", "POST", f"/models/{OTHER}/predict", 404),
        ("UPDATES", "GET", "/models", 200),
        ("UPDATES", "PUT", f"/models/{OTHER}", 403),
        ("UPDATES", "PATCH", "/models/default", 403),
        ("UPDATES", "POST", "/no/such/path", 403),
        ("PREDICTS", "GET", "/", 200),
        ("RULES", "POST", f"/models/{MINE}/clone", 403),
        ("RULES", "PUT", "/aliases/default", 403),
        ("RULES", "POST", "/update", 200),
        ("RULES", "PUT", f"/models/{OTHER}", 403),
        ("ADMIN", "DELETE", f"/models/{OTHER}", 404),
        ("ADMIN", "GET", "/models", 200),
    ],
)
def test_a_token_allows_its_scopes_for_its_models(
    service: Client, token: str, method: str, path: str, status: int
) -> None:
    body = EXAMPLE | ({"label": 1} if path.endswith("update") else {}) if method == "POST" else None
    answer = service.request(method, path, json=body, headers=bearer(TOKENS[token]))
    assert answer.status_code == status, answer.text
    if status == 403:
        assert answer.headers["content-type"] == "application/problem+json"
        assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


def test_a_challenger_needs_a_token_for_its_champion_too(service: Client) -> None:
    body = {"follows": MINE, "hashing": {"bits": 10}}
    problem(service.put("/models/second", json=body, headers=bearer(SECOND)), 403, "forbidden")
    assert service.put("/models/second", json=body, headers=bearer(BOTH)).status_code == 201
    problem(service.post("/models/second/promote", headers=bearer(SECOND)), 403, "forbidden")
    assert service.post("/models/second/promote", headers=bearer(BOTH)).status_code == 200
    service.delete("/models/second", headers=bearer(SECOND)).raise_for_status()


def test_every_route_declares_its_access(live_api: LiveApi) -> None:
    routes = [route for route in live_api.app.api.routes if isinstance(route, APIRoute)]
    assert len(routes) > 25
    for route in routes:
        assert DECLARATION in (route.openapi_extra or {}), f"{route.methods} {route.path}"


@pytest.mark.parametrize(
    ("token", "method", "path", "status"),
    [
        ("PREDICTS", "GET", "/predict", 405),
        ("PREDICTS", "POST", f"/models/{MINE}/snapshots", 403),
        ("PREDICTS", "GET", f"/models/{MINE}/snapshots", 200),
        ("PREDICTS", "GET", f"/models/{OTHER}/snapshots/newest", 403),
        ("PREDICTS", "GET", f"/models/{OTHER}/live", 403),
        ("PREDICTS", "PATCH", f"/models/{MINE}/predict", 403),
        ("PREDICTS", "POST", "/impressions", 403),
        ("PREDICTS", "POST", "/explain", 200),
        ("PREDICTS", "GET", "/dashboard/style.css", 200),
        ("PREDICTS", "HEAD", "/", 200),
        ("PREDICTS", "GET", "/aliases", 403),
        ("PREDICTS", "GET", "/no/such/path", 403),
        ("RULES", "PATCH", f"/models/{MINE}/predict", 405),
        ("RULES", "PATCH", f"/models/{OTHER}/predict", 403),
        ("RULES", "POST", f"/models/{MINE}%2Fclone", 403),
        ("ADMIN", "POST", "/no/such/path", 404),
        ("ADMIN", "POST", "/metrics", 405),
        ("UPDATES", "GET", "/aliases/nobody", 404),
    ],
)
def test_a_route_enforces_the_access_that_it_declares(
    service: Client, token: str, method: str, path: str, status: int
) -> None:
    body = EXAMPLE if path == "/explain" else None
    answer = service.request(method, path, json=body, headers=bearer(TOKENS[token]))
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize("path", ["/predict", "/update", f"/models/{MINE}/predict", "/no/such/path"])
@pytest.mark.parametrize("given", ["", "Bearer", "Bearer ftrl_wrong", "Basic !", "Digest x", "Bearer \xff"])
def test_a_call_without_a_known_token_is_refused(service: Client, path: str, given: str) -> None:
    headers = [(b"Authorization", given.encode("latin-1"))] if given else []
    answer = service.post(path, json=EXAMPLE, headers=headers)
    problem(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith('Bearer realm="ftrl"')


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_probes_need_no_token(service: Client, path: str) -> None:
    assert service.get(path).status_code == 200


def test_a_browser_is_asked_for_a_token_and_sends_it_as_a_password(service: Client) -> None:
    asked = service.get("/docs", headers={"Accept": "text/html"})
    assert (asked.status_code, asked.headers["www-authenticate"][:5]) == (401, "Basic")
    assert service.get("/docs", headers=basic(PREDICTS)).status_code == 200
    assert service.post("/predict", json=EXAMPLE, headers=basic(PREDICTS)).status_code == 200


def test_a_page_of_another_site_cannot_use_basic_credentials(service: Client) -> None:
    def predict(origin: str) -> Response:
        return service.post("/predict", json=EXAMPLE, headers=basic(PREDICTS, Origin=origin))

    assert predict(str(service.base_url)).status_code == 200
    assert predict("https://elsewhere.example").status_code == 403
    assert predict("null").status_code == 403
    assert predict("http://[").status_code == 403


def test_no_header_allows_another_origin(service: Client) -> None:
    headers = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
    for answer in (
        service.options("/predict", headers=headers),
        service.post("/predict", json=EXAMPLE, headers=bearer(PREDICTS) | headers),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_the_file_is_reloaded_unless_it_is_broken(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(line(PREDICTS, ["predict"]))
    tokens = TokenFile(file)

    file.write_text(line(UPDATES, ["update"], [MINE]))
    wait_until(lambda: tokens.grant(UPDATES.encode()) is not None)
    assert tokens.grant(PREDICTS.encode()) is None
    file.write_text("broken")
    looks = tokens._stamp
    wait_until(lambda: tokens.grant(UPDATES.encode()) is not None and tokens._stamp != looks)
    assert tokens.grant(UPDATES.encode()) is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1: "),
        ("[]", "must be an object"),
        ('{"sha256": "12", "scopes": ["predict"], "models": "*"}', "hexadecimal digits"),
        (line(ADMIN, ["everything"]), "scopes must be"),
        (line(ADMIN, ["admin"], "default"), "models must be"),
        (line(ADMIN, ["admin"])[:-2] + ', "password": "x"}', "must be an object of name"),
    ],
)
def test_a_broken_file_is_refused_with_the_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "tokens"
    file.write_text("\n" + text if text == "{" else text)
    with pytest.raises(TokenFileError, match=said.replace("line 1", "line 2")):
        TokenFile(file)


@pytest.mark.slow
def test_a_token_is_shown_once_and_its_line_has_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    words = ("token", "create", "--scope", "predict,update", "--models", "a,b", "--name", "site")
    made = run(*words, "--file", str(file)).stdout.strip()
    assert made not in file.read_text()
    grant = TokenFile(file).grant(made.encode())
    assert grant is not None
    assert grant.allows("update", "b")
    assert not grant.allows("update", "c")
    assert not grant.allows("admin", "a")
    assert run("token", "create", "--scope", "all").returncode == 2


@pytest.mark.parametrize(
    ("host", "loopback"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_loopback_addresses_are_recognised(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_listening_beyond_this_machine_without_tokens_is_refused() -> None:
    refused = run("serve", "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 1
    assert "FTRL_TOKENS_FILE" in refused.stderr
    assert "FTRL_ALLOW_ANONYMOUS" in refused.stderr


async def test_health_is_only_on_its_own_port(make_settings: SettingsFactory, valkey: ServerProcess) -> None:
    app = create_app(make_settings(valkey), run_learner=False, health_port=9000)
    async with (
        app.api.router.lifespan_context(app.api),
        AsyncClient(transport=ASGITransport(app.entry), base_url="http://host:8000") as service,
        AsyncClient(transport=ASGITransport(app.entry), base_url="http://host:9000") as health,
    ):
        assert (await service.post("/predict", json=EXAMPLE)).status_code == 200
        assert (await service.get("/metrics")).status_code == 404
        assert (await health.get("/metrics")).status_code == 200
        assert (await health.get("/readyz")).status_code == 200
        assert (await health.post("/predict", json=EXAMPLE)).status_code == 404


def test_no_redis_password_is_logged_or_shown(tmp_path: Path) -> None:
    url = f"redis://user:s3cret-word@127.0.0.1:{free_port()}/0"
    told = run("log", "show", "--log-level", "debug", FTRL_REDIS_URL=url, FTRL_DATA_DIR=str(tmp_path))
    assert told.returncode == 1
    assert "s3cret-word" not in told.stdout + told.stderr

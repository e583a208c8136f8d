from pathlib import Path

import pytest
from pydantic import ValidationError

from service.settings import Settings, environment, topic_of
from service.settings.groups import SettingsGroup


def test_every_setting_has_a_description_of_one_line() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert "\n" not in field.description
        assert field.description.endswith("."), name


def test_the_defaults_are_valid_and_use_the_embedded_server() -> None:
    settings = Settings()
    assert settings.embedded
    assert (settings.host, settings.port, settings.workers) == ("127.0.0.1", 8000, 1)


def test_the_environment_sets_a_value_and_an_argument_wins_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTRL_UPDATE_TIMEOUT_SECONDS", "3.5")
    assert Settings().update_timeout_seconds == 3.5
    assert Settings(update_timeout_seconds=4).update_timeout_seconds == 4


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTRL_REDIS_URL", "")
    assert Settings().embedded


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        setattr(Settings(), "port", 1)  # noqa: B010 (mypy knows it, too)


def test_sizes_may_be_written_with_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTRL_COMMITS_BYTES", "64MiB")
    assert Settings().commits_bytes == 64 << 20


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "65536"),
        ("port", "-1"),
        ("workers", "0"),
        ("log_level", "loud"),
        ("appendfsync", "sometimes"),
        ("update_timeout_seconds", "0"),
        ("update_timeout_seconds", "nan"),
        ("redis_timeout_seconds", "inf"),
        ("memory_share_limit", "1.5"),
        ("log_retention_bytes", "-1"),
        ("max_value", "0"),
        ("redis_url", "http://127.0.0.1"),
        ("default_model", "/nowhere/model.json"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_name(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"FTRL_{name.upper()}", value)
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert caught.value.errors()[0]["loc"] in {(name,), (f"FTRL_{name.upper()}",)}


def test_the_port_variable_of_a_kubernetes_service_is_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FTRL_PORT", "tcp://10.0.0.1:8000")
    with pytest.raises(ValidationError, match="enableServiceLinks"):
        Settings()


def test_a_lease_too_short_to_be_renewed_is_refused() -> None:
    with pytest.raises(ValidationError, match="lease_seconds"):
        Settings(lease_seconds=1, redis_timeout_seconds=0.5)


def test_a_health_port_that_is_that_of_the_service_is_refused() -> None:
    with pytest.raises(ValidationError, match="health_port must not be port"):
        Settings(port=8100, health_port=8100)


def test_a_client_certificate_needs_its_key(tmp_path: Path) -> None:
    certificate = tmp_path / "client.pem"
    certificate.touch()
    with pytest.raises(ValidationError, match="belong together"):
        Settings(redis_url="rediss://somewhere", redis_client_cert=certificate)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:6379/0", "redis://user:***@host:6379/0"),
        ("rediss://:secret@host", "rediss://:***@host"),
        ("redis://host:6379", "redis://host:6379"),
        ("unix:///run/x.sock?db=1&password=secret", "unix:///run/x.sock?db=1"),
    ],
)
def test_the_public_url_has_no_password(url: str, shown: str) -> None:
    assert Settings(redis_url=url).public_redis_url == shown


def test_a_password_does_not_show_when_settings_are_printed() -> None:
    settings = Settings(redis_url="redis://u:secret@host", redis_password="secret")
    assert "secret" not in repr(settings)
    assert "secret" not in str(settings)


def test_a_child_process_reads_the_same_settings_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(
        data_dir=tmp_path,
        redis_url="redis://host",
        redis_password="secret",
        commits_bytes=2 << 20,
        allow_eviction=True,
        redis_timeout_seconds=0.1 + 0.2,
    )
    for name, value in environment(settings).items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings


def test_every_setting_is_declared_in_one_group() -> None:
    declared = [
        name
        for group in Settings.__mro__
        if issubclass(group, SettingsGroup)
        for name in group.__annotations__
        if name in Settings.model_fields
    ]
    assert sorted(declared) == sorted(Settings.model_fields)
    assert all(topic_of(name) for name in declared)

from collections.abc import Callable

import pytest
import typer
from typer.testing import CliRunner

from service.cli.flags import flag_name, misspelt_variables, variable_name, with_settings
from service.settings import Settings

Read = Callable[..., Settings]


@pytest.fixture
def application() -> tuple[typer.Typer, list[tuple[Settings, int]]]:
    """A command with every setting as a flag and one of its own, and what it was called with."""
    calls: list[tuple[Settings, int]] = []
    app = typer.Typer()

    @app.command()
    @with_settings
    def command(settings: Settings, own: int = 0) -> None:
        calls.append((settings, own))

    return app, calls


@pytest.fixture
def read(application: tuple[typer.Typer, list[tuple[Settings, int]]]) -> Read:
    app, calls = application

    def run(*words: str) -> Settings:
        result = CliRunner().invoke(app, list(words), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return calls[-1][0]

    return run


def test_the_help_has_the_flags_of_the_command_alone(application: tuple[typer.Typer, object]) -> None:
    result = CliRunner().invoke(application[0], ["--help"])
    assert "--own" in result.output
    assert "--help-settings" in result.output
    assert "--port" not in result.output


def test_the_help_of_settings_has_each_with_variable_and_default(
    application: tuple[typer.Typer, object],
) -> None:
    result = CliRunner().invoke(application[0], ["--help-settings"])
    for name, field in Settings.model_fields.items():
        lines = iter(result.output.splitlines())
        assert any(line.startswith(f"  {flag_name(name)} ") for line in lines)
        meaning = next(lines)
        assert variable_name(name) in meaning
        assert str(field.description) in meaning
    assert "(FTRL_COMMITS_BYTES; default 256MiB)" in result.output
    assert "(FTRL_BACKLOG_LIMIT_EXAMPLES; default 1000000)" in result.output


def test_without_flags_the_defaults_hold(read: Read) -> None:
    assert read() == Settings()


def test_flags_are_converted_as_variables_are(read: Read) -> None:
    settings = read("--port", "0", "--commits-bytes", "2MiB", "--log-format", "json", "--allow-eviction")
    assert (settings.port, settings.commits_bytes, settings.log_format) == (0, 2 << 20, "json")
    assert settings.allow_eviction is True


def test_a_flag_wins_over_its_variable(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FTRL_UPDATE_TIMEOUT_SECONDS", "3")
    monkeypatch.setenv("FTRL_ALLOW_EVICTION", "true")
    assert read().update_timeout_seconds == 3
    assert read("--update-timeout-seconds", "4").update_timeout_seconds == 4
    assert read("--no-allow-eviction").allow_eviction is False


def test_a_command_keeps_its_own_options(
    application: tuple[typer.Typer, list[tuple[Settings, int]]],
) -> None:
    app, calls = application
    CliRunner().invoke(app, ["--own", "7", "--port", "1"], catch_exceptions=False)
    assert (calls[0][1], calls[0][0].port) == (7, 1)


def test_a_wrong_value_is_a_usage_error_that_names_the_flag(
    application: tuple[typer.Typer, object],
) -> None:
    result = CliRunner().invoke(application[0], ["--port", "99999"])
    assert result.exit_code == 2
    assert "--port" in result.output
    assert "must be less than or equal to 65535" in " ".join(result.output.split())


def test_a_wrong_variable_is_a_usage_error_that_names_the_variable(
    application: tuple[typer.Typer, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FTRL_WORKERS", "many")
    result = CliRunner().invoke(application[0], [])
    assert result.exit_code == 2
    assert "FTRL_WORKERS" in result.output
    assert "many" in result.output


def test_an_error_does_not_show_a_password(application: tuple[typer.Typer, object]) -> None:
    result = CliRunner().invoke(application[0], ["--redis-url", "http://user:secret@host"])
    assert result.exit_code == 2
    assert "secret" not in result.output


def test_a_misspelt_variable_is_noticed_and_a_foreign_one_is_not() -> None:
    names = ["FTRL_PROT", "FTRL_PORT", "FTRL_DATA", "FTRL_SERVICE_HOST", "FTRL_REDIS_TIMEOUT_SECOND", "PROT"]
    assert misspelt_variables(names) == [
        ("FTRL_PROT", "FTRL_PORT"),
        ("FTRL_REDIS_TIMEOUT_SECOND", "FTRL_REDIS_TIMEOUT_SECONDS"),
    ]

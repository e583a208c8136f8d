"""What can be said of Dockerfile and docker-compose.yml without running them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from service import __version__
from service.settings import Settings
from tests.support.shared_data import REPOSITORY

DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
PROJECT: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = PROJECT["services"]


def test_the_image_carries_the_version_of_the_code() -> None:
    assert f'org.opencontainers.image.version="{__version__}"' in DOCKERFILE


def test_a_build_sees_what_it_copies() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text()
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    assert {"requirements-image.lock", "model_core", "service"} <= set(sources)
    for source in sources:
        assert (REPOSITORY / source).exists()
        assert f"!{source}\n" in ignored


def test_nothing_at_run_time_needs_a_shell() -> None:
    final = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    assert not re.search(r"^(RUN (?!\[)|SHELL)", final, re.MULTILINE)
    starts = re.findall(r"^(?:ENTRYPOINT|CMD|HEALTHCHECK.* CMD) (.+)$", final, re.MULTILINE)
    assert [start[0] for start in starts] == ["["] * 3
    checks = [service.get("healthcheck", {}).get("test", ["CMD"]) for service in SERVICES.values()]
    assert {check[0] for check in checks} == {"CMD"}


def test_any_user_of_group_0_may_write_the_data_and_needs_nothing_else() -> None:
    assert re.search(r"^USER 10001:0$", DOCKERFILE, re.MULTILINE)
    made = 'RUN ["install", "--directory", "--owner=10001", "--group=0", "--mode=775", "/data"]\n'
    assert made in DOCKERFILE
    assert re.search(r"^VOLUME /data$", DOCKERFILE, re.MULTILINE), "writable under a read-only root"
    assert not re.search("--chown|--chmod", DOCKERFILE)


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_a_check_that_compose_waits_for(name: str) -> None:
    check = SERVICES[name].get("healthcheck")
    if check is None:
        assert name == "api", "the image's own is that of the API"
    else:
        assert set(check) == {"test", "interval", "timeout", "retries", "start_period"}
        assert not any(" " in word for word in check["test"]), "Podman splits words at spaces"


@pytest.mark.parametrize("name", SERVICES)
def test_a_published_port_is_reachable_from_this_machine_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_limits_and_starts_again(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    limits = service["deploy"]["resources"]["limits"]
    assert set(limits) == {"cpus", "memory"}
    assert limits["cpus"] in ("1", "${CPUS:-1}"), "a machine with one CPU refuses a higher limit"


def test_api_and_learner_have_one_snapshot_store() -> None:
    assert SERVICES["api"]["volumes"] == SERVICES["learner"]["volumes"] == ["snapshots:/data"]
    assert "FTRL_DATA_DIR=/data" in DOCKERFILE


@pytest.mark.parametrize("name", ["api", "learner"])
def test_a_container_has_time_to_stop(name: str) -> None:
    values = {key.removeprefix("FTRL_").lower(): text for key, text in SERVICES[name]["environment"].items()}
    settings = Settings(**{key: text for key, text in values.items() if key in Settings.model_fields})
    needed = settings.drain_seconds + 2 * settings.shutdown_grace_seconds
    assert float(SERVICES[name]["stop_grace_period"].removesuffix("s")) >= needed + 5


def test_every_setting_that_the_files_make_exists() -> None:
    text = DOCKERFILE + (REPOSITORY / "docker-compose.yml").read_text()
    named = set(re.findall(r"\bFTRL_([A-Z_]+)", text))
    assert "REDIS_URL" in named
    assert {name.lower() for name in named} <= set(Settings.model_fields)


def locked(name: str) -> dict[str, str]:
    """The version of each package; fails where one is not pinned by hashes or names where it comes from."""
    text = (REPOSITORY / name).read_text()
    assert "://" not in text
    entries = re.split(r"\n(?=\S)", text.strip().replace("\\\n", ""))
    pinned = re.compile(r"[\w.-]+==\S+( ; .+?)?(\s+--hash=sha256:[0-9a-f]{64})+")
    assert all(map(pinned.fullmatch, entries))
    return dict(entry.split()[0].split("==") for entry in entries)


def test_what_is_locked_has_hashes_and_one_version_everywhere() -> None:
    runtime, image, dev = (locked(f"requirements{kind}.lock") for kind in ("", "-image", "-dev"))
    assert runtime.items() < image.items() < dev.items()
    assert "s3fs" in image

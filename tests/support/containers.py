"""The containers of docker-compose.yml, which `make compose-test` has started, as a test handles them."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import httpx

from tests.support.shared_data import REPOSITORY


def docker(*words: str, check: bool = True, environment: dict[str, str] | None = None) -> str:
    """Standard output of a command, which by default must succeed, with these variables besides its own."""
    result = subprocess.run(
        ["docker", *words],
        env=os.environ | (environment or {}),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert not check or result.returncode == 0, f"docker {' '.join(words)}\n{result.stdout}{result.stderr}"
    return result.stdout


def compose(*words: str, **variables: str) -> str:
    return docker("compose", *words, environment=variables)


def python_in(service: str, code: str) -> str:
    """What Python code prints inside a container that runs."""
    return compose("exec", "-T", service, "python", "-c", code).strip()


def inspected(service: str) -> Any:
    """What the engine knows of a service's only container."""
    return json.loads(docker("inspect", compose("ps", "--all", "--quiet", service).strip()))[0]


def address(service: str, port: int, index: int = 1) -> str:
    return f"http://{compose('port', f'--index={index}', service, str(port)).strip()}"


def call(url: str, body: object = None) -> Any:
    """The JSON reply to a GET, or to a POST of `body`."""
    reply = (
        httpx.get(url, timeout=10, verify=False)
        if body is None
        else httpx.post(url, json=body, timeout=10, verify=False)
    )
    return reply.raise_for_status().json()

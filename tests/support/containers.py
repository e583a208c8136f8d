"""The containers of docker-compose.yml, which `make compose-test` has started, as a test handles them."""

from __future__ import annotations

import json
import subprocess
from typing import Any
from urllib.request import Request, urlopen

from tests.support.shared_data import REPOSITORY


def docker(*words: str, **variables: str) -> str:
    """Standard output of a command that must succeed, in an environment with these variables."""
    result = subprocess.run(
        ["env", *(f"{name}={value}" for name, value in variables.items()), "docker", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert result.returncode == 0, f"docker {' '.join(words)}\n{result.stdout}{result.stderr}"
    return result.stdout


def compose(*words: str, **variables: str) -> str:
    return docker("compose", *words, **variables)


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
    content = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, content, {"Content-Type": "application/json"}), timeout=10) as reply:
        return json.load(reply)

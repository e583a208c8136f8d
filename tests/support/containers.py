"""The containers of docker-compose.yml, which `make compose-test` has started, as a test handles them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.support.shared_data import REPOSITORY

T = TypeVar("T")
FAILURES = (OSError, ValueError)
"""What a call raises whose container is away, or goes away before it has answered."""


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
    """The JSON reply to a GET, or to a POST of `body`; raises one of FAILURES, HTTPError among them."""
    content = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, content, {"Content-Type": "application/json"}), timeout=10) as reply:
        return json.load(reply)


def eventually(ask: Callable[[], T], holds: Callable[[T], bool], seconds: float = 60) -> T:
    """The first answer that holds; failures meanwhile are as good as a wrong answer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            answer: Any = ask()
            if holds(answer):
                return answer
        except FAILURES as failure:
            answer = failure.read() if isinstance(failure, HTTPError) else failure
        assert time.monotonic() < deadline, f"still {answer!r}"
        time.sleep(0.5)

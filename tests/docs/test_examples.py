"""Every example of the documentation runs as it stands there, against a service started as it says."""

from __future__ import annotations

import doctest
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from bench.criteo import write_vw
from service.settings import Settings
from service.storage.embedded import EmbeddedServer
from tests.support.commands import ServingProcess, environment
from tests.support.documents import DOCUMENTS, Block, Example, agree, blocks, examples
from tests.support.shared_data import REPOSITORY, data_directory, shared_file
from tests.support.waiting import wait_until

ADDRESS = re.compile(r"(?:localhost|127\.0\.0\.1):8000")
HOME = "/home/you/ftrl-service"
STARTS = re.compile(r"make serve|ftrl serve")
CRITEO = "criteo.vw"
IN_TIME = {"FTRL_UPDATE_TIMEOUT_SECONDS": "5", "FTRL_REDIS_TIMEOUT_SECONDS": "1"}
"""Longer than by default, for a busy machine, and yet not too long where a document waits in vain."""


class Session:
    """A session in a fresh directory that runs what one document says."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "work"
        self._programs = directory / "bin"
        self._service: ServingProcess | None = None
        self._globals: dict[str, Any] = {}
        for path in (self._directory, self._programs):
            path.mkdir()
        for program in ("python", "python3"):
            self._add_program(program, f'exec "{sys.executable}" "$@"')

    def run(self, document: Path, *, criteo: bool = False) -> None:
        """All blocks but those that need the Criteo rows, or only these."""
        found = blocks(document)
        for block, after in zip_longest(found, found[1:]):
            if (block.preparation == CRITEO) == criteo:
                self._run_block(document, block, after)

    def _run_block(self, document: Path, block: Block, after: Block | None) -> None:
        if block.preparation is not None:
            if self._service is None:
                self._start([])
            assert self._service is not None
            PREPARATIONS[block.preparation](self._directory, self._service)
        if block.language == "console":
            for example in examples(block):
                self._check(document, example, self._output(example.command))
        elif block.language == "python" and block.text.startswith(">>>"):
            self._run_doctest(document, block)
        elif block.language == "python":
            assert after is not None
            program = self._directory / "example.py"
            program.write_text(self._with_address(block.text))
            self._check(
                document, Example(block.line, "program", after.text), self._shell("python example.py")
            )
        elif block.language == "json":
            json.loads(block.text)

    def _check(self, document: Path, example: Example, output: str) -> None:
        place = f"{document.relative_to(REPOSITORY)}:{example.line}"
        shown = f"{place} does not write what it is said to write\n{example.command}\n{output}"
        assert agree(example.output, output), shown

    def _output(self, command: str) -> str:
        if STARTS.match(command):
            return self._start(command.split()[2:])
        return self._shell(command)

    def _start(self, flags: list[str]) -> str:
        """What it has written once it is ready, standard output first."""
        self.close()
        self._service = ServingProcess("serve", *flags, directory=self._directory, **IN_TIME)
        url = self._service.wait_until_ready()
        # Commands without a place would look at the default address.
        self._add_program("ftrl", f'export FTRL_URL={url}\nexec "{sys.executable}" -m service "$@"')
        return self._as_documented("".join(self._service.output))

    def _shell(self, command: str) -> str:
        if self._service is None:
            self._start([])
        done = subprocess.run(
            ["bash", "-c", self._with_address(command)],
            cwd=self._directory,
            env=environment(PATH=f"{self._programs}:{os.environ['PATH']}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=110,
            check=False,
        )
        return self._as_documented(done.stdout)

    def _run_doctest(self, document: Path, block: Block) -> None:
        parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        test = parser.get_doctest(
            self._with_address(block.text), self._globals, document.name, str(document), block.line - 1
        )
        runner.run(test, clear_globs=False)
        self._globals = test.globs
        assert runner.summarize(verbose=False).failed == 0

    def _with_address(self, text: str) -> str:
        if self._service is None:
            return text
        return ADDRESS.sub(self._service.url.removeprefix("http://"), text)

    def _as_documented(self, output: str) -> str:
        assert self._service is not None
        output = output.replace(self._service.url, "http://127.0.0.1:8000")
        return output.replace(str(self._directory), HOME)

    def _add_program(self, name: str, lines: str) -> None:
        program = self._programs / name
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)

    def close(self) -> None:
        if self._service is not None:
            resume_redis(self._directory)
            self._service.stop()
            self._service.remove()
            with EmbeddedServer(Settings(data_dir=self._directory / "data")):
                pass  # an orphan is found and, with its last user, stopped
            self._service = None


def write_criteo(directory: Path, _: ServingProcess) -> None:
    shared_file("criteo_kaggle_first80000_hash20.tsv.xz")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FTRL_DATA", str(data_directory()))
        write_vw(directory / CRITEO)


def append_unreadable_entry(directory: Path, service: ServingProcess) -> None:
    """As a newer version, or a fault of the memory, may leave one in the log."""
    with redis.Redis.from_url(_embedded_url(directory)) as client:
        incarnation = client.hget("ftrl:{default}:meta", "incarnation").decode()
        number = client.hincrby("ftrl:{default}:meta", "appended", 1) - 1
        client.xadd(f"ftrl:{{default}}:{incarnation}:log", {"n": number, "e": b"\x07and so on"})
    wait_until(lambda: 'ftrl_learner_blocked{model="default"} 1.0' in asked(service, "/metrics"))


def pause_redis(directory: Path, _: ServingProcess) -> None:
    os.kill(_embedded_pid(directory), signal.SIGSTOP)


def resume_redis(directory: Path) -> None:
    if (directory / "data" / "valkey" / "valkey.pid").exists():
        os.kill(_embedded_pid(directory), signal.SIGCONT)


def wait_until_redis_is_back(directory: Path, service: ServingProcess) -> None:
    resume_redis(directory)
    wanted = {"predict": "fresh", "update": "available"}
    wait_until(lambda: wanted.items() <= json.loads(asked(service, "/readyz")).items())


def asked(service: ServingProcess, path: str) -> str:
    return httpx.get(service.url + path, timeout=30, verify=False).raise_for_status().text


def _embedded_pid(directory: Path) -> int:
    return int((directory / "data" / "valkey" / "valkey.pid").read_text())


def _embedded_url(directory: Path) -> str:
    return EmbeddedServer(Settings(data_dir=directory / "data")).url


PREPARATIONS: dict[str, Callable[[Path, ServingProcess], None]] = {
    CRITEO: write_criteo,
    "an unreadable entry": append_unreadable_entry,
    "Redis stops answering": pause_redis,
    "Redis answers again": wait_until_redis_is_back,
}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    curl = shutil.which("curl")
    if curl is None or "--json" not in subprocess.check_output([curl, "--help", "all"], text=True):
        pytest.skip("curl 7.82 or newer is not installed (Debian: apt install curl)")
    session = Session(tmp_path)
    yield session
    session.close()


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_the_examples_of_a_document_do_what_it_says(document: Path, session: Session) -> None:
    session.run(document)


@pytest.mark.slow
def test_the_criteo_figures_are_those_of_the_tutorial(session: Session) -> None:
    session.run(REPOSITORY / "docs" / "tutorial.md", criteo=True)

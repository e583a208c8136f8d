"""How commands end before their time: a pipe whose reader has gone, Ctrl-C; and what shells complete."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lab.experiments.results import ResultsDirectory
from lab.experiments.running import Runner
from service.cli.main import INTERRUPTED
from service.errors import Interrupted
from service.parsing.files.reader import CHUNK_BYTES
from tests.support.commands import FTRL, PATIENT, StartedCommand, environment, run
from tests.support.servers import ServerProcess
from tests.support.waiting import wait_until


@pytest.mark.parametrize("words", [("--help",), ("serve", "--help-settings"), ("completion", "bash")])
def test_a_reader_that_has_gone_is_no_failure_worth_a_word(words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*FTRL, *words], env=environment(), stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


class Endless:
    """A file without an end: a pipe that is fed as long as a command reads it."""

    def __init__(self, path: Path, line: bytes) -> None:
        os.mkfifo(path)
        self._path, self._lines = path, line * 1000
        self.written = 0
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._feeder.start()

    def _feed(self) -> None:
        with contextlib.suppress(BrokenPipeError), self._path.open("wb", buffering=0) as pipe:
            while True:
                self.written += pipe.write(self._lines)

    def wait_until_learned(self) -> None:
        """Much more is written than is read ahead, so that much was learned."""
        wait_until(lambda: self.written > 8 * CHUNK_BYTES, "the file is read")


def interrupted(words: Sequence[str], is_busy: Callable[[], object]) -> str:
    """What a command says when Ctrl-C ends it as soon as it is busy."""
    started = StartedCommand(words, environment(**PATIENT), Path.cwd(), new_interpreter=False)
    try:
        is_busy()
        started.process.send_signal(signal.SIGINT)
        code = started.process.wait(60)
        output, errors = started.written()
    finally:
        started.remove()
    assert (code, output) == (INTERRUPTED, ""), errors
    return errors


@pytest.mark.slow
def test_ctrl_c_in_a_dry_run_says_how_much_was_learned(tmp_path: Path) -> None:
    file = Endless(tmp_path / "clicks.vw", b"1 |f ad=a1\n-1 |f ad=a2\n")
    said = interrupted(("replay", str(tmp_path / "clicks.vw"), "--dry-run"), file.wait_until_learned)
    learned = re.fullmatch(
        r"ftrl: interrupted: ([\d,]+) rows of .* were learned at a log loss of 0\.\d+; nothing was stored\n",
        said,
    )
    assert learned
    assert int(learned[1].replace(",", "")) > 0


@pytest.mark.slow
def test_ctrl_c_in_a_rebuild_says_how_much_was_learned(valkey: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "one.vw").write_text("1 |f ad=a1\n")
    here = ("--redis-url", valkey.url, "--data-dir", str(tmp_path))
    assert run("replay", str(tmp_path / "one.vw"), "--offline", *here).returncode == 0
    file = Endless(tmp_path / "clicks.vw", b"1 |f ad=a1\n")
    words = ("rebuild", "--snapshot", "nothing", "--file", str(tmp_path / "clicks.vw"))
    said = interrupted((*words, *here), file.wait_until_learned)
    assert re.fullmatch(
        r"ftrl: interrupted: [\d,]+ examples were learned again and not compared; the model is as it was\n",
        said,
    )


@pytest.mark.slow
def test_ctrl_c_in_tune_names_the_best_so_far(tmp_path: Path) -> None:
    file = Endless(tmp_path / "clicks.vw", b"1 |f ad=a1\n-1 |f ad=a2\n")
    words = ("tune", str(tmp_path / "clicks.vw"), "--alphas", "0.1,1", "--bits", "12", "--half-lives", "none")
    said = interrupted(words, file.wait_until_learned)
    assert re.fullmatch(
        r"ftrl: interrupted: [\d,]+ rows were learned; the best so far is bits 12, family ftrl,"
        r" (alpha|rate mixture).*, with a log loss of \d\.\d{5}\n",
        said,
    )


def test_ctrl_c_in_an_experiment_says_where_it_goes_on(tmp_path: Path) -> None:
    runner = Runner(ResultsDirectory(tmp_path))
    says = "0 of 3 passes are done; the same command continues there"
    with pytest.raises(Interrupted, match=says), runner.progress(3, shown=False):
        raise KeyboardInterrupt


@pytest.mark.slow
def test_bash_completes_commands_flags_and_values(tmp_path: Path) -> None:
    """In a real shell, as far as it lets itself be driven without a terminal."""
    (tmp_path / "ftrl").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m service "$@"\n')
    (tmp_path / "ftrl").chmod(0o755)
    script = """
        source <(ftrl completion bash)
        for words in "ftrl snap" "ftrl snapshot re" "ftrl replay --dry" "ftrl serve --por"; do
            COMP_WORDS=($words); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
            _ftrl_completion ftrl; echo "${COMPREPLY[@]}"
        done
    """
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], env=environment(PATH=path), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["snapshot", "restore", "--dry-run", "--port"]


@pytest.mark.parametrize(
    ("shell", "typed", "says"),
    [
        ("zsh", "ftrl tok", '"token":"Make and list bearer tokens'),
        ("zsh", "ftrl log ", '"find":"Find the examples of an id'),
        ("fish", "ftrl mod", "models\tList, create, describe and delete models."),
    ],
)
def test_other_shells_are_answered_in_their_own_ways(shell: str, typed: str, says: str) -> None:
    assert "_FTRL_COMPLETE" in run("completion", shell).stdout
    done = run(
        _FTRL_COMPLETE=f"complete_{shell}",
        _TYPER_COMPLETE_ARGS=typed,
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    assert says in done.stdout

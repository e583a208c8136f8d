"""`ftrl completion`: the completion of commands and flags in shells, by typer's own scripts."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

from service.cli.main import COMMANDS, COMPLETION, UNLISTED, application


class Shell(StrEnum):
    """The shells that there is a script for."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print a script that completes commands in a shell.

    Load it where the shell starts, such as in ~/.bashrc: source <(ftrl completion bash)
    """
    os.environ[COMPLETION] = f"source_{shell.value}"
    complete()


def complete() -> None:
    """Print what is asked for in environment variables: such a script, or the completions that it wants."""
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = typed.split()
    is_known = len(words) > 1 and words[1] in COMMANDS and not typed.endswith(words[1])
    names = [words[1]] if is_known else [name for name in COMMANDS if name not in UNLISTED]
    application(*names, completes=True, loads=is_known)(prog_name="ftrl", complete_var=COMPLETION)

"""The `ftrl` command: its subcommands, and the reporting of their failures.

The list of commands is answered from the table below, and only the module of the command that is called is
imported: typer, rich, pydantic and numba take longer to import than most commands take to run.
"""

from __future__ import annotations

import logging
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from service import __version__

if TYPE_CHECKING:
    import typer

DESCRIPTION = "Streaming click prediction: learns online over HTTP, with its state in Redis or Valkey."
LAB = "lab"


class Command(NamedTuple):
    """`function`, a command or a group of commands, is defined in the module `module` of this package.

    `summary` is the first line of its help; a command without one is not listed.
    """

    module: str
    function: str
    summary: str = ""


COMMANDS = {
    "serve": Command("serve", "serve", "Run the service: the API and the learner."),
    "api": Command("serve", "api", "Run the API alone; a learner runs elsewhere (`ftrl learn`)."),
    "learn": Command(
        "serve", "learn", "Run the learner alone. A second one stands by and takes over if the first fails."
    ),
    "replay": Command(
        "replay.command", "replay", "Learn from a file of examples, and report how good its predictions were."
    ),
    "explain": Command(
        "explain", "explain", "Show which features make a prediction what it is, largest contributions first."
    ),
    "feedback": Command(
        "feedback", "feedback", "Show how a model handles predictions that await their labels, or change it."
    ),
    "models": Command("models", "models", "List the models of a running service."),
    "log": Command("log", "app", "Inspect a model's example log, or skip entries that cannot be read."),
    "snapshot": Command("snapshot", "app", "Save, compare, restore and export models."),
    "rebuild": Command("rebuild", "rebuild", "Learn the log again and compare the result with Redis."),
    "token": Command("token", "app", "Make bearer tokens; see FTRL_TOKENS_FILE."),
    "simulate": Command(
        "simulate", "simulate", "Send impressions and delayed clicks from a world whose truth is known."
    ),
    "tune": Command("tune", "tune", "Try many models on a log of your own in one pass, and rank them."),
    "reproduce": Command("reproduce", "app", "Run the paper's experiments again."),
    "version": Command("main", "version", "Print the version."),
    "warm-up": Command("warm_up", "warm_up"),
}


def main() -> None:
    """Exit with code 0, with 1 and one line on standard error after a failure, or with 2 for a wrong call."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(overview())
        sys.exit(0 if words else 2)
    if words[0] not in COMMANDS:
        _refuse(words[0])
    try:
        _run(words[0])
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as e:  # noqa: BLE001 (the last resort of a command line: one line, not a traceback)
        if logging.getLogger().isEnabledFor(logging.DEBUG):
            traceback.print_exc()
        sys.stderr.write(f"ftrl: {one_line(e)}\n")
        sys.exit(1)


def overview() -> str:
    """The text of `ftrl --help`."""
    listed = {name: command.summary for name, command in COMMANDS.items() if command.summary}
    width = max(map(len, listed))
    lines = "".join(f"  {name:<{width}}  {summary}\n" for name, summary in listed.items())
    return (
        f"Usage: ftrl COMMAND [OPTIONS]...\n\n{DESCRIPTION}\n\nCommands:\n{lines}\n"
        "`ftrl COMMAND --help` describes a command.\n"
    )


def version() -> None:
    """Print the version."""
    sys.stdout.write(f"ftrl-service {__version__}\n")


def application(*names: str) -> typer.Typer:
    """The typer application of these commands, or of all of them. Imports their modules."""
    import typer

    app = typer.Typer(
        name="ftrl",
        help=DESCRIPTION,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_no_options)
    for name in names or COMMANDS:
        command = COMMANDS[name]
        found = getattr(import_module(f"service.cli.{command.module}"), command.function)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, help=command.summary)
        else:
            app.command(name=name, hidden=not command.summary)(found)
    return app


def _no_options() -> None:
    """`ftrl` has no options of its own. A typer application with a callback has its command's name."""


def _run(name: str) -> None:
    if name == "version" and len(sys.argv) == 2:
        version()
        return
    from service.runtime.kernels import choose_kernel_cache, leave_out_linear_algebra
    from service.runtime.memory import collect_rarely, return_large_blocks

    return_large_blocks()
    collect_rarely()
    choose_kernel_cache()
    leave_out_linear_algebra()
    application(name)(prog_name="ftrl")


def _refuse(word: str) -> NoReturn:
    import difflib

    meant = difflib.get_close_matches(word, [name for name, c in COMMANDS.items() if c.summary], n=1)
    hint = f"did you mean {meant[0]}?" if meant else "`ftrl --help` lists the commands"
    sys.stderr.write(f"ftrl: no such command {word!r} ({hint})\n")
    sys.exit(2)


def one_line(failure: Exception) -> str:
    """The message for a failure.

    The text of our own exceptions is complete; that of others may be unclear without the type.
    """
    text = " ".join(str(failure).split())
    if type(failure).__module__.startswith(("service.", "model_core.")):
        return text
    if isinstance(failure, ModuleNotFoundError) and (failure.name or "").partition(".")[0] == LAB:
        return (
            "this command needs the package `lab`, which this installation leaves out, as the image does:"
            " run it in a checkout of the sources after `make install`"
        )
    return f"{type(failure).__name__}: {text} (--log-level debug shows where)"

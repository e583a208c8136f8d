"""The `ftrl` command: its subcommands, and the reporting of their failures.

The list of commands is answered from the table below, and only the module of the command that is called is
imported: typer, pydantic and numba take longer to import than most commands take to run.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from service import __version__
from service.errors import Interrupted

if TYPE_CHECKING:
    import typer

DESCRIPTION = "Streaming click prediction: learns online over HTTP, with its state in Redis or Valkey."
LAB = "lab"
HELP_COLUMNS = 100
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
COMPLETION = "_FTRL_COMPLETE"
"""Environment variable with which the script of `ftrl completion` asks for completions."""


class Command(NamedTuple):
    """`function`, a command or a group of commands, is defined in the module `module` of this package.

    `summary` is the first line of its help.
    """

    module: str
    function: str
    summary: str = ""


GROUPS = {
    "Run the service": {
        "serve": Command("serve", "serve", "Run the service: the API and the learner."),
        "api": Command("serve", "api", "Run the API alone; a learner runs elsewhere (`ftrl learn`)."),
        "learn": Command(
            "serve",
            "learn",
            "Run the learner alone. A second one stands by and takes over if the first fails.",
        ),
        "consume": Command(
            "consume.command", "consume", "Learn from topics of Kafka, each message exactly once."
        ),
    },
    "Is it well": {
        "status": Command("status", "status", "Show whether each model is up, learning and right."),
        "doctor": Command(
            "doctor", "doctor", "Check settings, service, Redis, clock and disk, and say what to do."
        ),
        "log": Command("log", "app", "Inspect a model's example log, or skip entries that cannot be read."),
        "rebuild": Command("rebuild", "rebuild", "Learn the log again and compare the result with Redis."),
    },
    "Predict and learn": {
        "predict": Command("predict", "predict", "Predict the click probability of an example."),
        "explain": Command(
            "explain",
            "explain",
            "Show which features make a prediction what it is, largest contributions first.",
        ),
        "replay": Command(
            "replay.command",
            "replay",
            "Learn from a file of examples, and report how good its predictions were.",
        ),
        "inspect": Command(
            "inspect",
            "inspect",
            "Draft the schema of a log from its first rows, with a reason for each column.",
        ),
        "simulate": Command(
            "simulate", "simulate", "Send impressions and delayed clicks from a world whose truth is known."
        ),
    },
    "Models": {
        "models": Command("models", "app", "List, create, describe and delete models."),
        "challenge": Command(
            "challenge",
            "challenge",
            "Create a challenger: a model that learns the log of another one, its champion.",
        ),
        "import": Command(
            "warm_start", "import_command", "Create a model from the weights of another learner."
        ),
        "alias": Command(
            "alias", "app", "Give models other names, which can be switched while clients go on."
        ),
        "challengers": Command(
            "challengers",
            "challengers",
            "Compare the challengers of a model with it, on the same examples, predicted before they were"
            " learned.",
        ),
        "promote": Command(
            "promote", "promote", "Let a challenger and its champion exchange states and configurations."
        ),
        "snapshot": Command("snapshot", "app", "Save, compare, restore and export models."),
        "feedback": Command(
            "feedback",
            "feedback",
            "Show how a model handles predictions that await their labels, or change it.",
        ),
    },
    "Experiments": {
        "whatif": Command(
            "whatif",
            "whatif",
            "Replay the real log of a model, or files, with other configurations, and compare them.",
        ),
        "tune": Command("tune", "tune", "Try many models on a log of your own in one pass, and rank them."),
        "reproduce": Command("reproduce", "app", "Run the paper's experiments again."),
    },
    "Set up": {
        "token": Command("token", "app", "Make and list bearer tokens; see FTRL_TOKENS_FILE."),
        "completion": Command(
            "completion", "completion", "Print a script that completes commands in a shell."
        ),
        "version": Command("main", "version", "Print the version."),
    },
}
UNLISTED = {"warm-up": Command("warm_up", "warm_up")}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()} | UNLISTED


def main() -> None:
    """Exit with code 0, with 1 and one line on standard error after a failure, with 2 for a wrong call, or
    with 130 after Ctrl-C.
    """
    try:
        try:
            _dispatch(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _dispatch(words: list[str]) -> None:
    if COMPLETION in os.environ:
        from service.cli.completion import complete

        complete()
    elif not words or words[0] in ("-h", "--help"):
        sys.stdout.write(overview())
        sys.exit(0 if words else 2)
    elif words[0] == "--version":
        version()
    elif words[0] not in COMMANDS:
        _refuse(words[0])
    else:
        _report_failures(words[0])


def _report_failures(name: str) -> None:
    try:
        _run(name)
    except BrokenPipeError:
        raise
    except (KeyboardInterrupt, Interrupted) as stopped:
        _say_interrupted(str(stopped))
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            _say_interrupted("")
        raise
    except Exception as e:  # noqa: BLE001 (the last resort of a command line: one line, not a traceback)
        if logging.getLogger().isEnabledFor(logging.DEBUG):
            traceback.print_exc()
        sys.stderr.write(f"ftrl: {one_line(e)}\n")
        sys.exit(1)


def _say_interrupted(learned: str) -> NoReturn:
    sys.stderr.write(f"ftrl: interrupted{': ' if learned else ''}{learned}\n")
    sys.exit(INTERRUPTED)


def overview() -> str:
    """The text of `ftrl --help`."""
    width = max(map(len, COMMANDS))
    groups = "\n".join(
        f"{title}:\n" + "".join(f"  {name:<{width}}  {command.summary}\n" for name, command in group.items())
        for title, group in GROUPS.items()
    )
    return (
        f"Usage: ftrl COMMAND [OPTIONS]...\n\n{DESCRIPTION}\n\n{groups}\n"
        "`ftrl COMMAND --help` describes a command, `ftrl --version` prints the version. Commands that call\n"
        "a service find it by --url or FTRL_URL, and send the token in FTRL_TOKEN.\n"
    )


def version() -> None:
    """Print the version."""
    sys.stdout.write(f"ftrl-service {__version__}\n")


def application(*names: str, completes: bool = False, loads: bool = True) -> typer.Typer:
    """The typer application of these commands, or of all of them.

    completes: it answers the scripts of shells. loads: their modules are imported; otherwise the commands
    have only their names.
    """
    import typer

    app = typer.Typer(
        name="ftrl",
        help=DESCRIPTION,
        add_completion=completes,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # importing rich takes as long as all else
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_COLUMNS},
    )
    app.callback()(_no_options)
    for name in names or COMMANDS:
        command = COMMANDS[name]
        if not loads:
            app.command(name=name, help=command.summary)(_no_options)
            continue
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

    meant = difflib.get_close_matches(word, COMMANDS.keys() - UNLISTED.keys(), n=1)
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

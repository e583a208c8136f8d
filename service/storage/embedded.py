"""The embedded server: durable state on a laptop with nothing to install or to run beforehand.

A process that needs the data of a directory calls `start()`. It finds the server that already runs on that
data (another process's, or the orphan of a killed one) or starts one; the last user to call `stop()` stops
it. Three locks, which the kernel releases with their holder, make this hold under kill -9: `start.lock` while
a process starts or stops the server, `users.lock` shared by its users, and `server.lock`, which the server
inherits, so that there are never two servers on one directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import BinaryIO, Self
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from service.runtime.files import lock, try_lock
from service.settings.groups import EmbeddedServerSettings
from service.storage.embedded_binary import (
    SOCKET,
    EmbeddedServerError,
    full_disk_hint,
    last_words,
    spawn,
    start_failure,
)
from service.storage.records import MODELS, lease_key

logger = logging.getLogger(__name__)

LONGEST_SOCKET_PATH = 100  # sun_path holds 108 bytes on Linux, 104 on macOS
SILENCE_SECONDS = 30.0  # a server that loads its data answers LOADING, so silence this long is a fault
STOP_SECONDS = 30.0
WATCH_SECONDS = 0.5

__all__ = ["EmbeddedServer", "EmbeddedServerError"]


class EmbeddedServer:
    """The server of `settings.data_dir`, which is started again should it die before `stop()`.

    A server that is found running takes over these settings' `appendfsync` and `embedded_maxmemory_bytes`,
    unless they are those of an errand: reading the log must not change how durable the service's data is.
    """

    def __init__(self, settings: EmbeddedServerSettings, *, errand: bool = False) -> None:
        self.home = (settings.data_dir.expanduser() / "valkey").resolve()
        self.started = False  # by this object, rather than found running
        self._settings = settings
        self._errand = errand
        self._users: BinaryIO | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._disk_is_full = False
        self._watcher = threading.Thread(target=self._watch, name="embedded-server", daemon=True)

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self._socket_path()))}"

    @property
    def log_path(self) -> Path:
        return self.home / "valkey.log"

    @property
    def pid(self) -> int:
        """Process id of the server, also if another process started it."""
        with self._client() as client:
            return int(client.info("server")["process_id"])

    def running(self) -> bool:
        """Return whether a server of the directory answers; waits while it loads its data. Changes nothing.

        Unlike `start`, this does not make it a user of the server, which may stop at any time.
        """
        while (answer := self._ping()) == "LOADING":
            time.sleep(0.05)
        return answer == "PONG"

    def start(self) -> str:
        """The server's URL, once it has loaded its data. To be called once. Raises EmbeddedServerError."""
        self._prepare_home()
        with lock(self.home / "start.lock", fcntl.LOCK_EX):
            others = self._has_users()
            users = lock(self.home / "users.lock", fcntl.LOCK_SH)
            try:
                self._ensure_running()
                if not others:
                    self._free_leases()
            except BaseException:
                users.close()
                self._give_up()
                raise
            self._users = users
        self._watcher.start()
        return self.url

    def stop(self) -> None:
        """Stop the server, unless it has other users, and wait until it has written everything."""
        self._stopping.set()
        if self._users is None:
            return
        self._watcher.join()
        with lock(self.home / "start.lock", fcntl.LOCK_EX):
            self._users.close()
            self._users = None
            last = try_lock(self.home / "users.lock")
            if last is not None:
                with last:
                    self._shut_down()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _has_users(self) -> bool:
        """Return whether a process uses the server. With the start lock held, so that none begins to."""
        return self._is_held("users.lock")

    def _is_held(self, name: str) -> bool:
        free = try_lock(self.home / name)
        if free is None:
            return True
        free.close()
        return False

    def _free_leases(self) -> None:
        """Remove the leases of former learners: the next one need not await their expiry.

        Only the learner of a killed supervisor, which does not hold the lock, may still be about to stop.
        Then two learners work on a model for a moment, and the commit decides between them.
        """
        with self._client() as client:
            names = client.smembers(MODELS)
            if names:
                client.delete(*map(lease_key, names))

    def _prepare_home(self) -> None:
        try:
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=self.home):
                pass
        except OSError as e:
            hint = full_disk_hint(self.home, str(e)) if self.home.exists() else ""
            raise EmbeddedServerError(
                f"cannot write the data directory {self._settings.data_dir}: {e.strerror or e}"
                + (hint or "; set FTRL_DATA_DIR (--data-dir) to a writable one")
            ) from e

    def _socket_path(self) -> Path:
        """The socket in `home`, through a symbolic link where its own path would be too long."""
        if len(os.fsencode(self.home / SOCKET)) <= LONGEST_SOCKET_PATH:
            return self.home / SOCKET
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]
        return Path("/tmp") / f"ftrl-{os.getuid()}-{digest}" / SOCKET

    def _ensure_link(self) -> None:
        """The link of `_socket_path`, if that leads through one."""
        link = self._socket_path().parent
        if link == self.home:
            return
        try:
            link.symlink_to(self.home)
        except FileExistsError:
            if link.lstat().st_uid != os.getuid() or link.resolve() != self.home:
                raise EmbeddedServerError(
                    f"{link} is in the way; set FTRL_DATA_DIR to a shorter path"
                ) from None

    def _ensure_running(self) -> None:
        """Start the server if none holds its lock, and wait until it answers. With the start lock held."""
        self.started = False
        self._ensure_link()
        patience = time.monotonic() + SILENCE_SECONDS
        while not self._stopping.is_set():
            free = try_lock(self.home / "server.lock")
            if free is not None:
                with free:
                    self._start_process(free)
            answer = self._ping()
            if answer == "PONG":
                if not self.started:
                    self._adopt()
                return
            if answer == "LOADING":
                patience = time.monotonic() + SILENCE_SECONDS
            if time.monotonic() > patience:
                raise self._silent()
            time.sleep(0.01)

    def _give_up(self) -> None:
        """Stop a server that no other process uses yet, as when Ctrl-C interrupts the loading of its data."""
        if self.started and self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)

    def _start_process(self, server_lock: BinaryIO) -> None:
        if self.started and self._process is not None:
            raise start_failure(self.home, self.log_path, self._process.wait())
        self._process = spawn(self._settings, self.home, self.log_path, server_lock.fileno())
        # Waited for, so that it never stays a zombie of this process.
        threading.Thread(target=self._process.wait, name="embedded-server-wait", daemon=True).start()
        self.started = True

    def _adopt(self) -> None:
        with self._client() as client:
            directory = Path(client.config_get("dir")["dir"])
            if directory.resolve() != self.home:
                raise EmbeddedServerError(
                    f"the server at {self._socket_path()} keeps its data in {directory}"
                )
            if not self._errand:
                client.config_set("appendfsync", self._settings.appendfsync)
                client.config_set("maxmemory", int(self._settings.embedded_maxmemory_bytes))
        logger.info("using the server that already runs on %s", self.home)

    def _ping(self) -> str | None:
        try:
            with self._client() as client:
                client.ping()
        except redis.BusyLoadingError:
            return "LOADING"
        except (redis.RedisError, OSError):
            return None
        return "PONG"

    def _client(self) -> redis.Redis:
        return redis.Redis(
            unix_socket_path=str(self._socket_path()),
            socket_timeout=2,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )

    def _silent(self) -> EmbeddedServerError:
        pid_path = self.home / "valkey.pid"
        pid = f" (process {pid_path.read_text().strip()})" if pid_path.exists() else ""
        return EmbeddedServerError(
            f"a server{pid} holds {self.home} and does not answer: "
            f"end it, then start again (its log: {self.log_path})"
        )

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH_SECONDS):
            self._report_full_disk()
            try:
                with lock(self.home / "start.lock", fcntl.LOCK_EX):
                    self._ensure_link()  # a cleaner of /tmp may have removed the link
                    if self._dead():
                        words = last_words(self.home, self.log_path)
                        logger.error("the embedded server has died and is started again: %s", words)
                        self._ensure_running()
            except (EmbeddedServerError, redis.RedisError, OSError) as e:
                logger.error("%s", e)  # noqa: TRY400
                self._stopping.wait(5)

    def _report_full_disk(self) -> None:
        """A server may go on without a disk, and refuse writes."""
        hint = full_disk_hint(self.home, "")
        if hint and not self._disk_is_full:
            logger.error("the embedded server cannot write%s", hint)
        self._disk_is_full = bool(hint)

    def _dead(self) -> bool:
        """Return whether no server holds its lock. With the start lock held."""
        return not self._is_held("server.lock")

    def _shut_down(self) -> None:
        try:
            with self._client() as client:
                client.shutdown(nosave=True)  # it flushes the append-only file all the same
        except (redis.RedisError, OSError) as e:
            logger.debug("the embedded server did not take SHUTDOWN: %s", e)
        deadline = time.monotonic() + STOP_SECONDS
        while not self._dead():
            if time.monotonic() > deadline:
                logger.error("the embedded server has not stopped; the next start finds it (%s)", self.home)
                return
            time.sleep(0.01)
        if self._socket_path().parent != self.home:
            self._socket_path().parent.unlink()

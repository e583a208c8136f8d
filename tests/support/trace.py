"""Traces which of the project's files one request runs through, on a real server in this process.

`make trace` prints them. A file counts if one of its functions is entered, or resumed, because of the
request: in its own tasks and threads, in the server's callbacks, and, for an update, in the tasks of the
model's learner and mirror until the reply. Compiled kernels do not count, nor does what these tasks do
periodically.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from service.cli.serve import listen, url_of
from service.runtime.kernels import choose_kernel_cache
from service.settings import Settings
from tests.support.servers import ServerProcess

ROOT = Path(__file__).parents[2]
PACKAGES = ("service", "model_core")
NOT_COUNTED = ("model_core/kernels/",)
SERVER = "service/api/server/"
LEARNER, MIRROR = "learner of default", "mirror of default"  # names of tasks
REPETITIONS = 7
EXAMPLE = {"ad": "a17", "campaign": "c3", "site": "news.example", "hour": 14, "tags": ["sport", "video"]}

_request: ContextVar[int] = ContextVar("request", default=0)


class Trace(NamedTuple):
    """Files as paths below the repository.

    They are those that most repetitions enter, in the order of first entry that most of these have: by the
    request, then by the learner, then by the mirror. Where the reply is sent before the learner has counted
    its work, a repetition lacks a file.
    """

    predict: list[str]
    update: list[str]
    restore: list[str]


class Recorder:
    """A profile function for all threads that are started later; it records while `recording` is not 0."""

    def __init__(self) -> None:
        self.recording = 0
        self._finished = threading.Event()
        self._requests = 0
        self._files: dict[str, dict[str, None]] = {}
        self._paths: dict[str, str] = {}
        self._periodic = periodic_code()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if not self.recording or event != "call":
            return
        name = frame.f_code.co_filename
        path = self._paths.get(name)
        if path is None:
            path = self._paths[name] = project_path(name)
        if not path or is_compiled(path, frame.f_code.co_name):
            return
        cause = self._cause(path)
        if cause is not None and not self._is_periodic(frame):
            self._files[cause].setdefault(path)

    def _cause(self, path: str) -> str | None:
        """Empty for the request itself, else the name of a traced task; None for anything else."""
        try:
            task = asyncio.current_task()
        except RuntimeError:  # a thread without a loop
            return "" if _request.get() == self.recording else None
        if task is None:  # a callback of a connection
            return "" if path.startswith(SERVER) else None
        if _request.get() == self.recording:
            return ""
        return task.get_name() if task.get_name() in self._files else None

    def _is_periodic(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code in self._periodic:
                return True
            frame = frame.f_back
        return False

    def entry(self, app: ASGIApp) -> ASGIApp:
        """Mark the tasks and threads of each recorded request by their context."""

        async def marked(scope: Scope, receive: Receive, send: Send) -> None:
            _request.set(self.recording)
            try:
                await app(scope, receive, send)
            finally:
                self._finished.set()

        return marked

    def of(self, request: Callable[[], object], *tasks: str) -> list[str]:
        runs = []
        for _ in range(REPETITIONS):
            self._files = {cause: {} for cause in ("", *tasks)}
            self._requests += 1
            self.recording = self._requests
            self._finished.clear()
            try:
                request()
                assert self._finished.wait(60)  # something is counted after the reply was sent
            finally:
                self.recording = 0
            runs.append(list(dict.fromkeys(path for files in self._files.values() for path in files)))
        entered = Counter(path for run in runs for path in run)
        usual = {path for path, count in entered.items() if 2 * count > REPETITIONS}
        orders = Counter(tuple(path for path in run if path in usual) for run in runs)
        return list(orders.most_common(1)[0][0])


def is_compiled(path: str, function: str) -> bool:
    """True for a kernel, whose calls numba reports as well."""
    from numba.core.dispatcher import Dispatcher

    module = sys.modules[path.removesuffix(".py").replace("/", ".")]
    return isinstance(getattr(module, function, None), Dispatcher)


def periodic_code() -> set[CodeType]:
    """The functions of traced tasks that do what is due, whatever the request."""
    from service.api.server.uvicorn_server import DrainingServer
    from service.learning.checkpoint import Checkpointer
    from service.learning.live_evaluation import LiveEvaluation
    from service.snapshots.rollback.gate import RollbackGate
    from service.snapshots.take.archiver import LogArchiver
    from service.snapshots.take.snapshotter import Snapshotter

    functions: list[Callable[..., Any]] = [
        DrainingServer.on_tick,
        Checkpointer.follow,
        Checkpointer.take,
        Checkpointer.write,
        Checkpointer.write_next,
        Checkpointer.seconds_until_due,
        LiveEvaluation.publish,
        LiveEvaluation.seconds_until_due,
        Snapshotter.poll,
        LogArchiver.start_if_due,
        RollbackGate.judge,
    ]
    return {function.__code__ for function in functions}


def project_path(filename: str) -> str:
    """Empty for a file that does not count."""
    try:
        path = Path(filename).relative_to(ROOT).as_posix()
    except ValueError:
        return ""
    counts = path.startswith(tuple(f"{package}/" for package in PACKAGES))
    return path if counts and not path.startswith(NOT_COUNTED) else ""


def trace() -> Trace:
    """Of a service in one process, API and learner, whose default model is loaded and has learned."""
    recorder = Recorder()
    threading.setprofile(recorder)
    try:
        with running(recorder) as client:
            return trace_requests(recorder, client)
    finally:
        threading.setprofile(None)


def trace_requests(recorder: Recorder, client: httpx.Client) -> Trace:
    def post(path: str, body: object) -> None:
        client.post(path, json=body).raise_for_status()

    def predict() -> None:
        post("/predict", {"features": EXAMPLE})

    def update() -> None:
        post("/update", {"features": EXAMPLE, "label": 1})

    def restore() -> None:
        post("/models/default/restore", {"snapshot": "newest", "replay_log": True})

    predict()
    update()
    predicted, updated = recorder.of(predict), recorder.of(update, LEARNER, MIRROR)
    post("/models/default/snapshots", None)
    update()
    return Trace(predicted, updated, recorder.of(restore))


@contextmanager
def running(recorder: Recorder) -> Iterator[httpx.Client]:
    """What `ftrl serve` runs, in a thread of this process, on a server of its own."""
    from service.api.server.uvicorn_server import server_of
    from service.app import create_app

    redis = ServerProcess(appendonly=False).start()
    with tempfile.TemporaryDirectory() as data, listen("127.0.0.1", 0) as listener:
        settings = Settings(
            redis_url=redis.url,
            data_dir=Path(data),
            redis_timeout_seconds=4,
            update_timeout_seconds=20,
        )
        app = create_app(settings, run_learner=True)
        started = threading.Event()
        server = server_of(recorder.entry(app.entry), settings, lambda: None, app.end_streams, started.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            assert started.wait(300), "the service did not start"
            with httpx.Client(base_url=url_of(listener), timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join(60)
            redis.remove()


IMPORTS = """
import json, sys
from service.cli.main import main
sys.argv = ["ftrl", "replay", "--dry-run", sys.argv[1]]
try:
    main()
except SystemExit as end:
    assert not end.code, end
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def modules_of_a_dry_run() -> list[str]:
    """All modules that `ftrl replay --dry-run` of a small file imports."""
    with tempfile.TemporaryDirectory() as directory:
        examples = Path(directory) / "examples.jsonl"
        examples.write_text(json.dumps({"features": EXAMPLE, "label": 1}) + "\n")
        command = [sys.executable, "-c", IMPORTS, str(examples)]
        ended = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    modules: list[str] = json.loads(ended.stderr.splitlines()[-1])
    return modules


def main() -> None:
    choose_kernel_cache()
    for name, files in trace()._asdict().items():
        sys.stdout.write(f"{name}: {len(files)} files\n")
        sys.stdout.writelines(f"{number:4} {path}\n" for number, path in enumerate(files, 1))
    modules = modules_of_a_dry_run()
    own = [name for name in modules if name.split(".")[0] in PACKAGES]
    sys.stdout.write(f"ftrl replay --dry-run: {len(own)} modules of the project\n")
    sys.stdout.write(f"  FastAPI is imported: {'fastapi' in modules}\n")


if __name__ == "__main__":
    main()

"""Traces which of the project's files one request runs through, on a real server in this process.

`make trace` prints them. A file counts if one of its functions is entered, or resumed, between the first byte
of the request and the end of its reply; compiled kernels do not count. Each request is traced several times:
a file that is not entered every time belongs to a background task.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import httpx

from service.cli.serve import listen, url_of
from service.runtime.kernels import choose_kernel_cache
from service.settings import Settings
from tests.support.servers import ServerProcess

ROOT = Path(__file__).parents[2]
PACKAGES = ("service", "model_core")
NOT_COUNTED = ("model_core/kernels/",)
PERIODIC = "on_tick"  # of the HTTP server, ten times a second
REPETITIONS = 5
SETTLED_SECONDS = 0.3  # after which nothing of the request before is under way
EXAMPLE = {"ad": "a17", "campaign": "c3", "site": "news.example", "hour": 14, "tags": ["sport", "video"]}


class Trace(NamedTuple):
    """Files in the order of their first entry, as paths below the repository."""

    predict: list[str]
    update: list[str]
    restore: list[str]


class Recorder:
    """A profile function for all threads that are started later; it records while `recording` is set."""

    def __init__(self) -> None:
        self.recording = False
        self.files: dict[str, None] = {}
        self._paths: dict[CodeType, str] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if self.recording and event == "call":
            code = frame.f_code
            path = self._paths.get(code)
            if path is None:
                path = self._paths[code] = "" if code.co_name == PERIODIC else project_path(code.co_filename)
            if path:
                self.files.setdefault(path)

    def of(self, request: Callable[[], object]) -> list[str]:
        runs = []
        for _ in range(REPETITIONS):
            time.sleep(SETTLED_SECONDS)
            self.files = {}
            self.recording = True
            try:
                request()
            finally:
                self.recording = False
            runs.append(self.files)
        return [path for path in runs[-1] if all(path in run for run in runs)]


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
        with running() as client:
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
    predicted, updated = recorder.of(predict), recorder.of(update)
    post("/models/default/snapshots", None)
    update()
    return Trace(predicted, updated, recorder.of(restore))


@contextmanager
def running() -> Iterator[httpx.Client]:
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
        server = server_of(app.entry, settings, lambda: None, app.end_streams, started.set)
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

"""Logging to standard error, as human-readable lines or one JSON object per line."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime

from service.settings.groups import LogFormat, LogLevel

STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}

# Loggers whose `info` lines only matter to their authors.
QUIET = ("asyncio", "httpcore", "httpx", "numba", "uvicorn", "urllib3")


def configure_logging(level: LogLevel, form: LogFormat, role: str = "") -> None:
    """Set up the root logger; `role` identifies the process among those that share standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(role) if form == "json" else HumanFormatter(role))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)


class JsonFormatter(logging.Formatter):
    """`time, level, logger, message, process, role`, the `extra` fields of the call, and any `exception`."""

    def __init__(self, role: str = "") -> None:
        super().__init__()
        self.role = role

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        if self.role:
            line["role"] = self.role
        line |= {name: value for name, value in extra_fields(record).items() if name not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class HumanFormatter(logging.Formatter):
    """`12:00:00.123 WARNING [role] logger: message (field=value)`, local time."""

    def __init__(self, role: str = "") -> None:
        shown = f"[{role}] " if role else ""
        super().__init__(f"%(asctime)s.%(msecs)03d %(levelname)-7s {shown}%(name)s: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name is logging's)
        fields = ", ".join(f"{name}={value}" for name, value in extra_fields(record).items())
        return super().formatMessage(record) + (f" ({fields})" if fields else "")


def extra_fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the `extra` fields of the logging call."""
    return {name: value for name, value in vars(record).items() if name not in STANDARD_FIELDS}


class StartFailure(logging.Filter):
    """Records the last line of the traceback that uvicorn logs when the application does not start.

    The traceback itself is logged only at level `debug`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage().strip()
        if text.startswith("Traceback"):
            self.reason = re.sub(r"^service\.[\w.]+: ", "", text.rpartition("\n")[2])
        is_failure = text.startswith(("Traceback", "Application startup failed"))
        return not is_failure or logging.getLogger().isEnabledFor(logging.DEBUG)

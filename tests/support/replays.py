"""Small files of examples in every format, plans to replay them, and what two replays have to agree on."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from service.cli.replay.summary import ReplayPlan
from service.parsing.files.rows import Format, ReadOptions
from tests.support.commands import FTRL, environment

CONFIG = {"hyper": {"l1": 0.1}, "hashing": {"bits": 14, "numeric": "raw"}}
ROWS = 1234
_FORMATS: dict[str, Format] = {
    ".vw": "vw",
    ".libsvm": "libsvm",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
}
_TIMES = ("seconds", "rows_per_second", "load_seconds")


def write(directory: Path, file_format: Format, rows: int = ROWS) -> Path:
    """The same clicks in any format, as far as it can say them: with weights, numbers and event ids."""
    path = directory / f"clicks.{file_format}"
    path.write_text("".join(_header(file_format)) + "".join(_line(file_format, i) for i in range(rows)))
    return path


def plan(
    path: Path | str, model: str, file_format: Format | None = None, on_error: Any = "fail", **options: Any
) -> ReplayPlan:
    known = file_format or _FORMATS[Path(path).suffix]
    if known == "csv":
        options = {"weight_column": "weight"} | options
    return ReplayPlan((str(path),), known, ReadOptions(**options), model, CONFIG, on_error)


def assert_same_figures(one: dict[str, Any], other: dict[str, Any]) -> None:
    """All of two summaries but their times, up to rounding."""
    assert _figures(one) == pytest.approx(_figures(other), rel=1e-9, abs=1e-12, nan_ok=True)


def _figures(summary: dict[str, Any]) -> dict[str, float]:
    """With NaN for what is undefined."""
    weighted = {f"weighted {name}": value for name, value in summary["weighted"].items()}
    figures = {
        name: value for name, value in (summary | weighted).items() if name not in (*_TIMES, "weighted")
    }
    return {name: math.nan if value is None else value for name, value in figures.items()}


def _header(file_format: Format) -> Iterator[str]:
    if file_format in ("csv", "tsv"):
        yield {"csv": ",", "tsv": "\t"}[file_format].join(("label", "ad", "user", "weight")) + "\n"


def _line(file_format: Format, i: int) -> str:
    chance = random.Random(i)
    ad, user, age = f"a{chance.randrange(20)}", f"u{chance.randrange(300)}", round(chance.random(), 3)
    label = int(chance.random() < 0.1 + 0.02 * int(ad[1:]))
    weight = chance.choice([1.0, 1.0, 2.5])
    if file_format == "vw":
        return f"{2 * label - 1} {weight} |f ad={ad} age:{age} |g user={user} flag\n"
    if file_format == "libsvm":
        return f"{2 * label - 1} {ad[1:]}:1 {100 + int(user[1:])}:{age}\n"
    if file_format in ("csv", "tsv"):
        return {"csv": ",", "tsv": "\t"}[file_format].join((str(label), ad, user, str(weight))) + "\n"
    features = {"ad": ad, "user": [user, f"{user[:2]}*"], "age": age}
    extra = {"weight": weight, "event_id": f"e{i}", "event_time": 1.7e9 + i / 8}
    return json.dumps({"features": features, "label": label, **extra}) + "\n"


class OpenReplay:
    """`ftrl replay -` of Vowpal Wabbit text, with a standard input that stays open."""

    def __init__(self, *words: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            [*FTRL, "replay", "-", "--format", "vw", "--hashing", '{"bits": 12}', *words],
            env=environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def feed(self, lines: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("1 |f ad=a1 user=u2\n" * lines)
        self.process.stdin.flush()

    def end(self, number: signal.Signals | None = None) -> tuple[int, str, str]:
        """Its exit code and output after a signal, or after the end of its input."""
        if number is not None:
            self.process.send_signal(number)
            self.process.wait(60)  # although its input is still open
        output, errors = self.process.communicate(timeout=60)
        return self.process.returncode, output, errors

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

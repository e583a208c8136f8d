"""The documentation as data: its blocks of code, their examples, and what may differ from what they show.

    ```console      commands after `$ `, each with what it writes; run in order, in one directory per document
    ```python       a doctest if it begins with `>>>`, else a program; a ```text block after it is its output
    ```json         must be JSON
    ```sh           only for reading: long-running or destructive

A line `<!-- NAME -->` before a block names a preparation that the runner knows. In expected output a line
`...` stands for any lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.shared_data import REPOSITORY

DOCUMENTS = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
]

_BLOCK = re.compile(
    r"^(?:<!-- (?P<preparation>[^>]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_MEASURED = {"mirror_age_seconds", "seconds", "rows_per_second", "load_seconds"}
_MASKS = (
    (r"\b[0-9a-f]{8}-\d+-\d{2,}-[0-9a-f]{8}\b", "<revision>"),  # many commits: how many is a matter of time
    (r"\b[0-9a-f]{8}(-\d+-\d+-)[0-9a-f]{8}\b", r"<incarnation>\1<mark>"),
    (r"\bftrl-[0-9a-f]{32}\b", "<event id>"),
    (r"(?<![\w.-])[0-9a-f]{16}\b", "<random>"),
    (r"\b\d{13}-\d+\b", "<log entry>"),
    (r"\b\d\d:\d\d:\d\d\.\d{3}\b", "<time>"),
    (r"(?<=^ftrl )\d+\.\d+\.\d+", "<version>"),
    (r"(?<=^ftrl-service )\d+\.\d+\.\d+", "<version>"),
    (r"(?<=\bprocess )\d+\b", "<process>"),
    (r"\b\d{8}T\d{12}Z(?=-)", "<snapshot time>"),
    (r"(?<=learned again, )\d+\.\d s$", "<seconds>"),
    (r"(?<=^seconds)[\s\d.,]+$", " <measured>"),
    (r"(?<=^rows per second)[\s\d.,]+$", " <measured>"),
    (r"(?<=^seconds to load)[\s\d.,]+$", " <measured>"),
    (r"(?<=^date: ).*$", "<date>"),
)


class Block(NamedTuple):
    line: int
    language: str
    text: str
    preparation: str | None


class Example(NamedTuple):
    """A command of a console block, and what it is said to write."""

    line: int
    command: str
    output: str


def blocks(document: Path) -> list[Block]:
    text = document.read_text()
    return [
        Block(
            text.count("\n", 0, found.start("text")) + 1,
            found["language"],
            found["text"],
            found["preparation"],
        )
        for found in _BLOCK.finditer(text)
    ]


def examples(block: Block) -> Iterator[Example]:
    """A command goes on after a backslash at the end of its line, and within single quotes."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    line = block.line
    for part in parts[1:]:
        command, rest = _command(part)
        yield Example(line, command, rest)
        line += part.count("\n")


def _command(part: str) -> tuple[str, str]:
    lines = part.splitlines(keepends=True)
    quotes = accumulate(line.count("'") for line in lines)
    ends = (
        i
        for i, (line, quoted) in enumerate(zip(lines, quotes, strict=True))
        if not line.endswith("\\\n") and quoted % 2 == 0
    )
    last = next(ends)
    return "".join(lines[: last + 1]).rstrip("\n"), "".join(lines[last + 1 :])


def agree(expected: str, actual: str) -> bool:
    """Whether the output is as shown, but for what changes from run to run; JSON may be laid out at will."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in canonical(expected)
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in canonical(actual))) is not None


def canonical(text: str) -> list[str]:
    """Lines without blank ones, every JSON value on a line of its own, masked."""
    lines = []
    while text:
        value, after = _json_at_start(text)
        if after is None:
            line, _, text = text.partition("\n")
        else:
            line, text = json.dumps(_unmeasured(value)), after
        if line.strip():
            lines.append(_masked(line.rstrip()))
    return lines


def _json_at_start(text: str) -> tuple[Any, str | None]:
    """The value that begins the text and ends its line, and what follows; or None for the latter."""
    if text[0] not in "{[":
        return None, None
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return None, None
    rest_of_line, _, after = text[end:].partition("\n")
    return (value, after) if not rest_of_line.strip() else (None, None)


def _unmeasured(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            k: "<measured>" if k in _MEASURED and isinstance(v, float) else _unmeasured(v)
            for k, v in value.items()
        }
    return [_unmeasured(item) for item in value] if isinstance(value, list) else value


def _masked(line: str) -> str:
    for pattern, name in _MASKS:
        line = re.sub(pattern, name, line)
    return line

"""The standard output of commands: JSON for programs, plain tables for people.

A table is never cut to the width of a terminal, so that what it shows can be copied, and read from a pipe.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence


def write_json(value: object, indent: int | None = None) -> None:
    """Write one JSON value, in one line unless it is indented."""
    sys.stdout.write(json.dumps(value, indent=indent, allow_nan=False) + "\n")


def write_lines(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")


def write_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1, last_texts: int = 0
) -> None:
    """Write a line for each row below the headings; all columns but the first `texts` and the last
    `last_texts` align to the right.
    """
    lines = [headings, *rows]
    figures = range(texts, len(headings) - last_texts)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell.rjust(width) if column in figures else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")

"""Real impressions for the benchmarks: rows of the Criteo display advertising challenge."""

import json
import lzma
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from bench.result import Options, Unavailable

REPOSITORY = Path(__file__).resolve().parent.parent
FILE = "criteo_kaggle_first80000_hash20.tsv.xz"
LOGS_FILE = "criteo_1tb_day0_first10000.tsv.xz"  # the same columns, few clicks
INTEGERS = tuple(f"I{i}" for i in range(1, 14))
CATEGORIES = tuple(f"C{i}" for i in range(1, 27))
NAMES = INTEGERS + CATEGORIES


class Row(NamedTuple):
    """One impression: whether it was clicked, and its columns without the missing ones."""

    label: int
    features: dict[str, int | str]


def data_file(name: str = FILE) -> Path:
    """The compressed file, below $FTRL_DATA or beside the repository."""
    directory = Path(os.environ.get("FTRL_DATA", REPOSITORY.parent / "shared" / "data"))
    if not (directory / name).exists():
        raise Unavailable(f"{name} is not in {directory}; set FTRL_DATA to the directory that holds it")
    return directory / name


def rows(limit: int | None = None, name: str = FILE) -> Iterator[Row]:
    """The first `limit` rows in the order of time."""
    with lzma.open(data_file(name), "rt") as lines:
        for line in islice(lines, limit):
            label, *columns = line.rstrip("\n").split("\t")
            features = {n: _value(n, text) for n, text in zip(NAMES, columns, strict=True) if text}
            yield Row(int(label), features)


def complete_rows(limit: int) -> list[Row]:
    """The first `limit` rows in which none of the 39 columns is missing (the file has 1,199)."""
    return list(islice((row for row in rows() if len(row.features) == len(NAMES)), limit))


def _value(name: str, text: str) -> int | str:
    # A few values of the integer columns are hashes ("h67fbc") and stay text.
    return int(text) if name[0] == "I" and text.lstrip("-").isdigit() else text


def write_bodies(options: Options, name: str, bodies: Iterable[object]) -> Path:
    """One JSON request body a line, as the load generator reads them; the path of the file."""
    path = options.directory / f"{name}.jsonl"
    path.write_text("".join(json.dumps(body, separators=(",", ":")) + "\n" for body in bodies))
    return path


def write_vw(path: Path, limit: int | None = None, times: int = 1) -> int:
    """The rows as Vowpal Wabbit text, so many times over, integers as categories of their bit length.

    Returns how many rows the file has.
    """
    lines = []
    for row in rows(limit):
        features = " ".join(f"{n}={_bucket(v)}" for n, v in row.features.items())
        lines.append(f"{1 if row.label else -1} |f {features}\n")
    with path.open("w") as out:
        for _ in range(times):
            out.writelines(lines)
    return times * len(lines)


def _bucket(value: int | str) -> str:
    if isinstance(value, str):
        return value
    return f"{'-' if value < 0 else ''}{abs(value).bit_length()}"

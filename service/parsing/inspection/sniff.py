"""Recognises the format of a text by its first lines: separator, and whether the first line has names."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from service.parsing.files.rows import Format

SNIFFED_LINES = 200

_SEPARATORS = ("\t", ",", ";", "|", "\x01")
_CONSISTENT = 0.9  # share of the lines that have to fit
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_VW = re.compile(r"[+-]?\d[\d.]*(?: +[\d.]+)?(?: *'\S*)? *\|[^|\s]* ")
_LIBSVM = re.compile(r"[+-]?\d[\d.]*(?: qid:\d+)?(?: +\d+:\S+)+\s*(?:#.*)?")


class Sniffed(NamedTuple):
    """The format by the first lines. separator: None where it is that of the format. header: of tables."""

    file_format: Format
    separator: str | None = None
    header: bool = True


def sniff(lines: Sequence[bytes]) -> Sniffed | None:
    """Return the format that the lines have; None if it is not clear."""
    texts = [line.decode("utf-8", "replace").rstrip("\r\n") for line in lines if line.strip()]
    if not texts:
        return None
    if _share(texts, lambda text: _json_object(text) is not None) >= _CONSISTENT:
        of_requests = _share(texts, lambda text: {"features", "label"} <= (_json_object(text) or {}).keys())
        return Sniffed("jsonl" if of_requests >= _CONSISTENT else "records")
    if _share(texts, lambda text: _LIBSVM.fullmatch(text) is not None) >= _CONSISTENT:
        return Sniffed("libsvm")
    if _share(texts, lambda text: _VW.match(text) is not None) >= _CONSISTENT:
        return Sniffed("vw")
    return _sniffed_table(texts)


def has_header(records: Sequence[Sequence[str]]) -> bool:
    """Test whether the first record names the columns: with distinct words that no other record has there."""
    first, *others = records
    names = [name.strip() for name in first if name.strip()]
    if len(names) < max(len(first) - 1, 1) or any(map(is_number, names)):
        return False
    of_words = [i for i, name in enumerate(first) if name]
    if others and any(all(is_number(other[i]) or not other[i] for other in others) for i in of_words):
        return True
    is_repeated = any(other[i] == first[i] for other in others for i in of_words)
    return len(set(names)) == len(names) and not is_repeated


def is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text.strip()) is not None


def _share(texts: Sequence[str], fits: Callable[[str], bool]) -> float:
    return sum(map(fits, texts)) / len(texts)


def _json_object(text: str) -> dict[str, object] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _sniffed_table(texts: Sequence[str]) -> Sniffed | None:
    """Take the separator that divides most lines into the same number of values, and into most of them."""
    best: tuple[int, str, list[list[str]]] | None = None
    for separator in _SEPARATORS:
        records = _split(texts, separator)
        width, fitting = Counter(map(len, records)).most_common(1)[0] if records else (0, 0)
        if width > 1 and fitting >= _CONSISTENT * len(records) and (best is None or width > best[0]):
            best = width, separator, [record for record in records if len(record) == width]
    if best is None:
        return None
    _, separator, records = best
    usual: dict[str, Format] = {"\t": "tsv", ",": "csv"}
    return Sniffed(
        usual.get(separator, "csv"), None if separator in usual else separator, has_header(records)
    )


def _split(texts: Sequence[str], separator: str) -> list[list[str]]:
    if separator == "\t":
        return [text.split("\t") for text in texts]
    try:
        return [record for record in csv.reader(texts, delimiter=separator) if record]
    except csv.Error:
        return []

"""Splits tables into records: CSV as in RFC 4180, TSV without quotes.

A quote at the start of a value opens it up to the next single quote, on whatever line that is: a stray one
would take good lines with it. So a malformed record counts as its first line alone, and reading resumes at
the next line.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

MAX_VALUE_CHARACTERS = 131_072
"""Max length of a quoted value; the quote that opens a longer one counts as a stray one."""


class Record(NamedTuple):
    """`values`, or what is wrong with the record; `line` is its first line, counted from 1, of `lines`."""

    line: int
    values: list[str] | str
    lines: int
    is_utf8: bool = True


class Records:
    """Iterates over the records of a table; blank lines are none."""

    def __init__(self, lines: Iterator[bytes], *, quoted: bool, separator: str | None = None) -> None:
        """separator: by default a comma where values may be quoted, or else a tab."""
        self.quoted = quoted
        self._lines = _Lines(lines)
        self._separator = separator or ("," if quoted else "\t")
        self._skips_spaces = False
        self._reader = self._new_reader()

    def __iter__(self) -> Iterator[Record]:
        while (record := self._next()) is not None:
            if record.values:
                yield record

    def again_without_spaces(self) -> Record:
        """Ignore spaces after the separators, and read the latest record once more like this."""
        self._skips_spaces = True
        self._lines.return_all()
        self._reader = self._new_reader()
        return next(iter(self))

    def resume_after_first_line(self, record: Record) -> None:
        """Read the lines of the latest record again, each as the start of one, but for its first line."""
        if record.lines > 1:
            self._lines.return_all_but_first()
            self._reader = self._new_reader()

    def _next(self) -> Record | None:
        number = self._lines.begin()
        try:
            values = next(self._reader)
        except StopIteration:
            return None
        except csv.Error as error:
            why = self._explained(error)
            record = Record(number, why, len(self._lines.taken))
            self.resume_after_first_line(record)
            self._reader = self._new_reader()
            return record._replace(lines=1)
        is_utf8 = all(map(_is_utf8, self._lines.taken))
        return Record(number, values, len(self._lines.taken), is_utf8)

    def _new_reader(self) -> Iterator[list[str]]:
        csv.field_size_limit(MAX_VALUE_CHARACTERS)
        if self.quoted:
            return csv.reader(
                self._lines, delimiter=self._separator, strict=True, skipinitialspace=self._skips_spaces
            )
        return csv.reader(self._lines, delimiter=self._separator, quoting=csv.QUOTE_NONE, strict=True)

    def _explained(self, error: csv.Error) -> str:
        text = str(error)
        if "new-line character" in text:
            return "a carriage return inside the line, outside quotes"
        if "field larger than" in text:
            return f"a value of more than {MAX_VALUE_CHARACTERS:,} characters, perhaps after a stray quote"
        if "unexpected end of data" in text:
            return "a quote opens a value that the file does not close"
        if "expected after" in text:
            return f"text follows a closing quote ({text}), perhaps after a stray quote"
        return text


class _Lines(Iterator[str]):
    """Lines as text, those of the current record remembered so that they can be read again."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._returned: deque[str] = deque()
        self._number = 1
        self.taken: list[str] = []

    def begin(self) -> int:
        """Begin a record, and return the number of its first line."""
        self._number += len(self.taken)
        self.taken = []
        return self._number

    def return_all(self) -> None:
        self._returned.extendleft(reversed(self.taken))
        self.taken = []

    def return_all_but_first(self) -> None:
        self._returned.extendleft(reversed(self.taken[1:]))
        del self.taken[1:]

    def __next__(self) -> str:
        if self._returned:
            line = self._returned.popleft()
        else:
            line = next(self._lines).decode("utf-8", "surrogateescape")
        self.taken.append(line)
        return line


def _is_utf8(line: str) -> bool:
    if line.isascii():
        return True
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True

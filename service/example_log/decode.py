"""Whether an entry of the example log can be learned next."""

from __future__ import annotations

from model_core.errors import FormatError
from model_core.examples.batch import ExampleBatch
from service.storage.records import LogEntry, LogId


class LogBlocked(Exception):
    """The log cannot be read on from here: an operator has to decide (`ftrl log skip`)."""

    def __init__(self, entry: LogId, detail: str) -> None:
        super().__init__(f"log entry {entry}: {detail}")
        self.entry = entry


def gap_before(entry: LogEntry, number: int) -> str:
    """What is wrong if `number` is the dense number that comes next; empty if nothing is."""
    if entry.first_number is None or entry.first_number == number:
        return ""
    if entry.first_number < number:
        return f"{entry.id} begins with example {entry.first_number}, although {number} comes next"
    return f"{entry.first_number - number} examples before {entry.id} are not in the log"


def examples_of(entry: LogEntry) -> ExampleBatch:
    """Raises FormatError."""
    if entry.first_number is None:
        raise FormatError("not written by this service")
    return ExampleBatch.from_records(entry.records)


def decode(entry: LogEntry, number: int) -> ExampleBatch:
    """The examples of the entry that is to begin with that dense number. Raises LogBlocked."""
    gap = gap_before(entry, number)
    if gap:
        raise LogBlocked(entry.id.before(), gap)
    try:
        return examples_of(entry)
    except FormatError as wrong:
        raise LogBlocked(entry.id, str(wrong)) from wrong

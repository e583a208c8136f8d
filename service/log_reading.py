"""Whether an entry of the example log can be learned next."""

from __future__ import annotations

from model_core.errors import FormatError
from model_core.examples import ExampleBatch
from service.redis_keys import LogEntry


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

"""The lines with which a streamed update is answered."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from service.api.routes.update import items_of
from service.errors import LogFull, ServiceError
from service.example_log.appender import UpdateResults
from service.parsing.streams.groups import BadLine, Group

EndReason = Literal["complete", "stopping", "idle", "error", "left"]


class End(NamedTuple):
    """Why a stream ends; `left` is not written, as the client has disconnected."""

    reason: EndReason
    code: str = ""
    detail: str = ""


class GroupReply(NamedTuple):
    """Lines of a reply, and how many lines of the request have which status."""

    lines: bytes
    statuses: Mapping[str, int]


def answered_group(group: Group, results: UpdateResults, labelled: UpdateResults) -> GroupReply:
    """Answer all lines in one, after those of its bad lines."""
    statuses = Counter[str](results.statuses + labelled.statuses)
    statuses += _bad(group)
    revisions = [revision for revision in (*results.revisions, *labelled.revisions) if revision is not None]
    line = {**_place(group, statuses), "revision": revisions[-1] if revisions else None}
    return GroupReply(bad_lines(group.bad_lines) + _lines([line]), statuses)


def each_line(group: Group, results: UpdateResults, labelled: UpdateResults) -> GroupReply:
    """Answer each line by itself, in their order."""
    statuses = Counter[str](results.statuses + labelled.statuses)
    statuses += _bad(group)
    answers = dict(zip(group.example_lines, items_of(results), strict=True))
    answers |= zip(group.labels, items_of(labelled), strict=True)
    lines = {line: f'{{"line":{line},{item[1:]}\n'.encode() for line, item in answers.items()}
    lines |= {bad.line: bad_lines([bad]) for bad in group.bad_lines}
    return GroupReply(b"".join(lines[line] for line in sorted(lines)), statuses)


def failed_group(group: Group, failure: ServiceError) -> GroupReply:
    """Answer lines that may not be in the log, with the ids under which they can be sent again."""
    count = len(group.example_lines) + len(group.labels)
    statuses = Counter({"unavailable": count} if count else {})
    statuses += _bad(group)
    reason = {"code": failure.code, "detail": failure.detail, "outcome": "not_appended", **failure.extra}
    return GroupReply(bad_lines(group.bad_lines) + _lines([{**_place(group, statuses), **reason}]), statuses)


def bad_lines(bad: Iterable[BadLine]) -> bytes:
    """Describe lines that were not taken."""
    return _lines({"line": one.line, "status": "invalid", "column": one.column, **one.error} for one in bad)


def waiting_line(line: int, full: LogFull) -> bytes:
    """Say that lines from this one on wait."""
    return _lines([{"waiting": True, "line": line, "code": full.code, "detail": full.detail}])


def end_line(end: End, through: int, totals: Mapping[str, int]) -> bytes:
    """Return the last line; `through` is the last line that was answered."""
    reason = {"code": end.code, "detail": end.detail} if end.code else {}
    return _lines([{"end": end.reason, "through": through, "statuses": dict(totals), **reason}])


def _bad(group: Group) -> Counter[str]:
    return Counter({"invalid": len(group.bad_lines)})


def _place(group: Group, statuses: Mapping[str, int]) -> dict[str, Any]:
    return {"line": group.first, "lines": group.last - group.first + 1, "statuses": dict(statuses)}


def _lines(documents: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in documents)

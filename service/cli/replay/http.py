"""`ftrl replay --url`: a file as update requests to a running service, in order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from model_core.evaluation.measures import summarize
from model_core.hashing.contract import HashContract
from model_core.text.problems import LineError
from service.cli.http_client import Refused, ServiceClient
from service.cli.remote import path_of, service_at
from service.cli.replay.contract import check_contract
from service.cli.replay.summary import ReplayPlan, ReplaySummary, Tally
from service.errors import CommandFailure, Interrupted
from service.parsing.files.reader import read_rows
from service.parsing.files.rows import Row
from service.parsing.files.source import InputFiles, UnreadableFile
from service.runtime.kernels import interrupts_held

if TYPE_CHECKING:
    from service.cli.replay.progress_file import ProgressFile

EXAMPLES_A_REQUEST = 500
_EXACT = (1e-300, 0.999)  # outside these probabilities, the margin from the loss is more accurate
_SATURATED = 745.2  # the margin above which a loss is 0


def replay_over_http(plan: ReplayPlan, url: str) -> ReplaySummary:
    """Raises CommandFailure, UnreadableFile. Examples learned until then stay learned."""
    path = path_of("models", plan.model)
    with interrupts_held():
        summarize(np.zeros(1), np.zeros(1))  # loads the kernels that the tally needs
    with InputFiles(*plan.files) as source, closing(ServiceClient(url)) as service:
        with service_at(url) as first:  # it fails at once, where later requests outlast a restart
            described = _described(first, path, plan)
        contract = _contract(plan, described)
        progress = None if plan.resume is None else _progress(plan, plan.resume, described)
        with Tally(plan, source) as tally:
            rows = read_rows(source, plan.file_format, contract, plan.options)
            try:
                _Sender(service, f"{path}/update", source, tally, progress).send_all(rows)
            except KeyboardInterrupt:
                raise Interrupted(
                    f"{tally.so_far()}, which model {plan.model} keeps; the last request may have been"
                    " learned, too"
                ) from None
        described = service.call("GET", path)
    return tally.summary(described["features_seen"], described["nonzero"])


def _contract(plan: ReplayPlan, described: dict[str, Any]) -> HashContract:
    if "hashing" not in described:
        raise CommandFailure(f"the server at this address is not an ftrl service: {str(described)[:80]}")
    check_contract(plan.model, plan.contract, described["hashing"], plan.config.get("hashing", {}))
    return HashContract.from_json(described["hashing"])


def _described(service: ServiceClient, path: str, plan: ReplayPlan) -> dict[str, Any]:
    """The model, which is created if it does not exist."""
    if not plan.config:
        try:
            return service.call("GET", path)
        except Refused as refused:
            if refused.status != 404:
                raise
    return service.call("PUT", path, plan.config_of_new())


def _progress(plan: ReplayPlan, path: Path, described: dict[str, Any]) -> ProgressFile:
    from service.cli.replay.progress_file import ProgressFile

    incarnation, *_ = described["revision"].split("-")
    return ProgressFile(path, described["name"], incarnation, plan.files)


class _Sender:
    """Sends rows in order, and reports their results to the tally and their number to the progress file."""

    def __init__(
        self,
        service: ServiceClient,
        path: str,
        source: InputFiles,
        tally: Tally,
        progress: ProgressFile | None,
    ) -> None:
        self._service = service
        self._path = path
        self._source = source
        self._tally = tally
        self._progress = progress
        self._position = 0 if progress is None else progress.position
        self._max_examples = EXAMPLES_A_REQUEST

    def send_all(self, items: Iterable[Row | LineError]) -> None:
        """Raises CommandFailure; if the cause is a line of the file, all lines before it are learned."""
        progress, learned, outstanding = self._progress, self._position, False
        try:
            for rows in self._batches(items if progress is None else progress.remaining(items)):
                position = self._position
                outstanding = True
                self._send(rows)
                learned, outstanding = position, False
                if progress is not None:
                    progress.record(learned)
        except (CommandFailure, UnreadableFile) as failure:
            raise CommandFailure(f"{failure}; {self._tally.rows:,} rows were learned before") from failure
        finally:
            if progress is not None:
                progress.record(learned, ends=True, outstanding=outstanding)

    def _batches(self, items: Iterable[Row | LineError]) -> Iterator[list[Row]]:
        rows: list[Row] = []
        try:
            for item in items:
                if isinstance(item, LineError):
                    self._tally.bad_line(item)
                else:
                    rows.append(item)
                self._position += 1
                if len(rows) >= self._max_examples:
                    yield rows
                    rows = []
        except (CommandFailure, UnreadableFile):
            yield rows
            raise
        yield rows

    def _send(self, rows: list[Row]) -> None:
        if not rows:
            return
        try:
            reply = self._service.call("POST", self._path, {"examples": [row.to_request() for row in rows]})
        except Refused as refused:
            for part in self._acceptable(rows, refused):
                self._send(part)
        else:
            _count(self._tally, rows, reply["results"], self._source.bytes_read)

    def _acceptable(self, rows: list[Row], refused: Refused) -> Iterator[list[Row]]:
        """Halves of rows that were too large, or the valid rows: before an invalid one, then the rest."""
        if refused.too_large and len(rows) > 1:
            half = len(rows) // 2
            if refused.too_many:
                self._max_examples = half  # a fixed limit, while a body may be too large by chance
            yield rows[:half]
            yield rows[half:]
            return
        wrong = refused.invalid_examples()
        if not wrong:
            raise refused
        first = min(wrong)
        yield rows[:first]
        for position, reason in sorted(wrong.items()):
            self._tally.bad_line(LineError(rows[position].line_number, reason, file=rows[position].file))
        yield [row for position, row in enumerate(rows) if position > first and position not in wrong]


def _count(tally: Tally, rows: list[Row], results: list[dict[str, Any]], bytes_read: int) -> None:
    scored: list[tuple[float, float, float]] = []
    for row, result in zip(rows, results, strict=True):
        if result["status"] == "duplicate" and row.event_id is not None:
            tally.duplicates += 1
        elif result["status"] == "skipped" or result["loss"] is not None:
            scored.append((_margin(result, row.label), row.label, row.weight))
        else:
            tally.unscored += 1
    table = np.array(scored, float).reshape(-1, 3)
    weights = table[:, 2] if (table[:, 2] != 1.0).any() else np.empty(0)
    tally.learned(table[:, 0].copy(), table[:, 1].copy(), weights.copy(), bytes_read)


def _margin(result: dict[str, Any], label: float) -> float:
    """The margin behind a result; NaN if there is none, because the example was skipped.

    Equal probabilities give equal margins whatever their labels, or ties would count in the AUC as ranked.
    """
    if result["loss"] is None:
        return math.nan
    probability, loss = result["probability"], result["loss"]
    if _EXACT[0] < probability < _EXACT[1]:
        return math.log(probability) - math.log1p(-probability)
    if 0.0 < label < 1.0:
        return float(loss / (1.0 - label) if probability > 0.5 else -loss / label)
    against = loss + math.log(-math.expm1(-loss)) if loss > 0.0 else -_SATURATED
    return -against if label else against

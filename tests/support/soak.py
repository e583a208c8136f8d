"""What a log has to hold after a simulation, whatever happened meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lab.simulation.accounting import TAKEN
from lab.simulation.traffic import Answer
from model_core.examples.batch import ExampleBatch
from service.example_log.ids import is_sampled, packed_id
from service.example_log.stream import event_digest
from service.storage.records import LogEntry, LogId

MAX_REPORTED = 20


class Logged(NamedTuple):
    """An example in the log."""

    label: int
    entry: LogId


@dataclass
class Audit:
    """`lost`, `doubled`, `wrong`: a line for each such event, with what its client was answered and where it
    stands in the log.
    """

    examples: int = 0
    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def problems(self) -> str:
        """Empty where there are none."""
        problems = []
        for kind in ("lost", "doubled", "wrong"):
            lines: list[str] = getattr(self, kind)
            problems += [f"{kind}: {line}" for line in lines[:MAX_REPORTED]]
            if len(lines) > MAX_REPORTED:
                problems.append(f"{kind}: and {len(lines) - MAX_REPORTED} more")
        return "\n".join(problems)


def audit(
    entries: Sequence[LogEntry],
    answers: Mapping[str, Sequence[Answer]],
    updates: Sequence[str],
    feedback: Mapping[str, object],
) -> Audit:
    """`answers`: by prediction id, as the simulator noted them; `updates`: the event ids of acknowledged
    updates; `feedback`: the configuration, with `late`, `unshown_seconds` and `negative_sample_rate`.
    """
    predictions, events, found = _by_id(entries)
    found.acknowledged = len(updates)
    for text, known in answers.items():
        found.acknowledged += sum(answer.status not in ("not_logged", "unknown") for answer in known)
        _check_impression(text, known, predictions.pop(packed_id(text), []), feedback, found)
    for text in updates:
        places = events.pop(event_digest(text), [])
        if len(places) != 1:
            (found.doubled if places else found.lost).append(f"update {text}, in the log: {_where(places)}")
    found.wrong += [
        f"{kind} {identifier.hex()} is in the log and belongs to no request: {_where(places)}"
        for kind, left in (("prediction", predictions), ("event", events))
        for identifier, places in left.items()
    ]
    return found


def _by_id(
    entries: Sequence[LogEntry],
) -> tuple[dict[bytes, list[Logged]], dict[bytes, list[Logged]], Audit]:
    predictions: defaultdict[bytes, list[Logged]] = defaultdict(list)
    events: defaultdict[bytes, list[Logged]] = defaultdict(list)
    count = 0
    for entry in entries:
        batch = ExampleBatch.from_bytes(entry.records)
        count += len(batch)
        for ids, by_id in ((batch.prediction_ids, predictions), (batch.event_ids, events)):
            for identifier, label in zip(ids or (), batch.labels.tolist(), strict=False):
                if identifier:
                    by_id[identifier].append(Logged(label, entry.id))
    return dict(predictions), dict(events), Audit(count)


def _check_impression(
    text: str, answers: Sequence[Answer], places: list[Logged], feedback: Mapping[str, object], found: Audit
) -> None:
    labels = sorted(place.label for place in places)
    description = f"{text}: {_history(answers)}; in the log: {_where(places)}"
    allowed = _allowed(text, answers, feedback)
    if max(Counter(labels).values(), default=0) > 1:
        found.doubled.append(description)
    elif labels not in allowed:
        lost = not labels or (1 not in labels and all(1 in one for one in allowed))
        (found.lost if lost else found.wrong).append(description)


def _allowed(text: str, answers: Sequence[Answer], feedback: Mapping[str, object]) -> list[list[int]]:
    """The labels that the log may hold of an impression; nothing where the answers already report a loss."""
    negative = [0] if is_sampled(packed_id(text), float(str(feedback["negative_sample_rate"]))) else []
    statuses = {verb: [a.status for a in answers if a.verb == verb] for verb in ("impressions", "update")}
    if statuses["impressions"] in ([], ["unknown"]):
        # An attempt that was given up may come through later, and report the impression after all.
        return [] if _forgotten(answers, feedback) else [[], negative]
    clicks = set(statuses["update"])
    if clicks - TAKEN - {"late"}:
        return []
    if not clicks & TAKEN:
        return [negative]
    return [[1], [*negative, 1]] if feedback.get("late") == "append" else [[1]]


def _forgotten(answers: Sequence[Answer], feedback: Mapping[str, object]) -> bool:
    """Whether a prediction was kept and then, well before its time, unknown."""
    first, *rest = answers
    patience = float(str(feedback["unshown_seconds"])) / 2
    return first.status == "logged" and any(a.seconds - first.seconds < patience for a in rest)


def _history(answers: Sequence[Answer]) -> str:
    return ", ".join(
        f"{a.verb} {a.status} at {a.seconds} s" + (f" (attempt {a.attempt})" if a.attempt > 1 else "")
        for a in answers
    )


def _where(places: Sequence[Logged]) -> str:
    return ", ".join(f"label {place.label} in entry {place.entry}" for place in places) or "nowhere"

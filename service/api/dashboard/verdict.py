"""Four checks in words (up, fast, learning, right), and the headline of the dashboard.

The bounds are those of the alerts in `deploy/prometheus/rules/alerts.yml`, of which this is the view of one
process at one moment. Whether a model is right is judged by its learner, for both
(`service/models/evaluation/judgement.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from model_core.evaluation.figures import FEWEST_CLICKS
from service.api.dashboard.awaiting import Awaiting
from service.api.dashboard.traffic import Rates

FAILURES = 0.01
MIN_FAILED = 5
"""Fewer are shown without an alarm: of three requests in a minute, one is a third."""
PREDICT_SECONDS = 0.05
UPDATE_SECONDS = 1.0
LAG_SECONDS = 30.0
SPOKEN = {"30m": "30 minutes", "1h": "hour", "24h": "24 hours", "all": "whole stream"}
OLD_SECONDS = 120.0

Level = Literal["good", "watch", "bad", "none"]


class Check(NamedTuple):
    """`level` is `none` where there is nothing to judge; `head` is what the headline says of it."""

    name: Literal["up", "fast", "learning", "right"]
    level: Level
    head: str
    text: str


@dataclass(frozen=True)
class Situation:
    """What is known of one model at one moment; None is not known.

    reasons: the complaints of `/readyz`.  quiet_seconds: how long Redis has not confirmed the state.
    backlog: examples in the log that are not learned yet.  awaiting: pending predictions, not in the log yet.
    windows: figures by window, of the source that counts.  judgement: the learner's, of these figures.
    ended_seconds: how long ago they ended.
    """

    predict: Literal["fresh", "stale", "unavailable"]
    update: Literal["available", "unavailable"]
    reasons: Sequence[str] = ()
    quiet_seconds: float | None = None
    rates: Rates = field(default_factory=Rates)
    learner: bool | None = None
    backlog: int | None = None
    lag_seconds: float | None = None
    awaiting: Awaiting | None = None
    learned_per_second: float | None = None
    rounds: int = 0
    nonfinite: int | None = None
    windows: Mapping[str, Mapping[str, Any]] | None = None
    judgement: Mapping[str, Any] | None = None
    ended_seconds: float | None = None


class Verdict(NamedTuple):
    level: Level
    headline: str
    checks: tuple[Check, ...]


def verdict(now: Situation) -> Verdict:
    checks = (_up(now), _fast(now.rates), _learning(now), _right(now))
    for level in ("bad", "watch"):
        heads = [check.head for check in checks if check.level == level]
        if heads:
            return Verdict(level, "; ".join([heads[0], *map(_lowered, heads[1:])]), checks)
    if now.rounds == 0:
        return Verdict("none", "Ready: nothing learned yet", checks)
    learning = "idle" if now.learned_per_second == 0.0 else "learning"
    if checks[3].level == "none":
        return Verdict("none", f"Healthy: {learning}; {checks[3].head}", checks)
    return Verdict("good", f"Healthy: {learning}, calibrated", checks)


def _up(now: Situation) -> Check:
    if now.predict == "unavailable":
        return Check("up", "bad", "Not available", " ".join(now.reasons) or "No model can be loaded.")
    if now.predict == "stale":
        quiet = "" if now.quiet_seconds is None else f" for {seconds_in_words(now.quiet_seconds)}"
        text = f"Redis has not confirmed the state{quiet}: predictions go on from a copy."
        return Check("up", "bad", "Stale: Redis does not answer", text)
    if now.update == "unavailable":
        return Check("up", "bad", "Updates are refused", " ".join(now.reasons))
    if now.rates.failures is not None and now.rates.failures > FAILURES:
        share = f"{now.rates.failures:.1%} of requests"
        times = "once" if now.rates.failed == 1 else f"{now.rates.failed:,} times"
        if not now.rates.failing:
            text = f"{share} in the last minute ended in a server error, none in the last seconds."
            return Check("up", "watch", f"Failed {times} in the last minute", text)
        if now.rates.failed < MIN_FAILED:
            return Check(
                "up", "watch", f"Failed {times} in the last minute", f"{share}, over the last minute."
            )
        return Check(
            "up", "bad", f"Failing: {share} end in a server error", f"{share}, over the last minute."
        )
    if now.reasons:
        return Check("up", "watch", f"Attention: {now.reasons[0].rstrip('.')}", " ".join(now.reasons))
    return Check("up", "good", "Up", "Predictions are fresh, updates are taken.")


def _fast(rates: Rates) -> Check:
    for what, latency, bound in (
        ("prediction", rates.predict, PREDICT_SECONDS),
        ("update", rates.update, UPDATE_SECONDS),
    ):
        if latency is not None and latency.p99 > bound:
            text = f"One {what} in a hundred takes {_milliseconds(latency.p99)} or more."
            return Check("fast", "watch", f"Slow: {_lowered(text.rstrip('.'))}", text)
    if rates.predict is None:
        return Check("fast", "none", "Fast", "No predictions in the last minute.")
    return Check("fast", "good", "Fast", f"99 of 100 predictions within {_milliseconds(rates.predict.p99)}.")


def _learning(now: Situation) -> Check:
    check = _learning_of_examples(now)
    more = now.awaiting.sentence if now.awaiting else ""
    return check._replace(text=f"{check.text} {more}") if more else check


def _learning_of_examples(now: Situation) -> Check:
    if now.nonfinite:
        text = f"{now.nonfinite:,} slots of the state are not finite."
        return Check("learning", "bad", "Broken: weights are not finite", text)
    backlog = "" if now.backlog is None else f"{_examples(now.backlog)} to be learned"
    if now.learner is None:
        return Check("learning", "none", "Not known", "Redis does not say who learns.")
    if not now.learner and now.rounds == 0 and not now.backlog:
        return Check("learning", "none", "Not known", "No learner has taken it up yet.")
    if not now.learner:
        return Check("learning", "bad", "Not learning: no learner runs", f"No learner runs; {backlog}.")
    if now.lag_seconds is not None and now.lag_seconds > LAG_SECONDS:
        late = seconds_in_words(now.lag_seconds)
        if now.learned_per_second == 0.0:
            text = f"{late} late; {backlog}. If an entry cannot be learned, `ftrl log show` names it."
            return Check("learning", "bad", f"Not learning: {late} late, and nothing is learned", text)
        return Check(
            "learning", "bad", f"Falling behind: learning is {late} late", f"{late} late; {backlog}."
        )
    if now.learned_per_second:
        return Check("learning", "good", "Learning", f"{now.learned_per_second:,.0f} examples/s; {backlog}.")
    text = f"Idle; {backlog}." if now.learned_per_second == 0.0 else f"{backlog[:1].upper()}{backlog[1:]}."
    return Check("learning", "good", "Idle", text)


def _right(now: Situation) -> Check:
    if now.windows is None:
        return Check(
            "right",
            "none",
            "whether it is right is not known",
            "Redis has not answered: the figures are not known.",
        )
    if now.judgement is not None:
        return _judged(now.judgement, now.ended_seconds)
    clicks = now.windows.get("all", {}).get("clicks", 0)
    text = f"Needs {FEWEST_CLICKS} clicks to judge: {clicks:.3g} so far."
    if clicks >= FEWEST_CLICKS:
        text = "The figures are those of a learner of an older version, which does not judge them."
    return Check("right", "none", "too few clicks to say whether it is right", text)


def _judged(judgement: Mapping[str, Any], ended_seconds: float | None) -> Check:
    over = _over(judgement["window"], ended_seconds)
    by_check = {finding["check"]: finding for finding in judgement["findings"]}
    total, constant = by_check["total"], by_check.get("constant")
    faults = [_fault(finding) for finding in judgement["findings"] if finding["wrong"]]
    if faults:
        text = f"{faults[0][:1].upper()}{'; '.join(faults)[1:]}, {over}."
        return Check("right", "bad" if total["wrong"] else "watch", f"Not right: {faults[0]}", text)
    text = f"Predicts {total['ratio']:.3f} × the clicks"
    if constant is not None:
        text += f", at {constant['ratio']:.3f} × the loss of always predicting the click rate"
    if constant is None or constant["wrong"] is None:
        text += "" if constant is None else f" (± {constant['tolerance']:.3f})"
        head = "not yet shown to be better than the click rate alone"
        return Check("right", "none", head, f"{text}, {over}.")
    return Check("right", "good", "Calibrated", f"{text}, {over}.")


def _fault(finding: Mapping[str, Any]) -> str:
    """What is wrong by one check, in words that a sentence may begin with."""
    check, ratio, tolerance = finding["check"], finding["ratio"], finding["tolerance"]
    if check == "total":
        edge = 1.0 + tolerance if ratio > 1.0 else 1.0 - tolerance
        return f"predicts {ratio:.2f} × the clicks (tolerance {edge:.2f})"
    if check == "constant":
        return f"{ratio:.3f} × the loss of always predicting the click rate (tolerance {1.0 + tolerance:.3f})"
    where = finding["where"] if check == "slice" else f"it predicts {finding['where']}"
    if ratio is None:
        return f"predicts clicks where {where}, and there is none"
    return f"predicts {ratio:.2f} × the clicks where {where}"


def _over(window: str, ended_seconds: float | None) -> str:
    """Where no example came for a while, or only of times long ago, the last hour is not that before now."""
    if ended_seconds is not None and ended_seconds >= OLD_SECONDS:
        return f"over the {SPOKEN[window]} that ended {seconds_in_words(ended_seconds)} ago"
    return f"over the {'' if window == 'all' else 'last '}{SPOKEN[window]}"


def _examples(count: int) -> str:
    if count == 0:
        return "no example waits"
    return "1 example waits" if count == 1 else f"{count:,} examples wait"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def seconds_in_words(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]

"""Feedback policies, each with its own model in the same simulated world."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from lab.simulation.accounting import Expected, accounts_of, expected_examples
from lab.simulation.experts import experts_for, names_of, watched_weights
from lab.simulation.figures import Accounts, Quality, Report
from lab.simulation.traffic import Habits, Traffic
from lab.simulation.world import WORLDS
from service.cli.http_client import Refused, ServiceClient
from service.cli.remote import service_at
from service.errors import CommandFailure

BITS = 18
SHARE = 1e-3  # fixed share of the mixture: a run has few examples
SLACK_SECONDS = 3.0  # of the sweeps, beyond a window
SEED = 0x51_00_1A_7E  # seed of the hashes, by which a simulation recognizes its models
LATE_WINDOWS = 10  # after its end, in which it is known whose a click is


@dataclass(frozen=True)
class Plan:
    """`window`: the attribution window in seconds; the mean delay of a click is `delay` windows."""

    url: str
    model: str
    rate: float
    seconds: float
    window: float
    delay: float
    seed: int
    click_rate: float
    candidates: int
    lost: float
    repeated: float
    early: float
    retried: float
    shock_at: float
    negative_sample_rate: float
    world: str = "shock"
    patience_seconds: float = 60.0  # max wait for missing examples after the last window

    @property
    def impressions(self) -> float:
        return self.rate * self.seconds

    @property
    def experts(self) -> list[dict[str, float]]:
        """The experts of the model, as in `hyper`."""
        return experts_for(self.impressions)


POLICIES: dict[str, dict[str, Any]] = {
    "close": {"learn_at": "window_close", "late": "drop"},
    "close-append": {"learn_at": "window_close", "late": "append"},
    "arrival": {"learn_at": "arrival", "late": "drop"},
    "arrival-append": {"learn_at": "arrival", "late": "append"},
    "close-sampled": {"learn_at": "window_close", "late": "drop", "negative_sample_rate": 0.1},
}


def simulate(plan: Plan, policy: str) -> Report:
    """Run one policy on a newly created model. Raises CommandFailure."""
    feedback = {"negative_sample_rate": plan.negative_sample_rate} | POLICIES[policy]
    with service_at(plan.url) as client:
        recreate(client, plan, feedback)
    traffic = Traffic(
        [plan.url],
        plan.model,
        WORLDS[plan.world](plan.seed, plan.click_rate, plan.candidates, round(plan.impressions)),
        Habits(plan.window * plan.delay, plan.lost, plan.repeated, plan.early, plan.retried),
        run=f"{plan.seed}-{time.time_ns():x}",
    )
    with watched_weights(plan.url, plan.model, plan.seconds) as weights:
        traffic.send(plan.rate, plan.seconds, plan.shock_at * plan.seconds)
    seconds = traffic.elapsed
    expected = expected_examples(traffic.answers, feedback | {"window_seconds": plan.window})
    with closing(ServiceClient(plan.url)) as patient:
        accounts = _accounts(patient, plan, expected)
    return Report(
        policy,
        round(seconds, 1),
        round(len(traffic.record.seconds) / traffic.sent_seconds, 1),
        _phases(traffic, plan.window),
        dict(sorted(traffic.record.events.items())),
        accounts,
        names_of(plan.experts),
        weights,
    )


def recreate(client: ServiceClient, plan: Plan, feedback: dict[str, Any]) -> None:
    """Replace the model. Raises CommandFailure, also if no simulation created it: it may be in use."""
    path = f"/models/{plan.model}"
    try:
        if not _is_simulated(client.call("GET", path)):
            raise CommandFailure(
                f"No simulation has made the model {plan.model}: choose another --model, or delete it first"
            )
        client.call("DELETE", path)
    except Refused as refusal:
        if refusal.status != 404:
            raise
    times = _times(plan.window)
    hashing = {"bits": BITS, "seed": SEED, "prior_probability": plan.click_rate}
    hyper = {"rate": {"kind": "mixture", "experts": plan.experts, "share": SHARE}}
    client.call("PUT", path, {"hyper": hyper, "hashing": hashing, "feedback": feedback | times})


def _times(window: float) -> dict[str, float]:
    return {"window_seconds": window, "unshown_seconds": window, "late_seconds": LATE_WINDOWS * window}


def _is_simulated(model: dict[str, Any]) -> bool:
    """Recognize a simulation's model by the seed of its hashes and by its times."""
    feedback = model["feedback"]
    times = _times(feedback["window_seconds"])
    return bool(model["hashing"]["seed"] == SEED and times.items() <= feedback.items())


def _phases(traffic: Traffic, window: float) -> dict[str, Quality]:
    """Quality by phase; the first window has no labels 0 yet. An empty phase has no figures."""
    between: Callable[[float, float], Quality] = traffic.record.between
    end = traffic.sent_seconds
    shock = min(traffic.shock_seconds, end)
    return {
        "first_window": between(0, min(window, shock)),
        "second_window": between(window, min(2 * window, shock)),
        "before_shock": between(max(window, shock - 2 * window), shock),
        "after_shock": between(shock, min(shock + window, end)),
        "end": between(end - min(window, end / 4), end),
    }


def _accounts(client: ServiceClient, plan: Plan, expected: Expected) -> Accounts:
    """Poll after the last window has closed, until no example is missing and the counts no longer change."""
    time.sleep(plan.window * 1.05 + SLACK_SECONDS)
    give_up = time.monotonic() + plan.patience_seconds
    found, before = _counted(client, plan, expected), None
    while time.monotonic() < give_up and (found is None or found != before or found.lost):
        time.sleep(1.0)
        found, before = _counted(client, plan, expected), found
    if found is None:
        raise CommandFailure(f"{plan.url} reports no evaluation that is as new as the model {plan.model}")
    return found


def _counted(client: ServiceClient, plan: Plan, expected: Expected) -> Accounts | None:
    """The accounts; None while the evaluation is behind the model."""
    path = f"/models/{plan.model}"
    rounds, evaluation = client.call("GET", path)["t"], client.call("GET", f"{path}/evaluation")
    return accounts_of(expected, evaluation["sources"]) if evaluation["t"] >= rounds else None

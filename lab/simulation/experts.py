"""The simulated model's mixture, and the weights of its experts over the time of a run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from service.cli.http_client import ServiceClient
from service.errors import CommandFailure

ALPHAS = (0.1, 0.5)
HALF_LIVES_A_RUN = 10  # of the experts that forget
SAMPLES = 12


class WeightSample(NamedTuple):
    """The weights of the experts, `seconds` after the simulation began, by the model's own description."""

    seconds: float
    weights: tuple[float, ...]


def experts_for(impressions: float) -> list[dict[str, float]]:
    """Two rates, each without and with a half-life that suits a run of so many impressions, as in `hyper`."""
    half_life = max(1.0, round(impressions / HALF_LIVES_A_RUN))
    forgetful: tuple[dict[str, float], ...] = ({}, {"half_life_examples": half_life})
    return [{"alpha": alpha, "beta": 1.0, "l1": 0.1} | more for alpha in ALPHAS for more in forgetful]


def names_of(experts: list[dict[str, float]]) -> list[str]:
    """Name the experts, given as in `hyper`, by how they differ: the rate, and the half-life in examples."""
    return [
        f"alpha {one['alpha']:g}"
        + (f", half-life {one['half_life_examples']:,.0f}" if "half_life_examples" in one else "")
        for one in experts
    ]


@contextmanager
def watched_weights(url: str, model: str, seconds: float) -> Iterator[list[WeightSample]]:
    """Yield a list to which a thread adds about SAMPLES samples in so many seconds, until the block ends."""
    samples: list[WeightSample] = []
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(url, model, seconds / SAMPLES, samples, ended))
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def _watch(url: str, model: str, pause: float, samples: list[WeightSample], ended: threading.Event) -> None:
    client = ServiceClient(url, retry_seconds=0)
    number = 0
    while not ended.wait(pause):
        number += 1
        try:
            found: dict[str, Any] = client.call("GET", f"/models/{model}")
        except CommandFailure:  # the service may be away meanwhile
            continue
        samples.append(WeightSample(round(number * pause, 1), tuple(found["expert_weights"])))
    client.close()

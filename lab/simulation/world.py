"""Users, ads and clicks: the requests that a service sees, and the true probabilities, which it does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from model_core.kernels.numerics import sigmoids

USERS, ADS, SEGMENTS, TOPICS, SITES = 2000, 60, 12, 8, 10
DEVICES = ("phone", "desktop", "tablet")
POSITION_LOGITS = (0.0, -0.5, -1.0)
POPULARITY = 1.1  # exponent of the power laws of users and sites
NEW_AD_A_REQUEST = 0.004
QUALITY = 0.6  # standard deviation of the logits of ads
DRIFT_A_REQUEST = 0.02  # standard deviation, of one ad's logit
SHOCK = 1.2
MOVING_TASTES = 1.0  # standard deviation, in the worlds that change all the time
RELAXATIONS = 4  # of the world drift: how often in its length the past is forgotten, but for a share of 1/e
SEASONS = 4  # of the world seasons: how often in its length it is as it was
SAMPLED = 2000  # requests, to calibrate the world's click rate
Floats = npt.NDArray[np.float64]


class Chances(NamedTuple):
    """Random numbers of an impression, drawn before the prediction so that they do not depend on the model:
    all uniform but `delay`, which is exponential with mean 1.
    """

    click: float
    explore: float
    pick: float
    lost: float
    repeated: float
    early: float
    retried: float
    delay: float
    second_delay: float


class Impression(NamedTuple):
    """One place for an ad. `probabilities` float64[candidates]: that the candidate is clicked if shown."""

    number: int
    context: dict[str, Any]
    candidates: list[dict[str, Any]]
    probabilities: Floats
    chances: Chances


@dataclass
class _Ad:
    number: int
    topic: int
    advertiser: int
    logit: float


class World:
    """World determined by its seed. Over time, ads are replaced and drift a little; `shock` changes tastes.

    length: the number of impressions over which the other worlds change as much as they are to.
    """

    def __init__(self, seed: int, click_rate: float, candidates: int, length: int = 10_000) -> None:
        self._length = length
        self._random = np.random.default_rng(seed)
        self._candidates = candidates
        self._users = _power_law(USERS)
        self._sites = _power_law(SITES)
        self._user_logits = self._random.normal(0, 0.4, USERS)
        self._segments = self._random.integers(SEGMENTS, size=USERS)
        self._tastes = self._random.normal(0, 0.5, (SEGMENTS, TOPICS))
        self._site_logits = self._random.normal(0, 0.2, SITES)
        self._ever = 0
        self._ads = [self._new_ad() for _ in range(ADS)]
        self._number = 0
        self._base = 0.0
        self._base = self._base_for(click_rate)

    def next(self) -> Impression:
        self._change()
        random = self._random
        user, site = self._drawn(self._users), self._drawn(self._sites)
        position, device = int(random.integers(len(POSITION_LOGITS))), int(random.integers(len(DEVICES)))
        shown = [self._ads[k] for k in random.choice(ADS, self._candidates, replace=False)]
        segment = int(self._segments[user])
        context = {
            "user": f"u{user}",
            "segment": f"s{segment}",
            "site": f"site{site}",
            "position": f"p{position}",
            "device": DEVICES[device],
        }
        shared = self._base + self._user_logits[user] + self._site_logits[site] + POSITION_LOGITS[position]
        tastes = self._tastes_of(segment)
        logits = np.array([shared + ad.logit + tastes[ad.topic] for ad in shown])
        self._number += 1
        candidates = [self._features(ad, segment) for ad in shown]
        return Impression(self._number, context, candidates, sigmoids(logits), self._chances())

    def _drawn(self, cumulative: Floats) -> int:
        return int(cumulative.searchsorted(self._random.random(), side="right"))

    def _base_for(self, click_rate: float) -> float:
        """The shared logit at which the mean click rate of candidates is `click_rate`."""
        sample = np.concatenate([self.next().probabilities for _ in range(SAMPLED)])
        logits = np.log(sample / (1 - sample))
        low, high = -20.0, 20.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if sigmoids(logits + middle).mean() < click_rate else (low, middle)
        return low

    def shock(self) -> None:
        """Change the tastes of all segments at once."""
        self._tastes += self._random.normal(0, SHOCK, self._tastes.shape)

    def _tastes_of(self, segment: int) -> Floats:
        """Logits float64[topics] of a segment now."""
        tastes: Floats = self._tastes[segment]
        return tastes

    def _features(self, ad: _Ad, segment: int) -> dict[str, Any]:
        return {
            "ad": f"ad{ad.number}",
            "topic": f"t{ad.topic}",
            "advertiser": f"a{ad.advertiser}",
            "segment_topic": f"s{segment}t{ad.topic}",
        }

    def _chances(self) -> Chances:
        return Chances(*self._random.random(7).tolist(), *self._random.exponential(size=2).tolist())

    def _change(self) -> None:
        ad = int(self._random.integers(ADS))
        self._ads[ad].logit += float(self._random.normal(0, DRIFT_A_REQUEST))
        if self._random.random() < NEW_AD_A_REQUEST:
            self._ads[ad] = self._new_ad()

    def _new_ad(self) -> _Ad:
        self._ever += 1
        random = self._random
        topic, advertiser = int(random.integers(TOPICS)), int(random.integers(20))
        return _Ad(self._ever, topic, advertiser, float(random.normal(0, QUALITY)))


class DriftingWorld(World):
    """Tastes and the quality of ads wander around their means, and the past loses its meaning gradually."""

    def _change(self) -> None:
        super()._change()
        random = self._random
        place = int(random.integers(SEGMENTS)), int(random.integers(TOPICS))
        ad = self._ads[int(random.integers(ADS))]
        self._tastes[place] = self._moved(self._tastes[place], MOVING_TASTES, SEGMENTS * TOPICS)
        ad.logit = self._moved(ad.logit, QUALITY, ADS)

    def _moved(self, value: float, deviation: float, places: int) -> float:
        """One step of a stationary walk (Ornstein-Uhlenbeck), one of `places` that take turns at random."""
        kept = math.exp(-RELAXATIONS * places / self._length)
        return kept * value + math.sqrt(1.0 - kept * kept) * float(self._random.normal(0, deviation))


class SeasonalWorld(World):
    """Tastes that come back: they go round between two sets of them and their opposites."""

    def __init__(self, seed: int, click_rate: float, candidates: int, length: int = 10_000) -> None:
        random = np.random.default_rng([seed, SEASONS])
        self._summer, self._spring = random.normal(0, MOVING_TASTES, (2, SEGMENTS, TOPICS))
        super().__init__(seed, click_rate, candidates, length)

    def _tastes_of(self, segment: int) -> Floats:
        angle = 2.0 * math.pi * SEASONS * self._number / self._length
        tastes: Floats = math.cos(angle) * self._summer[segment] + math.sin(angle) * self._spring[segment]
        return tastes


WORLDS: dict[str, type[World]] = {"shock": World, "drift": DriftingWorld, "seasons": SeasonalWorld}


def _power_law(size: int) -> Floats:
    """Cumulative shares, of the most popular first."""
    sums = np.cumsum(np.arange(1, size + 1, dtype=float) ** -POPULARITY)
    shares: Floats = sums / sums[-1]
    return shares

"""Hyperparameters as the kernels take them: plain numbers, built once per model."""

import math
from functools import lru_cache
from typing import NamedTuple

from model_core.learning.hyperparameters import (
    AdaptiveRate,
    GammaRate,
    Hyperparameters,
    Rate,
    moves_untouched_weights,
)
from model_core.learning.schedules import ScheduleTerms

FTRL, RDA, COMID, AOGD = range(4)
_FAMILIES = {"ftrl": FTRL, "rda": RDA, "comid": COMID, "aogd": AOGD}


class Coefficients(NamedTuple):
    """What of a model's configuration enters the arithmetic.

    All three learning rates are one expression of n and t,

        Q_{1:t} = max(floor + growth sqrt(2 t), (beta + sqrt(n_t)) inverse_alpha),

    with growth = 0 (adaptive, gamma), beta = 0 (gamma) or inverse_alpha = 0 (scalar).
    box is inf where there is none.  bias: is there a bias feature; it bears no penalty and no box.
    offset: a constant of the margin.  dense: every coordinate takes part in every round.
    """

    family: int
    implicit: bool
    inverse_alpha: float
    beta: float
    floor: float
    growth: float
    l1: float
    l2: float
    psi_l2: float
    box: float
    bias: bool
    offset: float
    dense: bool
    schedule: ScheduleTerms


@lru_cache(maxsize=1024)
def coefficients(hyper: Hyperparameters, bias: bool, offset: float) -> Coefficients:
    return Coefficients(
        _FAMILIES[hyper.family],
        hyper.update == "implicit",
        *_rate_terms(hyper.rate),
        float(hyper.l1),
        float(hyper.l2),
        float(hyper.psi_l2),
        math.inf if hyper.box is None else float(hyper.box),
        bool(bias),
        float(offset),
        moves_untouched_weights(hyper),
        hyper.schedule.terms(),
    )


def _rate_terms(rate: Rate) -> tuple[float, float, float, float]:
    """inverse_alpha, beta, floor, growth."""
    if isinstance(rate, AdaptiveRate):
        return 1.0 / rate.alpha, float(rate.beta), 0.0, 0.0
    if isinstance(rate, GammaRate):
        return 1.0 / rate.gamma, 0.0, float(rate.floor), 0.0
    return 0.0, 0.0, 0.0, rate.factor * rate.G / rate.D

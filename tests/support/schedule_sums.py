"""The sums of a schedule, for the tests of the mathematics."""

import numpy as np
from numpy.typing import NDArray

from model_core.learning.schedules import Schedule, alpha_sum


def cumulative_alpha(schedule: Schedule, t0: int, count: int) -> NDArray[np.float64]:
    """float64[count + 1]: A_{t0} .. A_{t0 + count}."""
    terms = schedule.terms()
    return np.array([alpha_sum(terms, t) for t in range(t0, t0 + count + 1)])

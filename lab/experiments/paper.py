"""The figures of the paper, which ours are compared with.

McMahan, *A Unified View of Regularized Dual Averaging and Mirror Descent with Implicit Updates*.
"""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """Online AUC, and the density of the final model: non-zero weights over features that occurred."""

    auc: float
    density: float


# The table of its experiments, by data set and family; first-order updates. The search advertisements are not
# public: `criteo` replaces them.
PAPER: dict[str, dict[str, Figure]] = {
    "books": {"ftrl": Figure(0.874, 0.081), "rda": Figure(0.878, 0.079), "comid": Figure(0.877, 0.382)},
    "dvd": {"ftrl": Figure(0.884, 0.078), "rda": Figure(0.886, 0.075), "comid": Figure(0.887, 0.354)},
    "electronics": {"ftrl": Figure(0.916, 0.114), "rda": Figure(0.919, 0.113), "comid": Figure(0.918, 0.399)},
    "kitchen": {"ftrl": Figure(0.931, 0.129), "rda": Figure(0.934, 0.130), "comid": Figure(0.933, 0.414)},
    "news20": {"ftrl": Figure(0.989, 0.052), "rda": Figure(0.991, 0.054), "comid": Figure(0.990, 0.194)},
    "rcv1": {"ftrl": Figure(0.991, 0.319), "rda": Figure(0.991, 0.360), "comid": Figure(0.991, 0.488)},
    "criteo": {"ftrl": Figure(0.832, 0.615), "rda": Figure(0.831, 0.632), "comid": Figure(0.832, 0.849)},
}

# The paper's own data, original or rebuilt; the other data sets are substitutes.
SAME_DATA = ("books", "dvd", "electronics", "kitchen", "news20")

AUC_TOLERANCE, DENSITY_TOLERANCE = 0.005, 0.02

# "FOBOS is at least this many times as dense", where the paper's own figures say so.
DENSITY_RATIO = 2.5

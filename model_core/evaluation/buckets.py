"""Histograms and sums of predictions: for the whole stream, and for buckets of time that add up to windows.

An example is added twice: to the whole stream, and to one bucket of time, the shortest that still reaches
back to it.  There are 15 buckets of a minute, 12 of five minutes and 24 of an hour.  As the clock moves on, a
bucket that it leaves behind is added to the longer one around it, and the last is dropped.  So

    the last 15 minutes = the minutes
    the last hour       = the minutes + the fives
    the last day        = the minutes + the fives + the hours

whatever the order in which the examples came.  The bucket at the clock is unfinished: the windows are up to
one bucket shorter than their names.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BINS_A_BLOCK = 16

STREAM, FIRST_MINUTE, FIRST_FIVE, FIRST_HOUR, BUCKETS = 0, 1, 16, 28, 52
MINUTES, FIVES, HOURS = FIRST_FIVE - FIRST_MINUTE, FIRST_HOUR - FIRST_FIVE, BUCKETS - FIRST_HOUR
EMPTY = -1

PRESENT, WEIGHTED, CHANGED, STORED = 1, 2, 4, 8

CLOCK, NEWEST, LATE, AHEAD = range(4)

LOWEST, SPAN = -16.0, 32.0  # of the bins' log-odds


class Buckets(NamedTuple):
    """The arrays of one or more series of 52 buckets; b is 52 times their number.

    weights float64[b, bins, 2]: the weight of non-clicks and of clicks whose log-odds fell into the bin.  The
        bins divide [-16, 16] evenly; what lies outside counts in the first or the last.
    counts float64[b, bins, 2]: the number of examples; kept where a block is WEIGHTED, else it is `weights`.
    sums float64[b, 8]: examples, clicks, predicted clicks and log loss, each weighted, then each plain.
    starts int64[b]: which minute, five minutes or hour since the epoch a bucket holds, or EMPTY.
    marks uint8[b, blocks + 1]: of each block of 16 bins, and of the sums: PRESENT; WEIGHTED, a weight was not
        1; CHANGED since it was last stored; STORED, so that it must be deleted when it is no longer PRESENT.
    clock int64[4]: the newest minute; the newest time in milliseconds; how many examples were too LATE for
        every bucket; how many claimed a time more than a minute AHEAD of the log.
    """

    weights: NDArray[np.float64]
    counts: NDArray[np.float64]
    sums: NDArray[np.float64]
    starts: NDArray[np.int64]
    marks: NDArray[np.uint8]
    clock: NDArray[np.int64]


def empty_buckets(bins: int, series: int = 1) -> Buckets:
    """bins: a multiple of 16.  Memory is taken up only where something is added."""
    rows = BUCKETS * series
    return Buckets(
        np.zeros((rows, bins, 2)),
        np.zeros((rows, bins, 2)),
        np.zeros((rows, 8)),
        np.full(rows, EMPTY, np.int64),
        np.zeros((rows, bins // BINS_A_BLOCK + 1), np.uint8),
        np.array([EMPTY, EMPTY, 0, 0], np.int64),
    )

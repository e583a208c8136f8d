"""Buckets as the clock moves on: opened, added to the longer bucket around them, emptied."""

from model_core.evaluation.buckets import (
    BINS_A_BLOCK,
    BUCKETS,
    CHANGED,
    CLOCK,
    EMPTY,
    FIRST_FIVE,
    FIRST_HOUR,
    FIRST_MINUTE,
    FIVES,
    HOURS,
    MINUTES,
    PRESENT,
    STORED,
    WEIGHTED,
    Buckets,
)
from model_core.kernels.compiled import inlined_kernel, kernel


@inlined_kernel
def bucket_of(b: Buckets, first: int, minute: int) -> int:
    """The row of the shortest bucket that still takes examples of this minute, opened; or -1."""
    clock = b.clock[CLOCK]
    if minute > clock - MINUTES:
        row, start = first + FIRST_MINUTE + minute % MINUTES, minute
    elif minute // 5 > clock // 5 - FIVES:
        row, start = first + FIRST_FIVE + minute // 5 % FIVES, minute // 5
    elif minute // 60 > clock // 60 - HOURS:
        row, start = first + FIRST_HOUR + minute // 60 % HOURS, minute // 60
    else:
        return -1
    b.starts[row] = start
    return row


@kernel
def leave_behind(b: Buckets, minute: int) -> None:
    """Move the clock, and every bucket that no longer counts by itself into the longer one around it.

    Hours go first: they make room for the fives, as these do for the minutes.
    """
    b.clock[CLOCK] = minute
    for first in range(0, b.starts.size, BUCKETS):
        for row in range(first + FIRST_HOUR, first + BUCKETS):
            if b.starts[row] != EMPTY and b.starts[row] <= minute // 60 - HOURS:
                clear(b, row)
        for row in range(first + FIRST_FIVE, first + FIRST_HOUR):
            if b.starts[row] != EMPTY and b.starts[row] <= minute // 5 - FIVES:
                _carry(b, row, bucket_of(b, first, b.starts[row] * 5))
        for row in range(first + FIRST_MINUTE, first + FIRST_FIVE):
            if b.starts[row] != EMPTY and b.starts[row] <= minute - MINUTES:
                _carry(b, row, bucket_of(b, first, b.starts[row]))


@kernel
def _carry(b: Buckets, row: int, into: int) -> None:
    if into >= 0:
        merge(b, row, into)
    clear(b, row)


@kernel
def merge(b: Buckets, row: int, into: int) -> None:
    """Add the bucket of one row to that of another."""
    for block in range(b.marks.shape[1] - 1):
        mark = b.marks[row, block]
        if not mark & PRESENT:
            continue
        if mark & WEIGHTED and not b.marks[into, block] & WEIGHTED:
            keep_counts(b, into, block)
        counted = b.counts if mark & WEIGHTED else b.weights
        for at in range(block * BINS_A_BLOCK, (block + 1) * BINS_A_BLOCK):
            for label in range(2):
                b.weights[into, at, label] += b.weights[row, at, label]
                if b.marks[into, block] & WEIGHTED:
                    b.counts[into, at, label] += counted[row, at, label]
        b.marks[into, block] |= PRESENT | CHANGED
    for j in range(b.sums.shape[1]):
        b.sums[into, j] += b.sums[row, j]
    b.marks[into, -1] |= PRESENT | CHANGED


@kernel
def keep_counts(b: Buckets, row: int, block: int) -> None:
    """From now on the weights of this block are not its counts."""
    for at in range(block * BINS_A_BLOCK, (block + 1) * BINS_A_BLOCK):
        b.counts[row, at, 0] = b.weights[row, at, 0]
        b.counts[row, at, 1] = b.weights[row, at, 1]
    b.marks[row, block] |= WEIGHTED


@kernel
def clear(b: Buckets, row: int) -> None:
    """Empty the bucket of a row."""
    for block in range(b.marks.shape[1] - 1):
        mark = b.marks[row, block]
        if mark & PRESENT:
            for at in range(block * BINS_A_BLOCK, (block + 1) * BINS_A_BLOCK):
                for label in range(2):
                    b.weights[row, at, label] = 0.0
                    if mark & WEIGHTED:  # memory that was never written takes up no room
                        b.counts[row, at, label] = 0.0
    for j in range(b.sums.shape[1]):
        b.sums[row, j] = 0.0
    for block in range(b.marks.shape[1]):
        b.marks[row, block] = CHANGED | STORED if b.marks[row, block] & STORED else 0
    b.starts[row] = EMPTY

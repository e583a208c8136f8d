"""The state of a model: two numbers per feature, what all features share, and the memory that holds them."""

import contextlib
import hashlib
import math
import mmap
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_core.errors import FormatError
from model_core.examples.records import NO_TIME
from model_core.kernels.numerics import log1p
from model_core.learning.hyperparameters import MOST_EXPERTS, Hyperparameters
from model_core.learning.rows import (
    ROUNDS_A_SEARCH,
    SEEN,
    SLOTS_A_ROUND,
    clear,
    count_nonzero,
    count_nonzero_in_any,
    fold_rows,
    readings,
    readings_of_experts,
    take_out,
    take_over,
)
from model_core.learning.step import FIRST_EXAMPLES, FIXED, Prior, offset_from
from model_core.learning.update import coefficients

FULL_FROM = 1024
"""Slots for each feature seen, below which large pages pay: a fifth of the small ones is in use by then.
Rows of more lanes need as many times more features.
"""

TEXT_FOR_LARGE_PAGES = 2
"""Bytes of rows for each byte of text, up to which large pages pay while it is learned."""

_COLLAPSE = 25  # MADV_COLLAPSE of Linux 6.1, for which Python has no name


class Discount(NamedTuple):
    """What a model that forgets has beside rows and t.

    scale: E, the product of all discounts: a row (z', n') means z = E z', n = E^2 n'.  folds: how many times
    2^-FOLD of that product was moved into the rows.  time: of the newest example, in milliseconds since the
    epoch; NO_TIME before the first, and where the model does not forget by seconds.
    prior: the examples from which its offset is taken.  dropped: how many features were dropped so far.
    """

    scale: float = 1.0
    folds: int = 0
    time: int = NO_TIME
    prior: Prior = FIXED
    dropped: int = 0

    def text(self) -> str:
        """The form that is stored, exact to the last bit; empty where it is NOTHING_FORGOTTEN."""
        if self == NOTHING_FORGOTTEN:
            return ""
        return f"{self.scale.hex()} {self.folds} {self.time}" + _end_of_text(self)

    @property
    def experts(self) -> int:
        return 1

    @property
    def folded(self) -> bool:
        return self.folds > 0


NOTHING_FORGOTTEN = Discount()


@dataclass(frozen=True, eq=False)
class Mixture:
    """What a mixture of K experts has beside rows and t.

    scales float64[K], folds int64[K]: the discount of each expert, as in Discount; time: of them all.
    weights, log_weights float64[K]: the weights of the experts, whose sum is 1, and their logarithms.  With a
        share the former determine the latter; without one it is the other way round.
    largest: the largest importance weight of an example so far, at least 1.
    prior, dropped: as in Discount.
    """

    scales: NDArray[np.float64]
    folds: NDArray[np.int64]
    weights: NDArray[np.float64]
    log_weights: NDArray[np.float64]
    largest: float = 1.0
    time: int = NO_TIME
    prior: Prior = FIXED
    dropped: int = 0

    @classmethod
    def initial(cls, experts: int, prior: Prior = FIXED) -> "Mixture":
        """All experts weigh the same, and nothing is forgotten."""
        log_weight = -log1p(experts - 1.0)
        folds, weights = np.zeros(experts, np.int64), np.full(experts, 1.0 / experts)
        logs = np.full(experts, log_weight)
        return cls(np.ones(experts), folds, weights, logs, prior=prior)

    @property
    def experts(self) -> int:
        return self.scales.size

    @property
    def folded(self) -> bool:
        return bool(self.folds.any())

    def text(self) -> str:
        """The form that is stored, exact to the last bit: `time largest`, then of each expert `scale folds
        weight log-weight`, then the prior unless it is fixed, and what was dropped if anything was.
        """
        columns = (self.scales, self.folds, self.weights, self.log_weights)
        each = zip(*(column.tolist() for column in columns), strict=True)
        experts = (f"{scale.hex()} {folds} {weight.hex()} {log.hex()}" for scale, folds, weight, log in each)
        return " ".join([f"{self.time} {self.largest.hex()}", *experts]) + _end_of_text(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mixture) and self.text() == other.text()

    def __hash__(self) -> int:
        return hash(self.text())


Evidence = Discount | Mixture
"""What a model has beside rows and t, and what every commit and snapshot carries."""


def evidence_before_learning(experts: int, prior: Prior = FIXED) -> Evidence:
    """That of a model that has learned nothing."""
    return Discount(prior=prior) if experts == 1 else Mixture.initial(experts, prior)


class Changes(NamedTuple):
    """What changed in a state: slots uint32[k] with their rows float64[k, 2 K], and slots uint32[d] whose
    features were dropped.  No slot is in both.
    """

    slots: NDArray[np.uint32]
    rows: NDArray[np.float64]
    dropped: NDArray[np.uint32]


NO_SLOTS = np.empty(0, np.uint32)


def lanes_of(experts: int) -> int:
    """Places for the experts of a model in a row: those of a mixture fill whole cache lines of 4 pairs."""
    return 1 if experts == 1 else 4 * -(-experts // 4)


def in_lanes(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows float64[k, 2 K] as those of a state, float64[k, 2 lanes]."""
    experts = rows.shape[1] // 2
    lanes = lanes_of(experts)
    if lanes == experts:
        return np.ascontiguousarray(rows)
    out = np.zeros((rows.shape[0], 2 * lanes))
    out[:, :experts], out[:, lanes : lanes + experts] = rows[:, :experts], rows[:, experts:]
    return out


def parse_evidence(text: str) -> Evidence:
    """The opposite of Discount.text and Mixture.text.  Raises FormatError."""
    if not text:
        return NOTHING_FORGOTTEN
    with_prior, _, dropped_text = text.partition(_DROPPED)
    discount, has_prior, prior_text = with_prior.partition(_PRIOR)
    words = discount.split(" ")
    try:
        prior = _prior_of(prior_text.split(" ")) if has_prior else FIXED
        dropped = int(dropped_text or 0)
        if len(words) == 3:
            found = Discount(float.fromhex(words[0]), int(words[1]), int(words[2]), prior, dropped)
            _check([found.scale], [found.folds], dropped)
            return found
        return _mixture_of(words, prior, dropped)
    except (ValueError, OverflowError) as wrong:
        raise FormatError(f"{text!r} is not the discount of a model") from wrong


def _mixture_of(words: list[str], prior: Prior, dropped: int) -> Mixture:
    """Raises ValueError."""
    experts, more = divmod(len(words) - 2, 4)
    if more or not 2 <= experts <= MOST_EXPERTS:
        raise ValueError("not four words for each expert")
    scales, weights, logs = ([float.fromhex(word) for word in words[i::4]] for i in (2, 4, 5))
    largest = float.fromhex(words[1])
    # As numbers of Python: every commit brings a few, for which numpy takes several times as long.
    if not (abs(sum(weights) - 1.0) < 1e-9 and all(log < 1e-9 for log in logs) and 1.0 <= largest < math.inf):
        raise ValueError("not the weights of experts")
    folds = [int(word) for word in words[3::4]]
    _check(scales, folds, dropped)
    columns = np.array(scales), np.array(folds, np.int64), np.array(weights), np.array(logs)
    return Mixture(*columns, largest, int(words[0]), prior, dropped)


def _check(scales: Sequence[float], folds: Sequence[int], dropped: int) -> None:
    """Raises ValueError."""
    if not (all(0.0 < scale <= 1.0 for scale in scales) and min(folds) >= 0 and dropped >= 0):
        raise ValueError("no discount leads to these")


_PRIOR, _DROPPED = " prior ", " dropped "


def _end_of_text(evidence: Evidence) -> str:
    dropped = f"{_DROPPED}{evidence.dropped}" if evidence.dropped else ""
    return _prior_text(evidence.prior) + dropped


def _prior_text(prior: Prior) -> str:
    """` prior clicks others clicked learned`; empty of a fixed one."""
    if prior == FIXED:
        return ""
    return f"{_PRIOR}{prior.clicks.hex()} {prior.others.hex()} {prior.clicked:.17g} {prior.learned}"


def _prior_of(words: list[str]) -> Prior:
    """Raises ValueError."""
    clicks, others, clicked, learned = words
    prior = Prior(float.fromhex(clicks), float.fromhex(others), float(clicked), int(learned))
    finite = 0.0 <= prior.clicks < np.inf and 0.0 <= prior.others < np.inf
    if not (finite and 0 <= prior.clicked <= prior.learned <= FIRST_EXAMPLES):
        raise ValueError("not the first examples of a model")
    return prior


class ModelState:
    """The arrays of a model of 2**bits slots, of one model or of a mixture of `experts`.

    rows float64[2**bits + 1, 2 lanes]: z and n of every slot, in one cache line, or in two of more than 4
        experts.  The last row is the bias.  One model has one lane: z, n.  A mixture has 4 or 8 (lanes_of),
        with first all z of a slot, then all n; lanes without an expert are 0.
        z: the linear coefficient that a weight is read from, x = prox(z, Q(n), A_t Psi).
        n: the sum of squared gradients, which sets the learning rate.
        Both are in the units of `discount`.
    marks uint8[2**bits + 1]: SEEN, the feature occurred, with a value, and was not dropped since; CHANGED
        since take_changed.
    t: completed rounds.
    features_seen: slots marked SEEN, without the bias.
    changed uint32[], changes: the slots marked CHANGED, each once, in the order of change, and their number.

    Elsewhere rows are without lanes that no expert uses: float64[k, 2 K], first all z, then all n.
    """

    def __init__(self, bits: int, experts: int = 1, prior: Prior = FIXED) -> None:
        self.bits = bits
        self._memory = TableMemory(2**bits, lanes_of(experts))
        self.rows: NDArray[np.float64] = self._memory.rows
        self.marks: NDArray[np.uint8] = self._memory.marks
        self.t = 0
        self.discount = evidence_before_learning(experts, prior)
        self.features_seen = 0
        self.changed: NDArray[np.uint32] = np.empty(1024, np.uint32)
        self.changes = 0

    @classmethod
    def empty(cls, bits: int, experts: int = 1, prior: Prior = FIXED) -> "ModelState":
        """The state before the first round."""
        return cls(bits, experts, prior)

    def prepare_for(self, text_bytes: int) -> None:
        """Prepare for learning so much text at once: more makes up for the first touch of large pages."""
        self._memory.decide(large=TEXT_FOR_LARGE_PAGES * text_bytes >= self.rows.nbytes)

    @property
    def size(self) -> int:
        """The number of slots, and the index of the bias's row."""
        return self.marks.size - 1

    @property
    def experts(self) -> int:
        return self.discount.experts

    @property
    def offset(self) -> float:
        """What the log adds to the margins of all examples; 0 where the prior probability is fixed."""
        return float(offset_from(self.discount.prior))

    def apply_rows(
        self, slots: NDArray[np.uint32], rows: NDArray[np.float64], dropped: NDArray[np.uint32] = NO_SLOTS
    ) -> None:
        """Take over rows float64[k, 2 K] of slots uint32[k] that were stored elsewhere, which marks them
        SEEN, and drop the features of other slots uint32[d].
        """
        # Copies, also of what is contiguous: for memory that cannot be written a kernel is compiled anew.
        fresh = take_over(self.rows, self.marks, np.array(slots, np.uint32), np.array(rows))
        if dropped.size:
            fresh -= clear(self.rows, self.marks, dropped)
        self.now_seen(self.features_seen + fresh)

    def rows_at(self, slots: NDArray[np.uint32]) -> NDArray[np.float64]:
        """Copies the rows float64[k, 2 K] of these slots."""
        # take: whole rows at once, a third of the time of an index, which copies number by number
        rows, lanes = self.rows.take(slots, axis=0), self.rows.shape[1] // 2
        if self.experts == lanes:
            return rows
        return np.hstack([rows[:, : self.experts], rows[:, lanes : lanes + self.experts]])

    def forget_until(self, discount: Evidence) -> None:
        """Take over a later discount; rows are folded as often as those of the state that it comes from."""
        if isinstance(discount, Mixture):
            assert isinstance(self.discount, Mixture)
            due = discount.folds - self.discount.folds
            for expert in np.flatnonzero(due > 0).tolist():
                fold_rows(self.rows, self.marks, expert, int(due[expert]))
        elif isinstance(self.discount, Discount) and discount.folds > self.discount.folds:
            fold_rows(self.rows, self.marks, 0, discount.folds - self.discount.folds)
        self.discount = discount

    def now_seen(self, features: int) -> None:
        """Note how many slots are marked SEEN."""
        self.features_seen = features
        self._memory.settle(features)

    def make_room_for_changes(self, more: int, rounds_that_drop: int = 0) -> None:
        """Let `changed` take this many more slots, and what so many rounds may drop, the first of which may
        search: it grows by doubling, to the size of the model at most.
        """
        searched = SLOTS_A_ROUND * (rounds_that_drop + ROUNDS_A_SEARCH) if rounds_that_drop else 0
        needed = min(self.changes + more + searched, self.marks.size)
        if needed > self.changed.size:
            grown = np.empty(min(max(needed, 2 * self.changed.size), self.marks.size), np.uint32)
            grown[: self.changes] = self.changed[: self.changes]
            self.changed = grown

    def take_changed(self) -> Changes:
        """Return what changed since the last call, each slot once."""
        slots = self.changed[: self.changes].copy()
        rows = np.empty((slots.size, 2 * self.experts))
        kept = take_out(self.rows, self.marks, slots, rows)
        self.changes = 0
        return Changes(slots[:kept], rows[:kept], slots[kept:])

    def changes_at(self, slots: NDArray[np.uint32]) -> Changes:
        """Return these slots as they are now, changed or not; those without a feature count as dropped."""
        seen = self.marks.take(slots) & SEEN != 0
        there = slots[seen]
        return Changes(there, self.rows_at(there), slots[~seen])

    def seen_slots(self) -> NDArray[np.uint32]:
        """uint32[k]: all slots marked SEEN, ascending; the bias's comes last."""
        return np.flatnonzero(self.marks & SEEN).astype(np.uint32)

    def weights(self, slots: NDArray[np.uint32], hyper: Hyperparameters) -> NDArray[np.float64]:
        """float64[k]: the weights of these slots after t rounds; the bias's slot is read without penalty.

        That of a mixture is the mean of its experts' by their weights.
        """
        return self.readings(slots, hyper)[0]

    def readings(self, slots: NDArray[np.uint32], hyper: Hyperparameters) -> NDArray[np.float64]:
        """float64[2, k]: weight and curvature Q_{1:t}, the inverse learning rate, of these slots.

        Of a mixture: the mean weight, and the inverse of the mean learning rate.
        """
        each = self.readings_of_experts(slots, hyper)
        if not isinstance(self.discount, Mixture):
            return each[:, 0]
        part = self.discount.weights[:, np.newaxis]
        with np.errstate(divide="ignore"):
            return np.stack([(part * each[0]).sum(axis=0), 1.0 / (part / each[1]).sum(axis=0)])

    def readings_of_experts(self, slots: NDArray[np.uint32], hyper: Hyperparameters) -> NDArray[np.float64]:
        """float64[2, K, k]: the same for each expert."""
        c, discount = coefficients(hyper, False, 0.0), self.discount
        if isinstance(discount, Mixture):
            return readings_of_experts(self.rows, slots, c, discount.scales)
        return readings(self.rows, slots, c, self.t, discount.scale)[:, np.newaxis]

    def nonzero(self, hyper: Hyperparameters) -> int:
        """Count the features with a non-zero weight after t rounds, without the bias.  Reads every row.

        A feature of a mixture counts if any expert's weight is not 0.
        """
        c, discount = coefficients(hyper, False, 0.0), self.discount
        if isinstance(discount, Mixture):
            return count_nonzero_in_any(self.rows, self.marks, c, discount.scales)
        return count_nonzero(self.rows, self.marks, c, self.t, discount.scale)

    def density(self, hyper: Hyperparameters) -> float:
        """nonzero / features_seen; 0 before the first feature."""
        return self.nonzero(hyper) / self.features_seen if self.features_seen else 0.0

    def digest(self) -> str:
        """Hex digest of t, discount and the seen slots with their z and n: equal states, equal digests."""
        slots = self.seen_slots()
        content = hashlib.sha256(self.t.to_bytes(8, "little") + self.discount.text().encode())
        content.update(slots.astype("<u4").tobytes())
        content.update(self.rows_at(slots).astype("<f8").tobytes())
        return content.hexdigest()


class TableMemory:
    """rows float64[slots + 1, 2 lanes] and marks uint8[slots + 1], zeroed, in one piece that begins a page.

    Small pages while a model is sparse, large ones once it would fill them anyway: few features in random
    slots touch every large page (2 MiB on x86) of a table, and the first touch of each waits until all of it
    is zeroed.  With small pages a model of few features costs what it uses.  A full one is read faster
    through large pages, since the processor remembers where more of it is.
    """

    def __init__(self, slots: int, lanes: int = 1) -> None:
        self._slots, self._lanes = slots, lanes
        self._decided = False
        length, row = slots + 1, 2 * lanes
        self._memory = mmap.mmap(-1, (8 * row + 1) * length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if sys.platform == "linux":
            self._advise(mmap.MADV_NOHUGEPAGE)
        numbers = np.frombuffer(self._memory, np.float64, row * length)
        self.rows: NDArray[np.float64] = numbers.reshape(-1, row)
        self.marks: NDArray[np.uint8] = np.frombuffer(self._memory, np.uint8, length, 8 * row * length)

    def decide(self, large: bool) -> None:
        """Let memory that is touched from now on have large pages or small ones, permanently."""
        self._decided = True
        if large and sys.platform == "linux":
            self._advise(mmap.MADV_HUGEPAGE)

    def settle(self, features_seen: int) -> None:
        """Change to large pages once there are enough features, which copies the memory in use."""
        if not self._decided and features_seen * FULL_FROM >= self._slots * self._lanes:
            self.decide(large=True)
            if sys.platform == "linux":
                self._advise(_COLLAPSE)

    def _advise(self, advice: int) -> None:
        # A kernel without large pages, or none free: it is advice, and all works without.
        with contextlib.suppress(OSError):
            self._memory.madvise(advice)

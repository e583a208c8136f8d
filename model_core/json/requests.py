"""RequestParser, the entry to the package: from the bytes of a body to a batch of hashed examples.

A batch is, bit for bit, the one that the careful reader (pydantic and FeatureEncoder) would make. The parser
returns None, without a reason, for everything that is wrong, and for some of what is right: strings with
escapes, a name twice in an object, integers of more than 15 digits, numbers that take more than one rounding
to read, leap seconds, and any name that FeatureEncoder has not yet reported as met, as text or as number. The
last makes FeatureEncoder meet every name, so that it can report names of mixed kinds.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from mmh3 import mmh3_32_uintdigest as murmur

from model_core.examples.batch import NO_FLOATS, NO_INTEGERS, ExampleBatch
from model_core.hashing.columns import (
    FEATURES,
    HAS_VALUES,
    HAS_WEIGHTS,
    ROWS,
    Floats,
    Integers,
    is_plain,
    number_kind,
)
from model_core.hashing.contract import HashContract, Limits, scale_of
from model_core.json.columns import (
    CONTEXT,
    DONE,
    HAS_IDS,
    HAS_TIMES,
    MISSING_INDICATOR,
    MOST_EXAMPLES,
    MOST_FEATURES,
    MOST_INSTANCES,
    MOST_NAME_BYTES,
    NO_ROOM,
    NUMBER_KIND,
    OPTION_CELLS,
    SEED,
    STATE_CELLS,
    Columns,
)
from model_core.json.kernel import parse
from model_core.json.names import AS_NUMBER, AS_TEXT, KNOWN_NAMES, enter
from model_core.json.rows import AN_EXAMPLE, AN_INSTANCE
from model_core.json.scan import PADDING

_DEFAULT_LIMITS = Limits()
_FIRST_FEATURES = 8192
_MOST_FEATURES = 8192  # of an example; more are left to the careful reader
_KEPT_FEATURES = 1 << 18  # room that is kept from one request to the next


class ParsedUpdate(NamedTuple):
    """The examples of a body; `many`: whether they came as a list."""

    many: bool
    batch: ExampleBatch
    event_ids: Sequence[str | None] | None


class ParsedPredict(NamedTuple):
    """The instances of a body, context included; `many`: whether they came as a list."""

    many: bool
    batch: ExampleBatch
    ids: Sequence[str | None] | None


class RequestParser:
    """Parses the requests of one model, one at a time."""

    def __init__(
        self,
        contract: HashContract,
        limits: Limits = _DEFAULT_LIMITS,
        max_examples: int = 10_000,
        max_instances: int = 1000,
    ) -> None:
        self._is_usable = is_plain(contract)
        self._columns = _columns(contract, limits, max_examples, max_instances)

    def update(self, body: bytes) -> ParsedUpdate | None:
        """Parse the body of an /update, or return None."""
        many = self._parse(body, AN_EXAMPLE)
        return None if many is None else ParsedUpdate(many, *self._taken(body))

    def predict(self, body: bytes) -> ParsedPredict | None:
        """Parse the body of a /predict, or return None."""
        many = self._parse(body, AN_INSTANCE)
        return None if many is None else ParsedPredict(many, *self._taken(body))

    def twin(self) -> "RequestParser":
        """Return a parser that knows the same names, also those met from now on, and may parse in a thread
        while this one parses.
        """
        twin = copy(self)
        rows, seen = self._columns.labels.size, self._columns.seen.size
        twin._columns = _empty_columns(self._columns.options, self._columns.bounds, rows, seen)._replace(  # noqa: SLF001
            kinds=self._columns.kinds
        )
        return twin

    def met(self, name: str, is_number: bool) -> None:
        """Accept bodies with this name as a text, or as a number, from now on."""
        name_hash = np.uint32(murmur(name.encode(), int(self._columns.options[SEED])))
        enter(self._columns.kinds, name_hash, AS_NUMBER if is_number else AS_TEXT)

    def _parse(self, body: bytes, what: int) -> bool | None:
        """Fill the columns; return whether the body has a list of rows, or None if it is not ordinary."""
        if not self._is_usable or not _is_utf8(body):
            return None
        text: Any = b"".join((body, PADDING))  # unlike +, it lets other threads run if the body is large
        while True:
            answer, many = parse(what, len(body), text, *self._columns[1:])
            if answer == DONE:
                return many
            if answer != NO_ROOM:
                self._give_back_room()
                return None
            self._make_room(max(4 * self._columns.hashes.size, len(body) // 4))

    def _taken(self, body: bytes) -> tuple[ExampleBatch, Sequence[str | None] | None]:
        """Return copies of the columns, and the ids."""
        columns = self._columns
        state = columns.state.tolist()
        start, stop, rows = state[CONTEXT], state[FEATURES], state[ROWS]
        batch = ExampleBatch(
            columns.row_ptr[: rows + 1].copy(),
            columns.hashes[start:stop].copy(),
            columns.values[start:stop].copy() if state[HAS_VALUES] else NO_FLOATS,
            columns.labels[:rows].copy(),
            columns.weights[:rows].copy() if state[HAS_WEIGHTS] else NO_FLOATS,
            columns.times[:rows].copy() if state[HAS_TIMES] else NO_INTEGERS,
        )
        self._give_back_room()
        return batch, _texts(body, columns.ids[:rows].tolist()) if state[HAS_IDS] else None

    def _give_back_room(self) -> None:
        if self._columns.hashes.size > _KEPT_FEATURES:
            self._make_room(_FIRST_FEATURES)

    def _make_room(self, features: int) -> None:
        self._columns = self._columns._replace(
            hashes=np.empty(features, np.uint32), values=np.empty(features, np.float64)
        )


def warm_up() -> None:
    """Compile the kernels, or load them from the cache."""
    parser = RequestParser(HashContract())
    parser.update(b"{}")
    parser.predict(b"{}")
    parser.met("a", True)


def _columns(contract: HashContract, limits: Limits, max_examples: int, max_instances: int) -> Columns:
    """Return empty columns; only pages that are touched cost memory."""
    options = _options(contract, limits, max_examples, max_instances)
    bounds = np.array((scale_of(contract.numeric) or 0.0, limits.value_magnitude, limits.weight))
    # A power of two, a quarter of it for the names of a context and an instance.
    seen = 1 << (8 * int(options[MOST_FEATURES])).bit_length()
    return _empty_columns(options, bounds, max(max_examples, max_instances, 1), seen)


def _empty_columns(options: Integers, bounds: Floats, rows: int, seen: int) -> Columns:
    return Columns(
        text=np.empty(0, np.uint8),
        options=options,
        bounds=bounds,
        state=np.zeros(STATE_CELLS, np.int64),
        hashes=np.empty(_FIRST_FEATURES, np.uint32),
        values=np.empty(_FIRST_FEATURES, np.float64),
        row_ptr=np.empty(rows + 1, np.int64),
        labels=np.empty(rows, np.float64),
        weights=np.empty(rows, np.float64),
        times=np.empty(rows, np.int64),
        ids=np.empty((rows, 2), np.int64),
        seen=np.zeros(seen, np.int64),
        kinds=np.zeros(KNOWN_NAMES, np.int64),
    )


def _options(contract: HashContract, limits: Limits, max_examples: int, max_instances: int) -> Integers:
    options = np.zeros(OPTION_CELLS, np.int64)
    options[SEED] = contract.seed
    options[NUMBER_KIND] = number_kind(contract)
    options[MISSING_INDICATOR] = contract.missing == "indicator"
    options[MOST_NAME_BYTES] = limits.name_bytes
    options[MOST_FEATURES] = min(limits.features_per_example, _MOST_FEATURES)
    options[MOST_EXAMPLES] = max_examples
    options[MOST_INSTANCES] = max_instances
    return options


def _is_utf8(body: bytes) -> bool:
    if body.isascii():
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _texts(body: bytes, spans: list[list[int]]) -> list[str | None]:
    return [body[start:stop].decode() if stop else None for start, stop in spans]

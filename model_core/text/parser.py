"""Vowpal Wabbit and libsvm text to batches of examples, from chunks of bytes.

Plain contracts go through a kernel, straight from bytes to hashes.  Contracts with types, transforms of
single names, crosses or strictness go line by line through FeatureEncoder, to the same features.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from model_core.errors import InvalidInput
from model_core.examples.batch import NO_FLOATS, ExampleBatch
from model_core.hashing.contract import HashContract, scale_of
from model_core.hashing.encoder import Encoded, FeatureEncoder
from model_core.text import libsvm, vw
from model_core.text.columns import (
    BUCKET,
    FEATURES,
    HARD_NUMBERS,
    HAS_VALUES,
    HAS_WEIGHTS,
    LOG,
    PROBLEMS,
    RAW,
    ROWS,
    SCALE,
    STATE_CELLS,
    Columns,
    KernelOptions,
)
from model_core.text.lines import TextRow, read_libsvm_line, read_vw_line
from model_core.text.problems import LineError, LineProblem, TextOptions, explain

_PADDING = 8
_NUMBER_KINDS = {"raw": RAW, "log": LOG, "bucket": BUCKET}
_DEFAULT_OPTIONS = TextOptions()


class Parsed(NamedTuple):
    """What a chunk held: the examples of its good lines, and an error for each bad one.

    lines: how many lines were consumed; blank lines and comments count, but are neither example nor error.
    """

    batch: ExampleBatch
    consumed_bytes: int
    lines: int
    errors: list[LineError]


class TextParser:
    """Parses one format under one contract, chunk by chunk."""

    def __init__(
        self,
        contract: HashContract,
        options: TextOptions,
        parse_lines: Callable[..., None],
        read_line: Callable[[bytes, TextOptions], TextRow | None],
    ) -> None:
        self._contract = contract
        self._options = options
        self._parse_lines = parse_lines
        self._read_line = read_line
        self._encoder = FeatureEncoder(contract, options.limits)

    def parse(self, data: bytes, first_line: int = 1, final: bool = True) -> Parsed:
        """Parse the whole lines of `data`, and where `final` also what follows the last newline.

        first_line: the number of the first line, for errors.
        """
        stop = len(data) if final else data.rfind(b"\n") + 1
        lines = data.count(b"\n", 0, stop)
        unterminated = stop > 0 and data[stop - 1] != ord("\n")
        parse = self._parse_in_kernel if is_plain(self._contract) else self._parse_line_by_line
        batch, errors = parse(data, stop, lines + unterminated, first_line)
        return Parsed(batch, stop, lines + unterminated, errors)

    def _parse_in_kernel(
        self, data: bytes, stop: int, lines: int, first_line: int
    ) -> tuple[ExampleBatch, list[LineError]]:
        columns = _columns(data, stop, lines)
        end = stop if stop == 0 or data[stop - 1] == ord("\n") else stop + 1
        options = _kernel_options(self._contract, self._options)
        while True:
            columns.state[:] = 0
            self._parse_lines(columns, options, 0, end, first_line, data.isascii())
            if columns.state[HARD_NUMBERS] == 0:
                break
            columns = _with_hard_numbers(columns)
        return _batch(columns), self._errors(columns)

    def _errors(self, columns: Columns) -> list[LineError]:
        errors = []
        for line, code, start, stop in columns.problems[: columns.state[PROBLEMS]].tolist():
            word = columns.text[start:stop].tobytes().decode("utf-8", "replace")
            errors.append(LineError(line, explain(code, word, self._options)))
        return errors

    def _parse_line_by_line(
        self, data: bytes, stop: int, lines: int, first_line: int
    ) -> tuple[ExampleBatch, list[LineError]]:
        encoded: list[Encoded] = []
        rows: list[TextRow] = []
        errors: list[LineError] = []
        for number, line in enumerate(data[:stop].split(b"\n")[:lines], first_line):
            try:
                row = self._read_line(line, self._options)
                if row is not None:
                    encoded.append(self._encoder.encode_pairs(row.pairs, ()))
                    rows.append(row)
            except LineProblem as problem:
                errors.append(LineError(number, explain(problem.code, problem.word, self._options)))
            except InvalidInput as invalid:
                errors.append(LineError(number, str(invalid)))
        weights = [row.weight for row in rows]
        return ExampleBatch.from_encoded(encoded, [row.label for row in rows], weights), errors


def vw_parser(contract: HashContract, options: TextOptions = _DEFAULT_OPTIONS) -> TextParser:
    """A parser of Vowpal Wabbit text; the grammar stands in vw."""
    return TextParser(contract, options, vw.parse_lines, read_vw_line)


def libsvm_parser(contract: HashContract, options: TextOptions = _DEFAULT_OPTIONS) -> TextParser:
    """A parser of libsvm text; the grammar stands in libsvm."""
    return TextParser(contract, options, libsvm.parse_lines, read_libsvm_line)


def warm_up() -> None:
    """Compile every kernel of the parsers, or load it from the cache."""
    parse_vw(b"1 |f a=b x:2\n", HashContract())
    parse_libsvm(b"1 1:2\n", HashContract())


def parse_vw(
    data: bytes,
    contract: HashContract,
    options: TextOptions = _DEFAULT_OPTIONS,
    first_line: int = 1,
    final: bool = True,
) -> Parsed:
    """One chunk of Vowpal Wabbit text; a parser that is kept remembers names."""
    return vw_parser(contract, options).parse(data, first_line, final)


def parse_libsvm(
    data: bytes,
    contract: HashContract,
    options: TextOptions = _DEFAULT_OPTIONS,
    first_line: int = 1,
    final: bool = True,
) -> Parsed:
    """One chunk of libsvm text."""
    return libsvm_parser(contract, options).parse(data, first_line, final)


def is_plain(contract: HashContract) -> bool:
    """Whether names alone decide nothing, so that the kernels can hash words as they stand.

    Text has no nulls, so that `missing` does not matter where there are no crosses.
    """
    return not (contract.types or contract.transforms or contract.crosses or contract.strict)


def _kernel_options(contract: HashContract, options: TextOptions) -> KernelOptions:
    scale = scale_of(contract.numeric)
    limits = options.limits
    return KernelOptions(
        seed=contract.seed,
        number_kind=SCALE if scale is not None else _NUMBER_KINDS[str(contract.numeric)],
        number_scale=scale or 0.0,
        prefix_names=options.namespaces == "prefix",
        minus_plus=options.labels == "minus_plus",
        value_limit=float(limits.value_magnitude),
        weight_limit=float(limits.weight),
        name_limit=limits.name_bytes,
        feature_limit=limits.features_per_example,
    )


def _columns(data: bytes, size: int, lines: int) -> Columns:
    """The text and room for what is made of it: a feature takes two bytes, and a hard number four."""
    text = np.empty(size + _PADDING, np.uint8)
    text[:size] = np.frombuffer(data, np.uint8, size)
    text[size:] = ord("\n")
    return Columns(
        text=text,
        state=np.zeros(STATE_CELLS, np.int64),
        scratch=np.empty(size + 1024, np.uint8),
        hashes=np.empty(size // 2 + 1, np.uint32),
        values=np.empty(size // 2 + 1, np.float64),
        row_ends=np.empty(lines + 1, np.int64),
        labels=np.empty(lines + 1, np.uint8),
        weights=np.empty(lines + 1, np.float64),
        problems=np.empty((lines, 4), np.int64),
        hard_numbers=np.empty((size // 4 + 1, 2), np.int64),
        known_starts=np.empty(0, np.int64),
        known_values=np.empty(0, np.float64),
    )


def _with_hard_numbers(columns: Columns) -> Columns:
    """The numbers that the kernel left to float() now known, by ascending position."""
    spans = columns.hard_numbers[: columns.state[HARD_NUMBERS]]
    read = [float(columns.text[start:stop].tobytes()) for start, stop in spans.tolist()]
    starts = np.concatenate([columns.known_starts, spans[:, 0]])
    values = np.concatenate([columns.known_values, np.array(read)])
    order = np.argsort(starts)
    return columns._replace(known_starts=starts[order], known_values=values[order])


def _batch(columns: Columns) -> ExampleBatch:
    state = columns.state
    rows, features = state[ROWS], state[FEATURES]
    return ExampleBatch(
        row_ptr=np.concatenate([np.zeros(1, np.int64), columns.row_ends[:rows]]),
        hashes=columns.hashes[:features],
        values=columns.values[:features] if state[HAS_VALUES] else NO_FLOATS,
        labels=columns.labels[:rows],
        weights=columns.weights[:rows] if state[HAS_WEIGHTS] else NO_FLOATS,
    )

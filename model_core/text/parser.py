"""Vowpal Wabbit and libsvm text to batches of examples, from chunks of bytes.

Plain contracts go through a kernel, straight from bytes to hashes.  Contracts with types, transforms of
single names, crosses or strictness go line by line through FeatureEncoder, to the same features.  Only what
the format and the contract need is imported: a command that reads one small file would wait for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from model_core.errors import InvalidInput
from model_core.examples.batch import NO_FLOATS, ExampleBatch
from model_core.hashing.columns import FEATURES, HAS_VALUES, HAS_WEIGHTS, ROWS, is_plain, number_kind
from model_core.hashing.contract import HashContract, scale_of
from model_core.kernels.compiled import BYTES_A_MASK
from model_core.text.columns import HARD_NUMBERS, PROBLEMS, STATE_CELLS, Columns, KernelOptions
from model_core.text.problems import LineError, LineProblem, TextOptions, explain

if TYPE_CHECKING:
    from model_core.hashing.encoder import Encoded, FeatureEncoder
    from model_core.text.lines import TextRow

_PADDING = 2 * BYTES_A_MASK
_DEFAULT_OPTIONS = TextOptions()

TextFormat = Literal["vw", "libsvm"]


class Parsed(NamedTuple):
    """The examples of the good lines of a chunk, and an error for each bad one.

    lines: how many lines were consumed; blank lines and comments count, but are neither example nor error.
    """

    batch: ExampleBatch
    consumed_bytes: int
    lines: int
    errors: list[LineError]


class TextParser:
    """Parses one format under one contract, chunk by chunk.

    encoder: encodes every line, of plain contracts too.
    """

    def __init__(
        self,
        contract: HashContract,
        options: TextOptions,
        text_format: TextFormat,
        encoder: FeatureEncoder | None = None,
    ) -> None:
        self._contract = contract
        self._options = options
        self._format = text_format
        self._encoder = encoder
        self._columns = _columns(0)
        if encoder is None and not is_plain(contract):
            from model_core.hashing.encoder import FeatureEncoder

            self._encoder = FeatureEncoder(contract, options.limits)

    def parse(self, data: bytes, first_line: int = 1, final: bool = True, begun: bytes = b"") -> Parsed:
        """Parse the whole lines of `begun` and `data`, and where `final` also what follows the last newline.

        first_line: the number of the first line, for errors.  begun: the beginning of that line, if any.
        """
        stop = len(data) if final else data.rfind(b"\n") + 1
        if stop > 0 or final:
            stop += len(begun)
        if self._encoder is None:
            return self._parse_in_kernel(begun, data, stop, first_line)
        data = begun + data
        unterminated = stop > 0 and data[stop - 1] != ord("\n")
        lines = data.count(b"\n", 0, stop) + unterminated
        batch, errors = self._parse_line_by_line(data[:stop], lines, first_line, self._encoder)
        return Parsed(batch, stop, lines, errors)

    def _parse_in_kernel(self, begun: bytes, data: bytes, stop: int, first_line: int) -> Parsed:
        columns = self._columns_with(begun, data, stop)
        options = _kernel_options(self._contract, self._options)
        parse_lines = _kernel_of(self._format)
        while True:
            columns.state[:] = 0
            line = parse_lines(columns, options, stop, first_line)
            if columns.state[HARD_NUMBERS] == 0:
                break
            columns = _with_hard_numbers(columns)
        return Parsed(_batch(columns), stop, line - first_line, self._errors(columns))

    def _columns_with(self, begun: bytes, data: bytes, size: int) -> Columns:
        """Put the first `size` bytes of `begun` and `data` into the columns, which the next call uses again:
        fresh memory costs time.
        """
        if size > self._columns.text.size - _PADDING:
            self._columns = _columns(size)
        text, start = self._columns.text, min(len(begun), size)
        room = text.data
        room[:start], room[start:size] = begun[:start], memoryview(data)[: size - start]
        text[size : size + _PADDING] = ord("\n")
        return self._columns

    def _errors(self, columns: Columns) -> list[LineError]:
        errors = []
        for line, code, start, stop in columns.problems[: columns.state[PROBLEMS]].tolist():
            word = columns.text[start:stop].tobytes().decode("utf-8", "replace")
            errors.append(LineError(line, explain(code, word, self._options)))
        return errors

    def _parse_line_by_line(
        self, data: bytes, lines: int, first_line: int, encoder: FeatureEncoder
    ) -> tuple[ExampleBatch, list[LineError]]:
        read_line = _line_reader_of(self._format)
        encoded: list[Encoded] = []
        rows: list[TextRow] = []
        errors: list[LineError] = []
        for number, line in enumerate(data.split(b"\n")[:lines], first_line):
            try:
                row = read_line(line, self._options)
                if row is not None:
                    encoded.append(encoder.encode_pairs(row.pairs, ()))
                    rows.append(row)
            except LineProblem as problem:
                errors.append(LineError(number, explain(problem.code, problem.word, self._options)))
            except InvalidInput as invalid:
                errors.append(LineError(number, str(invalid)))
        weights = [row.weight for row in rows]
        return ExampleBatch.from_encoded(encoded, [row.label for row in rows], weights), errors


def vw_parser(
    contract: HashContract, options: TextOptions = _DEFAULT_OPTIONS, encoder: FeatureEncoder | None = None
) -> TextParser:
    """Build a parser of Vowpal Wabbit text; `grammars` has its grammar."""
    return TextParser(contract, options, "vw", encoder)


def libsvm_parser(
    contract: HashContract, options: TextOptions = _DEFAULT_OPTIONS, encoder: FeatureEncoder | None = None
) -> TextParser:
    """Build a parser of libsvm text; `grammars` has its grammar."""
    return TextParser(contract, options, "libsvm", encoder)


def _kernel_of(text_format: TextFormat) -> Callable[..., int]:
    from model_core.text.grammars import parse_libsvm_lines, parse_vw_lines

    return parse_vw_lines if text_format == "vw" else parse_libsvm_lines


def _line_reader_of(text_format: TextFormat) -> Callable[[bytes, TextOptions], TextRow | None]:
    from model_core.text.lines import read_libsvm_line, read_vw_line

    return read_vw_line if text_format == "vw" else read_libsvm_line


def warm_up(text_format: TextFormat) -> None:
    """Compile the kernels of a format, or load them from the cache."""
    if text_format == "vw":
        parse_vw(b"1 |f a=b x:2\n", HashContract())
    else:
        parse_libsvm(b"1 1:2\n", HashContract())


def parse_vw(
    data: bytes,
    contract: HashContract,
    options: TextOptions = _DEFAULT_OPTIONS,
    first_line: int = 1,
    final: bool = True,
) -> Parsed:
    """Parse one chunk of Vowpal Wabbit text; for many, a TextParser remembers names."""
    return vw_parser(contract, options).parse(data, first_line, final)


def parse_libsvm(
    data: bytes,
    contract: HashContract,
    options: TextOptions = _DEFAULT_OPTIONS,
    first_line: int = 1,
    final: bool = True,
) -> Parsed:
    """Parse one chunk of libsvm text."""
    return libsvm_parser(contract, options).parse(data, first_line, final)


def _kernel_options(contract: HashContract, options: TextOptions) -> KernelOptions:
    limits = options.limits
    return KernelOptions(
        seed=contract.seed,
        number_kind=number_kind(contract),
        number_scale=scale_of(contract.numeric) or 0.0,
        prefix_names=options.namespaces == "prefix",
        minus_plus=options.labels == "minus_plus",
        value_limit=float(limits.value_magnitude),
        weight_limit=float(limits.weight),
        name_limit=limits.name_bytes,
        feature_limit=limits.features_per_example,
    )


def _columns(size: int) -> Columns:
    """Allocate columns for a text: a line and a feature take at least two bytes, and a hard number four."""
    lines = size // 2 + 1
    return Columns(
        text=np.empty(size + _PADDING, np.uint8),
        ends=np.empty((size + _PADDING) // BYTES_A_MASK, np.uint64),
        state=np.zeros(STATE_CELLS, np.int64),
        scratch=np.empty(size + 1024, np.uint8),
        starts=np.empty(size // 2 + 2, np.int32),
        lengths=np.empty(size // 2 + 2, np.int32),
        hashes=np.empty(size // 2 + 1, np.uint32),
        values=np.empty(size // 2 + 1, np.float64),
        row_ends=np.empty(lines, np.int64),
        labels=np.empty(lines, np.float64),
        weights=np.empty(lines, np.float64),
        problems=np.empty((lines, 4), np.int64),
        hard_numbers=np.empty((size // 4 + 1, 2), np.int64),
        known_starts=np.empty(0, np.int64),
        known_values=np.empty(0, np.float64),
    )


def _with_hard_numbers(columns: Columns) -> Columns:
    """Add the numbers that the kernel left to float(), by ascending position."""
    spans = columns.hard_numbers[: columns.state[HARD_NUMBERS]]
    read = [float(columns.text[start:stop].tobytes()) for start, stop in spans.tolist()]
    starts = np.concatenate([columns.known_starts, spans[:, 0]])
    values = np.concatenate([columns.known_values, np.array(read)])
    order = np.argsort(starts)
    return columns._replace(known_starts=starts[order], known_values=values[order])


def _batch(columns: Columns) -> ExampleBatch:
    """Copy the examples out of the columns."""
    state = columns.state
    rows, features = state[ROWS], state[FEATURES]
    return ExampleBatch(
        row_ptr=np.concatenate([np.zeros(1, np.int64), columns.row_ends[:rows]]),
        hashes=columns.hashes[:features].copy(),
        values=columns.values[:features].copy() if state[HAS_VALUES] else NO_FLOATS,
        labels=columns.labels[:rows].copy(),
        weights=columns.weights[:rows].copy() if state[HAS_WEIGHTS] else NO_FLOATS,
    )

"""Vowpal Wabbit text, line by line, in the grammar of files (docs/file-formats.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from model_core.errors import InputCode, InvalidInput
from model_core.text import problems
from model_core.text.lines import features_of, read_vw_line
from model_core.text.parser import Parsed, vw_parser
from model_core.text.problems import LineError, LineProblem, TextOptions
from service.example_log.incoming import NewExamples
from service.models.config.model import limits_of
from service.models.evaluation.slices import SliceName
from service.models.registry import OpenModel
from service.parsing.streams.groups import (
    SAMPLED_LINES,
    THREAD_BYTES,
    BadLine,
    Group,
    StreamOptions,
    bad_line,
    json_of_features,
)
from service.parsing.streams.lines import LineFormat, Lines

_BLANKS = b" \t\r"
_CODES: dict[int, InputCode] = {
    problems.NO_LABEL: "required",
    problems.NO_NAME: "required",
    problems.BAD_WEIGHT: "out_of_range",
    problems.OUT_OF_BOUNDS: "out_of_range",
    problems.NOT_FINITE: "out_of_range",
    problems.LONG_NAME: "wrong_length",
    problems.TOO_MANY_FEATURES: "too_many",
}
"""Codes of problems; those of others are `invalid_value`."""


class _Reader:
    def __init__(self, model: OpenModel, options: StreamOptions) -> None:
        self._model = model
        self._options = TextOptions(options.labels, options.namespaces, limits_of(options.limits))
        self._parser = vw_parser(model.config.hashing, self._options)

    async def read(self, lines: Lines) -> Group:
        data = b"\n".join(lines.texts)
        if len(data) < THREAD_BYTES:
            parsed = self._parser.parse(data, lines.first)
        else:
            parsed = await asyncio.to_thread(self._parser.parse, data, lines.first)
        return self._group(lines, parsed)

    def _group(self, lines: Lines, parsed: Parsed) -> Group:
        bad = {error.line_number: error for error in parsed.errors}
        good = [
            number
            for number, text in enumerate(lines.texts, lines.first)
            if number not in bad and text.strip(_BLANKS)
        ]
        wrong = [self._described(error, lines.texts[number - lines.first]) for number, error in bad.items()]
        names = self._names_in([lines.texts[number - lines.first] for number in good])
        last = lines.first + len(lines.texts) - 1
        examples = NewExamples(parsed.batch, None, names)
        return Group(self._model, lines.first, last, examples, good, {}, wrong)

    def _described(self, error: LineError, text: bytes) -> BadLine:
        """Read a bad line again for the code, and for the column, if the word at fault is there once."""
        code: InputCode = "invalid_value"
        column = None
        try:
            read_vw_line(text, self._options)
        except LineProblem as problem:
            code = _CODES.get(problem.code, code)
            word = problem.word.encode("utf-8", "replace")
            if word and text.count(word) == 1:
                column = text.index(word) + 1
        return bad_line(error.line_number, InvalidInput((), error.reason, code), column)

    def _names_in(self, texts: Sequence[bytes]) -> dict[int, SliceName]:
        self._model.sample(self._as_json(texts[:SAMPLED_LINES]))
        return {} if self._model.slices is None else self._model.new_slice_names(self._as_json(texts))

    def _as_json(self, texts: Sequence[bytes]) -> bytes:
        """Return the features of good lines as the body of a request has them."""
        rows = [read_vw_line(text, self._options) for text in texts]
        return json_of_features(
            features_of(row.pairs, self._model.config.hashing) for row in rows if row is not None
        )


VOWPAL_WABBIT = LineFormat(("text/x-vw",), _Reader)

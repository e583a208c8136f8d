"""Problems of a line of text: the codes that kernels return, and their messages."""

from typing import Literal, NamedTuple

from model_core.hashing.contract import LARGEST_NUMBER, Limits

Labels = Literal["zero_one", "minus_plus"]
Namespaces = Literal["ignore", "prefix"]

OK, BLANK_LINE = 0, 1
NO_BAR, NO_LABEL, BAD_LABEL, BAD_WEIGHT, EXTRA_WORD = 2, 3, 4, 5, 6
CONTROL_CHARACTER, NOT_UTF8 = 7, 8
NO_NAME, LONG_NAME, EQUALS_IN_NAMESPACE = 9, 10, 11
NOT_A_NUMBER, OUT_OF_BOUNDS, TOO_MANY_FEATURES = 12, 13, 14
BAD_INDEX, NO_VALUE, NOT_FINITE = 15, 16, 17

_MAX_SHOWN = 60


class TextOptions(NamedTuple):
    """Options for reading lines of text.

    labels: "minus_plus" takes 1 for a click and -1 for none, "zero_one" 1 for a click, 0 for none and any
        number between; any other is an error.
    namespaces: "prefix" puts `f^` before each name in the Vowpal Wabbit namespace f; "ignore" does not.
    """

    labels: Labels = "minus_plus"
    namespaces: Namespaces = "ignore"
    limits: Limits = Limits()


class LineError(NamedTuple):
    """A line that was skipped, counted from 1, and the reason; `lines` of a record that spans several.

    file: its name, if several are read.
    """

    line_number: int
    reason: str
    lines: int = 1
    file: str = ""


class LineProblem(ValueError):
    """A problem by its code, with the word at fault."""

    def __init__(self, code: int, word: str = "") -> None:
        super().__init__(code, word)
        self.code = code
        self.word = word


def explain(code: int, word: str, options: TextOptions) -> str:
    """Return the message for a code; `word` is the part of the line at fault."""
    limits, bound = options.limits, options.limits.value_magnitude
    allowed = "neither 1 nor -1" if options.labels == "minus_plus" else "no number from 0 to 1"
    shown = repr(word if len(word) <= _MAX_SHOWN else word[: _MAX_SHOWN - 3] + "...")
    return {
        NO_BAR: "no '|' before the features",
        NO_LABEL: "no label (a word that touches the first '|' is a tag)",
        BAD_LABEL: f"the label {shown} is {allowed}{_other_labels(word, options.labels)}",
        BAD_WEIGHT: f"the weight {shown} is not a number from 0 to {limits.weight:g}",
        EXTRA_WORD: f"{shown} follows label and weight: initial predictions are not supported",
        CONTROL_CHARACTER: f"the control character {shown}",
        NOT_UTF8: "not UTF-8: convert the file first, for instance `iconv -f latin1 -t utf-8 FILE`",
        NO_NAME: f"{shown}: a feature needs a name",
        LONG_NAME: f"{shown}: a feature's name takes at most {limits.name_bytes} bytes",
        EQUALS_IN_NAMESPACE: f"{shown}: a feature's name, the namespace before it, cannot contain '='",
        NOT_A_NUMBER: f"{shown} is not a decimal number",
        OUT_OF_BOUNDS: f"{shown}: the value must be between -{bound:g} and {bound:g}{_way_out(word)}",
        TOO_MANY_FEATURES: f"more than {limits.features_per_example} features: --max-features allows more",
        BAD_INDEX: f"{shown}: a feature's index must be a whole number of digits",
        NO_VALUE: f"{shown}: a feature is written index:value",
        NOT_FINITE: f"{shown}: the number must be finite; no number is larger than {LARGEST_NUMBER:g}",
    }[code]


def _other_labels(word: str, labels: Labels) -> str:
    """Return the flag that reads a label which is one of the other kind."""
    if labels == "minus_plus" and _is_below_one(word):
        return ": --labels zero_one reads 0 and 1, and what is between"
    if labels == "zero_one" and word in ("-1", "-1.0"):
        return ": --labels minus_plus reads -1 and 1"
    return ""


def _is_below_one(word: str) -> bool:
    """Test for a number from 0 to 1, but not 1."""
    try:
        return 0.0 <= float(word) < 1.0
    except ValueError:
        return False


def _way_out(word: str) -> str:
    """Return the hint for an id that was written as a number, in a word out of bounds."""
    name, _, number = word.partition(":")
    is_id = number.isascii() and number.isdigit() and not name.isdigit() and "=" not in name
    if not (is_id and name):
        return ""
    return f"; write an id as text: {name[:_MAX_SHOWN]}={number[:_MAX_SHOWN]}"

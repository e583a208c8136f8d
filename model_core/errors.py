"""The two ways in which something handed to the core can be wrong."""

from collections.abc import Sequence
from typing import Literal

Path = tuple[str | int, ...]

InputCode = Literal[
    "invalid_json",  # the body as a whole cannot be parsed
    "required",  # a field is missing
    "unknown_field",  # a field is not allowed here
    "duplicate_name",  # a name occurs twice
    "wrong_type",  # another JSON type is needed
    "out_of_range",  # a number is outside its bounds, NaN, or infinite
    "wrong_length",  # a text is empty or too long
    "too_many",  # a list or an object has more items than allowed
    "invalid_value",  # anything else that is not one of the values allowed
]


class InvalidInput(ValueError):
    """A value that a caller sent is outside what is allowed; `detail` says what is allowed.

    path: position of the value, from the outermost container: names are str, indices are int.
    code: the kind of mistake, for programs; one of InputCode.
    str() renders path and detail for people, such as `examples[3].features.age: NaN is not a value`.
    The path can always be encoded and is never long, whatever names a caller sent.
    """

    def __init__(self, path: Sequence[str | int], detail: str, code: InputCode = "invalid_value") -> None:
        self.path: Path = tuple(_presentable(p) if isinstance(p, str) else p for p in path)
        self.detail = detail
        self.code: InputCode = code
        super().__init__(self.path, self.detail, self.code)

    def __str__(self) -> str:
        where = render_path(self.path)
        return f"{where}: {self.detail}" if where else self.detail

    def within(self, *outer: str | int) -> "InvalidInput":
        """Return the same error as seen from a container further out."""
        return InvalidInput((*outer, *self.path), self.detail, self.code)


class FormatError(ValueError):
    """Bytes that are not what they should be: truncated, foreign or of an unknown version."""


def _presentable(name: str) -> str:
    """Without lone surrogates, which no JSON reply could carry, and cut where it is absurdly long."""
    shortened = name if len(name) <= 300 else f"{name[:297]}..."
    return shortened.encode("utf-8", "backslashreplace").decode()


def render_path(path: Sequence[str | int]) -> str:
    """("examples", 3, "label") -> "examples[3].label"."""
    rendered = ""
    for part in path:
        if isinstance(part, int):
            rendered += f"[{part}]"
        else:
            rendered += f".{part}" if rendered else part
    return rendered

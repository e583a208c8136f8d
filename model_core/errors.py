"""The two ways in which something handed to the core can be wrong."""

from collections.abc import Sequence

Path = tuple[str | int, ...]


class InvalidInput(ValueError):
    """A value that a caller sent is outside what is allowed; `detail` says what is allowed.

    path: where the value stands, from the outermost container: names are str, positions are int.
    str() renders it for people, such as `examples[3].features.age: NaN is not a value`.
    The path can always be encoded and is never long, whatever names a caller sent.
    """

    def __init__(self, path: Sequence[str | int], detail: str) -> None:
        self.path: tuple[str | int, ...] = tuple(_presentable(p) if isinstance(p, str) else p for p in path)
        self.detail = detail
        super().__init__(self.path, self.detail)

    def __str__(self) -> str:
        where = render_path(self.path)
        return f"{where}: {self.detail}" if where else self.detail

    def within(self, *outer: str | int) -> "InvalidInput":
        """The same complaint, seen from a container further out."""
        return InvalidInput((*outer, *self.path), self.detail)


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

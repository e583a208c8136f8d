"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def markdown_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to equal width; the first is aligned left, the others as their first cell suggests."""
    widths = [max(len(row[i]) for row in (heading, *rows)) for i in range(len(heading))]
    numeric = [bool(rows) and rows[0][i].lstrip("+-")[:1].isdigit() for i in range(len(heading))]

    def line(cells: Sequence[str]) -> str:
        padded = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(cells, widths, numeric, strict=True))
        return "| " + " | ".join(padded) + " |"

    rules = ["-" * (w - 1) + ":" if n else "-" * w for w, n in zip(widths, numeric, strict=True)]
    return "\n".join((line(heading), "| " + " | ".join(rules) + " |", *map(line, rows)))

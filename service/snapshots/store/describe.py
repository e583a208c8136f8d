"""What is told of a snapshot, over HTTP and on the command line."""

from __future__ import annotations

from typing import Any

from model_core.snapshot import SnapshotHeader
from service.errors import DamagedSnapshot, UnknownSnapshot
from service.snapshots.store.catalogue import Catalogue, Entry
from service.snapshots.store.compatibility import revision_of

FEWEST_COLUMNS = 120
"""Of a table. On a narrower screen its lines break; an id is to be copied, so none of it may be left out."""


def described(entry: Entry, header: SnapshotHeader) -> dict[str, Any]:
    return {
        "id": entry.id,
        "model": header.model,
        "tags": list(entry.tags),
        "time": header.time,
        "reason": header.reason,
        "revision": revision_of(header),
        "applied": header.applied,
        "applied_number": header.applied_number,
        "t": header.t,
        "features_seen": header.features_seen,
        "nonzero": header.nonzero,
        "density": header.density,
        "bytes": entry.bytes,
        "fingerprint": header.fingerprint,
        "config": dict(header.config),
        "evaluation": None if header.figures is None else dict(header.figures),
    }


def listed(catalogue: Catalogue) -> tuple[list[dict[str, Any]], list[str]]:
    """Those that can be read, oldest first, and what is wrong with the others."""
    found: list[dict[str, Any]] = []
    damaged: list[str] = []
    for entry in catalogue.entries():
        try:
            found.append(described(entry, catalogue.header(entry)))
        except DamagedSnapshot as wrong:
            damaged.append(wrong.detail)
        except UnknownSnapshot:  # deleted since the names were read
            continue
    return found, damaged


def print_table(found: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "tags", "reason", box=None)
    for column in ("examples", "features", "density", "bytes"):
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(
            *(one["id"], " ".join(one["tags"]), one["reason"], f"{one['t']:,}", f"{one['features_seen']:,}"),
            *(f"{one['density']:.3f}", f"{one['bytes']:,}"),
        )
    console = Console()
    Console(width=max(console.width, FEWEST_COLUMNS)).print(table)

"""Parquet and Arrow files of given columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_arrow(path: Path, columns: Mapping[str, Any]) -> Path:
    """Write Parquet, an Arrow file or, by any other suffix, an Arrow stream; the path."""
    import pyarrow as pa
    from pyarrow import ipc, parquet

    table = pa.table(dict(columns))
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
        return path
    new = ipc.new_file if path.suffix == ".arrow" else ipc.new_stream
    with new(path, table.schema) as writer:
        writer.write_table(table)
    return path

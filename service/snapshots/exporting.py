"""A snapshot as a file for others: all of it, or what predicting takes; and a file as a snapshot again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from model_core.contract import HashContract
from model_core.errors import FormatError
from model_core.snapshot import Snapshot, compact_weights
from service.errors import CommandFailure
from service.snapshots.files import read_snapshot
from service.snapshots.fitting import config_of
from service.snapshots.object_store import DirectoryStore

Format = Literal["safetensors", "npz", "serving"]

SERVING_VERSION = 2
SERVED = np.dtype([("slot", "<u4"), ("weight", "<f8")])
"""One weight of a serving export, 12 bytes."""


def export(snapshot: Snapshot, path: Path, kind: Format) -> int:
    """Writes the file, whole or not at all; returns its size. Raises OSError, SnapshotMismatch."""
    writers: dict[Format, Callable[[Snapshot, BinaryIO], None]] = {
        "safetensors": _write_safetensors,
        "npz": _write_npz,
        "serving": _write_serving,
    }
    return DirectoryStore(path.parent).put(path.name, lambda file: writers[kind](snapshot, file))


def import_file(path: Path) -> Snapshot:
    """Of a snapshot's file, as it is in a store or exported as safetensors. Raises CommandFailure."""
    try:
        with path.open("rb") as file:
            return read_snapshot(file)
    except FormatError as wrong:
        raise CommandFailure(f"{path}: {wrong}") from wrong
    except OSError as failure:
        raise CommandFailure(f"{path} cannot be read: {failure.strerror or failure}") from failure


def _write_safetensors(snapshot: Snapshot, file: BinaryIO) -> None:
    file.writelines(snapshot.encode())


def _write_npz(snapshot: Snapshot, file: BinaryIO) -> None:
    header = np.frombuffer(snapshot.header.text().encode(), np.uint8)
    rows = snapshot.rows
    np.savez_compressed(
        file, slots=snapshot.slots, z=rows[:, 0], n=rows[:, 1], weights=_weights(snapshot), header=header
    )


def _write_serving(snapshot: Snapshot, file: BinaryIO) -> None:
    """A line of JSON, then the weights that are not 0 as records of SERVED."""
    config, slots, weights = config_of(snapshot.header), snapshot.slots, _weights(snapshot)
    hashing = config.hashing
    bias = weights[slots == hashing.size]
    kept = (weights != 0.0) & (slots != hashing.size)
    served = np.empty(int(kept.sum()), SERVED)
    served["slot"], served["weight"] = slots[kept], weights[kept]
    described: dict[str, Any] = {
        "format": "ftrl-serving",
        "version": SERVING_VERSION,
        "needs": _needs(hashing),
        "model": snapshot.header.model,
        "t": snapshot.header.t,
        "offset": hashing.prior_offset,
        **hashing.to_json(),
        "bias": float(bias[0]) if bias.size else 0.0,
        "count": len(served),
    }
    file.write(json.dumps(described).encode() + b"\n")
    file.write(served.tobytes())


def _needs(hashing: HashContract) -> list[str]:
    """What a reader has to know beside buckets of numbers, texts, lists, booleans, nulls and crosses."""
    transforms = {json.dumps(one) for one in (hashing.numeric, *hashing.transforms.values())}
    needs = [f"numbers by the transform {one}" for one in sorted(transforms - {'"bucket"'})]
    return needs + ["numbers as categories"] * ("category" in hashing.types.values())


def _weights(snapshot: Snapshot) -> np.ndarray[Any, np.dtype[np.float64]]:
    header = snapshot.header
    hyper = config_of(header).hyper
    return compact_weights(snapshot.slots, snapshot.rows, header.bits, header.t, hyper)

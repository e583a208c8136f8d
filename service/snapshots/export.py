"""Export and import of snapshots, as complete files or only what predicting needs; and their comparison."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from model_core.errors import FormatError
from model_core.hashing.contract import HashContract
from model_core.learning.state import Discount, parse_evidence
from model_core.learning.step import offset_from
from model_core.snapshot import Snapshot, SnapshotHeader
from service.errors import CommandFailure, SnapshotMismatch
from service.models.feature_names import slots_of
from service.snapshots.store.formats import config_of, read_snapshot, revision_of
from service.snapshots.store.objects import DirectoryStore

Format = Literal["safetensors", "npz", "serving"]

SERVING_VERSION, MIXTURE_VERSION = 2, 3
BIAS = "bias"


def export(snapshot: Snapshot, path: Path, kind: Format) -> int:
    """Write the file completely or not at all; return its size. Raises OSError, SnapshotMismatch."""
    writers: dict[Format, Callable[[Snapshot, BinaryIO], None]] = {
        "safetensors": _write_safetensors,
        "npz": _write_npz,
        "serving": _write_serving,
    }
    return DirectoryStore(path.parent).put(path.name, lambda file: writers[kind](snapshot, file))


def import_file(path: Path) -> Snapshot:
    """Read a file as it is in a store, or exported as safetensors. Raises CommandFailure."""
    try:
        with path.open("rb") as file:
            return read_snapshot(file)
    except FormatError as wrong:
        raise CommandFailure(f"{path}: {wrong}") from wrong
    except OSError as failure:
        raise CommandFailure(f"{path} cannot be read: {failure.strerror or failure}") from failure


def difference(
    a: Snapshot, b: Snapshot, limit: int = 20, names: Sequence[str] | None = None
) -> dict[str, Any]:
    """Compare two snapshots: figures of both, and the `limit` largest changes of weights, with the `names` in
    their slots, if any are known.

    Raises SnapshotMismatch.
    """
    if a.header.fingerprint != b.header.fingerprint:
        raise SnapshotMismatch(
            f"The snapshots were hashed under different contracts ({a.header.fingerprint} and"
            f" {b.header.fingerprint}): their slots mean different features."
        )
    slots = np.union1d(a.slots, b.slots)
    weights_a, weights_b = _weights_at(a, slots), _weights_at(b, slots)
    moved = np.abs(weights_b - weights_a)
    order = np.argsort(-moved, kind="stable")[:limit]
    bias = 2**a.header.bits
    known = None if names is None else slots_of(names, config_of(a.header).hashing)
    return {
        "a": _described(a.header),
        "b": _described(b.header),
        "features_in_both": int(np.intersect1d(a.slots, b.slots).size),
        "weights_changed": int(np.count_nonzero(moved)),
        "weight_distance": float(np.sqrt(np.sum(moved * moved))),
        "moved_most": [
            {
                "slot": BIAS if slots[i] == bias else int(slots[i]),
                **({} if known is None else {"names": known.get(int(slots[i]), [])}),
                "a": weights_a[i],
                "b": weights_b[i],
            }
            for i in order.tolist()
            if moved[i] > 0
        ],
    }


def evaluation_of(header: SnapshotHeader) -> dict[str, Any]:
    """Return the main figures of the progressive predictions, by window."""
    windows = ((header.figures or {}).get("sources") or {}).get("progressive", {}).get("windows", {})
    names = ("examples", "log_loss", "auc", "normalized_entropy", "calibration_ratio")
    return {window: {name: found.get(name) for name in names} for window, found in windows.items()}


def _write_safetensors(snapshot: Snapshot, file: BinaryIO) -> None:
    file.writelines(snapshot.encode())


def _write_npz(snapshot: Snapshot, file: BinaryIO) -> None:
    header = np.frombuffer(snapshot.header.text().encode(), np.uint8)
    evidence, columns = parse_evidence(snapshot.header.discount), snapshot.rows.T
    if isinstance(evidence, Discount):
        z, n = columns[0] * evidence.scale, columns[1] * (evidence.scale * evidence.scale)
        weights, mixture = _weights(snapshot), {}
    else:
        scales = evidence.scales[:, np.newaxis]
        z, n = columns[: evidence.experts] * scales, columns[evidence.experts :] * (scales * scales)
        weights, mixture = _weights_of_experts(snapshot), {"log_weights": evidence.log_weights}
    arrays: dict[str, Any] = {"z": z, "n": n, "weights": weights, "header": header, **mixture}
    np.savez_compressed(file, slots=snapshot.slots, **arrays)


def _write_serving(snapshot: Snapshot, file: BinaryIO) -> None:
    """Write a line of JSON, then a record for each slot that has a weight that is not 0: slot (uint32) and
    weight (float64), or the weights of all experts of a mixture.
    """
    hashing, slots, weights = (
        config_of(snapshot.header).hashing,
        snapshot.slots,
        _weights_of_experts(snapshot),
    )
    experts = len(weights)
    bias = weights[:, slots == hashing.size]
    kept = weights.any(axis=0) & (slots != hashing.size)
    served = np.empty(int(kept.sum()), [("slot", "<u4"), ("weights", "<f8", (experts,))])
    served["slot"], served["weights"] = slots[kept], weights[:, kept].T
    biases = bias[:, 0].tolist() if bias.size else [0.0] * experts
    evidence = parse_evidence(snapshot.header.discount)
    described: dict[str, Any] = {
        "format": "ftrl-serving",
        "version": SERVING_VERSION if isinstance(evidence, Discount) else MIXTURE_VERSION,
        "needs": _needs(hashing),
        "model": snapshot.header.model,
        "t": snapshot.header.t,
        "offset": hashing.prior_offset + offset_from(evidence.prior),
        **hashing.to_json(),
        "bias": biases[0] if isinstance(evidence, Discount) else biases,
        "count": len(served),
    }
    if not isinstance(evidence, Discount):
        described["log_weights"] = evidence.log_weights.tolist()
    file.write(json.dumps(described).encode() + b"\n")
    file.write(served.tobytes())


def _needs(hashing: HashContract) -> list[str]:
    """List what a reader must support beside bucketed numbers, texts, lists, booleans, nulls and crosses."""
    transforms = {json.dumps(one) for one in (hashing.numeric, *hashing.transforms.values())}
    needs = [f"numbers by the transform {one}" for one in sorted(transforms - {'"bucket"'})]
    return needs + ["numbers as categories"] * ("category" in hashing.types.values())


def _weights(snapshot: Snapshot) -> np.ndarray[Any, np.dtype[np.float64]]:
    return snapshot.weights(config_of(snapshot.header).hyper)


def _weights_of_experts(snapshot: Snapshot) -> np.ndarray[Any, np.dtype[np.float64]]:
    return snapshot.weights_of_experts(config_of(snapshot.header).hyper)


def _described(header: SnapshotHeader) -> dict[str, Any]:
    return {
        "revision": revision_of(header),
        "time": header.time,
        "t": header.t,
        "features_seen": header.features_seen,
        "nonzero": header.nonzero,
        "density": header.density,
        "hyper": header.config["hyper"],
        "evaluation": evaluation_of(header),
    }


def _weights_at(snapshot: Snapshot, slots: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
    """Return the weights float64[k] at slots uint32[k], 0 for features never seen."""
    weights = np.zeros(slots.size)
    weights[np.searchsorted(slots, snapshot.slots)] = _weights(snapshot)
    return weights

"""What changed between two snapshots of one hash contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from model_core.snapshot import Snapshot, SnapshotHeader, compact_weights
from service.snapshots.errors import SnapshotMismatch
from service.snapshots.fitting import config_of, revision_of

BIAS = "bias"


def difference(a: Snapshot, b: Snapshot, most: int = 20) -> dict[str, Any]:
    """Figures of both, and the `most` weights that moved most. Raises SnapshotMismatch."""
    if a.header.fingerprint != b.header.fingerprint:
        raise SnapshotMismatch(
            f"The snapshots were hashed under different contracts ({a.header.fingerprint} and"
            f" {b.header.fingerprint}): their slots mean different features."
        )
    slots = np.union1d(a.slots, b.slots)
    weights_a, weights_b = _weights_at(a, slots), _weights_at(b, slots)
    moved = np.abs(weights_b - weights_a)
    order = np.argsort(-moved, kind="stable")[:most]
    bias = 2**a.header.bits
    return {
        "a": _described(a.header),
        "b": _described(b.header),
        "features_in_both": int(np.intersect1d(a.slots, b.slots).size),
        "weights_changed": int(np.count_nonzero(moved)),
        "weight_distance": float(np.sqrt(np.sum(moved * moved))),
        "moved_most": [
            {"slot": BIAS if slots[i] == bias else int(slots[i]), "a": weights_a[i], "b": weights_b[i]}
            for i in order.tolist()
            if moved[i] > 0
        ],
    }


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


def evaluation_of(header: SnapshotHeader) -> dict[str, Any]:
    """Of the progressive predictions, by window: what tells how good it was."""
    windows = ((header.figures or {}).get("sources") or {}).get("progressive", {}).get("windows", {})
    names = ("examples", "log_loss", "auc", "normalized_entropy", "calibration_ratio")
    return {window: {name: found.get(name) for name in names} for window, found in windows.items()}


def _weights_at(snapshot: Snapshot, slots: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
    """float64[k] at slots uint32[k], 0 where it has not seen the feature."""
    header = snapshot.header
    own = compact_weights(snapshot.slots, snapshot.rows, header.bits, header.t, config_of(header).hyper)
    weights = np.zeros(slots.size)
    weights[np.searchsorted(slots, snapshot.slots)] = own
    return weights

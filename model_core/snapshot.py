"""A model at one point of its log, as bytes: a safetensors file whose header says everything but the arrays.

    8 bytes       length of the JSON that follows, little-endian
    JSON          `__metadata__`: format, version, header (JSON as a text), sha256; then the layout of
    z, n          float64[k], a slot each, in the units of the header's discount; of a mixture float64[K, k]
    slots         uint32[k], ascending; 2**bits is the bias
    evaluation    uint8[]: the fields of the evaluation, each as u32 and u32 (sizes), name, value

The checksum is that of the header's text and of all arrays, in this order.
"""

import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_core.errors import FormatError
from model_core.learning.hyperparameters import Hyperparameters
from model_core.learning.state import Evidence, ModelState, in_lanes, parse_evidence

FORMAT = "ftrl-snapshot"
VERSION = 1
ROWS_A_CHUNK = 1 << 16

_LENGTH = struct.Struct("<Q")
_SIZES = struct.Struct("<II")
_MOST_JSON_BYTES = 64 << 20

Read = Callable[[int], bytes]
"""Returns that many bytes, fewer only at the end."""


@dataclass(frozen=True)
class SnapshotHeader:
    """The description that a snapshot holds of itself.

    incarnation, generation, commit, mark: the revision, of which older snapshots have no mark; applied,
    applied_number: the last log entry that was learned, and how many log examples; t: rounds; skipped:
    examples without effect.
    config: the model's configuration as JSON, `hyper` and `hashing` among it.
    features_seen, nonzero: without the bias; slots: rows stored, with it; evaluation_bytes: size of that
    array. time: RFC 3339, UTC.  reason: why it was taken.  figures: of the evaluation, where it had some.
    discount: of a model that has forgotten something, or is a mixture (Evidence.text); else left out.
    """

    model: str
    incarnation: str
    generation: int
    commit: int
    applied: str
    applied_number: int
    t: int
    skipped: int
    config: Mapping[str, Any]
    fingerprint: str
    family: str
    features_seen: int
    nonzero: int
    slots: int
    evaluation_bytes: int
    time: str
    reason: str
    figures: Mapping[str, Any] | None = None
    mark: str = ""
    discount: str = ""

    @property
    def bits(self) -> int:
        return int(self.config["hashing"]["bits"])

    @property
    def experts(self) -> int:
        """Raises FormatError."""
        return parse_evidence(self.discount).experts

    @property
    def density(self) -> float:
        return self.nonzero / self.features_seen if self.features_seen else 0.0

    def text(self) -> str:
        optional = ("mark", "discount")
        said = {name: value for name, value in asdict(self).items() if name not in optional or value}
        return json.dumps(said, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, eq=False)
class Snapshot:
    """slots uint32[k], ascending, each once; rows float64[k, 2 K]: z and n of each; evaluation: its packed
    fields.
    """

    header: SnapshotHeader
    slots: NDArray[np.uint32]
    rows: NDArray[np.float64]
    evaluation: bytes = b""

    def state(self) -> ModelState:
        """The arrays of the model as it was."""
        discount = parse_evidence(self.header.discount)
        state = ModelState.empty(self.header.bits, discount.experts)
        for start in range(0, self.slots.size, ROWS_A_CHUNK):
            chunk = slice(start, start + ROWS_A_CHUNK)
            state.apply_rows(self.slots[chunk], self.rows[chunk])
        state.t, state.discount = self.header.t, discount
        return state

    def weights(self, hyper: Hyperparameters) -> NDArray[np.float64]:
        """float64[k]: the weights of all slots, without the arrays of a whole model; of a mixture, the means
        of its experts' by their weights.
        """
        compact = self._compact()
        return compact.weights(np.arange(self.slots.size, dtype=np.uint32), hyper)

    def weights_of_experts(self, hyper: Hyperparameters) -> NDArray[np.float64]:
        """float64[K, k]: the weights of all slots for each expert, or for the one model."""
        compact = self._compact()
        return compact.readings_of_experts(np.arange(self.slots.size, dtype=np.uint32), hyper)[0]

    def _compact(self) -> ModelState:
        header = self.header
        return compact_state(self.slots, self.rows, header.bits, header.t, parse_evidence(header.discount))

    def encode(self) -> Iterator[bytes]:
        """The file in pieces; the arrays are read twice, as their checksum stands before them."""
        header = self.header.text()
        yield _preamble(header, _checksum(header, self._arrays()).hexdigest(), self.header)
        yield from self._arrays()

    def _arrays(self) -> Iterator[bytes]:
        for column in self.rows.T:
            for start in range(0, column.size, ROWS_A_CHUNK):
                yield column[start : start + ROWS_A_CHUNK].astype("<f8").tobytes()
        yield self.slots.astype("<u4").tobytes()
        yield self.evaluation


def compact_state(
    slots: NDArray[np.uint32], rows: NDArray[np.float64], bits: int, t: int, discount: Evidence
) -> ModelState:
    """A state to read from: its slot j has row j of rows float64[k, 2 K] of ascending slots uint32[k], as it
    is in a model of 2**bits slots.
    """
    compact = ModelState.empty(0, discount.experts)
    has_bias = bool(slots.size) and int(slots[-1]) == 2**bits
    # The last row of a state is the bias, and so is the last of these where it was seen.
    compact.rows = in_lanes(rows if has_bias else np.vstack([rows, np.zeros((1, rows.shape[1]))]))
    compact.t, compact.discount = t, discount
    return compact


def decode(read: Read) -> Snapshot:
    """Raises FormatError on anything that encode did not write, and where the checksum is not that of the
    content.
    """
    header, checksum = _read_preamble(read)
    k = header.slots
    rows = np.empty((k, 2 * header.experts))
    content = hashlib.sha256(header.text().encode())
    for column in rows.T:
        for start in range(0, k, ROWS_A_CHUNK):
            piece = _exactly(read, 8 * min(ROWS_A_CHUNK, k - start))
            content.update(piece)
            column[start : start + ROWS_A_CHUNK] = np.frombuffer(piece, "<f8")
    slots, evaluation = _exactly(read, 4 * k), _exactly(read, header.evaluation_bytes)
    content.update(slots)
    content.update(evaluation)
    if read(1):
        raise FormatError("it goes on after its end")
    if content.hexdigest() != checksum:
        raise FormatError("its checksum is not that of its content: it was altered or torn")
    return Snapshot(header, _checked_slots(slots, header), rows, evaluation)


def decode_header(read: Read) -> SnapshotHeader:
    """The header alone, whose checksum only `decode` can verify. Raises FormatError."""
    return _read_preamble(read)[0]


def pack_fields(evaluation: Mapping[bytes, bytes]) -> bytes:
    return b"".join(
        _SIZES.pack(len(name), len(value)) + name + value for name, value in sorted(evaluation.items())
    )


def unpack_fields(packed: bytes) -> dict[bytes, bytes]:
    """Raises FormatError."""
    found: dict[bytes, bytes] = {}
    place = 0
    while place < len(packed):
        if place + _SIZES.size > len(packed):
            raise FormatError("the evaluation is torn")
        name, value = _SIZES.unpack_from(packed, place)
        start = place + _SIZES.size
        place = start + name + value
        if place > len(packed):
            raise FormatError("the evaluation is torn")
        found[packed[start : start + name]] = packed[start + name : place]
    return found


def _preamble(header: str, checksum: str, described: SnapshotHeader) -> bytes:
    metadata = {"format": FORMAT, "version": str(VERSION), "header": header, "sha256": checksum}
    content = json.dumps({"__metadata__": metadata, **_layout(described)}, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)  # so that the arrays are aligned where the file is mapped
    return _LENGTH.pack(len(content)) + content


def _layout(header: SnapshotHeader) -> dict[str, dict[str, Any]]:
    k, place, experts = header.slots, 0, header.experts
    layout = {}
    numbers = [k] if experts == 1 else [experts, k]
    arrays = (("z", "F64", numbers, 8), ("n", "F64", numbers, 8), ("slots", "U32", [k], 4))
    for name, dtype, shape, size in (*arrays, ("evaluation", "U8", [header.evaluation_bytes], 1)):
        end = place + math.prod(shape) * size
        layout[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, end]}
        place = end
    return layout


def _read_preamble(read: Read) -> tuple[SnapshotHeader, str]:
    (length,) = _LENGTH.unpack(_exactly(read, _LENGTH.size))
    if length > _MOST_JSON_BYTES:
        raise FormatError("it is no snapshot: it does not begin as a safetensors file")
    try:
        content = json.loads(_exactly(read, length))
        metadata = content.pop("__metadata__")
        kind, version = metadata["format"], int(metadata["version"])
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise FormatError("it is no snapshot: its header cannot be read") from wrong
    if kind != FORMAT or version != VERSION:
        raise FormatError(f"it is of format {kind} {version}; this version reads {FORMAT} {VERSION}")
    try:
        values = json.loads(metadata["header"])
        known = {field.name for field in fields(SnapshotHeader)} & values.keys()
        header = SnapshotHeader(**{name: values[name] for name in known})
        checksum = str(metadata["sha256"])
        sound = 0 <= header.slots <= 2**header.bits + 1 and header.evaluation_bytes >= 0
        rate = header.config.get("hyper", {}).get("rate", {})
        sound = sound and header.experts == len(rate.get("experts", [rate]))
    except (ValueError, KeyError, TypeError) as wrong:
        raise FormatError("its header is not that of a snapshot") from wrong
    if not sound:
        raise FormatError("its header is not that of a snapshot")
    if header.text() != metadata["header"] or content != _layout(header):
        raise FormatError("its arrays are not laid out as its header says: it was altered")
    return header, checksum


def _checked_slots(packed: bytes, header: SnapshotHeader) -> NDArray[np.uint32]:
    slots = np.frombuffer(packed, "<u4").astype(np.uint32)
    if slots.size and (np.any(slots[1:] <= slots[:-1]) or slots[-1] > 2**header.bits):
        raise FormatError("its slots are not those of a model of its size")
    return slots


def _checksum(header: str, arrays: Iterator[bytes]) -> "hashlib._Hash":
    content = hashlib.sha256(header.encode())
    for piece in arrays:
        content.update(piece)
    return content


def _exactly(read: Read, size: int) -> bytes:
    piece = read(size)
    if len(piece) < size:
        raise FormatError("it is torn: it ends too early")
    return piece

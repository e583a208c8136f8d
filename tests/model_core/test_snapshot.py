"""A snapshot as bytes: everything comes back, and nothing that was altered is taken for one."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from model_core.errors import FormatError
from model_core.learning.hyperparameters import Hyperparameters
from model_core.learning.state import NOTHING_FORGOTTEN
from model_core.snapshot import (
    ROWS_A_CHUNK,
    Snapshot,
    SnapshotHeader,
    compact_state,
    decode,
    decode_header,
    pack_fields,
    unpack_fields,
)

BITS = 18


def header(slots: int, evaluation: bytes = b"") -> SnapshotHeader:
    return SnapshotHeader(
        model="clicks",
        incarnation="0123456789abcdef",
        generation=1,
        commit=7,
        applied="1700000000000-3",
        applied_number=90,
        t=100,
        skipped=2,
        config={"hyper": {}, "hashing": {"bits": BITS}},
        fingerprint="f" * 16,
        family="ftrl",
        features_seen=slots,
        nonzero=slots,
        slots=slots,
        evaluation_bytes=len(evaluation),
        time="2024-05-01T12:00:00.000+00:00",
        reason="schedule",
    )


def sample(count: int = 100, evaluation: bytes = b"") -> Snapshot:
    random = np.random.default_rng(count)
    slots = np.sort(random.choice(2**BITS + 1, count, replace=False)).astype(np.uint32)
    return Snapshot(header(count, evaluation), slots, random.normal(size=(count, 2)) ** 2, evaluation)


def encoded(snapshot: Snapshot) -> bytes:
    return b"".join(snapshot.encode())


@pytest.mark.parametrize("count", [0, 1, 100, ROWS_A_CHUNK, ROWS_A_CHUNK + 1])
def test_a_snapshot_comes_back_bit_for_bit(count: int) -> None:
    snapshot = sample(count, b"figures of some kind")
    again = decode(io.BytesIO(encoded(snapshot)).read)
    assert again.header == snapshot.header
    assert again.evaluation == snapshot.evaluation
    assert again.state().digest() == snapshot.state().digest()
    assert again.state().t == 100


def test_the_library_of_the_format_reads_it() -> None:
    snapshot = sample(50)
    tensors = safetensors.numpy.load(encoded(snapshot))
    assert tensors["slots"].tolist() == snapshot.slots.tolist()
    assert np.array_equal(np.column_stack([tensors["z"], tensors["n"]]), snapshot.rows)


def test_the_header_can_be_read_alone() -> None:
    data = encoded(sample())
    assert decode_header(io.BytesIO(data[: len(data) // 2]).read) == sample().header


@given(st.data())
def test_whatever_byte_is_altered_the_snapshot_is_refused(data: st.DataObject) -> None:
    content = bytearray(encoded(sample(20, b"evaluation")))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    try:
        altered = decode(io.BytesIO(content).read)
    except FormatError:
        return
    # Spaces after the JSON may become other spaces.
    assert encoded(altered) == encoded(sample(20, b"evaluation"))


@given(st.integers(0, 2000))
def test_a_torn_snapshot_is_refused(length: int) -> None:
    content = encoded(sample(100))
    with pytest.raises(FormatError):
        decode(io.BytesIO(content[: min(length, len(content) - 1)]).read)


def test_what_follows_the_end_is_refused() -> None:
    with pytest.raises(FormatError, match="goes on"):
        decode(io.BytesIO(encoded(sample()) + b"x").read)


def test_another_version_of_the_format_is_refused_by_name() -> None:
    content = encoded(sample()).replace(b'"version":"1"', b'"version":"9"')
    with pytest.raises(FormatError, match="format ftrl-snapshot 9; this version reads ftrl-snapshot 1"):
        decode(io.BytesIO(content).read)


def test_a_safetensors_file_of_something_else_is_refused() -> None:
    other = safetensors.numpy.save({"weights": np.zeros(3)})
    with pytest.raises(FormatError, match="no snapshot"):
        decode(io.BytesIO(other).read)


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 100, b"\x02" + bytes(7) + b"[]"])
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        decode(io.BytesIO(content).read)


@given(st.dictionaries(st.binary(), st.binary()))
def test_fields_come_back(fields: dict[bytes, bytes]) -> None:
    assert unpack_fields(pack_fields(fields)) == fields


def test_torn_fields_are_refused() -> None:
    with pytest.raises(FormatError):
        unpack_fields(pack_fields({b"name": b"value"})[:-1])


@pytest.mark.parametrize("bias", [True, False])
def test_weights_of_the_rows_alone_are_those_of_the_whole_model(bias: bool) -> None:
    snapshot = sample(300)
    slots, rows = snapshot.slots, snapshot.rows
    slots[-1] = 2**BITS if bias else slots[-1]
    state = replace(snapshot, header=header(300)).state()
    hyper = Hyperparameters()
    expected = state.weights(slots, hyper)
    compact = compact_state(slots, rows, BITS, 100, NOTHING_FORGOTTEN)
    assert np.array_equal(compact.weights(np.arange(slots.size, dtype=np.uint32), hyper), expected)
    assert np.array_equal(snapshot.weights(hyper), expected)
    assert json.loads(snapshot.header.text())["t"] == 100

import math
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.errors import FormatError
from model_core.examples.batch import ExampleBatch

hashes = st.integers(0, 2**32 - 1)
values = st.one_of(st.just(1.0), st.floats(allow_nan=False))


@st.composite
def examples(draw):
    """(encoded, label, weight, event time, event id) of one example."""
    keys = draw(st.lists(hashes, max_size=8))
    encoded = (keys, draw(st.one_of(st.none(), st.lists(values, min_size=len(keys), max_size=len(keys)))))
    return (
        encoded,
        draw(st.one_of(st.sampled_from([0, 1]), st.floats(0, 1))),
        draw(st.one_of(st.just(1.0), st.floats(0, 1e6))),
        draw(st.one_of(st.none(), st.integers(0, 2**62))),
        draw(st.one_of(st.none(), st.binary(min_size=16, max_size=16))),
    )


batches = st.lists(examples(), max_size=8)
servings = st.one_of(
    st.just((b"", np.nan)), st.tuples(st.binary(min_size=16, max_size=16), st.floats(allow_nan=False))
)


def batch_of(rows) -> ExampleBatch:
    columns: list = list(zip(*rows, strict=True)) if rows else [[]] * 5
    return ExampleBatch.from_encoded(*columns)


def served_batch(rows, data) -> ExampleBatch:
    """The batch, some of whose examples label a prediction."""
    served = data.draw(st.lists(servings, min_size=len(rows), max_size=len(rows)))
    ids = [prediction for prediction, _ in served]
    margins = np.array([margin for _, margin in served])
    return replace(batch_of(rows), prediction_ids=ids, served_margins=margins)


def served_of(batch: ExampleBatch) -> list[tuple[bytes, str]]:
    ids = batch.prediction_ids or [b""] * len(batch)
    margins = batch.served_margins if batch.served_margins.size else np.full(len(batch), np.nan)
    return [(i, margin.hex()) for i, margin in zip(ids, margins.tolist(), strict=True)]


def rows_of(batch: ExampleBatch) -> list:
    """The content of a batch with every default written out."""
    bounds = batch.row_ptr.tolist()
    k, r = batch.hashes.size, len(batch)
    values = batch.values if batch.values.size else np.ones(k)
    weights = batch.weights if batch.weights.size else np.ones(r)
    times = batch.event_times if batch.event_times.size else np.full(r, -1)
    ids = batch.event_ids or [b""] * r
    return [
        (batch.hashes[a:b].tolist(), values[a:b].tolist(), label, weight, time, event_id)
        for a, b, label, weight, time, event_id in zip(
            bounds[:-1], bounds[1:], batch.labels.tolist(), weights.tolist(), times.tolist(), ids, strict=True
        )
    ]


@given(batches)
def test_a_batch_holds_what_it_was_made_of(rows):
    assert rows_of(batch_of(rows)) == [
        (
            keys,
            [1.0] * len(keys) if vs is None else vs,
            label,
            weight,
            -1 if time is None else time,
            event_id or b"",
        )
        for (keys, vs), label, weight, time, event_id in rows
    ]


@given(batches)
def test_bytes_decode_to_the_same_examples(rows):
    batch = batch_of(rows)
    again = ExampleBatch.from_bytes(batch.to_bytes())
    assert rows_of(again) == rows_of(batch)
    assert again.to_bytes() == batch.to_bytes() == b"".join(batch.to_records())


@given(batches, batches, st.data())
def test_slices_and_concatenations_are_those_of_the_lists(first, second, data):
    batch = ExampleBatch.concatenate([batch_of(first), batch_of(second)])
    assert rows_of(batch) == rows_of(batch_of(first)) + rows_of(batch_of(second))
    start = data.draw(st.integers(0, len(batch)))
    stop = data.draw(st.integers(start, len(batch)))
    part = batch.slice(start, stop)
    assert rows_of(part) == rows_of(batch)[start:stop]
    assert part.to_records() == batch.to_records()[start:stop]


@given(batches, st.data())
def test_what_was_served_comes_back_with_its_margin(rows, data):
    batch = served_batch(rows, data)
    again = ExampleBatch.from_bytes(batch.to_bytes())
    assert rows_of(again) == rows_of(batch)
    assert served_of(again) == served_of(batch)
    assert again.to_bytes() == batch.to_bytes()


@given(batches, batches, st.data())
def test_slices_and_concatenations_keep_what_was_served(first, second, data):
    served = served_batch(first, data)
    batch = ExampleBatch.concatenate([served, batch_of(second)])
    assert served_of(batch) == served_of(served) + [(b"", "nan")] * len(second)
    start = data.draw(st.integers(0, len(batch)))
    assert served_of(batch.slice(start, len(batch))) == served_of(batch)[start:]


def test_without_served_examples_there_are_no_margins():
    batch = ExampleBatch.from_bytes(RECORD + RECORD)
    assert batch.prediction_ids is None
    assert batch.served_margins.size == 0


def test_defaults_take_no_bytes():
    batch = ExampleBatch.from_encoded([([1, 2, 3], [1.0, 1.0, 1.0])], [1], [1.0], [None], [None])
    assert [len(record) for record in batch.to_records()] == [6 + 3 * 4]
    assert batch.weights.size == batch.event_times.size == 0
    assert batch.event_ids is None


def test_the_layout_of_a_record_is_fixed():
    batch = ExampleBatch.from_encoded([([0x01020304], [2.0])], [1], [0.5], [258], [bytes(range(16))])
    version_flags_count = "011f01000000"
    weight_time_id = "000000000000e03f" + "0201000000000000" + "000102030405060708090a0b0c0d0e0f"
    hash_value = "04030201" + "0000000000000040"
    assert batch.to_bytes().hex() == version_flags_count + weight_time_id + hash_value


def test_the_layout_of_a_served_example_is_fixed():
    plain = ExampleBatch.from_encoded([([0x01020304], None)], [1])
    batch = replace(plain, prediction_ids=[bytes(range(16))], served_margins=np.array([-2.5]))
    served = "000102030405060708090a0b0c0d0e0f" + "00000000000004c0"
    assert batch.to_bytes().hex() == "012101000000" + served + "04030201"


def test_a_label_between_takes_eight_bytes():
    batch = ExampleBatch.from_encoded([([0x01020304], None)] * 3, [0.25, 0, 1], [0.5, 1.0, 1.0])
    label_weight = "000000000000d03f" + "000000000000e03f"
    assert [record.hex() for record in batch.to_records()] == [
        "014201000000" + label_weight + "04030201",
        "01000100000004030201",
        "01010100000004030201",
    ]


def soft_record(flags, label):
    return b"\x01" + bytes([flags]) + bytes(4) + struct.pack("<d", label)


RECORD = ExampleBatch.from_encoded([([5, 6], [2.0, 3.0])], [1], [0.5]).to_records()[0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            RECORD + RECORD[:-1],
            "record 1, at byte 38, is truncated: its header announces 38 bytes, 37 are there",
        ),
        (RECORD + b"\x01", "record 1, at byte 38, is truncated: 1 bytes, a header alone takes 6"),
        (RECORD + b"hello world", "record 1, at byte 38, has version 104, this code reads version 1"),
        (RECORD[:3], "record 0, at byte 0, is truncated: 3 bytes, a header alone takes 6"),
        (b"\x07" + RECORD[1:], "record 0, at byte 0, has version 7, this code reads version 1"),
        (b"\x01\xe1" + RECORD[2:], "record 0, at byte 0, has unknown flags 0x80"),
        (soft_record(64, 1.5), "has the flags 0x40 and the label 1.5, which is not between"),
        (soft_record(64, 1.0), "the label 1.0, which is not between 0 and 1"),
        (soft_record(64, math.nan), "the label nan, which is not between 0 and 1"),
        (soft_record(65, 0.5), "record 0, at byte 0, has the flags 0x41"),
        (b"\x01\x00\xff\xff\xff\xff", "announces 17179869186 bytes, 6 are there"),
    ],
)
def test_bad_bytes_are_named_with_the_place(data, message):
    with pytest.raises(FormatError, match=message):
        ExampleBatch.from_bytes(data)


@given(st.binary(max_size=200))
def test_foreign_bytes_either_decode_exactly_or_raise(data):
    try:
        batch = ExampleBatch.from_bytes(data)
    except FormatError:
        return
    assert sum(map(len, batch.to_records())) <= len(data)


def test_an_event_id_of_another_length_is_no_event_id():
    batch = ExampleBatch.from_encoded([([1], None)], event_ids=[b"short"])
    with pytest.raises(ValueError, match="16 bytes"):
        batch.to_bytes()

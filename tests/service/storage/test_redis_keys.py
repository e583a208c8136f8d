"""Names of keys, and layouts that come back as they went."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from model_core.learning.state import Discount, Mixture
from service.storage.records import (
    LOG_START,
    Commit,
    LearnedEntry,
    LogEntry,
    LogId,
    Meta,
    ModelKeys,
    changed_records,
    changed_type,
    lease_key,
    meta_key,
    pack_entries,
    rows_of,
    stored_rows,
    unpack_entries,
)

KEYS = ModelKeys("clicks", "0123456789abcdef")
COUNTS = st.integers(0, 2**53)
LOG_IDS = st.builds(LogId, st.integers(0, 2**63), st.integers(0, 2**64 - 1))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ENTRIES = st.lists(
    st.builds(LearnedEntry, LOG_IDS.filter(lambda i: i.milliseconds < 2**63), st.integers(0, 2**32 - 1))
)


def test_all_keys_of_a_model_are_in_one_cluster_slot() -> None:
    keys = [KEYS.meta, KEYS.lease, KEYS.log, KEYS.commits, KEYS.evaluation, KEYS.events_prefix, KEYS.state(3)]
    assert len(set(keys)) == len(keys)
    assert {key.split("{")[1].split("}")[0] for key in keys} == {"clicks"}


def test_only_meta_and_the_lease_outlive_an_incarnation() -> None:
    other = ModelKeys("clicks", "fedcba9876543210")
    assert (other.meta, other.lease) == (KEYS.meta, KEYS.lease) == (meta_key("clicks"), lease_key("clicks"))
    ours, theirs = ({k.log, k.commits, k.evaluation, k.events_prefix, k.state(0)} for k in (KEYS, other))
    assert not ours & theirs


@given(LOG_IDS)
def test_a_log_id_is_read_as_it_is_written(log_id: LogId) -> None:
    assert LogId.parse(str(log_id)) == LogId.parse(str(log_id).encode()) == log_id


def test_a_log_id_without_a_sequence_is_the_first_of_its_millisecond() -> None:
    assert LogId.parse("17") == LogId(17, 0)


@given(LOG_IDS.filter(lambda log_id: log_id != LOG_START))
def test_nothing_lies_between_a_log_id_and_the_one_before(log_id: LogId) -> None:
    before = log_id.before()
    assert before < log_id
    assert (log_id.milliseconds - before.milliseconds, log_id.sequence - before.sequence) in (
        (0, 1),
        (1, 1 - 2**64),
    )


@given(st.lists(LOG_IDS, min_size=2))
def test_log_ids_order_as_numbers_not_as_text(ids: list[LogId]) -> None:
    assert sorted(ids) == sorted(ids, key=lambda log_id: log_id.milliseconds << 64 | log_id.sequence)


@given(ENTRIES)
def test_learned_entries_come_back_as_they_were_packed(entries: list[LearnedEntry]) -> None:
    assert unpack_entries(pack_entries(entries)) == entries


@given(arrays.arrays(np.uint32, st.integers(0, 20)), st.data())
def test_changed_slots_come_back_bit_for_bit(slots: np.ndarray, data: st.DataObject) -> None:
    rows = data.draw(arrays.arrays(np.float64, (len(slots), 2)))  # also NaN and infinities
    packed = changed_records(slots, rows).tobytes()
    assert len(packed) == 22 * len(slots)
    changed = np.frombuffer(packed, changed_type())
    assert changed["slot"].tolist() == slots.tolist()
    assert rows_of(changed).tobytes() == rows.tobytes()


def test_a_slot_that_was_folded_says_how_often() -> None:
    slots, rows = np.array([258], np.uint32), np.array([[1.0, -2.0]])
    (record,) = changed_records(slots, rows, Discount(folds=3))
    value = "000000000000f03f00000000000000c003000000"
    assert record.tobytes() == bytes.fromhex("a402010000" + "b4" + value)
    assert rows_of(np.array([record])).tolist() == rows.tolist()
    assert stored_rows([bytes.fromhex(value)], Discount(folds=3)).tolist() == rows.tolist()


@pytest.mark.parametrize("experts", [2, 8])
@pytest.mark.parametrize("folds", [0, 3])
def test_a_slot_of_a_mixture_has_all_z_then_all_n_then_all_folds(experts: int, folds: int) -> None:
    each = np.arange(experts) * folds
    mixture = replace(Mixture.initial(experts), folds=each)
    slots, rows = np.array([258, 7], np.uint32), np.arange(4.0 * experts).reshape(2, -1)
    changed = changed_records(slots, rows, mixture)
    size = (20 if folds else 16) * experts
    packed = changed.tobytes()
    assert packed[:7] == bytes.fromhex("a402010000d9") + bytes([size])
    assert len(packed) == 2 * (7 + size)
    values = [packed[7 : 7 + size], packed[14 + size :]]
    assert values[1] == rows[1].tobytes() + (each.astype("<u4").tobytes() if folds else b"")
    assert rows_of(np.frombuffer(packed, changed_type(experts, folds > 0))).tolist() == rows.tolist()
    assert stored_rows(values, mixture).tolist() == rows.tolist()


def test_a_changed_slot_is_a_field_and_a_value_in_messagepack() -> None:
    (record,) = changed_records(np.array([258], np.uint32), np.array([[1.0, -2.0]]))
    assert record.tobytes() == bytes.fromhex("a402010000" + "b0000000000000f03f00000000000000c0")


@given(
    st.fixed_dictionaries(
        {"incarnation": st.text("0123456789abcdef", min_size=8), "token": st.binary(min_size=8)}
    ),
    st.tuples(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS),
    LOG_IDS,
    st.text(),
)
def test_meta_is_read_as_redis_gives_it(
    texts: dict[str, str | bytes], numbers: tuple[int, ...], applied: LogId, config: str
) -> None:
    names = ("generation", "applied_number", "appended", "t", "commit", "skipped")
    stored = texts | dict(zip(names, numbers, strict=True))
    stored |= {"applied": str(applied), "config": config, "fingerprint": "ab", "format": 1}
    meta = Meta.parse({name.encode(): _as_redis_gives(value) for name, value in stored.items()})
    assert (meta.incarnation, meta.token, meta.config) == (texts["incarnation"], texts["token"], config)
    assert tuple(getattr(meta, name) for name in names) == numbers
    assert (meta.applied, meta.fingerprint, meta.format_version) == (applied, "ab", 1)
    assert meta.backlog == meta.appended - meta.applied_number
    assert meta.revision == f"{meta.incarnation[:8]}-{meta.generation}-{meta.commit}-{meta.token[:4].hex()}"


@given(LOG_IDS, COUNTS, COUNTS, st.binary(), st.none() | COUNTS)
def test_a_log_entry_is_read_as_the_append_wrote_it(
    log_id: LogId, number: int, examples: int, records: bytes, slices: int | None
) -> None:
    noted = [] if slices is None else [b"s", b"%d" % slices]
    fields = [b"n", b"%d" % number, b"c", b"%d" % examples, *noted, b"e", records]
    expected = LogEntry(log_id, number, examples, records, slices or 0)
    assert LogEntry.parse(str(log_id).encode(), fields) == expected


@given(LOG_IDS, COUNTS, st.lists(st.binary()), st.none() | COUNTS)
def test_a_log_entry_of_a_version_with_a_field_for_each_example_is_read(
    log_id: LogId, number: int, records: list[bytes], slices: int | None
) -> None:
    noted = [] if slices is None else [b"s", b"%d" % slices]
    fields = [b"n", b"%d" % number, *noted, *(part for record in records for part in (b"e", record))]
    expected = LogEntry(log_id, number, len(records), b"".join(records), slices or 0)
    assert LogEntry.parse(str(log_id).encode(), fields) == expected


@pytest.mark.parametrize(
    "fields",
    [[b"foo", b"bar"], [b"n", b"x"], [b"n", b""], [b"n", b"-1"], [b"e", b"5"], [b"x", b"1", b"n", b"5"]],
)
def test_a_foreign_entry_has_no_number(fields: list[bytes]) -> None:
    assert LogEntry.parse(b"5-0", fields).first_number is None


def commit_fields(commit: Commit, **further: bytes) -> list[bytes]:
    """As commit.lua writes them."""
    fields = {
        "previous": commit.previous_token,
        "token": commit.token,
        "commit": b"%d" % commit.number,
        "t": b"%d" % commit.t,
        "applied": str(commit.applied).encode(),
        "applied_number": b"%d" % commit.applied_number,
        "skipped_total": b"%d" % commit.skipped_total,
        "changed": commit.changed.tobytes(),
        "entries": pack_entries(commit.entries),
        "margins": commit.margins.tobytes(),
        "skipped": commit.skipped.tobytes(),
        **further,
    }
    return [part for name, value in fields.items() for part in (name.encode(), value)]


@given(st.binary(), st.binary(), st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), LOG_IDS, ENTRIES, st.data())
def test_a_commit_is_read_as_it_was_written(
    previous: bytes,
    token: bytes,
    numbers: tuple[int, int, int, int],
    applied: LogId,
    entries: list[LearnedEntry],
    data: st.DataObject,
) -> None:
    slots = data.draw(arrays.arrays(np.uint32, st.integers(0, 5)))
    rows = data.draw(arrays.arrays(np.float64, (len(slots), 2), elements=FLOATS))
    margins = data.draw(arrays.arrays(np.float64, st.integers(0, 5)))
    skipped = data.draw(arrays.arrays(np.uint8, len(margins)))
    number, t, applied_number, skipped_total = numbers
    written = Commit(
        *(previous, token, number, t, applied, applied_number, skipped_total),
        *(changed_records(slots, rows), entries, margins, skipped),
    )
    read = Commit.parse(commit_fields(written))
    assert commit_fields(read) == commit_fields(written)
    assert not read.reset


def test_a_reset_carries_nothing_and_says_what_it_is() -> None:
    nothing = np.empty(0)
    empty = Commit(
        *(b"a", b"b", 7, 9, LogId(5, 0), 9, 0),
        *(np.empty(0, changed_type()), [], nothing, nothing.astype(np.uint8)),
    )
    read = Commit.parse(commit_fields(empty, reset=b"3"))
    assert read.reset
    assert (len(read.changed), read.entries, len(read.margins), len(read.skipped)) == (0, [], 0, 0)


def _as_redis_gives(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_core.errors import FormatError
from model_core.evaluation.online import OnlineEvaluation
from tests.support.streams import MINUTE, PREFIX, Store, Stream, evaluated, random_stream, strings_of

seeds = st.integers(0, 2**32)
BINS = 512  # of evaluations that are made by the hundred


@given(
    seeds,
    st.lists(st.tuples(st.integers(1, 399), st.sampled_from(["add", "commit", "restart"])), max_size=12),
)
def test_any_batches_commits_and_restarts_leave_the_same_bytes(seed, cuts):
    stream = random_stream(seed)
    store, evaluation, start = Store(), OnlineEvaluation(BINS), 0
    for stop, action in [*sorted(cuts), (400, "commit")]:
        stream.add_to(evaluation, start, stop)
        if action != "add":
            store.take(evaluation)
        if action == "restart":
            evaluation = OnlineEvaluation.from_fields(store, BINS)
        start = stop
    expected = evaluated(stream, bins=BINS).all_fields()
    assert evaluation.all_fields() == expected
    assert store == expected
    assert OnlineEvaluation.from_fields(store, BINS).all_fields() == expected


@given(seeds)
def test_one_example_at_a_time_leaves_the_same_bytes(seed):
    stream = random_stream(seed, size=60)
    evaluation = OnlineEvaluation(BINS)
    for i in range(60):
        stream.add_to(evaluation, i, i + 1)
    assert evaluation.all_fields() == evaluated(stream, bins=BINS).all_fields()


@given(seeds)
def test_what_is_restored_has_the_same_figures(seed):
    evaluation = evaluated(random_stream(seed), bins=BINS)
    restored = OnlineEvaluation.from_fields(evaluation.all_fields(), BINS)
    for weighting in ("weight", "none"):
        assert restored.figures("24h", weighting) == evaluation.figures("24h", weighting)
    assert (restored.newest, restored.late, restored.ahead) == (
        evaluation.newest,
        evaluation.late,
        evaluation.ahead,
    )
    assert restored.take_changes(PREFIX) == (b"", b"")


@pytest.mark.parametrize("weight", [255.0, 256.0, 65_536.0, 2.0**32, 0.1, 1e12, 0.0])
def test_every_weight_is_stored_exactly(weight):
    stream = Stream(
        np.zeros(3),
        np.array([1.0, 0.0, 1.0]),
        np.full(3, weight),
        np.empty(0, np.int64),
        np.zeros(3, np.int64),
    )
    evaluation = evaluated(stream)
    fields = evaluation.all_fields()
    assert OnlineEvaluation.from_fields(fields).all_fields() == fields


def one_example(evaluation, log_time):
    stream = Stream(np.zeros(1), np.ones(1), np.empty(0), np.empty(0, np.int64), np.full(1, log_time))
    stream.add_to(evaluation)


def test_a_commit_of_one_example_writes_two_blocks():
    evaluation = evaluated(random_stream(1))
    evaluation.take_changes(PREFIX)
    one_example(evaluation, 4000 * MINUTE)
    evaluation.take_changes(PREFIX)
    one_example(evaluation, 4000 * MINUTE)
    written, deleted = evaluation.take_changes(PREFIX)
    names = strings_of(written)[::2]
    assert len(set(names)) == 5  # a block and the sums of the stream and of the minute, and the clock
    assert len(written) < 1000
    assert not deleted


def test_a_change_is_a_name_with_its_prefix_and_a_value_in_messagepack():
    evaluation = OnlineEvaluation()
    one_example(evaluation, 4000 * MINUTE)
    written, _ = evaluation.take_changes(PREFIX)
    assert written[:9] == b"\xa5p" + bytes.fromhex("0000" + "0002" + "da" + "0012")
    assert written[9:27] == evaluation.all_fields()[bytes.fromhex("00000002")]


def test_the_blocks_of_a_past_bucket_are_deleted():
    store = Store()
    evaluation = OnlineEvaluation()
    for minute in range(3000):
        one_example(evaluation, minute * MINUTE)
        store.take(evaluation)
    # the clock, and a block and the sums of the stream and of each of the 51 buckets at most
    assert len(store) <= 1 + 2 * 52
    assert store == evaluation.all_fields()


def broken(change):
    fields = evaluated(random_stream(5)).all_fields()
    change(fields)
    return fields


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.pop(b"clock"),
        lambda f: f.update({b"clock": b"\x03" + f[b"clock"][1:]}),
        lambda f: f.update({b"clock": b""}),
        lambda f: f.update({b"other": b""}),
        lambda f: f.update({b"\xff\xff\x00\x00": b"\x01" + bytes(64)}),
        lambda f: f.update({b"\x00\x00\x00\x00": b""}),
        lambda f: f.update({b"\x00\x00\x00\x00": b"\x01" + bytes(63)}),
        lambda f: f.update({b"\x00\x00\x00\x00": b"\x03" + bytes(192)}),
        lambda f: f.update({b"\x00\x00\x00\x02": bytes(71)}),
    ],
)
def test_foreign_or_damaged_fields_are_refused(change):
    with pytest.raises(FormatError):
        OnlineEvaluation.from_fields(broken(change))


def test_fields_of_other_bins_are_refused():
    with pytest.raises(FormatError, match="512"):
        OnlineEvaluation.from_fields(evaluated(random_stream(5), bins=512).all_fields())

"""The protocol of commits and checkpoints, as a model, in every order in which things can happen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Report
from tests.support.checkpoint_model import Rules
from tests.support.checkpoint_search import MEDIUM, SMALL, Bounds, explore


@pytest.mark.parametrize(
    "bounds", [*SMALL, *(pytest.param(one, marks=pytest.mark.slow) for one in MEDIUM)], ids=str
)
def test_readers_get_the_state_of_one_pass_over_the_log(bounds: Bounds, report: Report) -> None:
    found = explore(bounds)
    assert not found.violation, "\n".join(["", *found.trace, found.violation])
    report(f"{found.states:,} states, {found.transitions:,} transitions")


LEARNER, READER = Bounds(crashes=1), Bounds(loaders=1, crashes=1)


@pytest.mark.parametrize(
    ("left_out", "bounds", "violation"),
    [
        ("trim_up_to_checkpoint", Bounds(), "commits since the checkpoint are missing"),
        ("chunk_has_committed_rows", Bounds(), "with the commits since"),
        ("chunk_names_token", LEARNER, "with the commits since"),
        ("chunk_names_the_one_before", LEARNER, "with the commits since"),
        ("complete_with_last_chunk", Bounds(), "with the commits since"),
        ("complete_as_of_its_begin", Bounds(), "with the commits since"),
        ("switch_ends_checkpoint", Bounds(restores=1), "commits since the checkpoint are missing"),
        (
            "switch_is_one_command",
            Bounds(restores=1, crashes=1, torn=True),
            "commits since the checkpoint are missing",
        ),
        ("learner_reads_at_its_token", Bounds(restores=1, crashes=1), "with the commits since"),
        ("reader_lays_commits_over", Bounds(loaders=1), "a reader has"),
        ("reader_checks_the_chain", Bounds(loaders=1), "a reader has"),
        ("reader_reads_backwards", Bounds(examples=2, loaders=1, crashes=1, torn=True), "a reader has"),
        ("reader_notices_reconnection", READER, "a reader "),
    ],
)
def test_without_one_of_its_rules_the_protocol_fails(left_out: str, bounds: Bounds, violation: str) -> None:
    rules: dict[str, Any] = {left_out: False}
    assert violation in explore(bounds, Rules(**rules)).violation


def test_what_a_learner_read_on_another_connection_does_not_show_a_lost_chunk() -> None:
    """Between taking a chunk and sending it the connection may become another one."""
    rules = Rules(chunk_names_the_one_before=False, learner_rereads_after_reconnection=True)
    found = explore(LEARNER, rules)
    assert "with the commits since" in found.violation
    assert found.trace[-3:] == [
        "A: takes a chunk as of a",
        "crash of the server",
        "A: ChunkRequest: written",
    ]

"""The clock of a process, while that of its machine is set."""

from __future__ import annotations

import pytest

from service.storage.channel import CONFIRMED_SECONDS, SteadyClock


class Machine:
    """The clocks of a machine, in seconds."""

    def __init__(self) -> None:
        self.wall = 1_800_000_000.0
        self.elapsed = 5.0

    def pass_seconds(self, seconds: float) -> None:
        self.wall += seconds
        self.elapsed += seconds


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def clock(machine: Machine) -> SteadyClock:
    return SteadyClock(lambda: machine.wall, lambda: machine.elapsed)


def test_it_goes_with_the_time_that_passes(machine: Machine, clock: SteadyClock) -> None:
    machine.pass_seconds(8 * 3600)
    assert clock.milliseconds() == 1000 * machine.wall


def test_a_small_correction_counts_at_once(machine: Machine, clock: SteadyClock) -> None:
    machine.wall += 0.5
    assert clock.milliseconds() == 1000 * machine.wall


@pytest.mark.parametrize("jump", [7200.0, -7200.0])
def test_a_jump_counts_once_it_has_lasted(machine: Machine, clock: SteadyClock, jump: float) -> None:
    machine.wall += jump
    for _ in range(2):
        assert clock.milliseconds() == 1000 * (machine.wall - jump)
        machine.pass_seconds(CONFIRMED_SECONDS / 2)
    assert clock.milliseconds() == 1000 * machine.wall


def test_a_jump_that_is_taken_back_never_counts(machine: Machine, clock: SteadyClock) -> None:
    for jump in (7200.0, -7200.0):
        machine.wall += jump
        clock.milliseconds()
        machine.pass_seconds(CONFIRMED_SECONDS)
    machine.pass_seconds(CONFIRMED_SECONDS)
    assert clock.milliseconds() == 1000 * machine.wall

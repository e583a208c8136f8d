"""Ctrl-C is never lost."""

from __future__ import annotations

import signal
import threading

import pytest

from service.runtime.kernels import interrupts_held


def press_ctrl_c(times: int, done: list[str]) -> None:
    with interrupts_held():
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        done.append("all of it")


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c(1, done)
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_does_not_wait() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c(2, done)
    assert done == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_failure_inside_the_block_comes_first() -> None:
    with pytest.raises(OSError, match="lost"), interrupts_held():
        raise OSError("lost")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_another_thread_it_does_nothing() -> None:
    done = []

    def work() -> None:
        with interrupts_held():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]

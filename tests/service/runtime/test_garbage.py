"""How often a process searches for garbage while it starts, and then."""

from __future__ import annotations

import gc

from service.runtime.memory import collect_as_usual, collect_rarely


def test_a_started_process_collects_as_often_as_before() -> None:
    usual = gc.get_threshold()
    try:
        collect_rarely()
        assert gc.get_threshold()[0] > 10 * usual[0]
        collect_as_usual()
        assert gc.get_threshold() == usual
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)

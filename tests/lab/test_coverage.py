from __future__ import annotations

import pytest

from lab.experiments.coverage import FIGURES, WORLDS_OF_TABLE, World, coverage


@pytest.mark.slow
@pytest.mark.parametrize("world", [WORLDS_OF_TABLE[0], WORLDS_OF_TABLE[-1]], ids=lambda world: world.name)
def test_intervals_cover_the_truth_of_simulated_worlds(world: World) -> None:
    held = coverage(world, worlds=150)
    for name in FIGURES:
        assert 0.90 <= held[name] <= 0.99, (name, held)

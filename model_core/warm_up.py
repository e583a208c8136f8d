"""Kernels compiled ahead of their first use, or loaded from the cache, by family.

Only the families that are named are imported: a service reads no text files, and the replay of a file
answers no requests.
"""

from collections.abc import Callable, Iterable
from typing import Literal

Family = Literal[
    "learning", "mixture", "requests", "evaluation", "slices", "comparison", "census", "vw", "libsvm"
]


def _learning() -> None:
    from model_core.learning import rounds

    rounds.warm_up()


def _mixture() -> None:
    from model_core.learning import rounds

    rounds.warm_up_mixture()


def _requests() -> None:
    from model_core.json import requests, shape

    requests.warm_up()
    shape.warm_up()


def _evaluation() -> None:
    from model_core.evaluation import online

    online.warm_up()


def _slices() -> None:
    from model_core.evaluation import slices

    slices.warm_up()


def _comparison() -> None:
    from model_core.evaluation import comparison

    comparison.warm_up()


def _census() -> None:
    from model_core.learning import census

    census.warm_up()


def _vw() -> None:
    from model_core.text import parser

    parser.warm_up("vw")


def _libsvm() -> None:
    from model_core.text import parser

    parser.warm_up("libsvm")


_WARM_UPS: dict[Family, Callable[[], None]] = {
    "learning": _learning,
    "mixture": _mixture,
    "requests": _requests,
    "evaluation": _evaluation,
    "slices": _slices,
    "comparison": _comparison,
    "vw": _vw,
    "libsvm": _libsvm,
    "census": _census,
}
ALL: tuple[Family, ...] = tuple(_WARM_UPS)
SERVICE: tuple[Family, ...] = (
    "learning",
    "mixture",
    "requests",
    "evaluation",
    "slices",
    "comparison",
    "census",
)
"""What an API process and a learner run."""


def warm_up(families: Iterable[Family] = ALL) -> None:
    """Compile or load the kernels of these families, so that no later call waits for a compiler."""
    for family in families:
        _WARM_UPS[family]()

"""The golden vectors of the mathematics, where they are beside the repository."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def cases_of(name: str) -> list[Any]:
    """The cases of a golden file as parameters of a test; one that is skipped where there is no such file."""
    named = os.environ.get("FTRL_GOLDEN")
    beside = [parent / "shared" / "math" for parent in REPOSITORY.parents]
    files = [directory / name for directory in ([Path(named)] if named else beside)]
    path = next((file for file in files if file.is_file()), None)
    if path is None:
        reason = f"no {name} in the directory FTRL_GOLDEN or beside the repository in shared/math"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason), id=name)]
    return [
        pytest.param(case, id=f"{path.stem}-{case['name']}") for case in json.loads(path.read_text())["cases"]
    ]


def hyper_of(case: dict[str, Any]) -> dict[str, Any]:
    """The `hyper` of a model that learns as the case says."""
    if "experts" in case:
        return _mixture_of(case)
    forgetting = case.get("forgetting")
    if forgetting is None:
        return dict(case["hyper"])
    return case["hyper"] | {"forgetting": {f"half_life_{forgetting['unit']}": forgetting["half_life"]}}


def _mixture_of(case: dict[str, Any]) -> dict[str, Any]:
    """The experts of the case in place of the rate and the l1 of its `hyper`."""
    experts = [
        {"alpha": one["rate"]["alpha"], "beta": one["rate"]["beta"], "l1": one["l1"]}
        | ({} if one["half_life"] is None else {f"half_life_{case['unit']}": one["half_life"]})
        for one in case["experts"]
    ]
    rate = {"kind": "mixture", "experts": experts, "share": case["share"]}
    return {name: value for name, value in case["hyper"].items() if name != "l1"} | {"rate": rate}

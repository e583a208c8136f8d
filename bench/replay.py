"""`ftrl replay` of Vowpal Wabbit text, against Vowpal Wabbit on the same file."""

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from bench.criteo import write_vw
from bench.processes import finish, ftrl
from bench.result import Options, Result, Target, alternate, require

HYPER = {"family": "ftrl", "rate": {"kind": "adaptive", "alpha": 0.1, "beta": 1.0}, "l1": 0.0, "l2": 0.0}
HASHING = {"bits": 22, "numeric": "raw", "prior_probability": None}
TIMES = 10
WIDTHS = (24, 26)
AGAINST = "Vowpal Wabbit --ftrl, same file, rates and bits"
SAME_LOG_LOSS = 1e-4


class Pass(NamedTuple):
    """One pass over a file: its rows, their rows a second, the seconds of the whole command, the log loss."""

    rows: float
    inside: float
    wall: float
    log_loss: float

    def rate_after(self, start: "Pass") -> float:
        """Rows a second of the command without what `start`, the same command on one row, takes."""
        return (self.rows - start.rows) / (self.wall - start.wall)


def measure(options: Options) -> list[Result]:
    """Whole commands, of which the start is subtracted: reading, learning and every figure is in."""
    require("vowpalwabbit")
    file, one_row = options.directory / "criteo.vw", options.directory / "one.vw"
    write_vw(one_row, 1)
    write_vw(file, times=TIMES)
    results = _against_vw(options, "replay-vw", "", file, one_row, HYPER, HASHING, Target(">=", 5.0))
    results += _against_vw(
        options, "replay-vw-default", ", the default's four experts", file, one_row, {}, HASHING
    )
    write_vw(file)
    for bits in WIDTHS:
        hashing = {**HASHING, "bits": bits}
        results += _against_vw(options, f"replay-vw-{bits}", "", file, one_row, HYPER, hashing)
    return results


def _against_vw(
    options: Options,
    name: str,
    detail: str,
    file: Path,
    one_row: Path,
    hyper: Mapping[str, object],
    hashing: Mapping[str, object],
    target: Target | None = None,
) -> list[Result]:
    bits = int(str(hashing["bits"]))
    ours, theirs = alternate(
        options.rounds,
        lambda: [_replay(each, hyper, hashing, "--dry-run") for each in (one_row, file)],
        lambda: [vowpal_wabbit(each, bits) for each in (one_row, file)],
    )
    what = f"ftrl replay of {ours[0][1].rows:,.0f} Criteo rows, 2^{bits} slots{detail}"
    rates = Result(
        name,
        f"{what}: the whole command without its start",
        "rows/s",
        tuple(run.rate_after(start) for start, run in ours),
        tuple(run.rate_after(start) for start, run in theirs),
        AGAINST,
        target,
    )
    if hyper is not HYPER:
        return [rates]
    losses = Result(
        f"{name}-log-loss",
        f"{what}: difference of the progressive log losses",
        "",
        tuple(abs(a.log_loss - b.log_loss) for (_, a), (_, b) in zip(ours, theirs, strict=True)),
        target=Target("<=", SAME_LOG_LOSS),
        notes=(f"progressive log loss: ours {ours[-1][1].log_loss:.6f}, VW {theirs[-1][1].log_loss:.6f}",),
    )
    return [rates, losses]


def replay_offline(file: Path, hyper: Mapping[str, object], hashing: Mapping[str, object]) -> Pass:
    """`ftrl replay --offline` into a bundled server of its own."""
    return _replay(file, hyper, hashing, "--offline")


def vowpal_wabbit(file: Path, bits: int) -> Pass:
    """Vowpal Wabbit in a process of its own."""
    return _timed([sys.executable, "-m", "bench.reference_vw", str(file), str(bits)], {})


def _replay(file: Path, hyper: Mapping[str, object], hashing: Mapping[str, object], mode: str) -> Pass:
    command = ftrl("replay", str(file), mode, "--format", "vw", "--json")
    command += ["--hyper", json.dumps(hyper), "--hashing", json.dumps(hashing)]
    with tempfile.TemporaryDirectory(prefix="ftrl-bench-", dir="/tmp") as directory:
        return _timed(command, {"FTRL_DATA_DIR": directory})


def _timed(command: list[str], environment: Mapping[str, str]) -> Pass:
    started = perf_counter()
    summary = json.loads(finish(command, environment))
    wall = perf_counter() - started
    return Pass(summary["rows"], summary["rows"] / summary["seconds"], wall, summary["log_loss"])

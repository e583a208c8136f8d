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
HASHING = {"numeric": "raw", "prior_probability": None}
TIMES = 10
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
    compared = _Comparison(options, file, one_row)
    results = [
        compared.rates("replay-vw", HYPER, 22, "", Target(">=", 5.0)),
        compared.rates("replay-vw-default", {}, 22, ", the default's four experts"),
    ]
    write_vw(file)
    results += [compared.rates(f"replay-vw-{bits}", HYPER, bits) for bits in (24, 26)]
    return [*results, compared.losses()]


class _Comparison:
    """Runs of `ftrl replay --dry-run` and of Vowpal Wabbit in turn, each on one row and on a file."""

    def __init__(self, options: Options, file: Path, one_row: Path) -> None:
        self._rounds = options.rounds
        self._files = (one_row, file)
        self._last: tuple[tuple[list[Pass], ...], tuple[list[Pass], ...]] = ((), ())

    def rates(
        self,
        name: str,
        hyper: Mapping[str, object],
        bits: int,
        detail: str = "",
        target: Target | None = None,
    ) -> Result:
        """Rows a second."""
        hashing = {**HASHING, "bits": bits}
        ours, theirs = self._last = alternate(
            self._rounds,
            lambda: [_replay(file, hyper, hashing, "--dry-run") for file in self._files],
            lambda: [vowpal_wabbit(file, bits) for file in self._files],
        )
        rows = f"{ours[0][1].rows:,.0f} Criteo rows, 2^{bits} slots{detail}"
        return Result(
            name,
            f"ftrl replay of {rows}: the command without its start",
            "rows/s",
            tuple(run.rate_after(start) for start, run in ours),
            tuple(run.rate_after(start) for start, run in theirs),
            AGAINST,
            target,
        )

    def losses(self) -> Result:
        """The difference of the progressive log losses in the latest runs."""
        ours, theirs = ([run.log_loss for _, run in runs] for runs in self._last)
        return Result(
            "replay-vw-log-loss",
            "the last of these: difference of the progressive log losses",
            "",
            tuple(abs(a - b) for a, b in zip(ours, theirs, strict=True)),
            target=Target("<=", SAME_LOG_LOSS),
            notes=(f"progressive log loss: ours {ours[-1]:.6f}, VW {theirs[-1]:.6f}",),
        )


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

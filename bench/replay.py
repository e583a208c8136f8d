"""`ftrl replay --offline` of Vowpal Wabbit text, against Vowpal Wabbit on the same file."""

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
HASHING = {"bits": 24}
AGAINST = "Vowpal Wabbit --ftrl, same file, rates and bits"
SAME_LOG_LOSS = 1e-4


class Pass(NamedTuple):
    """One pass over a file: its rows a second, those of the whole command, and the log loss."""

    inside: float
    whole: float
    log_loss: float


def measure(options: Options) -> list[Result]:
    """The rate without and with the start of the interpreter, and the difference of the losses."""
    require("vowpalwabbit")
    file = options.directory / "criteo.vw"
    write_vw(file)
    replay_offline(file, HYPER, HASHING)  # compiles what is not yet compiled
    ours, vw = alternate(
        options.rounds, lambda: replay_offline(file, HYPER, HASHING), lambda: vowpal_wabbit(file)
    )
    ours_dry, vw_again = alternate(
        options.rounds, lambda: _replay(file, HYPER, HASHING, "--dry-run"), lambda: vowpal_wabbit(file)
    )
    return [
        Result(
            "replay-vw",
            "ftrl replay --offline, 80,000 Criteo rows of VW text: the pass over the file",
            "rows/s",
            tuple(run.inside for run in ours),
            tuple(run.inside for run in vw),
            AGAINST,
            Target(">=", 4.0),
        ),
        Result(
            "replay-vw-whole",
            "ftrl replay --dry-run of the same: wall time of the command, keeping nothing, as VW",
            "rows/s",
            tuple(run.whole for run in ours_dry),
            tuple(run.whole for run in vw_again),
            AGAINST,
        ),
        Result(
            "replay-vw-log-loss",
            "the same: difference of the progressive log losses",
            "",
            tuple(abs(a.log_loss - b.log_loss) for a, b in zip(ours, vw, strict=True)),
            target=Target("<=", SAME_LOG_LOSS),
            notes=(f"progressive log loss: ours {ours[-1].log_loss:.6f}, VW {vw[-1].log_loss:.6f}",),
        ),
    ]


def replay_offline(file: Path, hyper: Mapping[str, object], hashing: Mapping[str, object]) -> Pass:
    """`ftrl replay --offline` into a bundled server of its own."""
    return _replay(file, hyper, hashing, "--offline")


def vowpal_wabbit(file: Path) -> Pass:
    return _timed([sys.executable, "-m", "bench.reference_vw", str(file)], {})


def _replay(file: Path, hyper: Mapping[str, object], hashing: Mapping[str, object], mode: str) -> Pass:
    command = ftrl("replay", str(file), mode, "--format", "vw", "--json")
    command += ["--hyper", json.dumps(hyper), "--hashing", json.dumps(hashing)]
    with tempfile.TemporaryDirectory(prefix="ftrl-bench-", dir="/tmp") as directory:
        return _timed(command, {"FTRL_DATA_DIR": directory})


def _timed(command: list[str], environment: Mapping[str, str]) -> Pass:
    started = perf_counter()
    summary = json.loads(finish(command, environment))
    wall = perf_counter() - started
    return Pass(summary["rows"] / summary["seconds"], summary["rows"] / wall, summary["log_loss"])

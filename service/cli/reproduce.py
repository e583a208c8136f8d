"""The commands `ftrl reproduce table1`, `pareto`, `weights`, `untuned`, `experts`, `drift`, `churn`,
and `comparison`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    Path,
    typer.Option(
        envvar="FTRL_DATA",
        help="Directory with the data files listed in docs/experiments.md.",
        metavar="DIR",
    ),
]
Out = Annotated[
    Path, typer.Option(help="Directory for reports and finished passes; a rerun resumes.", metavar="DIR")
]
Only = Annotated[str, typer.Option(help="Names of data sets, comma-separated; all by default.")]
Jobs = Annotated[int | None, typer.Option(help="Passes at once; by default one for each processor.")]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick", help="Fewer values, shuffles or rows: approximate figures, several times as fast."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="The report as one JSON object on standard output.")]

app = typer.Typer()


@app.command()
def table1(
    data: Data,
    out: Out = Path("reproduction"),
    only: Only = "",
    jobs: Jobs = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """AUC and density of every algorithm on every data set, beside the paper's figures."""
    _run("table1", data, out, only, jobs, quick, as_json)


@app.command()
def pareto(
    data: Data,
    out: Out = Path("reproduction"),
    only: Only = "",
    jobs: Jobs = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Sparsity against accuracy over a range of lambda, as tables and as plots (PNG and SVG)."""
    _run("pareto", data, out, only, jobs, quick, as_json)


@app.command()
def weights(
    data: Data,
    out: Out = Path("reproduction"),
    jobs: Jobs = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Implicit against first-order updates, with importance weights from 1 to 1,000."""
    _run("weights", data, out, "", jobs, quick, as_json)


@app.command()
def untuned(
    data: Data,
    out: Out = Path("reproduction"),
    only: Only = "",
    jobs: Jobs = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Defaults without tuning, on each log against the best of `ftrl tune` and Vowpal Wabbit."""
    _run("untuned", data, out, only, jobs, quick, as_json)


@app.command()
def experts(
    data: Data,
    out: Out = Path("reproduction"),
    only: Only = "",
    jobs: Jobs = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """The choice of the default's experts, on half of the logs."""
    _run("experts", data, out, only, jobs, quick, as_json)


@app.command()
def drift(
    out: Out = Path("reproduction"),
    jobs: Jobs = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Simulated worlds that change: log loss over time, and the weights of the experts."""
    _run("drift", Path(), out, "", jobs, quick, as_json)


@app.command()
def churn(out: Out = Path("reproduction"), quick: Quick = False, as_json: AsJson = False) -> None:
    """Thirty simulated days of new ads and users: slots in use and log loss, with and without dropping."""
    _run("churn", Path(), out, "", None, quick, as_json)


@app.command()
def comparison(out: Out = Path("reproduction"), quick: Quick = False, as_json: AsJson = False) -> None:
    """Simulated comparisons: how often equal models are called different, and when unequal ones are."""
    _run("comparison", Path(), out, "", None, quick, as_json)


def _run(name: str, data: Path, out: Path, only: str, jobs: int | None, quick: bool, as_json: bool) -> None:
    from lab.experiments.reproduction import EXPERIMENTS, ReproductionPlan

    chosen = tuple(filter(None, only.split(",")))
    if jobs is not None and jobs < 1:
        raise typer.BadParameter("must be at least 1", param_hint="--jobs")
    plan = ReproductionPlan(data, out, chosen, -1 if jobs is None else jobs, quick=quick)
    out.mkdir(parents=True, exist_ok=True)
    report = EXPERIMENTS[name](plan)
    sys.stdout.write(json.dumps(report.figures) + "\n" if as_json else report.markdown)

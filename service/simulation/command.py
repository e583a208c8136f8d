"""The command `ftrl simulate`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from service.model_option import checked_model_name

if TYPE_CHECKING:
    from service.simulation.figures import Report


def simulate(
    url: Annotated[str, typer.Option(help="Address of the service.")] = "http://127.0.0.1:8000",
    model: Annotated[
        str, typer.Option(help="The model, which is deleted and created anew.", callback=checked_model_name)
    ] = "simulated",
    policies: Annotated[
        str, typer.Option(help="One or more feedback policies, comma-separated, or `all` of them.")
    ] = "close",
    rate: Annotated[float, typer.Option(min=0.1, max=10_000, help="Requests a second.")] = 100,
    seconds: Annotated[float, typer.Option(min=1, help="How long impressions are sent.")] = 60,
    window: Annotated[float, typer.Option(min=1, help="The attribution window, in seconds.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="The same seed is the same world.")] = 1,
    click_rate: Annotated[float, typer.Option(min=0.001, max=0.5, help="Of the world, about.")] = 0.05,
    candidates: Annotated[int, typer.Option(min=1, max=50, help="Ads predicted for one impression.")] = 5,
    lost: Annotated[float, typer.Option(min=0, max=1, help="Share of clicks never sent.")] = 0.01,
    repeated: Annotated[float, typer.Option(min=0, max=1, help="Share of clicks sent twice.")] = 0.05,
    shock_at: Annotated[
        float, typer.Option(min=0, max=1, help="When tastes change all at once, as a share of the time.")
    ] = 0.5,
    negative_sample_rate: Annotated[
        float, typer.Option(min=0.001, max=1, help="Share of the labels 0 that is learned.")
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a policy.")] = False,
) -> None:
    """Send a service impressions, and clicks that come later, from a world whose truth is known."""
    from service.simulation.policies import POLICIES, Plan
    from service.simulation.policies import simulate as run

    names = list(POLICIES) if policies == "all" else policies.split(",")
    if unknown := [name for name in names if name not in POLICIES]:
        raise typer.BadParameter(f"no policy {unknown[0]!r}; there are {', '.join(POLICIES)} and all")
    plan = Plan(
        url,
        model,
        rate,
        seconds,
        window,
        seed,
        click_rate,
        candidates,
        lost,
        repeated,
        shock_at,
        negative_sample_rate,
    )
    reports = []
    for name in names:
        reports.append(run(plan, name))
        if as_json:
            sys.stdout.write(json.dumps(reports[-1].to_json(), allow_nan=False) + "\n")
            sys.stdout.flush()
    if not as_json:
        print_reports(reports)


def print_reports(reports: list[Report]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for report in reports:
        table = Table(
            title=f"{report.policy}: {report.requests_per_second:g} requests/s, {report.seconds:g} s"
        )
        for heading in ("phase", "predictions", "calibration", "log loss", "beyond the truth's", "regret"):
            table.add_column(heading, justify="left" if heading == "phase" else "right")
        for phase, quality in report.phases.items():
            figures = (quality.calibration, quality.log_loss, quality.excess_log_loss, quality.regret)
            table.add_row(phase.replace("_", " "), str(quality.predictions), *map(_text, figures))
        console.print(table)
        events = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in report.events.items())
        console.print(
            f"{events}; learned {report.learned}, lost {_text(report.lost)}, doubled {_text(report.doubled)}"
        )


def _text(figure: float | None) -> str:
    if figure is None:
        return "-"
    return str(figure) if isinstance(figure, int) else f"{figure:.4f}"

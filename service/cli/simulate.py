"""The command `ftrl simulate`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from service.cli.flags import checked_model_name
from service.cli.remote import DEFAULT_URL, AsJson, Url
from service.errors import Interrupted

if TYPE_CHECKING:
    from rich.table import Table

    from lab.simulation.figures import Report


def simulate(
    url: Url = DEFAULT_URL,
    model: Annotated[
        str,
        typer.Option(
            help="The model, which is deleted and created again; refused if no simulation created it.",
            callback=checked_model_name,
        ),
    ] = "simulated",
    policies: Annotated[
        str, typer.Option(help="One or more feedback policies, comma-separated, or `all` of them.")
    ] = "close",
    rate: Annotated[float, typer.Option(min=0.1, max=10_000, help="Impressions a second.")] = 100,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds for which impressions are sent.")] = 60,
    window: Annotated[float, typer.Option(min=1, help="The attribution window, in seconds.")] = 10,
    delay: Annotated[
        float, typer.Option(min=0, help="Mean delay from an impression to its click, in windows.")
    ] = 0.25,
    seed: Annotated[int, typer.Option(min=0, help="The same seed is the same world.")] = 1,
    click_rate: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="Approximate click rate of the world.")
    ] = 0.05,
    candidates: Annotated[int, typer.Option(min=1, max=50, help="Ads predicted for one impression.")] = 5,
    lost: Annotated[float, typer.Option(min=0, max=1, help="Share of clicks never sent.")] = 0.01,
    repeated: Annotated[float, typer.Option(min=0, max=1, help="Share of clicks sent twice.")] = 0.05,
    early: Annotated[
        float, typer.Option(min=0, max=1, help="Share of clicks sent before their impression is.")
    ] = 0.01,
    retried: Annotated[
        float, typer.Option(min=0, max=1, help="Share of impressions all of whose requests are sent twice.")
    ] = 0.02,
    world: Annotated[
        Literal["shock", "drift", "seasons"],
        typer.Option(help="How click probabilities change: all at once, gradually, or there and back."),
    ] = "shock",
    shock_at: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="When tastes change all at once, as a share of the time; by default 0.5 in the world shock,"
            " and never in the others.",
        ),
    ] = None,
    negative_sample_rate: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=1,
            help="Share of the labels 0 that is learned, unless the policy sets it.",
        ),
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Send impressions and delayed clicks from a world whose truth is known."""
    from lab.simulation.policies import POLICIES, Plan
    from lab.simulation.policies import simulate as run

    names = list(POLICIES) if policies == "all" else policies.split(",")
    if unknown := [name for name in names if name not in POLICIES]:
        raise typer.BadParameter(f"no policy {unknown[0]!r}; there are {', '.join(POLICIES)} and all")
    _refuse_two_rates(names, negative_sample_rate)
    plan = Plan(
        url,
        model,
        rate,
        seconds,
        window,
        delay,
        seed,
        click_rate,
        candidates,
        lost,
        repeated,
        early,
        retried,
        (0.5 if world == "shock" else 1.0) if shock_at is None else shock_at,
        negative_sample_rate,
        world,
    )
    reports = []
    for name in names:
        try:
            reports.append(run(plan, name))
        except KeyboardInterrupt:
            if not as_json:
                print_reports(reports)
            raise Interrupted(
                f"policy {name} has no report; model {model} keeps what it has learned by it"
            ) from None
        if as_json:
            sys.stdout.write(json.dumps(reports[-1].to_json(), allow_nan=False) + "\n")
            sys.stdout.flush()
    if not as_json:
        print_reports(reports)


def _refuse_two_rates(policies: list[str], negative_sample_rate: float) -> None:
    from lab.simulation.policies import POLICIES

    own = [name for name in policies if "negative_sample_rate" in POLICIES[name]]
    if own and negative_sample_rate != 1:
        raise typer.BadParameter(
            f"the policy {own[0]} has a --negative-sample-rate of its own,"
            f" {POLICIES[own[0]]['negative_sample_rate']}: leave out one of the two"
        )


def print_reports(reports: list[Report]) -> None:
    """Print each report, then a comparison of the policies."""
    from rich.console import Console

    console = Console()
    for report in reports:
        console.print(_phases_of(report))
        events = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in report.events.items())
        console.print(events)
        console.print(_weights_of(report))
        console.print(str(report.accounts), soft_wrap=True)
    if len(reports) > 1:
        console.print(_compared(reports))


def _phases_of(report: Report) -> Table:
    rate, seconds = report.requests_per_second, report.seconds
    table = _table(
        f"{report.policy}: {rate:g} impressions/s, {seconds:g} s",
        *("phase", "predictions", "calibration", "log loss", "beyond the truth's", "regret"),
    )
    for phase, quality in report.phases.items():
        figures = (quality.calibration, quality.log_loss, quality.excess_log_loss, quality.regret)
        table.add_row(phase.replace("_", " "), str(quality.predictions), *map(_text, figures))
    return table


def _weights_of(report: Report) -> Table:
    table = _table("Weight of each expert", "seconds", *report.experts)
    for sample in report.weights:
        table.add_row(f"{sample.seconds:.1f}", *(f"{weight:.3f}" for weight in sample.weights))
    return table


def _compared(reports: list[Report]) -> Table:
    """A column for each policy: with a row for each, a terminal is too narrow for the figures."""
    table = _table(
        "Calibration of what was served; log loss and regret before the shock",
        *("", *(report.policy.replace("-", "-\n") for report in reports)),
    )
    for phase in reports[0].phases:
        figures = [_text(report.phases[phase].calibration) for report in reports]
        table.add_row(phase.replace("_", " "), *figures)
    before = [report.phases["before_shock"] for report in reports]
    table.add_row("log loss", *(_text(quality.log_loss) for quality in before))
    table.add_row("regret", *(_text(quality.regret) for quality in before))
    for count in ("learned", "lost", "lost_clicks", "doubled", "doubled_clicks", "foreign"):
        table.add_row(count.replace("_", " "), *(str(getattr(report.accounts, count)) for report in reports))
    return table


def _table(title: str, *headings: str) -> Table:
    from rich.table import Table

    table = Table(title=title)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    return table


def _text(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.4f}"

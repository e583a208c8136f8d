"""PromQL of the dashboard *Model quality*."""

from __future__ import annotations

MODEL = 'model="$model"'
CHOSEN = f'{MODEL}, window="$window", weighting="$weighting"'
BUCKETS = f'{MODEL}, source="$source", window="$reliability"'
SLICES = f'{MODEL}, feature=~"$feature", window="$reliability"'
# The process that learns may change; if two overlap for a moment, either is right.
ANY = "max without (instance, job)"


def online(name: str, matchers: str = CHOSEN) -> str:
    return f"{ANY} (ftrl_online_{name}{{{matchers}}})"


def of_model(name: str) -> str:
    return f"{ANY} (ftrl_model_{name}{{{MODEL}}})"


def challenger(name: str, matchers: str = "") -> str:
    """A series for each challenger of the model."""
    return f'{ANY} (ftrl_challenger_{name}{{champion="$model"{matchers}}})'


def relative_to_champion(query: str) -> str:
    """Differences of log loss as shares of the champion's."""
    loss = challenger("log_loss", ', of="champion"')
    return f"{query} / on (model) group_left () max by (model) ({loss})"


def headline(name: str, window: str = "1h") -> str:
    return f'ftrl:online_{name}{{{MODEL}, window="{window}"}}'


def margin(name: str, window: str = "1h") -> str:
    """Half of the 95 % interval of a headline."""
    low, high = (
        f'ftrl:online_{name}_interval{{{MODEL}, window="{window}", bound="{bound}"}}'
        for bound in ("low", "high")
    )
    return f"({high} - ignoring (bound) {low}) / 2"


def interval(name: str) -> tuple[tuple[str, str], ...]:
    """The bounds of the 95 % interval of a figure, with their legends."""
    return tuple(
        (online(f"{name}_interval", f'{CHOSEN}, bound="{bound}"'), f"{{{{source}}}} {bound}")
        for bound in ("low", "high")
    )


def of_slice(name: str) -> str:
    return f"{ANY} (ftrl_slice_{name}{{{SLICES}}})"


FEW_CLICKS = "no data yet: a window needs 50 clicks"

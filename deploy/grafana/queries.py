"""PromQL that several panels share."""

from __future__ import annotations

SECONDS = "ftrl_http_request_duration_seconds"
# Excludes probes and the built-in dashboard, which are not traffic.
HEALTH = 'route!~"/livez|/readyz|/metrics|/|/dashboard/.*|.*/live|/docs.*|/redoc|/openapi.json"'
RATE = "[$__rate_interval]"
OF_MODEL = 'model=~"$model"'


def quantiles(metric: str, matchers: str, by: str = "le") -> tuple[tuple[str, str], ...]:
    rate = f"sum by ({by}) (rate({metric}_bucket{{{matchers}}}{RATE}))"
    return tuple((f"histogram_quantile({q / 100}, {rate})", f"p{q}") for q in (50, 95, 99))


def mean(metric: str) -> str:
    rates = [f"sum by (model) (rate({metric}_{part}{{{OF_MODEL}}}{RATE}))" for part in ("sum", "count")]
    return " / ".join(rates)


def rate(metric: str, by: str, matchers: str = OF_MODEL) -> str:
    return f"sum by ({by}) (rate({metric}{{{matchers}}}{RATE}))"


def worst(metric: str) -> str:
    return f"max by (model) ({metric}{{{OF_MODEL}}})"

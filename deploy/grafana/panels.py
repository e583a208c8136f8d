"""Building blocks of the dashboards: panels as Grafana JSON, laid out in rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

Json = dict[str, Any]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
GREEN, YELLOW, RED = "green", "yellow", "red"


def thresholds(base: str, *steps: tuple[float, str]) -> Json:
    """Return threshold colours: `base` applies below the first step."""
    return {
        "mode": "absolute",
        "steps": [{"color": base, "value": None}]
        + [{"color": color, "value": value} for value, color in steps],
    }


def words(zero: str, one: str) -> list[Json]:
    """Return the mapping that shows 0 and 1 as words."""
    return [
        {
            "type": "value",
            "options": {
                "0": {"text": zero, "color": RED, "index": 0},
                "1": {"text": one, "color": GREEN, "index": 1},
            },
        }
    ]


PLAIN = thresholds(GREEN)
ZERO_IS_BAD = thresholds(RED, (1, GREEN))
ONE_IS_BAD = thresholds(GREEN, (1, RED))
MARGIN = "± (95 %)"
NO_DATA = "no data yet"


def panel(
    kind: str,
    title: str,
    description: str,
    unit: str,
    *queries: tuple[str, str],
    limits: Json = PLAIN,
    instant: bool = False,
    width: int = 8,
    height: int = 7,
    options: Json | None = None,
    custom: Json | None = None,
    empty: str = NO_DATA,
    **defaults: Any,
) -> Json:
    """`queries`: (PromQL, legend); `unit` as Grafana names it; `empty`: shown where they find nothing;
    `defaults`: field options such as min.
    """
    field: Json = {"unit": unit, "thresholds": limits, "noValue": empty} | defaults
    if custom is not None:
        field["custom"] = custom
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "targets": [
            {"refId": chr(65 + number), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
            | ({"instant": True, "range": False} if instant else {})
            for number, (expr, legend) in enumerate(queries)
        ],
        "fieldConfig": {"defaults": field, "overrides": []},
        "options": options or {},
        "gridPos": {"w": width, "h": height},
    }


def stat(
    title: str,
    description: str,
    unit: str,
    expr: str,
    legend: str = "",
    *,
    margin: str | None = None,
    **more: Any,
) -> Json:
    """Return a panel with one figure, coloured by its limits; `margin` finds its statistical error."""
    shown = {"colorMode": "background", "graphMode": "area", "reduceOptions": {"calcs": ["lastNotNull"]}}
    if margin is None:
        return panel(
            "stat", title, description, unit, (expr, legend), width=3, height=4, options=shown, **more
        )
    shown |= {"textMode": "value_and_name", "graphMode": "none"}
    both = ((expr, legend or title), (margin, MARGIN))
    made = panel("stat", title, description, unit, *both, width=3, height=4, options=shown, **more)
    plain = {"id": "color", "value": {"mode": "fixed", "fixedColor": "transparent"}}
    made["fieldConfig"]["overrides"] = [
        {"matcher": {"id": "byName", "options": MARGIN}, "properties": [plain]}
    ]
    return made


def graph(title: str, description: str, unit: str, *queries: tuple[str, str], **more: Any) -> Json:
    """Return a time series panel; limits other than PLAIN are drawn as dashed lines."""
    custom: Json = {"lineWidth": 1, "fillOpacity": 8, "showPoints": "never"}
    if more.get("limits", PLAIN) is not PLAIN:
        custom["thresholdsStyle"] = {"mode": "dashed"}
    options = {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel("timeseries", title, description, unit, *queries, custom=custom, options=options, **more)


def lights(
    title: str, description: str, mappings: list[Json], *queries: tuple[str, str], **more: Any
) -> Json:
    """Return a bar over time for each query, whose 0 and 1 are shown as words."""
    options = {"mergeValues": True, "showValue": "auto", "rowHeight": 0.8, "legend": {"showLegend": False}}
    custom = {"fillOpacity": 70, "lineWidth": 0}
    return panel(
        "state-timeline",
        title,
        description,
        "none",
        *queries,
        limits=ZERO_IS_BAD,
        mappings=mappings,
        options=options,
        custom=custom,
        **more,
    )


def table(
    title: str, description: str, unit: str, *queries: tuple[str, str], hide: Sequence[str] = (), **more: Any
) -> Json:
    """Return a table of the current labels and values; several queries are joined by the label `join`."""
    join = more.pop("join", None)
    made = panel("table", title, description, unit, *queries, instant=True, **more)
    for target in made["targets"]:
        target["format"] = "table"
    hidden = dict.fromkeys(("Time", "__name__", "instance", "job", *hide), True)
    made["transformations"] = [{"id": "joinByField", "options": {"byField": join}}] if join else []
    made["transformations"].append({"id": "organize", "options": {"excludeByName": hidden}})
    return made


def variable(name: str, label: str, query: str, *, many: bool) -> Json:
    """Return a variable that is chosen among the values of a label."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": many,
        "includeAll": many,
        **({"allValue": ".*", "current": {"text": "All", "value": "$__all"}} if many else {}),
    }


def choice(name: str, label: str, chosen: str, *others: str) -> Json:
    return {
        "type": "custom",
        "name": name,
        "label": label,
        "query": ",".join((chosen, *others)),
        "current": {"text": chosen, "value": chosen},
        "options": [
            {"text": value, "value": value, "selected": value == chosen} for value in (chosen, *others)
        ],
    }


def dashboard(
    uid: str,
    title: str,
    description: str,
    variables: list[Json],
    rows: dict[str, list[Json]],
    details: dict[str, list[Json]],
    events: list[Json],
) -> Json:
    """Return a dashboard with `rows` by title, and with `details`, rows that are collapsed at first.

    Panels flow from left to right and wrap. `events` and firing alerts are marked in all of them.
    """
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["ftrl"],
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-3h", "to": "now"},
        "links": [_link_to_others()],
        "templating": {"list": [_data_source(), *variables]},
        "annotations": {"list": [_firing_alerts(), *events]},
        "panels": _laid_out(rows, details),
    }


def _laid_out(rows: dict[str, list[Json]], details: dict[str, list[Json]]) -> list[Json]:
    made: list[Json] = []
    numbers = itertools.count(1)
    y = 0
    for title, panels in (rows | details).items():
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        row = {
            "id": next(numbers),
            "type": "row",
            "title": title,
            "collapsed": title in details,
            "gridPos": place,
        }
        placed = [{"id": next(numbers)} | one for one in _flowing(panels, y + 1)]
        if title in details:
            made.append(row | {"panels": placed})
            y += 1
        else:
            made += [row | {"panels": []}, *placed]
            y = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in placed)
    return made


def _flowing(panels: list[Json], y: int) -> Iterator[Json]:
    x = height = 0
    for made in panels:
        size = made["gridPos"]
        if x + size["w"] > WIDTH:
            x, y, height = 0, y + height, 0
        yield made | {"gridPos": {"x": x, "y": y} | size}
        x, height = x + size["w"], max(height, size["h"])


def _data_source() -> Json:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "current": {},
    }


def _link_to_others() -> Json:
    return {
        "type": "dashboards",
        "title": "ftrl",
        "tags": ["ftrl"],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
    }


def _firing_alerts() -> Json:
    expr = 'ALERTS{alertname=~"Ftrl.+", alertstate="firing"}'
    return event("Alerts", RED, expr, "{{alertname}}", "{{model}} {{instance}}")


def event(name: str, color: str, expr: str, title: str, text: str) -> Json:
    """Return an annotation where `expr` is 1."""
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": True,
        "iconColor": color,
        "expr": expr,
        "titleFormat": title,
        "textFormat": text,
    }

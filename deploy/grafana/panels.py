"""Building blocks of the dashboards: panels as Grafana JSON, laid out in rows."""

from __future__ import annotations

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


PLAIN = thresholds(GREEN)
ZERO_IS_BAD = thresholds(RED, (1, GREEN))
ONE_IS_BAD = thresholds(GREEN, (1, RED))


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
    **defaults: Any,
) -> Json:
    """`queries`: (PromQL, legend); `unit` as Grafana names it; `defaults`: field options such as min."""
    field: Json = {"unit": unit, "thresholds": limits} | defaults
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


def stat(title: str, description: str, unit: str, expr: str, legend: str = "", **more: Any) -> Json:
    """Return a panel with one figure, coloured by its limits."""
    shown = {"colorMode": "background", "graphMode": "area", "reduceOptions": {"calcs": ["lastNotNull"]}}
    return panel("stat", title, description, unit, (expr, legend), width=3, height=4, options=shown, **more)


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
    uid: str, title: str, description: str, variables: list[Json], rows: dict[str, list[Json]]
) -> Json:
    """Return a dashboard with `rows` by title; panels flow from left to right and wrap."""
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
        "annotations": {"list": [_firing_alerts()]},
        "panels": list(_laid_out(rows)),
    }


def _laid_out(rows: dict[str, list[Json]]) -> Iterator[Json]:
    y = number = 0
    for title, panels in rows.items():
        number += 1
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": place,
        }
        x, y, height = 0, y + 1, 0
        for made in panels:
            size = made["gridPos"]
            if x + size["w"] > WIDTH:
                x, y, height = 0, y + height, 0
            number += 1
            yield {"id": number} | made | {"gridPos": {"x": x, "y": y} | size}
            x, height = x + size["w"], max(height, size["h"])
        y += height


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
    return {
        "name": "Alerts",
        "datasource": SOURCE,
        "enable": True,
        "iconColor": RED,
        "expr": 'ALERTS{alertname=~"Ftrl.+", alertstate="firing"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{model}} {{instance}}",
    }

"""Write deploy/prometheus/rules as a PrometheusRule: `python deploy/kubernetes/build.py`."""

from __future__ import annotations

from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
TARGET = HERE / "components" / "monitoring" / "rules.yaml"


def prometheus_rule() -> str:
    files = sorted((HERE.parent / "prometheus" / "rules").glob("*.yml"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "ftrl"},
        "spec": {"groups": groups},
    }
    text = yaml.safe_dump(resource, sort_keys=False, width=110, allow_unicode=True)
    return f"# Written by deploy/kubernetes/build.py from deploy/prometheus/rules.\n{text}"


if __name__ == "__main__":
    TARGET.write_text(prometheus_rule())

"""What `kubectl kustomize` makes of deploy/kubernetes."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.shared_data import REPOSITORY

KUBERNETES = REPOSITORY / "deploy" / "kubernetes"
OVERLAYS = sorted(path.name for path in (KUBERNETES / "overlays").iterdir())
needs_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None,
    reason="kubectl is not installed (https://kubernetes.io/docs/tasks/tools)",
)

Resource = dict[str, Any]


@functools.cache
def kustomized(directory: Path) -> str:
    """The manifests of a kustomization, as YAML."""
    result = subprocess.run(
        ["kubectl", "kustomize", str(directory)], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""  # of what is deprecated
    return result.stdout


def resources_of(directory: Path) -> list[Resource]:
    return list(yaml.safe_load_all(kustomized(directory)))


def with_components(directory: Path, overlay: str, *components: str) -> list[Resource]:
    """The resources of an overlay and components of ours, in a kustomization that is made in `directory`."""
    kustomization = {
        "resources": [os.path.relpath(KUBERNETES / "overlays" / overlay, directory)],
        "components": [os.path.relpath(KUBERNETES / "components" / name, directory) for name in components],
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return resources_of(directory)


def load(file: Path) -> list[Any]:
    return list(yaml.safe_load_all(file.read_text()))


def pods_of(resource: Resource) -> Any:
    """The pod template of a workload, or None."""
    return resource.get("spec", {}).get("template")

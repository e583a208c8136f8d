"""What `kubectl kustomize` would make of deploy/kubernetes, as far as that uses it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests.support.shared_data import REPOSITORY

KUBERNETES = REPOSITORY / "deploy" / "kubernetes"
OVERLAYS = sorted(path.name for path in (KUBERNETES / "overlays").iterdir())
UNDERSTOOD = {
    *("apiVersion", "kind", "namespace", "labels", "resources", "components", "images"),
    *("secretGenerator", "patches"),
}

Resource = dict[str, Any]


def resources_of(directory: Path) -> list[Resource]:
    """All resources of a kustomization, patched; fails where a file or a patch's target is missing."""
    kustomization = load(directory / "kustomization.yaml")[0]
    assert set(kustomization) <= UNDERSTOOD, directory
    found: list[Resource] = []
    for name in (*kustomization.get("resources", []), *kustomization.get("components", [])):
        path = (directory / name).resolve()
        found += resources_of(path) if path.is_dir() else load(path)
    for secret in kustomization.get("secretGenerator", []):
        pairs = dict(literal.split("=", 1) for literal in secret["literals"])
        name = {"name": secret["name"]}
        found.append({"apiVersion": "v1", "kind": "Secret", "metadata": name, "stringData": pairs})
    for patch in kustomization.get("patches", []):
        _apply(patch, found)
    for image in kustomization.get("images", []):
        assert _images(found, image), f"{directory}: nothing uses the image {image['name']}"
    return found


def load(file: Path) -> list[Any]:
    return list(yaml.safe_load_all(file.read_text()))


def pods_of(resource: Resource) -> Any:
    """The pod template of a workload, or None."""
    return resource.get("spec", {}).get("template")


def _apply(patch: dict[str, Any], resources: list[Resource]) -> None:
    target = patch["target"]
    name = re.compile(target["name"])
    matching = [
        resource
        for resource in resources
        if resource["kind"] == target["kind"] and name.fullmatch(resource["metadata"]["name"])
    ]
    assert matching, f"no target: {target}"
    for resource in matching:
        for operation in yaml.safe_load(patch["patch"]):
            assert operation["op"] == "replace", (
                "only `replace` is understood: it fails where there is nothing"
            )
            _replace(resource, operation["path"].split("/")[1:], operation["value"])


def _replace(node: Any, path: list[str], value: Any) -> None:
    step: Any = int(path[0]) if isinstance(node, list) else path[0]
    if len(path) > 1:
        _replace(node[step], path[1:], value)
    else:
        assert node[step] is not None
        node[step] = value


def _images(resources: list[Resource], image: dict[str, str]) -> bool:
    used = False
    for pods in filter(None, map(pods_of, resources)):
        for container in pods["spec"]["containers"]:
            if container["image"] == image["name"]:
                container["image"] = f"{image.get('newName', image['name'])}:{image['newTag']}"
                used = True
    return used

"""The manifests of deploy/kubernetes: valid, and of one piece."""

from __future__ import annotations

import os
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from service.settings import Settings
from tests.support.kustomized import (
    KUBERNETES,
    OVERLAYS,
    Resource,
    load,
    needs_kubectl,
    pods_of,
    resources_of,
    with_components,
)

pytestmark = needs_kubectl

VERSIONS = ("1.31", "1.37")
OPERATOR = "monitoring.coreos.com/v1"
IMAGE_DATA_DIR = "/data"
OUR_IMAGES = ("ftrl-service:", "registry.example/ftrl-service:")

overlays = pytest.mark.parametrize("overlay", OVERLAYS)


def made(overlay: str) -> list[Resource]:
    return resources_of(KUBERNETES / "overlays" / overlay)


def generated(resources: list[Resource], kind: str, name: str) -> Resource:
    """The one ConfigMap or Secret whose name is this one with a hash after it."""
    [found] = [resource for full, resource in of_kind(resources, kind).items() if full.startswith(f"{name}-")]
    return found


def of_kind(resources: list[Resource], *kinds: str) -> dict[str, Resource]:
    return {one["metadata"]["name"]: one for one in resources if one["kind"] in kinds}


def workloads(overlay: str) -> dict[str, Resource]:
    return of_kind(made(overlay), "Deployment", "StatefulSet")


def our_containers(overlay: str) -> Iterator[tuple[str, Resource, Resource]]:
    """(name of the workload, spec of its pods, the container) of those that run the service."""
    for name, workload in workloads(overlay).items():
        spec = pods_of(workload)["spec"]
        for container in spec["containers"]:
            if container["image"].startswith(OUR_IMAGES):
                yield name, spec, container


@pytest.mark.parametrize("version", VERSIONS)
@overlays
def test_every_resource_is_valid_under_a_strict_schema(overlay: str, version: str) -> None:
    native = [resource for resource in made(overlay) if resource["apiVersion"] != OPERATOR]
    assert len(native) > 10
    for resource in native:
        kubernetes_validate.validate(resource, version, strict=True)


def test_an_unknown_field_is_found() -> None:
    deployment = workloads("demo")["ftrl-api"]
    pods_of(deployment)["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSIONS[0], strict=True)


def test_every_file_belongs_to_a_kustomization() -> None:
    named = set()
    for file in KUBERNETES.rglob("kustomization.yaml"):
        named |= {(file.parent / name).resolve() for name in load(file)[0].get("resources", [])}
    files = {file for file in KUBERNETES.rglob("*.yaml") if file.name != "kustomization.yaml"}
    assert files <= named


def test_patches_name_what_they_change() -> None:
    for file in KUBERNETES.rglob("kustomization.yaml"):
        for patch in load(file)[0].get("patches", []):
            assert isinstance(yaml.safe_load(patch["patch"]), dict), f"{file}: by name, not by position"


@overlays
def test_a_changed_setting_restarts_the_pods_that_read_it(overlay: str, tmp_path: Path) -> None:
    directory = KUBERNETES / "overlays" / overlay
    merged = {"behavior": "merge", "namespace": load(directory / "kustomization.yaml")[0]["namespace"]}
    changed = {
        "resources": [os.path.relpath(directory, tmp_path)],
        "configMapGenerator": [merged | {"name": "ftrl-settings", "literals": ["FTRL_DRAIN_SECONDS=6"]}],
        "secretGenerator": [merged | {"name": "ftrl-redis", "literals": ["url=redis://other"]}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(changed))
    before, after = (of_kind(resources_of(one), "Deployment") for one in (directory, tmp_path))
    for name in ("ftrl-api", "ftrl-learner"):
        assert len(read_by(before[name])) == 2
        assert not read_by(before[name]) & read_by(after[name])


def read_by(workload: Resource) -> set[str]:
    """Names of the ConfigMaps and Secrets in the environment of a workload's containers."""
    [container] = pods_of(workload)["spec"]["containers"]
    sources = [one["valueFrom"]["secretKeyRef"] for one in container["env"] if "valueFrom" in one]
    return {one["name"] for one in (*sources, *(source["configMapRef"] for source in container["envFrom"]))}


@overlays
def test_no_two_resources_have_one_name(overlay: str) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in made(overlay)]
    assert len(set(names)) == len(names)


@overlays
def test_whatever_selects_pods_finds_them(overlay: str) -> None:
    resources = made(overlay)
    pods = [pods_of(workload)["metadata"]["labels"] for workload in workloads(overlay).values()]
    selectors = [
        *(one["spec"]["selector"] for one in of_kind(resources, "Service").values()),
        *(
            one["spec"]["selector"]["matchLabels"]
            for one in of_kind(resources, "PodDisruptionBudget").values()
        ),
        *(one["spec"]["podSelector"]["matchLabels"] for one in of_kind(resources, "NetworkPolicy").values()),
    ]
    assert len(selectors) >= 7
    for selector in selectors:
        assert any(selector.items() <= labels.items() for labels in pods), selector
    for workload in workloads(overlay).values():
        labels = pods_of(workload)["metadata"]["labels"]
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()


@overlays
def test_the_autoscaler_has_its_deployment_to_itself(overlay: str) -> None:
    scaler = of_kind(made(overlay), "HorizontalPodAutoscaler")["ftrl-api"]["spec"]
    deployment = workloads(overlay)[scaler["scaleTargetRef"]["name"]]
    assert "replicas" not in deployment["spec"]
    assert all("cpu" in one["resources"]["requests"] for one in pods_of(deployment)["spec"]["containers"])


@overlays
def test_probes_and_services_name_ports_that_there_are(overlay: str) -> None:
    ports = set()
    for _, _, container in our_containers(overlay):
        own = {port["name"] for port in container["ports"]}
        probes = [container[probe] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert {probe["httpGet"]["port"] for probe in probes} <= own
        assert [probe["httpGet"]["path"] for probe in probes] == ["/livez", "/livez", "/readyz"]
        ports |= own
    assert ports == {"http", "metrics"}
    services = of_kind(made(overlay), "Service")
    assert {
        services[f"ftrl-{name}"]["spec"]["ports"][0]["targetPort"] for name in ("api", "learner")
    } == ports


@overlays
def test_no_pod_may_do_more_than_it_must(overlay: str) -> None:
    for workload in workloads(overlay).values():
        spec = pods_of(workload)["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in container["resources"]["limits"]


@overlays
def test_pods_are_given_settings_that_exist_and_time_to_stop(overlay: str) -> None:
    known = {f"FTRL_{name.upper()}" for name in Settings.model_fields}
    values = generated(made(overlay), "ConfigMap", "ftrl-settings")["data"]
    settings = Settings(**{name.removeprefix("FTRL_").lower(): value for name, value in values.items()})
    assert set(values) <= known
    for _, spec, container in our_containers(overlay):
        assert {variable["name"] for variable in container["env"]} <= known
        assert spec["enableServiceLinks"] is False
        needed = settings.drain_seconds + 2 * settings.shutdown_grace_seconds
        assert spec["terminationGracePeriodSeconds"] >= needed + 5


@overlays
def test_whatever_a_pod_mounts_or_reads_is_there(overlay: str) -> None:
    resources = made(overlay)
    present = {(one["kind"], one["metadata"]["name"]) for one in resources}
    for _, spec, container in our_containers(overlay):
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        claims = [
            one["persistentVolumeClaim"]["claimName"]
            for one in volumes.values()
            if "persistentVolumeClaim" in one
        ]
        assert {("PersistentVolumeClaim", claim) for claim in claims} <= present
        assert ("ServiceAccount", spec["serviceAccountName"]) in present
        assert {("ConfigMap", source["configMapRef"]["name"]) for source in container["envFrom"]} <= present
        sources = [one["valueFrom"] for one in container["env"] if "valueFrom" in one]
        secrets = [source["secretKeyRef"]["name"] for source in sources]
        assert {("Secret", name) for name in secrets} <= present


def test_the_demo_has_its_snapshots_on_a_volume_of_its_node() -> None:
    [claim] = [one["spec"] for one in made("demo") if one["kind"] == "PersistentVolumeClaim"]
    assert claim["accessModes"] == ["ReadWriteOnce"]
    shared = {"persistentVolumeClaim": {"claimName": "ftrl-snapshots"}}
    assert snapshot_stores("demo") == {"ftrl-api": shared, "ftrl-learner": shared}


def test_production_has_its_snapshots_in_a_bucket_and_no_volume() -> None:
    resources = made("production")
    assert of_kind(resources, "PersistentVolumeClaim") == {}
    assert snapshot_stores("production") == {"ftrl-api": {"emptyDir": {}}, "ftrl-learner": {"emptyDir": {}}}
    store = generated(resources, "ConfigMap", "ftrl-settings")["data"]["FTRL_SNAPSHOTS"]
    assert store.startswith("s3://")
    [bucket] = of_kind(resources, "NetworkPolicy")["ftrl-to-bucket"]["spec"]["egress"]
    assert bucket == {"ports": [{"protocol": "TCP", "port": 443}]}


def snapshot_stores(overlay: str) -> dict[str, Resource]:
    """What each of our deployments mounts where the image has its data."""
    stores = {}
    for name, spec, container in our_containers(overlay):
        [volume] = [m["name"] for m in container["volumeMounts"] if m["mountPath"] == IMAGE_DATA_DIR]
        [source] = [one for one in spec["volumes"] if one["name"] == volume]
        stores[name] = {kind: value for kind, value in source.items() if kind != "name"}
    return stores


def test_prometheus_scrapes_both_services_under_the_rules_job_names() -> None:
    resources = made("production")
    monitor = of_kind(resources, "ServiceMonitor")["ftrl"]["spec"]
    assert set(monitor) == {"selector", "endpoints"}
    services = of_kind(resources, "Service")
    wanted = monitor["selector"]["matchLabels"].items()
    selected = {name for name, one in services.items() if wanted <= one["metadata"].get("labels", {}).items()}
    assert selected == {"ftrl-api", "ftrl-learner"}
    for endpoint in monitor["endpoints"]:
        for name in selected:
            assert endpoint["port"] in {port["name"] for port in services[name]["spec"]["ports"]}


def test_grafana_finds_both_dashboards_in_config_maps() -> None:
    maps = of_kind(made("production"), "ConfigMap")
    found = {
        name: text
        for one in maps.values()
        if one["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
        for name, text in one["data"].items()
    }
    directory = KUBERNETES.parent / "grafana" / "dashboards"
    assert found == {file.name: file.read_text() for file in directory.glob("*.json")}
    # `kubectl apply` keeps a copy of a resource in an annotation.
    assert all(len(text.encode()) < 256 * 1024 for text in found.values())


@pytest.mark.parametrize("version", VERSIONS)
def test_an_ingress_leads_to_the_port_of_the_api(version: str, tmp_path: Path) -> None:
    resources = with_components(tmp_path, "production", "ingress")
    ingress = of_kind(resources, "Ingress")["ftrl-api"]
    kubernetes_validate.validate(ingress, version, strict=True)
    [rule] = ingress["spec"]["rules"]
    [path] = rule["http"]["paths"]
    service = of_kind(resources, "Service")[path["backend"]["service"]["name"]]
    ports = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
    assert ports[path["backend"]["service"]["port"]["name"]] == "http"
    assert [one["hosts"] for one in ingress["spec"]["tls"]] == [[rule["host"]]]
    body = ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-body-size"]
    assert int(body.removesuffix("m")) << 20 == Settings().max_update_body_bytes


def test_a_gateway_leads_to_the_port_of_the_api(tmp_path: Path) -> None:
    resources = with_components(tmp_path, "production", "gateway")
    [gateway] = of_kind(resources, "Gateway").values()
    [route] = of_kind(resources, "HTTPRoute").values()
    [parent] = route["spec"]["parentRefs"]
    [listener] = gateway["spec"]["listeners"]
    assert (parent["name"], parent["sectionName"]) == (gateway["metadata"]["name"], listener["name"])
    assert route["spec"]["hostnames"] == [listener["hostname"]]
    [backend] = route["spec"]["rules"][0]["backendRefs"]
    service = of_kind(resources, "Service")[backend["name"]]
    assert {port["port"]: port["targetPort"] for port in service["spec"]["ports"]}[backend["port"]] == "http"


def test_openshift_chooses_the_user_of_a_pod(tmp_path: Path) -> None:
    resources = with_components(tmp_path, "production", "openshift")
    for deployment in of_kind(resources, "Deployment").values():
        assert pods_of(deployment)["spec"]["securityContext"] == {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }


def test_the_rules_of_the_operator_are_those_of_prometheus() -> None:
    build: dict[str, Any] = runpy.run_path(str(KUBERNETES / "build.py"))
    written = build["TARGET"].read_text()
    assert written == build["prometheus_rule"](), "run `python deploy/kubernetes/build.py`"
    groups = yaml.safe_load(written)["spec"]["groups"]
    assert all(
        set(rule) & {"alert", "record"} and rule["expr"] for group in groups for rule in group["rules"]
    )


@overlays
def test_callers_need_a_token_by_default(overlay: str) -> None:
    [api] = [container for name, _, container in our_containers(overlay) if name == "ftrl-api"]
    values = {one["name"]: one.get("value") for one in api["env"]}
    assert ("FTRL_TOKENS_FILE" in values) is (values["FTRL_ALLOW_ANONYMOUS"] == "false")
    assert (values["FTRL_ALLOW_ANONYMOUS"] == "true") is (overlay == "demo")
    assert {"name": "metrics", "containerPort": int(values["FTRL_HEALTH_PORT"])} in api["ports"]

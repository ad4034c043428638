"""The server that the Helm chart starts: its settings, probes, secrets, and the cluster that it uses."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2

from mvprune_service.command_line import from_command_line
from mvprune_service.config import Settings
from mvprune_service.executors.ray_jobs import NodeType
from mvprune_service.observability.health import LIVENESS

from .helm_chart import CHART, MATRIX, POSTGRES, Document, needs_helm, one, pods, render, rendered

pytestmark = needs_helm
SETTABLE = json.loads((CHART / "values.schema.json").read_text())["properties"]["settings"]["properties"]


def settings_of(documents: tuple[Document, ...] | list[Document], name: str = "mvprune") -> dict[str, str]:
    data: dict[str, str] = one(documents, "ConfigMap", name)["data"]
    return data


def server(documents: tuple[Document, ...] | list[Document], name: str = "mvprune") -> Document:
    found = pods(documents)
    return found.get(f"Deployment/{name}") or found[f"StatefulSet/{name}"]


def container(documents: tuple[Document, ...] | list[Document], name: str = "mvprune") -> Document:
    (only,) = server(documents, name)["spec"]["containers"]
    found: Document = only
    return found


@pytest.mark.parametrize("case", MATRIX)
def test_the_server_takes_the_settings(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all variables that the chart sets."""
    given = settings_of(rendered(case), "prune" if case == "everything else" else "mvprune")
    for name, value in given.items():
        assert name.removeprefix("MVPRUNE_").lower() in Settings.model_fields
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MVPRUNE_HOME", str(tmp_path))
    settings = from_command_line([], "mvprune-server")
    assert re.fullmatch(r"dns:///(mvprune|prune)-workers\.prod\.svc:7071", settings.worker_target)
    assert (settings.address, settings.worker_address) == ("0.0.0.0:7070", "0.0.0.0:7071")
    assert settings.auth == "required"


def test_all_other_settings_can_be_given() -> None:
    everything = settings_of(render({**MATRIX["tls with sqlite"], "buckets": ["s3://bbb"]}))
    scaled = settings_of(rendered("autoscaling"))
    chart = {name.removeprefix("MVPRUNE_").lower() for name in (*everything, *scaled)}
    chart |= {"database_url", "database_url_file", "http_address"}
    assert set(SETTABLE) == set(Settings.model_fields) - chart
    given = settings_of(rendered("everything else"), "prune")
    assert (given["MVPRUNE_LOG_LEVEL"], given["MVPRUNE_RETENTION_DAYS"]) == ("debug", "30")
    assert given["MVPRUNE_REFLECTION"] == "false"
    assert given["MVPRUNE_BUCKETS"] == "s3://aaa/b,s3://ccc"


def test_the_api_over_http_has_a_port_where_it_is_asked_for() -> None:
    asked, other = rendered("everything else"), rendered("postgres")
    assert settings_of(asked, "prune")["MVPRUNE_HTTP_ADDRESS"] == "0.0.0.0:7080"
    assert {"name": "http", "containerPort": 7080} in container(asked, "prune")["ports"]
    ports = one(asked, "Service", "prune")["spec"]["ports"]
    assert {"name": "http", "port": 7080, "targetPort": "http", "appProtocol": "http"} in ports
    assert "MVPRUNE_HTTP_ADDRESS" not in settings_of(other)
    assert "7080" not in str(other)


def test_sqlite_has_one_pod_with_a_volume_and_postgres_two_without() -> None:
    sqlite = one(rendered("sqlite"), "StatefulSet")
    assert sqlite["spec"]["replicas"] == 1
    (claim,) = sqlite["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "home"
    assert "home" not in {volume["name"] for volume in server(rendered("sqlite"))["spec"]["volumes"]}
    assert not [each for each in rendered("sqlite") if each["kind"] in ("Deployment", "PodDisruptionBudget", "Job")]
    postgres = one(rendered("postgres"), "Deployment")
    assert postgres["spec"]["replicas"] == 2
    assert postgres["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert one(rendered("postgres"), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert one(rendered("five replicas"), "Deployment")["spec"]["replicas"] == 5
    assert one(rendered("stopped"), "Deployment")["spec"]["replicas"] == 0


def test_no_probe_that_restarts_asks_for_the_database() -> None:
    for case in ("sqlite", "postgres"):
        found = container(rendered(case))
        for probe in ("livenessProbe", "startupProbe"):
            assert found[probe]["grpc"] == {"port": 7070, "service": LIVENESS}
        assert found["readinessProbe"]["grpc"] == {"port": 7070}
    tls = container(rendered("tls"))
    assert all(tls[probe]["tcpSocket"] == {"port": "clients"} for probe in ("livenessProbe", "startupProbe"))
    assert tls["readinessProbe"]["exec"]["command"] == ["python", "-m", "mvprune_service.probe"]
    assert health_pb2.HealthCheckRequest(service=LIVENESS).service == "liveness"


def test_a_pod_has_time_to_drain() -> None:
    assert server(rendered("postgres"))["spec"]["terminationGracePeriodSeconds"] == 60
    assert server(rendered("everything else"), "prune")["spec"]["terminationGracePeriodSeconds"] == 65


def test_a_change_of_the_settings_restarts_the_pods() -> None:
    def checksum(values: dict[str, Any]) -> str:
        return str(server(render(values))["metadata"]["annotations"]["checksum/config"])

    assert checksum(POSTGRES) == checksum(POSTGRES)
    assert checksum(POSTGRES) != checksum({**POSTGRES, "settings": {"log_level": "debug"}})


def test_workers_find_all_servers_and_metrics_those_that_are_not_ready() -> None:
    workers = one(rendered("postgres"), "Service", "mvprune-workers")["spec"]
    assert (workers["clusterIP"], workers["ports"][0]["port"]) == ("None", 7071)
    assert one(rendered("postgres"), "Service", "mvprune-metrics")["spec"]["publishNotReadyAddresses"] is True


# Secrets


def test_secrets_are_generated_unless_they_exist() -> None:
    data = one(rendered("postgres"), "Secret", "mvprune-generated")["data"]
    plain = {name: base64.b64decode(value).decode() for name, value in data.items()}
    assert set(plain) == {"server-key", "operator-token", "auth_token"}
    assert len(plain["server-key"]) >= 32
    assert re.fullmatch(r"mvp_helm-[a-z0-9]{10}_[A-Za-z0-9]{43}", plain["operator-token"])
    kept = one(rendered("postgres"), "Secret", "mvprune-generated")["metadata"]["annotations"]
    assert kept == {"helm.sh/resource-policy": "keep"}
    assert not [each for each in rendered("existing secrets") if each["kind"] == "Secret"]


def test_existing_secrets_are_used() -> None:
    documents = rendered("existing secrets")
    spec = server(documents)["spec"]
    (projected,) = (volume["projected"] for volume in spec["volumes"] if volume["name"] == "secrets")
    named = {source["secret"]["name"]: source["secret"]["items"][0] for source in projected["sources"]}
    assert named == {
        "a": {"key": "k", "path": "server-key"},
        "b": {"key": "t", "path": "operator-token"},
        "pg": {"key": "url", "path": "database-url"},
        "c": {"key": "auth_token", "path": "ray-token"},
    }
    (store,) = (volume["secret"] for volume in spec["volumes"] if volume["name"] == "store")
    assert (store["secretName"], store["items"]) == ("s3", [{"key": "credentials", "path": "credentials"}])
    env = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
    assert env["MVPRUNE_DATABASE_URL_FILE"] == "/etc/mvprune/secrets/database-url"
    assert env["RAY_AUTH_TOKEN_PATH"] == "/etc/mvprune/secrets/ray-token"
    assert env["AWS_SHARED_CREDENTIALS_FILE"] == "/etc/mvprune/store/credentials"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert one(documents, "RayCluster", "mvprune-ray")["spec"]["authOptions"] == {"mode": "token", "secretName": "c"}


@pytest.mark.parametrize("case", MATRIX)
def test_secrets_are_files(case: str) -> None:
    """A variable shows in /proc, in dumps, and in the environment of every child."""
    text = json.dumps([each for each in rendered(case) if each["kind"] != "Secret"])
    assert "secretKeyRef" not in text


def test_no_secret_is_in_the_settings() -> None:
    """Values of secrets are only in the Secret; what the pods have are references."""
    documents = rendered("postgres")
    secret = one(documents, "Secret", "mvprune-generated")["data"].values()
    others = json.dumps([each for each in documents if each["kind"] != "Secret"])
    for value in secret:
        assert value not in others
        assert base64.b64decode(value).decode() not in others


# Ray


def test_an_autoscaled_cluster_tells_the_server_what_it_may_grow_to() -> None:
    """The autoscaler adds nodes for jobs that wait in Ray, and the server submits a job only if it fits a node."""
    documents = rendered("autoscaling")
    spec = one(documents, "RayCluster", "mvprune-ray")["spec"]
    assert (spec["enableInTreeAutoscaling"], spec["autoscalerOptions"]["version"]) == (True, "v2")
    types = [NodeType.parse(one) for one in settings_of(documents)["MVPRUNE_RAY_NODE_TYPES"].split(",")]
    assert len(types) == len(spec["workerGroupSpecs"]) == 2
    for kind, group in zip(types, spec["workerGroupSpecs"], strict=True):
        params = group["rayStartParams"]
        assert (group["minReplicas"], group["maxReplicas"]) == (0, kind.most)
        assert json.loads(json.loads(params["resources"])) == {kind.resource: 1}, "KubeRay passes it to a shell"
        assert params["num-cpus"] == f"{kind.node.cpus:.0f}"
        assert params["num-gpus"] == f"{kind.node.gpus:.0f}"
        assert params["memory"] == str(kind.node.memory_bytes)
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        assert int(limits["memory"].removesuffix("Gi")) * 2**30 > kind.node.memory_bytes
        assert limits.get("nvidia.com/gpu", "0") == params["num-gpus"]


def test_a_cluster_without_autoscaling_has_a_fixed_size() -> None:
    documents = rendered("postgres")
    spec = one(documents, "RayCluster", "mvprune-ray")["spec"]
    assert spec["enableInTreeAutoscaling"] is False
    assert "autoscalerOptions" not in spec
    (group,) = spec["workerGroupSpecs"]
    assert {group[name] for name in ("replicas", "minReplicas", "maxReplicas")} == {1}
    settings = settings_of(documents)
    assert "MVPRUNE_RAY_NODE_TYPES" not in settings
    assert settings["MVPRUNE_RAY_ADDRESS"] == "http://mvprune-ray-head-svc.prod.svc:8265"
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


def test_a_cluster_that_is_there_can_be_used() -> None:
    documents = rendered("ray elsewhere")
    assert settings_of(documents)["MVPRUNE_RAY_ADDRESS"] == "http://ray:8265"
    assert not [each for each in documents if each["kind"] == "RayCluster"]
    policy = one(rendered("ray elsewhere with policies"), "NetworkPolicy")["spec"]
    assert {"ports": [{"port": 443}]} in policy["egress"]


def test_images_have_the_chart_version_unless_a_digest_or_tag_is_given() -> None:
    assert container(rendered("sqlite"))["image"] == "mvprune/control-plane:0.0.0.dev0"
    assert container(rendered("images"))["image"] == f"registry.example/mvprune/control-plane@sha256:{'0' * 64}"
    head = pods(rendered("images"))["RayCluster/mvprune-ray/head"]["spec"]["containers"][0]
    assert head["image"] == "registry.example/mvprune/worker:1.2.3-cuda"


def test_network_policies_admit_workers_clients_and_monitoring_only() -> None:
    documents = rendered("policies")
    server_policy = one(documents, "NetworkPolicy")["spec"]
    assert [rule["ports"][0]["port"] for rule in server_policy["ingress"]] == [
        7070,
        7071,
        9464,
    ]
    (workers,) = (rule["from"] for rule in server_policy["ingress"] if rule["ports"][0]["port"] == 7071)
    assert workers == [{"podSelector": {"matchLabels": {"ray.io/cluster": "mvprune-ray"}}}]
    assert all(rule.get("ports") for rule in server_policy["egress"])
    by_default = one(rendered("existing secrets"), "NetworkPolicy", "mvprune")["spec"]
    ports = [port["port"] for rule in by_default["egress"] for port in rule["ports"]]
    assert 8333 in ports, "the port of the store's endpoint"
    ray = one(documents, "NetworkPolicy", "mvprune-ray")["spec"]
    assert ray["policyTypes"] == ["Ingress"]


# Hooks


def test_a_migration_comes_before_an_upgrade_on_postgres() -> None:
    job = one(rendered("postgres"), "Job", "mvprune-migrate")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    assert job["metadata"]["annotations"]["helm.sh/hook-output-log-policy"] == "hook-failed"
    assert job["spec"]["backoffLimit"] == 0
    (migrate,) = job["spec"]["template"]["spec"]["containers"]
    assert migrate["command"] == ["mvpctl", "server", "migrate"]
    assert settings_of(rendered("sqlite"))["MVPRUNE_MIGRATE"] == "true"
    assert "MVPRUNE_MIGRATE" not in settings_of(rendered("postgres"))


def test_helm_test_reads_the_status_and_submits_a_job_if_one_is_given() -> None:
    status = one(rendered("postgres"), "Pod", "mvprune-test")
    assert status["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (first,) = status["spec"]["containers"]
    assert first["command"] == ["mvpctl", "server", "status"]
    submit = one(rendered("everything else"), "Pod", "prune-test")["spec"]
    assert submit["initContainers"][0]["command"] == ["mvpctl", "server", "status"]
    assert submit["containers"][0]["command"][:3] == ["mvpctl", "submit", "--wait"]
    (tls,) = one(rendered("tls"), "Pod", "mvprune-test")["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in tls["env"]}
    assert env["MVPRUNE_ADDRESS"] == "grpcs://mvprune.prod.svc:7070"

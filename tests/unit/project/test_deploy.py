"""The files of deploy/ agree with each other and with the program. `make deploy-check` asks the tools of others too."""

from __future__ import annotations

import configparser
import json
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from mvprune_service.config import Settings

ROOT = Path(__file__).parents[3]
COMPOSE = ROOT / "deploy" / "compose"
DOCKERFILE = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()
FILE = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
SECRETS = {"postgres_password", "database_url", "server_key", "s3_config", "aws_credentials", "ray_token"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "network_mode", "pid"} & set(service)
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert re.search(r":\S*\d", service["image"]), "an image without a version"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_gets_its_secrets_from_files(name: str) -> None:
    service = SERVICES[name]
    used = " ".join([*service.get("environment", {}).values(), *service.get("command", ())])
    assert set(re.findall(r"/run/secrets/(\w+)", used)) == set(service.get("secrets", ()))
    variables = set(service.get("environment", {}))
    assert not variables & {"MVPRUNE_DATABASE_URL", "RAY_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY", "POSTGRES_PASSWORD"}
    settings = {f"MVPRUNE_{setting.upper()}" for setting in Settings.model_fields}
    assert {variable for variable in variables if variable.startswith("MVPRUNE_")} <= settings


def test_services_wait_for_what_they_need() -> None:
    waits = {
        name: {need: how["condition"] for need, how in one.get("depends_on", {}).items()}
        for name, one in SERVICES.items()
    }
    once = "service_completed_successfully"
    assert waits["server"] == {"bucket": once, "migrate": once, "ray-head": "service_healthy"}
    assert waits["migrate"] == {"postgres": "service_healthy"}
    assert waits["bucket"] == {"seaweedfs": "service_healthy"}
    assert waits["ray-worker"] == {"ray-head": "service_healthy"}
    assert SERVICES["prometheus"]["profiles"] == ["prometheus"]


def test_the_secrets_are_made_once_and_fit_together(tmp_path: Path) -> None:
    assert set(FILE["secrets"]) == SECRETS
    folder = tmp_path / "secrets"

    def made() -> dict[str, str]:
        subprocess.run([COMPOSE / "secrets.sh", folder], check=True, capture_output=True)
        return {file.name: file.read_text() for file in folder.iterdir()}

    first = made()
    assert set(first) == SECRETS
    assert made() == first
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert f":{first['postgres_password'].strip()}@postgres/" in first["database_url"]
    ini = configparser.ConfigParser()
    ini.read_string(first["aws_credentials"])
    (identity,) = json.loads(first["s3_config"])["identities"]
    (keys,) = identity["credentials"]
    assert dict(ini["default"]) == {"aws_access_key_id": keys["accessKey"], "aws_secret_access_key": keys["secretKey"]}
    assert len(first["server_key"]) >= 32


def test_the_gpu_override_changes_only_workers() -> None:
    services = yaml.safe_load((COMPOSE / "compose.gpu.yaml").read_text())["services"]
    assert set(services) == {"ray-worker"}
    assert "TORCH_INDEX" in services["ray-worker"]["build"]["args"]
    assert "ARG TORCH_INDEX=" in DOCKERFILE


def test_the_images_have_what_the_compose_file_and_the_unit_count_on() -> None:
    assert DOCKERFILE.count("USER 10001:10001") == 2
    assert DOCKERFILE.count("HEALTHCHECK ") == 2
    assert "<<" not in DOCKERFILE, "not every builder knows heredocs"
    assert not re.search(r"index-url \S*@|extra-index-url", DOCKERFILE)
    targets = set(re.findall(r"^FROM .* AS (\S+)$", DOCKERFILE, re.MULTILINE))
    assert {one["build"]["target"] for one in SERVICES.values() if "build" in one} <= targets
    unit = (ROOT / "deploy" / "mvprune.service").read_text()
    assert "ExecStart=/opt/mvprune/bin/mvprune-server" in unit
    assert "COPY --from=server-environment /opt/mvprune /opt/mvprune" in DOCKERFILE
    assert "COPY --from=worker-environment /opt/mvprune /opt/mvprune" in DOCKERFILE


def test_the_unit_leaves_workers_what_they_need() -> None:
    """JIT compilers write and run code; GPUs and shared memory are devices."""
    unit = (ROOT / "deploy" / "mvprune.service").read_text()
    given = {line.partition("=")[0] for line in unit.splitlines() if not line.startswith("#")}
    assert not given & {"MemoryDenyWriteExecute", "PrivateDevices", "DevicePolicy", "ProtectProc", "ProcSubset"}
    assert {"NoNewPrivileges", "ProtectSystem", "CapabilityBoundingSet", "SystemCallFilter"} <= given
    assert "u mvprune " in (ROOT / "deploy" / "mvprune.sysusers").read_text()


def test_the_images_have_the_version_that_the_chart_asks_for() -> None:
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "mvprune" / "Chart.yaml").read_text())
    assert f"ARG VERSION={chart['appVersion']}\n" in DOCKERFILE
    assert SERVICES["server"]["image"].endswith(f":-{chart['appVersion']}}}")

"""The files of deploy/ agree with each other and with the program. `make deploy-check` asks the tools of others too."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from mvprune_service.config import Settings

ROOT = Path(__file__).parents[3]
HELM = shutil.which("helm", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
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
    assert DOCKERFILE.count("USER 10001:10001") == 3
    assert DOCKERFILE.count("HEALTHCHECK ") == 3
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


def test_package_images_compose_and_chart_have_one_version_and_no_file_has_the_next() -> None:
    """That of a build without a tag. A release gives its own to each of them."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"]["fallback-version"]
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "mvprune" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == ("0.0.0-dev", version)
    assert f"ARG VERSION={version}\n" in DOCKERFILE
    default = f"${{MVPRUNE_VERSION:-{version}}}"
    override = yaml.safe_load((COMPOSE / "compose.gpu.yaml").read_text())["services"]["ray-worker"]
    for name, target in (("server", "control-plane"), ("ray-head", "worker"), ("ray-worker", "worker")):
        assert SERVICES[name]["image"] == f"mvprune/{target}:{default}"
        assert SERVICES[name]["build"]["args"]["VERSION"] == default
    assert override["image"] == f"mvprune/worker:{default}-cuda"


def test_a_release_gives_the_version_of_its_tag_to_images_and_chart() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "mvprune" / "values.yaml").read_text())
    images = {one["name"]: one["target"] for one in jobs["image"]["strategy"]["matrix"]["image"]}
    targets = set(re.findall(r"^FROM .* AS (\S+)$", DOCKERFILE, re.MULTILINE))
    assert set(images.values()) <= targets
    assert {f"mvprune/{name}" for name in images} == {
        values["image"]["repository"],
        values["rayCluster"]["image"]["repository"],
        "mvprune/serve",  # the chart does not run it
    }
    assert set(jobs["publish-images"]["strategy"]["matrix"]["name"]) == set(images)
    scripts = {name: "\n".join(step.get("run", "") for step in job["steps"]) for name, job in jobs.items()}
    assert '--build-arg "VERSION=${TAG#v}"' in scripts["image"]
    assert 'scripts/package_chart.sh "${TAG#v}" chart' in scripts["build"]
    for name, job in jobs.items():
        if "packages" in job.get("permissions", {}) and name != "image":  # what `image` pushes gets its tag and its
            used = [step.get("uses", "").partition("@")[0] for step in job["steps"]]  # signature in publish-images
            assert "actions/attest-build-provenance" in used, name


def test_the_images_install_what_is_locked_and_nothing_else() -> None:
    installs = re.findall(r"pip install ([^;\\\n]*)", DOCKERFILE)
    for line in installs:
        is_locked = "--require-hashes --no-deps -r /locks/" in line
        is_ours = "--no-index --no-deps /wheels/" in line
        assert is_locked or is_ours or '--no-deps --index-url "${TORCH_INDEX}" "$(grep -o \'^torch==' in line, line
    used = set(re.findall(r"/locks/([\w-]+\.txt)", DOCKERFILE))
    assert used == {"control-plane.txt", "serve.txt", "worker.txt", "worker-cpu.txt"}
    assert all((ROOT / "locks" / name).exists() for name in used)
    assert "!locks" in (ROOT / ".dockerignore").read_text().splitlines()
    assert re.search(r"^torch==[0-9.]+ ", (ROOT / "locks" / "worker.txt").read_text(), re.MULTILINE)


@pytest.mark.skipif(not HELM, reason="helm is not installed: make helm")
@pytest.mark.parametrize(
    ("version", "semantic"), [("1.2.3", "1.2.3"), ("1.2.3rc1", "1.2.3-rc.1"), ("1.2.4.dev5", "1.2.4-dev.5")]
)
def test_the_chart_of_a_release_has_its_version_and_asks_for_its_images(
    version: str, semantic: str, tmp_path: Path
) -> None:
    subprocess.run([ROOT / "scripts" / "package_chart.sh", version, tmp_path], check=True, capture_output=True)
    file = tmp_path / f"mvprune-{semantic}.tgz"
    command = [str(HELM), "template", "m", file, "--set", "store.url=s3://models/mvprune"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert set(re.findall(r"image: (.*)", done.stdout)) == {
        f'"mvprune/{name}:{version}"' for name in ("control-plane", "worker")
    }

"""What the tools of others say about the files of deploy/."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from ..neighbours import free_ports
from ..waiting import until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
UNIT = DEPLOY / "mvprune.service"
_VARIABLE = re.compile(r"\$\{\w+:-([^}]*)\}")


def run(*command: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)


def test_hadolint_finds_nothing() -> None:
    done = run(BIN / "hadolint", DEPLOY / "docker" / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python\nRUN cd /tmp\n")
    assert "DL3006" in run(BIN / "hadolint", tmp_path / "Dockerfile").stdout


def composed(text: str) -> PyCompose:
    """A compose file as Docker reads it, with the defaults of its variables. Raises ValueError."""
    content = yaml.safe_load(_VARIABLE.sub(r"\1", text))
    return PyCompose.from_yaml(yaml.safe_dump({name: part for name, part in content.items() if name[:2] != "x-"}))


@pytest.mark.parametrize("name", ["compose.yaml", "compose.gpu.yaml"])
def test_the_compose_file_follows_the_specification(name: str) -> None:
    assert composed((DEPLOY / "compose" / name).read_text()).to_dict()["services"]


def test_a_misspelt_key_of_a_compose_file_is_found() -> None:
    with pytest.raises(ValueError, match="red_only"):
        composed("services:\n  a:\n    image: x\n    red_only: true\n")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_units_exposure_is_below_4() -> None:
    done = run("systemd-analyze", "security", "--offline=true", "--threshold=39", "--no-pager", UNIT)
    found = re.search(r"Overall exposure level for mvprune.service: ([\d.]+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) < 4, done.stdout
    assert done.returncode == 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_has_no_unknown_setting(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/mvprune/bin/mvprune-server", "/bin/true"))
    done = run("systemd-analyze", "verify", "--man=no", unit)
    assert [line for line in done.stderr.splitlines() if UNIT.name in line] == []


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd-sysusers is not installed")
def test_the_units_user_is_created(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    done = run("systemd-sysusers", f"--root={tmp_path}", DEPLOY / "mvprune.sysusers")
    assert done.returncode == 0, done.stderr
    (line,) = (tmp_path / "etc" / "passwd").read_text().splitlines()
    assert line.startswith("mvprune:x:")
    assert line.endswith(":mvprune control plane:/var/lib/mvprune:/usr/sbin/nologin")


def test_the_compose_files_store_takes_its_secrets(tmp_path: Path) -> None:
    """Its own command and secrets, with free ports on the loopback: the bucket is created once, by its script."""
    assert run(DEPLOY / "compose" / "secrets.sh", tmp_path / "secrets").returncode == 0
    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
    names = ("s3", "master", "volume", "filer")
    ports = free_ports(2 * len(names))
    (tmp_path / "data").mkdir()
    changed = {"-dir": tmp_path / "data", "-ip": "127.0.0.1", "-ip.bind": "127.0.0.1"}
    changed["-s3.config"] = tmp_path / "secrets" / "s3_config"
    given = (part.partition("=") for part in services["seaweedfs"]["command"])
    command: list[str | Path] = [BIN / "weed", "-logtostderr=true"]
    command += [f"{name}={changed[name]}" if name in changed else f"{name}{sign}{value}" for name, sign, value in given]
    for position, name in enumerate(names):
        command += [f"-{name}.port={ports[position]}", f"-{name}.port.grpc={ports[position + len(names)]}"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    env = {
        "PATH": "/usr/bin:/bin",
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{ports[0]}",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "secrets" / "aws_credentials"),
        "AWS_REGION": "us-east-1",
    }
    test = services["seaweedfs"]["healthcheck"]["test"]
    url = test[-1].replace("8333", str(ports[0]))
    bucket = (sys.executable, DEPLOY / "compose" / "bucket.py", "mvprune")
    with (tmp_path / "log").open("wb") as log:
        store = subprocess.Popen(command, stdout=log, stderr=log, env={"TMPDIR": str(tmp_path), "HOME": str(tmp_path)})
    try:
        until(lambda: _answers(url), "the store's health check passed")
        until(lambda: run(*bucket, env=env).returncode == 0, "the bucket was created")
        again = run(*bucket, env=env)
        assert (again.returncode, again.stdout) == (0, "bucket mvprune is there already: nothing to do\n")
        (tmp_path / "wrong").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
        denied = run(*bucket, env=env | {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "wrong")})
        assert denied.returncode == 1
        assert denied.stderr.startswith("error: bucket mvprune cannot be created: ")
    finally:
        store.kill()
        store.wait()


def _answers(url: str) -> bool:
    code = "import sys, urllib.request as r; r.build_opener(r.ProxyHandler({})).open(sys.argv[1], timeout=5)"
    return run(sys.executable, "-c", code, url).returncode == 0

"""The images, built by buildah and started from their root file systems."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ..neighbours import free_ports
from ..waiting import until

ROOT = Path(__file__).parents[2]
BASES = ("docker.io/library/python:3.11-slim-bookworm", "docker.io/library/python:3.11-bookworm")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
MISSING = [name for name in ("buildah", "mmdebstrap", "chroot") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif("MVPRUNE_DEPLOY_CHECK" not in os.environ, reason="takes minutes: make deploy-check runs it"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="the build needs root"),
]


class Buildah:
    """buildah with a storage of its own."""

    def __init__(self, folder: Path) -> None:
        self.options = ("--storage-driver=vfs", f"--root={folder}/storage", f"--runroot={folder}/run")

    def __call__(self, command: str, *arguments: str | Path) -> str:
        """Runs a command. Returns its output."""
        done = subprocess.run(
            ["buildah", *self.options, command, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout.strip()


def pip_settings(file: Path) -> list[Path]:
    """Writes pip's settings of this machine, for the build's secret. Returns the local paths that they name."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    settings = {}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = value.strip("'")
    file.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
    words = [word for value in settings.values() for word in value.split()]
    # The pages of a local index lead to files beside their folder.
    paths = [Path(word[7:]).parent if word.startswith("file://") else Path(word) for word in words]
    return [path for path in paths if path.is_absolute() and path.exists() and path != CERTIFICATES]


class Images:
    """Builds the images of the Dockerfile. The base images are Debian with Python, made on this machine."""

    def __init__(self, folder: Path, cleanup: ExitStack) -> None:
        self._folder, self._cleanup = folder, cleanup
        self._buildah = buildah = Buildah(folder)
        cleanup.callback(buildah, "rm", "--all")  # before the folder is removed: it unmounts
        packages = "--include=python3,python3-venv,python3-pip,ca-certificates"
        subprocess.run(["mmdebstrap", "--variant=minbase", packages, "bookworm", folder / "base.tar"], check=True)
        base = buildah("from", "scratch")
        buildah("add", "-q", base, folder / "base.tar", "/")
        mounted = Path(buildah("mount", base))
        (mounted / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        if CERTIFICATES.exists():
            shutil.copy(CERTIFICATES, mounted / CERTIFICATES.relative_to("/"))
        for name in BASES:
            buildah("commit", "-q", base, name)

    def root(self, target: str) -> Path:
        """The root file system of an image."""
        settings = self._folder / "pip.conf"
        local = pip_settings(settings)
        volumes = [f"--volume={path}:{path}:ro" for path in local]
        options = ["--isolation=chroot", "--pull-never", "--format=docker", "--layers=false", f"--target={target}"]
        if any(found for path in local for found in path.glob("torch-*.whl")):  # in place of torch's index
            options.append("--build-arg=TORCH_INDEX=https://pypi.org/simple")
        secret, tag = f"--secret=id=pip,src={settings}", f"mvprune-{target}"
        self._buildah("bud", *options, *volumes, secret, "-f", ROOT / "deploy/docker/Dockerfile", "-t", tag, ROOT)
        root = Path(self._buildah("mount", self._buildah("from", "--pull-never", f"localhost/{tag}")))
        # As in a container. What buildah left of /dev/fd may be a folder, a link or nothing.
        subprocess.run(["mount", "--bind", "/proc", root / "proc"], check=True)
        self._cleanup.callback(subprocess.run, ["umount", "--lazy", root / "proc"], check=True)
        (root / "dev").mkdir(exist_ok=True)
        subprocess.run(["ln", "-sfn", "/proc/self/fd", root / "dev" / "fd"], check=True)
        (root / "dev" / "shm").mkdir(exist_ok=True)
        (root / "dev" / "shm").chmod(0o1777)
        return root


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    folder = tmp_path_factory.mktemp("images")
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        yield Images(folder, cleanup)


@pytest.fixture(scope="module")
def root(images: Images) -> Path:
    """The root file system of the server's image."""
    return images.root("server")


@pytest.fixture(scope="module")
def worker(images: Images) -> Path:
    """The root file system of the worker's image."""
    return images.root("worker")


def default_version() -> str:
    """The default of VERSION, with which the image was built."""
    found = re.search(r"^ARG VERSION=(.+)$", (ROOT / "deploy/docker/Dockerfile").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def run(root: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_chrooted(root, command, env), capture_output=True, text=True, timeout=120, check=False)


def _chrooted(root: Path, command: tuple[str, ...], env: dict[str, str]) -> list[str]:
    """As the image starts it: its user and its environment."""
    variables = {"PATH": "/opt/mvprune/bin:/usr/bin:/bin", "MVPRUNE_HOME": "/var/lib/mvprune", **env}
    given = [f"{name}={value}" for name, value in variables.items()]
    return ["chroot", "--userspec=10001:10001", str(root), "/usr/bin/env", "-i", *given, *command]


def test_it_holds_neither_torch_nor_pips_settings(root: Path) -> None:
    code = "import importlib.util as i; print([n for n in ('torch', 'ray', 'pip', 'numpy') if i.find_spec(n)])"
    assert run(root, "python", "-c", code).stdout == "[]\n"
    assert not (root / "etc/pip.conf").exists() or (root / "etc/pip.conf").read_text() == ""


def test_it_starts_and_answers_its_health_check(root: Path) -> None:
    assert run(root, "python", "-m", "mvprune_service.probe").returncode == 7
    ports = free_ports(3)
    env = {
        "MVPRUNE_ADDRESS": f"0.0.0.0:{ports[0]}",
        "MVPRUNE_WORKER_ADDRESS": f"0.0.0.0:{ports[1]}",
        "MVPRUNE_ALLOW_REMOTE": "1",
        "MVPRUNE_RAY_ADDRESS": f"http://127.0.0.1:{ports[2]}",  # not there: jobs would wait for it
    }
    server = subprocess.Popen(_chrooted(root, ("mvprune-server",), env))
    try:
        until(lambda: run(root, "python", "-m", "mvprune_service.probe").returncode == 0, "the server was healthy")
        status = run(root, "mvpctl", "server", "status", "-o", "json", **env)
        found = json.loads(status.stdout)
        assert found["version"] == default_version(), "the package has the image's version"
    finally:
        server.terminate()
        assert server.wait(60) == 0
    assert run(root, "python", "-m", "mvprune_service.probe").returncode == 7


def test_a_ray_node_of_the_workers_image_passes_its_health_check(worker: Path) -> None:
    modules = ("mvprune_workers", "mvprune_core", "torch", "transformers", "ray", "onnxruntime")
    code = f"import importlib.util as i; print([n for n in {modules} if i.find_spec(n) is None], i.find_spec('pip'))"
    assert run(worker, "python", "-c", code).stdout == "[] None\n"
    (check,) = re.findall(
        r'CMD \["python", "-c", "(.*?)"\]', (ROOT / "deploy/docker/Dockerfile").read_text().replace("\\\n", "")
    )
    script = f"""
        ray start --head --num-cpus=1 --disable-usage-stats
        for second in $(seq 120); do
          python -c "{check}" && echo healthy && exit 0
          sleep 1
        done
        exit 1
    """
    node = shlex.join(_chrooted(worker, ("sh", "-c", script), {"HOME": "/var/lib/mvprune"}))
    # A network and processes of its own: Ray's ports may be taken here, and nothing of the node outlives the test.
    isolated = ["unshare", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", f"ip link set lo up && {node}"]
    done = subprocess.run(isolated, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["healthy"]), done.stdout + done.stderr

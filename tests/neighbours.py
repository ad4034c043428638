"""Real neighbours for the tests, one of each a session: an S3 server and a Ray cluster."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from mvprune_service.executors.embedded_ray import EmbeddedRay


@dataclass(frozen=True)
class S3Server:
    """A running S3 server: `url` opens a store in it where `env` is in the environment."""

    url: str
    env: dict[str, str]


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS with an empty bucket. Give each test a prefix of its own: f"{seaweedfs.url}/{name}"."""
    folder = tmp_path_factory.mktemp("seaweedfs")
    names = ("s3", "master", "volume", "filer", "admin")
    ports = free_ports(2 * len(names))
    flags = [f"-{name}.port={port}" for name, port in zip(names, ports, strict=False)]
    flags += [f"-{name}.port.grpc={port}" for name, port in zip(names, ports[len(names) :], strict=True)]
    env = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "testtest",
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{ports[0]}",
    }
    command = [Path(sys.executable).parent / "weed", "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [
        *flags,
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-admin.ui=false",
        "-webdav=false",
        "-bucket=artifacts",
    ]
    own_env = {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1", "TMPDIR": str(folder)}  # its logs go to TMPDIR
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env={**os.environ, **env, **own_env}, stdout=log, stderr=log)
    try:
        _wait_for_put(server, env, folder / "server.log")
        yield S3Server("s3://artifacts", env)
    finally:
        server.kill()  # a polite end takes half a minute, and leaves sockets too
        server.wait()
        for port in ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink()


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRay]:
    """A Ray of two CPUs on this machine; `ray_cluster.executor()` submits to it."""
    ray = EmbeddedRay(tmp_path_factory.mktemp("ray"), cpus=2)
    ray.start()
    try:
        yield ray
    finally:
        ray.stop()


@pytest.fixture
def closed_port() -> int:
    """A port of 127.0.0.1 that nothing listens on."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _wait_for_put(server: subprocess.Popen[bytes], env: dict[str, str], log: Path) -> None:
    """The port answers before the server can store: a put that works is the sign."""
    client = boto3.client(
        "s3",
        endpoint_url=env["AWS_ENDPOINT_URL_S3"],
        aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}, request_checksum_calculation="when_required"),
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            client.put_object(Bucket="artifacts", Key="ready", Body=b"yes")
            client.delete_object(Bucket="artifacts", Key="ready")
        except (BotoCoreError, ClientError):
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"SeaweedFS did not start:\n{log.read_text()[-2000:]}")

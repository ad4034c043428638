"""Submit, poll and download between two network namespaces: nothing is shared but the network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ..bert_folder import write_bert
from ..waiting import PATIENCE, until

_BIN = Path(sys.executable).parent
_STAND_IN = Path(__file__).parents[1] / "chaos" / "stand_in"  # a trainer that only waits
_SERVER, _CLIENT = "10.213.117.1", "10.213.117.2"


class Machines(NamedTuple):
    """The names of two namespaces that a cable joins."""

    server: str
    client: str


def ip(*words: str) -> None:
    """Runs ip. Raises CalledProcessError."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def machines() -> Iterator[Machines]:
    made = Machines(f"mvp-s-{os.getpid()}", f"mvp-c-{os.getpid()}")
    ends = {made.server: (f"mvps{os.getpid()}", _SERVER), made.client: (f"mvpc{os.getpid()}", _CLIENT)}
    try:
        try:
            for name in made:
                ip("netns", "add", name)
            first, second = (end for end, _ in ends.values())
            ip("link", "add", first, "netns", made.server, "type", "veth", "peer", "name", second, "netns", made.client)
            for name, (end, address) in ends.items():
                ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
                ip("-n", name, "link", "set", end, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces cannot be made here, which needs root and iproute2: {error}")
        yield made
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.mark.slow
def test_submit_poll_and_download_between_two_machines(machines: Machines, tmp_path: Path) -> None:
    here, there = tmp_path / "client", tmp_path / "server"
    for folder in (here, there):
        folder.mkdir()
    write_bert(here / "my-model", 9 << 20)
    for name in ("train", "dev"):
        (here / f"{name}.jsonl").write_text('{"text": "good", "label": 1}\n{"text": "bad", "label": 0}\n')
    (here / "job.yaml").write_text(
        "model: ./my-model\ntrain: train.jsonl\nvalidation: dev.jsonl\ndensity: 0.5\nmax_steps: 10\ncpus: 1\nseed: 1\n"
    )
    address = f"{_SERVER}:7070"
    options = ["--home=home", f"--address={address}", "--worker-address=127.0.0.1:7071", "--auth=off", "--allow-remote"]
    log = there / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            ["ip", "netns", "exec", machines.server, _BIN / "mvprune-server", *options, "--executor=local"],
            stdout=output, stderr=output, cwd=there, env={**os.environ, "PYTHONPATH": str(_STAND_IN)},
        )  # fmt: skip

    def ctl(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["ip", "netns", "exec", machines.client, str(_BIN / "mvpctl"), *words]
        environment = {**os.environ, "HOME": str(here), "MVPRUNE_ADDRESS": address}
        return subprocess.run(command, capture_output=True, text=True, cwd=here, env=environment, timeout=PATIENCE)

    try:
        until(lambda: (there / "home" / "server.json").exists() or server.poll() is not None, log.read_text)
        done = ctl("submit", "-f", "job.yaml", "--quiet")
        assert done.returncode == 0, done.stderr
        job = done.stdout.strip()
        waited = ctl("wait", job)
        assert waited.returncode == 0, waited.stderr + log.read_text()
        assert ctl("download", job, "out").returncode == 0
        assert (here / "out" / "manifest.json").is_file()
        refused = ctl("submit", "--model", f"server:{here}/my-model", "--task", "sst2", "--density", "0.5")
        assert refused.returncode == 2, "a path of the client is none of the server's"
        assert "job.spec.model (--model)" in refused.stderr
    finally:
        server.terminate()
        server.wait(PATIENCE)

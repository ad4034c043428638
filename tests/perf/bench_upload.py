"""Sending a model beside boto3's transfer manager on the same S3 store and beside a plain copy; and killed on the way.

Run: make bench-uploads. Two servers, one with SeaweedFS (presigned PUT) and one with a folder as store (PutChunk), are
processes of their own. The ways take turns, the best of some rounds counts; a round begins with content that the store
does not have. The time is from the call to the end: reading and hashing, sending, and the server's check of each chunk.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
from rich.console import Console
from rich.table import Table
from tests.bert_folder import write_bert
from tests.neighbours import S3Server, free_ports, running_seaweedfs
from tests.waiting import until

from mvprune import Client, UploadProgress
from mvprune.sources.uploads import CHUNK_BYTES, Kind, describe, digest

LEAST = 0.8  # of boto3's throughput
_SERVER = Path(sys.executable).with_name("mvprune-server")
_SEND = "import sys; from mvprune import Client; Client(sys.argv[1]).upload(sys.argv[2])"


@contextlib.contextmanager
def server(home: Path, store: str, env: dict[str, str]) -> Iterator[str]:
    """A server with this store; gives its address."""
    ports = free_ports(2)
    address = f"127.0.0.1:{ports[0]}"
    options = ["--home", home, "--address", address, "--worker-address", f"127.0.0.1:{ports[1]}", "--store", store]
    command = [_SERVER, *options, "--executor", "local", "--roots", home.parent / "roots"]
    home.mkdir()
    (home.parent / "roots").mkdir(exist_ok=True)
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **env})
    try:
        until(lambda: process.poll() is not None or (home / "server.json").exists(), (home / "log").read_text)
        assert process.poll() is None, (home / "log").read_text()
        yield address
    finally:
        process.kill()
        process.wait()


def renew(model: Path) -> None:
    """Changes each chunk of the weights, so that no store has any of them."""
    with (model / "model.safetensors").open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        for start in range(CHUNK_BYTES // 2, size, CHUNK_BYTES):
            file.seek(start)
            file.write(os.urandom(16))


def by_boto3(model: Path, s3: S3Server) -> None:
    """The transfer manager as it is, on the same store."""
    client = boto3.client(
        "s3",
        endpoint_url=s3.env["AWS_ENDPOINT_URL_S3"],
        aws_access_key_id=s3.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=s3.env["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
    )
    for file in model.iterdir():
        client.upload_file(str(file), "artifacts", f"boto3/{time.monotonic_ns()}/{file.name}")


def by_copy(model: Path, folder: Path) -> None:
    """A plain copy on the same disk."""
    shutil.copytree(model, folder / "copy")
    shutil.rmtree(folder / "copy")


def throughput(ways: dict[str, Callable[[], object]], model: Path, rounds: int) -> dict[str, float]:
    """Bytes a second of each way, the best of the rounds."""
    size = sum(file.stat().st_size for file in model.iterdir())
    best = dict.fromkeys(ways, 0.0)
    for _ in range(rounds):
        for name, way in ways.items():
            renew(model)
            started = time.perf_counter()
            way()
            best[name] = max(best[name], size / (time.perf_counter() - started))
    return best


def killed(address: str, model: Path, kills: int, seed: int = 0) -> list[float]:
    """Sends a model with a process that is killed at random points, until it is whole; then a changed one. Returns the
    part that the server had after each kill."""
    chance, parts = random.Random(seed), list[float]()
    env = {**os.environ, "MVPRUNE_PROJECT": "killed"}
    with Client(address, project="killed") as client:

        def stored() -> float:
            seen: list[UploadProgress] = []
            client.upload(model, validate_only=True, on_progress=seen.append)
            return seen[-1].stored_bytes / seen[-1].total_bytes

        while len(parts) < kills:
            renew(model)
            before = 0.0
            while before < 1.0 and len(parts) < kills:
                process = subprocess.Popen([sys.executable, "-c", _SEND, address, str(model)], env=env)
                enough = before + (1.0 - before) * chance.uniform(0.0, 0.2)
                while process.poll() is None and stored() <= enough:
                    time.sleep(chance.uniform(0.0, 0.1))
                process.kill()
                process.wait()
                if stored() < before:
                    raise SystemExit(f"what was stored is lost: {stored():.0%} after {before:.0%}")
                before = stored()
                parts.append(before)
            upload = client.upload(model)
            if upload.state != "READY" or upload.digest != digest(describe(Kind.MODEL, model)):
                raise SystemExit(f"the upload is not what was sent: {upload}")
    return parts


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500, help="size of the model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=0, help="also send to each server with so many kills")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments, console = parser.parse_args(), Console()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mvprune-bench-")))
        (folder / "s3").mkdir()
        s3 = stack.enter_context(running_seaweedfs(folder / "s3"))
        model = write_bert(folder / "model", arguments.megabytes * 1_000_000)
        store = (folder / "store").as_uri()
        direct = stack.enter_context(server(folder / "with-s3", f"{s3.url}/bench", s3.env))
        through = stack.enter_context(server(folder / "with-folder", store, {}))
        clients = [stack.enter_context(Client(address)) for address in (direct, through)]
        ways: dict[str, Callable[[], object]] = {
            "presigned PUT to S3": lambda: clients[0].upload(model),
            "boto3 upload_file to S3": lambda: by_boto3(model, s3),
            "PutChunk to a folder": lambda: clients[1].upload(model),
            "plain copy": lambda: by_copy(model, folder),
        }
        figures = throughput(ways, model, arguments.rounds)
        parts = {
            name: killed(address, model, arguments.kills)
            for name, address in (("S3", direct), ("folder", through))
            if arguments.kills
        }
    boto, copy = figures["boto3 upload_file to S3"], figures["plain copy"]
    table = Table(title=f"A model of {arguments.megabytes} MB, best of {arguments.rounds}")
    for column in ("", "MB/s", "of boto3", "of a plain copy"):
        table.add_column(column, justify="right" if column else "left")
    for name, figure in figures.items():
        table.add_row(name, f"{figure / 1e6:.0f}", f"{figure / boto:.2f}", f"{figure / copy:.2f}")
    console.print(table)
    for name, found in parts.items():
        shown = ", ".join(f"{part:.0%}" for part in found)
        console.print(f"{name}: READY and equal after {len(found)} kills; stored after each: {shown}")
    met = figures["presigned PUT to S3"] >= LEAST * boto
    console.print(f"presigned PUT is {'at least' if met else 'below'} {LEAST} of boto3")
    if arguments.json:
        rows = {"bytes_per_second": figures, "stored_after_each_kill": parts}
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

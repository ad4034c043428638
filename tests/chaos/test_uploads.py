"""A client that is killed while it sends, at random points, and tries again until the upload is whole."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mvprune import Client, UploadProgress
from mvprune.sources.uploads import CHUNK_BYTES, Kind, describe, digest

from ..bert_folder import write_bert
from ..integration.servers import Server
from ..neighbours import S3Server

_ROUNDS = int(os.environ.get("MVPRUNE_CHAOS_ROUNDS", "1"))
_KILLS = 20
_SEND = "import sys; from mvprune import Client; Client(sys.argv[1]).upload(sys.argv[2])"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["folder", "s3"])
@pytest.mark.parametrize("seed", range(_ROUNDS))
def test_a_client_is_killed_again_and_again(tmp_path: Path, seaweedfs: S3Server, kind: str, seed: int) -> None:
    roots = tmp_path / "nothing"
    roots.mkdir()
    server, more = Server(tmp_path / "home"), {"roots": roots}
    if kind == "s3":
        more["store"] = f"{seaweedfs.url}/{tmp_path.name}"
    server.start(seaweedfs.env, **more)
    chance, parts = random.Random(seed), [0]
    model = write_bert(tmp_path / "model", 40 * CHUNK_BYTES)
    try:
        with Client(server.address) as client:

            def stored() -> int:
                seen: list[UploadProgress] = []
                client.upload(model, validate_only=True, on_progress=seen.append)
                return seen[-1].stored_bytes

            for _ in range(_KILLS):
                process = subprocess.Popen([sys.executable, "-c", _SEND, server.address, str(model)])
                enough = parts[-1] + chance.randrange(4 * CHUNK_BYTES)
                while process.poll() is None and stored() <= enough:
                    time.sleep(chance.uniform(0.0, 0.05))
                process.kill()
                process.wait()
                parts.append(stored())
            upload = client.upload(model)
            assert upload.state == "READY"
            assert upload.digest == digest(describe(Kind.MODEL, model))
            assert parts == sorted(parts), "what was sent is kept"
    finally:
        server.close()

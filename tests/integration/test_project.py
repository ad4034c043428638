"""What a project has, and what changes in it, for clients of a real server with a stand-in for the training."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import grpc
import pytest

from mvprune import Client
from mvprune.cli import main
from mvprune.client.uploads import announced
from mvprune.sources.uploads import File, Kind
from mvprune.v1 import upload_pb2_grpc

from ..conftest import server_path
from .servers import Data, Server

STAND_IN = Path(__file__).parents[1] / "unit" / "console" / "stand_in"


@pytest.mark.slow
def test_counts_by_state_changes_and_the_table_of_artifacts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, server = Data.write(tmp_path), Server(tmp_path / "home")
    files = {"train": server_path(data.train), "validation": server_path(data.validation)}
    options = {"density": 0.1, "method": "movement", "max_steps": 9, "batch_size": 1, "cpus": 0.1, **files}
    environment = {"PYTHONPATH": str(STAND_IN)}
    server.start(environment, drain_seconds=0)
    try:
        with Client(server.address) as client:
            updates = client.watch_all(filter="labels.team = mine")
            first = next(updates)  # changes are noticed from now on
            assert (first.jobs, first.removed, first.missed) == ((), (), False)
            other = client.submit(model="bert-base-uncased", **options)
            mine = client.submit(model="bert-base-uncased", seed=2, labels={"team": "mine"}, **options)
            states = list[str]()
            while not states or states[-1] != "SUCCEEDED":
                found = next(updates)
                assert {job.name for job in found.jobs} <= {mine.name}
                states += [job.state for job in found.jobs]
            client.wait(other)
            assert server.process is not None
            server.process.kill()
            server.process.wait()
            server.start(environment, drain_seconds=0)
            assert next(updates).missed  # whatever happened meanwhile
            client.update(mine, remove_labels=["team"])
            while not (found := next(updates)).removed:
                assert not found.jobs
            assert found.removed == (mine.name,)
            updates.close()

            failed = client.submit(model="bert-base-uncased", seed=13, max_attempts=1, **options)
            list(client.watch(failed))
            sweep = {name: value for name, value in options.items() if name != "density"}
            client.sweep(model="bert-base-uncased", axes={"density": [0.2, 0.3]}, **sweep).wait(timeout=60)
            client.upload(data.train)
            with grpc.insecure_channel(server.address) as channel:
                request = announced("default", Kind.DATA, "half.tsv", [File("half.tsv", 1, ("0" * 64,))])
                upload_pb2_grpc.UploadServiceStub(channel).CreateUpload(request)
            project = client.admin.project("default")
            assert project.jobs == Counter(job.state for job in client.list())
            assert project.jobs == {"SUCCEEDED": 5, "FAILED": 1}  # the sweep has made a teacher too
            assert project.sweeps == {"SUCCEEDED": 1}
            assert project.uploads == {"READY": 1, "INCOMPLETE": 1}
            assert project.artifacts == 5
            digest = next(iter(client.artifacts(filter=f"job = {mine.id}"))).sha256

        monkeypatch.setenv("MVPRUNE_ADDRESS", server.address)
        monkeypatch.setenv("COLUMNS", "200")
        assert main(["artifacts", "--order-by", "create_time"]) == 0
        heads, *rows = capsys.readouterr().out.splitlines()
        assert heads.split() == [
            "ARTIFACT",
            "JOB",
            "KEPT",
            "METRIC",
            "DIFFERENCE",
            "SIZE",
            "CREATED",
            "(UTC)",
            "EXPIRES",
        ]
        assert len(rows) == 5
        cells = next(row.split() for row in rows if mine.id in row)
        assert cells[:6] == [digest[:12], mine.id, "10.0", "%", "0.8900", "-0.0100"]
        assert main(["artifacts", "--filter", f"job = {other.id}"]) == 0
        assert other.id in capsys.readouterr().out.splitlines()[1]
    finally:
        server.close()

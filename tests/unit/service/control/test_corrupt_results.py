"""Finalizing: results that are not whole, and a store that is away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.service.conftest import Jobs
from tests.unit.service.plane import LEASE, Plane, artifact, claim

from mvprune_service.control.finalizer import Finalizer
from mvprune_service.db import leases
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.layout import marker_key, publish


async def test_a_marker_that_names_nothing_fails_the_job(plane: Plane, jobs: Jobs, store: BlobStore) -> None:
    await jobs.create()
    await plane.dispatch()
    await claim(plane, jobs)
    store.put(marker_key((await jobs.live()).attempt.uid), b"{}")
    plane.clock.pass_seconds(LEASE + 1)
    await plane.watchdog.step()
    assert (await jobs.get()).failure_reason == "ARTIFACT_CORRUPT"


async def test_a_corrupt_artifact_fails_the_job(plane: Plane, jobs: Jobs, store: BlobStore, tmp_path: Path) -> None:
    await jobs.create()
    await plane.dispatch()
    fence = await claim(plane, jobs)
    sha256 = publish(store, artifact(tmp_path / "out"), (await jobs.live()).attempt.uid)
    (blob,) = store.list("blobs/")
    store.put(blob.key, b"x" * 100)
    await plane.db.write(leases.offer, fence, sha256, actor="worker")
    await plane.finalizer.step()
    job = await jobs.get()
    assert (job.state, job.failure_reason, job.artifact_sha256) == ("FAILED", "ARTIFACT_CORRUPT", None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"metrics": None},
        {"metrics": {"eval/f1": "x"}},
        {"metrics": {"eval/f1": float("nan")}},
        {"accounting": {"bytes": 1}},
        {},
    ],
)
async def test_a_manifest_that_is_none_of_an_artifact_fails_the_job(
    plane: Plane, jobs: Jobs, store: BlobStore, tmp_path: Path, wrong: dict[str, object]
) -> None:
    await jobs.create()
    await plane.dispatch()
    fence = await claim(plane, jobs)
    file = artifact(tmp_path / "out") / "manifest.json"
    manifest = json.loads(file.read_text()) | wrong
    file.write_text(json.dumps(manifest if wrong else {"files": manifest["files"]}))
    sha256 = publish(store, tmp_path / "out", (await jobs.live()).attempt.uid)
    await plane.db.write(leases.offer, fence, sha256, actor="worker")
    await plane.finalizer.step()
    assert (await jobs.get()).failure_reason == "ARTIFACT_CORRUPT"


async def test_finalizing_waits_while_the_store_is_away(
    plane: Plane, jobs: Jobs, store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    await jobs.create()
    await plane.dispatch()
    fence = await claim(plane, jobs)
    sha256 = publish(store, artifact(tmp_path / "out"), (await jobs.live()).attempt.uid)
    await plane.db.write(leases.offer, fence, sha256, actor="worker")
    await Finalizer(plane.db, open_store("s3://nowhere/x")).step()
    assert (await jobs.get()).state == "FINALIZING"
    assert store.size(marker_key((await jobs.live()).attempt.uid))
    await plane.finalizer.step()
    assert (await jobs.get()).state == "SUCCEEDED"

"""The program as the control plane starts it, on a tiny model and real text files."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mvprune.v1 import job_pb2, worker_pb2
from mvprune_service.stores.layout import blob_key, manifest_key, verify
from mvprune_workers.exits import ExitCode

from ...conftest import server_path
from ...waiting import PATIENCE

FOLDERS = ("output", "teacher", "beginning", "inputs", "checkpoint", "cache")
# A trainer that cannot keep the words of its data.
WITHOUT_ROOM = """
import sys
from contextlib import suppress
from pathlib import Path
from mvprune_core import CompressionError, Reason
from mvprune_workers import job, trainer

def run_job(*_, **__):
    try:
        Path("/dev/full").write_bytes(b"x")
    except OSError as error:
        raise CompressionError(Reason.INVALID_DATASET, "the data cannot be read") from error

job.run_job = run_job
sys.exit(trainer.main())
"""


def real_job(tiny: Any) -> job_pb2.CompressionSpec:
    spec = job_pb2.CompressionSpec(model="tiny-bert", task="text-classification", target_density=0.25, seed=3)
    spec.dataset.train, spec.dataset.validation = server_path(tiny.train), server_path(tiny.validation)
    spec.movement.schedule.pruning_start = 0.2
    spec.training.max_steps = 12
    spec.training.batch_size = 8
    return spec


@pytest.mark.slow
def test_the_real_trainer(worker: Any, tiny: Any) -> None:
    import torch

    import mvprune

    spec = worker.service.spec = real_job(tiny)
    worker.start_real(tiny.models, tiny.train.parent, warm=False)
    assert worker.wait() is ExitCode.PUBLISHED, worker.output.read_text()

    [outcome] = worker.service.outcomes
    manifest = verify(worker.store, outcome.manifest_sha256)
    assert manifest["spec"]["model"] == manifest["model"]["name"] == "tiny-bert"
    assert manifest["model"]["sha256"] == sha256((tiny.model / "model.safetensors").read_bytes())
    options = dict(manifest["spec"]["movement"])
    assert options.pop("schedule") == {"pruning_start": 0.2, "cooldown": 0.4, "shape": "CUBIC"}
    assert options.keys() == {"score_learning_rate", "selection", "initial_scores"}, "nothing is left open"
    canonical = json.dumps(manifest["spec"], sort_keys=True, separators=(",", ":"))
    assert manifest["spec_sha256"] == sha256(canonical.encode())
    assert manifest["seed"] == spec.seed
    assert {"mvprune", "torch", "transformers", "numpy", "python"} <= manifest["versions"].keys()
    assert {"eval/accuracy", "dense/accuracy", "delta/accuracy"} <= manifest["metrics"].keys()
    assert manifest["accounting"]["density"] == pytest.approx(0.25, rel=0.05)

    artifact = worker.folder / "download"
    artifact.mkdir()
    (artifact / "manifest.json").write_bytes(worker.store.get(manifest_key(outcome.manifest_sha256)))
    for file in manifest["files"]:
        (artifact / file["path"]).write_bytes(worker.store.get(blob_key(file["sha256"])))
    parameters = dict(mvprune.load(artifact).named_parameters())
    kept = sum(int(torch.count_nonzero(parameters[layer["name"]])) for layer in manifest["layers"])
    assert kept == manifest["accounting"]["kept_weights"]

    assert {metric for metric, _ in worker.service.points} >= {"dense/loss", "pruning/loss", "pruning/density"}
    log = worker.service.log.decode()
    assert "phase: pruning" in log
    assert "pruning: step 12 of 12, loss" in log
    assert "Traceback" not in log
    worker.assert_clean()


@pytest.mark.slow
def test_the_real_trainer_stops_at_the_next_step(worker: Any, tiny: Any) -> None:
    worker.service.spec = real_job(tiny)
    worker.service.spec.training.max_steps = 100_000
    worker.start_real(tiny.models, tiny.train.parent)
    worker.service.wait(lambda: any(beat.progress.step > 1 for beat in worker.service.heartbeats))
    os.kill(trainer_of(worker), signal.SIGTERM)
    assert worker.wait() is ExitCode.PREEMPTED
    [outcome] = worker.service.outcomes
    assert outcome.failure.reason == job_pb2.Failure.PREEMPTED
    assert b"stopped as asked\n" in worker.service.log
    worker.assert_clean()


def trainer_of(worker: Any) -> int:
    """The process of the trainer."""
    children = Path(f"/proc/{worker.process.pid}/task/{worker.process.pid}/children").read_text().split()
    [trainer] = [
        int(pid) for pid in children if b"mvprune_workers.trainer" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return trainer


@pytest.mark.slow
def test_an_attempt_after_kills_ends_with_the_same_weights(worker: Any, tiny: Any) -> None:
    """The supervisor of the first attempt is killed, the trainer of the second; the third one ends."""
    service = worker.service
    service.spec = real_job(tiny)
    service.spec.training.max_steps = steps = 150
    worker.start_real(tiny.models, tiny.train.parent)
    assert worker.wait() is ExitCode.PUBLISHED, worker.output.read_text()
    assert service.committed == []
    whole = verify(worker.store, service.outcomes[-1].manifest_sha256)

    service.checkpoint_interval = 0.1
    first = kill_at_a_checkpoint(worker, tiny, "supervisor", range(steps + 1, steps + steps // 2))
    second = kill_at_a_checkpoint(worker, tiny, "trainer", range(first.step + 1, 2 * steps))
    assert_resumed(worker, first)
    last = service.outcomes[-1]
    assert last.failure.reason in (job_pb2.Failure.TRAINER_KILLED, job_pb2.Failure.OUT_OF_MEMORY)
    assert (last.killed.signal, last.killed.phase) == (signal.SIGKILL, "pruning")
    assert last.killed.step >= second.step - steps, "exact, though few steps are reported"
    assert f"after step {last.killed.step} of pruning" in last.failure.message

    begin(worker, tiny, "resumed")
    assert worker.wait() is ExitCode.PUBLISHED, worker.output.read_text()
    assert_resumed(worker, second)
    resumed = verify(worker.store, service.outcomes[-1].manifest_sha256)
    assert resumed["files"] == whole["files"], "bit for bit"
    assert resumed["metrics"] == whole["metrics"]


def begin(worker: Any, tiny: Any, name: str, *, warm: bool = True) -> None:
    """Starts an attempt with a log and a cache of its own, from the newest checkpoint."""
    worker.service.log.clear()
    worker.uid, worker.cache = f"0190-{name}", worker.folder / f"cache-{name}"
    worker.start_real(tiny.models, tiny.train.parent, warm=warm)


def assert_resumed(worker: Any, checkpoint: worker_pb2.CommitCheckpointRequest) -> None:
    """The last attempt began where that checkpoint was made."""
    assert worker.log_has(f"fetched the checkpoint of step {checkpoint.step}")
    assert worker.log_has("pruning: resuming after step ")
    assert not worker.log_has("dense: step "), "the dense baseline is not trained again"


def kill_at_a_checkpoint(worker: Any, tiny: Any, killed: str, steps: range) -> worker_pb2.CommitCheckpointRequest:
    """Starts a run, and kills it when it commits a checkpoint of one of these steps. On a busy machine a run may have
    passed them by then: that takes another one. Returns what was committed last, which the next run begins with."""
    service = worker.service

    def kill(call: str, _: Any) -> None:
        if call == "commit" and service.committed[-1].step in steps:
            with suppress(ProcessLookupError, ValueError):  # it has just ended
                os.kill(trainer_of(worker) if killed == "trainer" else worker.process.pid, signal.SIGKILL)

    service.after.append(kill)
    for number in itertools.count():
        service.committed.clear()
        begin(worker, tiny, f"{killed}-{number}", warm=killed != "trainer")
        worker.process.wait(PATIENCE)
        if worker.marker() is None and service.committed and service.committed[-1].step in steps:
            break
    service.after.remove(kill)
    last = service.committed[-1]
    service.checkpoints = [
        worker_pb2.Checkpoint(attempt_uid=worker.uid, step=last.step, manifest_sha256=last.manifest_sha256)
    ]
    return last


@pytest.mark.slow
def test_what_a_user_got_wrong_is_said_in_a_sentence(worker: Any, tiny: Any) -> None:
    worker.service.spec = real_job(tiny)
    worker.service.spec.dataset.label_column = "mood"
    worker.start_real(tiny.models, tiny.train.parent)
    assert worker.wait() is ExitCode.FAILED
    [outcome] = worker.service.outcomes
    assert outcome.failure.reason == job_pb2.Failure.INVALID_DATASET
    assert "mood" in outcome.failure.message
    assert "Traceback" not in worker.service.log.decode()


@pytest.mark.slow
def test_a_full_disk_is_neither_the_datas_fault_nor_a_crash(tmp_path: Path) -> None:
    words = ["--threads=1", "--device=cpu", *(f"--{name}={tmp_path / name}" for name in FOLDERS)]
    read_end, write_end = os.pipe()
    with (
        subprocess.Popen(
            [sys.executable, "-c", WITHOUT_ROOM, *words, f"--events-fd={write_end}"],
            stdin=subprocess.PIPE,
            pass_fds=(write_end,),
            start_new_session=True,
        ) as trainer,
        os.fdopen(read_end) as events,
    ):
        os.close(write_end)
        trainer.stdin.write(b"{}\n")
        trainer.stdin.flush()
        [event] = [event for event in map(json.loads, events) if "reason" in event]
    assert event["reason"] == "DISK_FULL"
    assert "No space left" in event["message"]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

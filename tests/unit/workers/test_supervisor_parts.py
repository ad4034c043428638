"""The supervisor's parts, each alone."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from itertools import islice
from pathlib import Path

import pytest
from safetensors import SafetensorError
from tests.waiting import PATIENCE

from mvprune.v1 import job_pb2, worker_pb2
from mvprune_core import CompressionError, Reason
from mvprune_workers import backoff
from mvprune_workers.classify import classify, disk_full, oom_kills
from mvprune_workers.event_queue import Event, EventQueue
from mvprune_workers.events import (
    CheckpointEvent,
    EventWriter,
    FailureEvent,
    MetricEvent,
    ProgressEvent,
    ResultEvent,
    TrainerEvent,
    parse,
)
from mvprune_workers.logs import LogFile, forward
from mvprune_workers.position import Position, read_position
from mvprune_workers.report import TrainerReport
from mvprune_workers.scratch import Scratch
from mvprune_workers.settings import Settings, SettingsError

ENVIRONMENT = {
    "MVPRUNE_WORKER_TARGET": "127.0.0.1:7071",
    "MVPRUNE_ATTEMPT": "projects/p/jobs/j/attempts/2",
    "MVPRUNE_ATTEMPT_UID": "0190a",
    "MVPRUNE_FENCING_TOKEN": "9007199254740993",
    "MVPRUNE_ATTEMPT_SECRET": "s3cret",
    "MVPRUNE_STORE": "file:///store",
    "MVPRUNE_SCRATCH": "/scratch",
}


class TestSettings:
    def test_values(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "cpu_count", lambda: 4)
        settings = Settings.from_environment(ENVIRONMENT | {"MVPRUNE_CPUS": "2.5"})
        assert settings.fencing_token == 9007199254740993  # more than a float holds
        assert settings.threads == 3
        assert Settings.from_environment(ENVIRONMENT | {"MVPRUNE_CPUS": "100000"}).threads == 4
        assert settings.gpus == 0
        assert settings.ranks == 1
        assert settings.cache == Path("/scratch/cache")
        assert "s3cret" not in repr(settings)
        assert settings.cache_bytes == 0
        given = Settings.from_environment(ENVIRONMENT | {"MVPRUNE_CACHE": "/big", "MVPRUNE_CACHE_GB": "1.5"})
        assert (given.cache, given.cache_bytes) == (Path("/big"), 1.5e9)

    @pytest.mark.parametrize(
        ("workers", "cpus", "gpus", "ranks", "threads"),
        [(2, 2, 0, 2, 1), (2, 5, 0, 2, 3), (1, 16, 4, 4, 4), (1, 1, 4, 4, 1), (2, 8, 4, 4, 2), (1, 4, 0.5, 1, 4)],
    )
    def test_a_rank_for_each_gpu_or_worker(
        self, monkeypatch: pytest.MonkeyPatch, workers: int, cpus: int, gpus: float, ranks: int, threads: int
    ) -> None:
        monkeypatch.setattr(os, "cpu_count", lambda: 32)
        given = {"MVPRUNE_WORKERS": str(workers), "MVPRUNE_CPUS": str(cpus), "MVPRUNE_GPUS": str(gpus)}
        settings = Settings.from_environment(ENVIRONMENT | given)
        assert (settings.ranks, settings.threads) == (ranks, threads)

    def test_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "cpu_count", lambda: 32)
        given = {"MVPRUNE_WORKERS": "3", "MVPRUNE_PARTS": "3", "MVPRUNE_CPUS": "4", "MVPRUNE_MEMORY_BYTES": "1024"}
        settings = Settings.from_environment(ENVIRONMENT | given)
        assert (settings.ranks, settings.ranks_here, settings.threads) == (3, 1, 4)
        assert settings.part == {"CPU": 4.0, "memory": 1024.0}
        settings = Settings.from_environment(ENVIRONMENT | given | {"MVPRUNE_GPUS": "2"})
        assert (settings.ranks, settings.ranks_here, settings.threads) == (6, 2, 2)

    @pytest.mark.parametrize("name", sorted(ENVIRONMENT))
    def test_each_is_needed(self, name: str) -> None:
        with pytest.raises(SettingsError, match=name):
            Settings.from_environment({key: value for key, value in ENVIRONMENT.items() if key != name})

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("MVPRUNE_ATTEMPT_UID", "../elsewhere"),
            ("MVPRUNE_FENCING_TOKEN", "1.5"),
            ("MVPRUNE_FENCING_TOKEN", "-1"),
            ("MVPRUNE_CPUS", "nan"),
            ("MVPRUNE_CPUS", "many"),
            ("MVPRUNE_GPUS", "inf"),
        ],
    )
    def test_malformed_ones_are_named(self, name: str, value: str) -> None:
        with pytest.raises(SettingsError, match=name):
            Settings.from_environment(ENVIRONMENT | {name: value})


class TestEvents:
    @pytest.mark.parametrize(
        "event",
        [
            ProgressEvent("dense", 1, 2, 1.0, None, None),
            MetricEvent("pruning/loss", 5, 0.25, 1.5e9),
            CheckpointEvent(12),
            ResultEvent("/scratch/artifact"),
            FailureEvent("NAN_LOSS", "loss became NaN – ünïcode\nsecond line"),
        ],
    )
    def test_round_trip(self, event: TrainerEvent) -> None:
        read_end, write_end = os.pipe()
        EventWriter(write_end).emit(event)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            lines = pipe.readlines()
        assert [parse(line) for line in lines] == [event]

    @pytest.mark.parametrize(
        "line", [b"", b'{"event": "progr', b"[]", b"3", b'{"event": "boom"}', b'{"event": "result"}']
    )
    def test_what_is_no_event(self, line: bytes) -> None:
        assert parse(line) is None

    def test_unknown_reasons_are_crashes(self) -> None:
        report = TrainerReport()
        report.take(FailureEvent("FULL_MOON", "x" * 5000))
        assert report.failure is not None
        assert report.failure.reason == job_pb2.Failure.TRAINER_CRASHED
        assert len(report.failure.message) == 1000

    def test_a_message_may_hold_what_is_no_character(self) -> None:
        report = TrainerReport()
        report.take(FailureEvent("INVALID_DATASET", "no file train\udcff.csv"))
        assert report.failure is not None
        assert report.failure.message == "no file train?.csv"


class TestEventQueue:
    def test_the_most_urgent_event_decides_and_stays(self) -> None:
        events = EventQueue()
        events.post(Event.TRAINER_ENDED)
        events.post(Event.LEASE_LOST)
        assert events.wait((Event.TRAINER_ENDED, Event.LEASE_LOST)) is Event.LEASE_LOST
        assert events.wait((Event.TRAINER_ENDED,), 0) is Event.TRAINER_ENDED
        assert events.wait((Event.STOPPED,), 0) is None

    def test_waits_for_a_thread(self) -> None:
        events = EventQueue()
        threading.Timer(0.01, events.post, [Event.CANCELLED]).start()
        assert events.wait((Event.CANCELLED,), PATIENCE) is Event.CANCELLED


class TestLogFile:
    def test_readers_follow_to_the_end(self, tmp_path: Path) -> None:
        log = LogFile(tmp_path / "log")
        read_end, write_end = os.pipe()
        copying = threading.Thread(target=forward, args=(log, write_end))
        copying.start()
        log.append(b"half a line")
        log.say("hello")
        log.finish()
        copying.join(PATIENCE)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            text = pipe.read()
        assert text.startswith(b"half a line\n")
        assert text.endswith(b" supervisor: hello\n")
        assert log.read(5, 6) == b"a line"
        assert log.size == len(text)

    def test_a_reader_that_is_gone_harms_nobody(self, tmp_path: Path) -> None:
        log = LogFile(tmp_path / "log")
        read_end, write_end = os.pipe()
        os.close(read_end)
        log.append(b"text\n")
        forward(log, write_end)
        os.close(write_end)

    def test_a_runaway_trainer_does_not_fill_the_disk(self, tmp_path: Path) -> None:
        log = LogFile(tmp_path / "log", max_bytes=100)
        for _ in range(50):
            log.append(b"0123456789")
        assert log.size < 200
        assert log.read(0, 1000).endswith(b"the disk is full]\n")

    def test_last_line(self, tmp_path: Path) -> None:
        log = LogFile(tmp_path / "log")
        assert log.last_line() == ""
        log.append(b"first\nlast \xff\n\n  \n")
        assert log.last_line() == "last �"


class TestClassify:
    def test_out_of_memory_needs_evidence(self) -> None:
        for before, after, reason in (
            (0, 1, "OUT_OF_MEMORY"),
            (1, 1, "TRAINER_KILLED"),
            (None, None, "TRAINER_KILLED"),
        ):
            end = classify(-9, before, after, "", ("pruning", 7))
            assert job_pb2.Failure.Reason.Name(end.failure.reason) == reason
            assert end.killed == worker_pb2.CompleteAttemptRequest.Killed(signal=9, phase="pruning", step=7)
        assert classify(-11, 0, 1, "", ("", 0)).failure.reason == job_pb2.Failure.TRAINER_CRASHED

    @pytest.mark.parametrize(
        "number",
        [signal.SIGTERM, signal.SIGBUS, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR1, signal.SIGRTMAX],
    )
    def test_a_signal_that_comes_from_outside(self, number: int) -> None:
        end = classify(-number, 0, 1, "", ("dense", 3))
        assert end.failure.reason == job_pb2.Failure.TRAINER_KILLED
        assert f"killed by signal {number} " in end.failure.message
        assert "after step 3 of dense" in end.failure.message
        assert end.killed is not None

    @pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS"])
    def test_a_crash_has_a_name(self, name: str) -> None:
        number = signal.Signals[name].value
        end = classify(-number, 0, 0, "free(): invalid pointer", ("dense", 3))
        assert end.failure.reason == job_pb2.Failure.TRAINER_CRASHED
        assert f"crashed: signal {number} ({name}); its last log line: free()" in end.failure.message
        assert end.killed is None

    def test_the_position_outlives_the_trainer(self, tmp_path: Path) -> None:
        path = tmp_path / "scratch" / "position"
        assert read_position(path) == ("", 0)
        position = Position(path)
        for phase, step in (("pruning", 0), ("pruning", 123_456), ("evaluating", 9)):
            position.set(phase, step)
            assert read_position(path) == (phase, step)

    def test_a_full_disk_behind_other_errors(self) -> None:
        with pytest.raises(OSError, match="No space") as full:
            Path("/dev/full").write_bytes(b"x")
        in_rust = SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        for cause in (full.value, in_rust):
            bad = CompressionError(Reason.INVALID_DATASET, "the data cannot be read")
            bad.__cause__ = cause
            for error in (cause, bad):
                assert "disk is full" in (disk_full(error) or "")
        for other in (OSError(errno.EACCES, "not yours"), CompressionError(Reason.INVALID_DATASET, "no such column")):
            assert disk_full(other) is None

    @pytest.mark.parametrize(
        ("own", "file"),
        [
            ("0::/jobs/one\n", "jobs/one/memory.events"),
            ("0::/../outside\n", "memory.events"),
            ("4:memory:/jobs/one\n0::/\n", "memory/jobs/one/memory.oom_control"),
            ("4:cpu,memory:/hidden\n", "memory/memory.oom_control"),
        ],
    )
    def test_the_counter_of_the_own_cgroup(self, tmp_path: Path, own: str, file: str) -> None:
        (tmp_path / "self").write_text(own)
        counter = tmp_path / "cgroups" / file
        counter.parent.mkdir(parents=True)
        counter.write_text("low 0\noom 4\noom_kill 3\n")
        assert oom_kills(tmp_path / "self", tmp_path / "cgroups") == 3


class TestScratch:
    def test_is_removed_whatever_happens(self, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError), Scratch(tmp_path / "root", "one") as folder:
            (folder / "file").write_text(str(1 / 0))
        assert list((tmp_path / "root").iterdir()) == []

    def test_sweeps_what_nobody_holds(self, tmp_path: Path) -> None:
        for name in ("dead", "held"):
            (tmp_path / name).mkdir()
            (tmp_path / name / ".mvprune-attempt.lock").touch()
        (tmp_path / "foreign").mkdir()
        with (tmp_path / "held" / ".mvprune-attempt.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with Scratch(tmp_path, "new"):
                assert {path.name for path in tmp_path.iterdir()} == {"held", "foreign", "new"}

    def test_a_folder_that_somebody_else_prepared_is_not_used(self, tmp_path: Path) -> None:
        root, victim = tmp_path / "root", tmp_path / "victim"
        for folder in (root / "one", root / "two", victim):
            folder.mkdir(parents=True)
        (victim / "file").write_bytes(b"precious")
        (root / "linked").symlink_to(victim)
        (root / "one" / ".mvprune-attempt.lock").symlink_to(victim / "file")
        for name, words in (("linked", "link"), ("one", "symbolic links")):
            with pytest.raises(OSError, match=words), Scratch(root, name):
                pass
        if os.geteuid() == 0:
            os.chown(root / "two", 12345, 12345)
            with pytest.raises(PermissionError, match="another user's"), Scratch(root, "two"):
                pass
        assert [path.name for path in victim.iterdir()] == ["file"]
        assert (victim / "file").read_bytes() == b"precious"


def test_delays_grow_to_the_cap() -> None:
    for step, delay in enumerate(islice(backoff.delays(first=1.0, cap=8.0), 10)):
        ceiling = min(8.0, 2.0**step)
        assert ceiling / 2 <= delay <= ceiling


def test_the_first_failure_of_several_ranks_counts() -> None:
    report = TrainerReport()
    for reason in ("OUT_OF_MEMORY", "TRAINER_CRASHED"):
        report.take(FailureEvent(reason, "why"))
    assert report.failure is not None
    assert report.failure.reason == job_pb2.Failure.OUT_OF_MEMORY

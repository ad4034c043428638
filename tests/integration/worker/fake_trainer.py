"""Speaks the trainer's side of the protocol. The job's model says what to do; $STAGE holds its pids and signals."""

import argparse
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from mvprune_workers.alive import signs
from mvprune_workers.events import (
    CheckpointEvent,
    EventWriter,
    FailureEvent,
    MetricEvent,
    ProgressEvent,
    ResultEvent,
    SignEvent,
)
from mvprune_workers.lifeline import Lifeline
from mvprune_workers.position import Position

parser = argparse.ArgumentParser()
parser.add_argument("--events-fd", type=int)
parser.add_argument("--output", type=pathlib.Path)
parser.add_argument("--teacher", type=pathlib.Path)
parser.add_argument("--beginning", type=pathlib.Path)
parser.add_argument("--inputs", type=pathlib.Path)
parser.add_argument("--checkpoint", type=pathlib.Path)
parser.add_argument("--cache", type=pathlib.Path)
parser.add_argument("--threads", type=int)
parser.add_argument("--device")
parser.add_argument("--ranks", type=int)
parser.add_argument("--parts", type=int)
parser.add_argument("--part")
args = parser.parse_args()
stage = pathlib.Path(os.environ["STAGE"])


def tell(name, text="x"):
    partial = stage / (name + ".part")
    partial.write_text(str(text))
    partial.rename(stage / name)


tell("trainer.pid", os.getpid())
tell("environment", json.dumps(dict(os.environ)))
tell("share", f"{args.threads} {args.device}")
lifeline, events = Lifeline(), EventWriter(args.events_fd)
job = json.loads(lifeline.job())
tell("claim", " ".join(job))
mode = job["spec"]["model"]


def wait_for(name):
    while not (stage / name).exists():
        time.sleep(0.01)


def have_child():
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    tell("child.pid", child.pid)


def artifact():
    args.output.mkdir()
    data = os.urandom(1000)
    (args.output / "weights.bin").write_bytes(data)
    entry = {"path": "weights.bin", "size_bytes": 1000, "sha256": hashlib.sha256(data).hexdigest()}
    (args.output / "manifest.json").write_text(json.dumps({"files": [entry], "metrics": {"eval/accuracy": 0.5}}))
    events.emit(ResultEvent(str(args.output)))


if mode == "works":
    events.emit(ProgressEvent("pruning", 3, 10, 0.25, 0.7, 12.0))
    for step in range(1500):
        events.emit(MetricEvent("pruning/loss", step, 1.0 / (step + 1), time.time()))
    print("plain line", flush=True)
    sys.stderr.buffer.write(b"\xff\xfe not text\n")
    sys.stdout.write("long " * 120_000 + "\n")
    sys.stdout.flush()
    tell("working")
    wait_for("go")
    print("went on", flush=True)
    artifact()
elif mode == "lingers":
    artifact()
    signal.pause()
elif mode == "fails":
    events.emit(FailureEvent("INVALID_DATASET", "train.jsonl line 7: not JSON"))
    sys.exit(1)
elif mode == "exits":
    print("cannot go on: the flux is out of range", flush=True)
    sys.exit(3)
elif mode == "leaves a child":
    have_child()
    sys.exit(3)
elif mode == "silent":
    sys.exit(0)
elif mode == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
elif mode == "crashes":
    os.kill(os.getpid(), signal.SIGSEGV)
elif mode == "taught":
    for name in ("teacher", "beginning"):
        folder = getattr(args, name)
        files = [path for path in folder.rglob("*") if path.is_file()]
        tell(name, json.dumps({str(path.relative_to(folder)): bool(path.read_bytes()) for path in files}))
    wait_for("go")
    artifact()
elif mode == "ranks":
    # A second rank is another process, which does nothing but live.
    code = """
import pathlib, signal, sys
from mvprune_workers.alive import signs
from mvprune_workers.events import EventWriter, SignEvent
emit = EventWriter(int(sys.argv[1])).emit
emit(SignEvent(1))
pathlib.Path(sys.argv[2]).write_text("x")
with signs(1, emit):
    signal.pause()
"""
    with signs(0, events.emit):
        fd = args.events_fd
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(fd), stage / "signs"], pass_fds=(fd,), stdin=subprocess.DEVNULL
        )
        tell("child.pid", child.pid)
        wait_for("go")
        child.kill()
        events.emit(SignEvent(1, leaves=True))
        artifact()
elif mode in ("steps", "steps, then dies"):
    # Makes the steps that it is told to, each with a checkpoint; one more where it is stopped.
    stopped, position = [], Position(args.output.with_name("position"))
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    state = args.checkpoint / "state"
    step = int(state.read_text().split()[0]) if state.exists() else 0
    tell("resumed", step)
    while not (stage / "go").exists():
        stopping = bool(stopped)
        until = (stage / "until").read_text() if (stage / "until").exists() else "0"
        if stopping or step < int(until):
            step += 1
            args.checkpoint.mkdir(exist_ok=True)
            (args.checkpoint / ".state").write_text(f"{step:<1000} {os.urandom(1000).hex()}")
            (args.checkpoint / ".state").rename(state)
            events.emit(CheckpointEvent(step))
            events.emit(MetricEvent("steps", step, step, time.time()))  # comes after the checkpoint's
            position.set("steps", step)
            tell("step", step)
        elif step and mode == "steps, then dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if stopping:
            os._exit(75)
        time.sleep(0.01)
    artifact()
elif mode == "stoppable":

    def stop(*_):
        tell("stopped")
        os._exit(75)

    signal.signal(signal.SIGTERM, stop)
    tell("working")
    while True:
        time.sleep(60)
elif mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    have_child()
    tell("working")
    while True:
        time.sleep(60)

"""Speaks the trainer's side of the protocol: works for as many milliseconds as the job has steps, with a checkpoint in
the middle, and makes an artifact of which one file is its own and one is that of all others."""

import argparse
import hashlib
import json
import os
import pathlib
import select
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--events-fd", type=int)
parser.add_argument("--output", type=pathlib.Path)
parser.add_argument("--checkpoint", type=pathlib.Path)
args, _ = parser.parse_known_args()


def emit(name, **values):
    os.write(args.events_fd, json.dumps({"event": name, **values}).encode() + b"\n")


def work(seconds):
    """Ends early, with the process, when the supervisor is dead: its end of standard input is closed then."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0]:
            sys.exit(1)


claim = json.loads(sys.stdin.readline())
spec = claim["spec"]
seconds = int(spec["training"]["max_steps"]) / 1000
state = args.checkpoint / "state"
if not state.exists():
    emit("progress", phase="pruning", step=1, total_steps=2, density=1.0, loss=1.0, eta_seconds=seconds)
    work(seconds / 2)
    args.checkpoint.mkdir(parents=True, exist_ok=True)
    state.write_text("half")
    emit("checkpoint", step=1)
print("half", flush=True)
work(seconds / 2)
args.output.mkdir()
size = int(spec["seed"]) << 10  # kilobytes
contents = {"weights.bin": os.urandom(size), "config.json": b"{}"}
files = []
for path, data in contents.items():
    (args.output / path).write_bytes(data)
    files.append({"path": path, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
manifest = {"files": files, "metrics": {"eval/accuracy": 0.5}, "primary_metric": "accuracy", "accounting": {}}
(args.output / "manifest.json").write_text(json.dumps(manifest))
emit("result", directory=str(args.output))

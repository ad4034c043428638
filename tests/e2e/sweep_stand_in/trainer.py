"""Speaks the trainer's side of the protocol: makes a small valid artifact whose metrics fall with the density.

A job of a million steps waits until it is cancelled. The artifact is a copy of STAND_IN_ARTIFACT if that is set.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[3]))

from tests.sealed import seal

from mvprune.artifact import read_manifest
from mvprune.data.tasks import get_task

DENSE = 0.9
LOSSES = {
    "movement": 0.0005,
    "soft_movement": 0.0005,
    "obert": 0.0005,
    "magnitude": 0.004,
}  # at density d, divided by d

parser = argparse.ArgumentParser()
parser.add_argument("--events-fd", type=int)
parser.add_argument("--output", type=pathlib.Path)
args, _ = parser.parse_known_args()

spec = json.loads(sys.stdin.readline())["spec"]
if int(spec.get("training", {}).get("max_steps", 0)) >= 1_000_000:
    sys.stdin.read()  # ends with the supervisor
    sys.exit(1)
density, seed = float(spec["target_density"]), int(spec.get("seed", 0))
method = next((name for name in LOSSES if name in spec), "movement")
noise = 0.001 * (seed % 3 - 1)
pruned = DENSE if density == 1 else DENSE - LOSSES[method] / density + noise
names = get_task(spec.get("task") or "text-classification").metrics
metrics = {f"{of}/{name}": value for name in names for of, value in (("eval", pruned), ("dense", DENSE))}
metrics |= {f"delta/{name}": pruned - DENSE for name in names} | {"latency_ratio": 3.0, "latency_ms": 1.0}
folder = args.output
if artifact := os.environ.get("STAND_IN_ARTIFACT"):
    shutil.copytree(artifact, folder, dirs_exist_ok=True)
    manifest = dataclasses.replace(read_manifest(folder), metrics=metrics, primary_metric=names[0], spec=spec)
else:
    from tests.sparse_artifacts import make_artifact

    manifest = make_artifact(folder, metrics=metrics, primary_metric=names[0], spec=spec)
counts = dataclasses.replace(manifest.accounting, target_density=density, density=density)
(folder / "vocab.txt").write_text("[PAD]\n" * (1 + round(1000 * density)))  # fewer bytes at a lower density
seal(folder, dataclasses.replace(manifest, accounting=counts, seed=seed))
os.write(args.events_fd, json.dumps({"event": "result", "directory": str(folder)}).encode() + b"\n")

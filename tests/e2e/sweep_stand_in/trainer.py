"""Speaks the trainer's side of the protocol: makes a small valid artifact whose accuracy falls with the density.

A job of a million steps waits until it is cancelled.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[3]))

from tests.sparse_artifacts import make_artifact, seal

DENSE = 0.9
LOSSES = {"movement": 0.0005, "soft_movement": 0.0005, "magnitude": 0.004}  # at density d, divided by d

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
metrics = {"eval/accuracy": pruned, "dense/accuracy": DENSE, "delta/accuracy": pruned - DENSE}
folder = args.output
manifest = make_artifact(folder, metrics=metrics, spec=spec)
counts = dataclasses.replace(manifest.accounting, target_density=density)
(folder / "vocab.txt").write_text("[PAD]\n" * (1 + round(1000 * density)))  # fewer bytes at a lower density
seal(folder, dataclasses.replace(manifest, accounting=counts, seed=seed))
os.write(args.events_fd, json.dumps({"event": "result", "directory": str(folder)}).encode() + b"\n")

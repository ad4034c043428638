"""Speaks the trainer's side of the protocol: writes a log, reports steps of 10 ms each, makes a small artifact.

A job with the seed 13 fails. The first line of each log is HTML, which pages must show as text.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import select
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[4]))

from tests.sealed import seal
from tests.sparse_artifacts import make_artifact

parser = argparse.ArgumentParser()
parser.add_argument("--events-fd", type=int)
parser.add_argument("--output", type=pathlib.Path)
args, _ = parser.parse_known_args()


def emit(name, **values):
    os.write(args.events_fd, json.dumps({"event": name, **values}).encode() + b"\n")


spec = json.loads(sys.stdin.readline())["spec"]
steps, density, seed = int(spec["training"]["max_steps"]), float(spec["target_density"]), int(spec.get("seed", 0))
print("<script>document.title = 'taken'</script><img src=x onerror=alert(1)>", flush=True)
for step in range(1, steps + 1):
    done = step / steps
    if step % 5 == 0 or step == steps:
        kept = density + (1 - density) * (1 - done) ** 3
        loss = 0.3 + 0.7 * math.exp(-3 * done)
        emit(
            "progress", phase="pruning", step=step, total_steps=steps, density=kept, loss=loss, eta_seconds=steps - step
        )
        for name, value in (("loss", loss), ("density", kept)):
            emit("metric", metric=f"pruning/{name}", step=step, value=value, time=time.time())
        print(f"step {step}: loss {loss:.4f}", flush=True)
    if select.select([sys.stdin], [], [], 0.01)[0]:
        sys.exit(1)  # the supervisor is gone
if seed == 13:
    emit("failure", reason="INVALID_DATASET", message="<b>the</b> labels are wrong")
    sys.exit(1)
metrics = {"eval/accuracy": 0.9 - 0.001 / density, "dense/accuracy": 0.9, "delta/accuracy": -0.001 / density}
metrics |= {"latency_ms": 4.0, "latency_ratio": 3.0, "int8_latency_ratio": 1.2, "dense_int8_latency_ms": 4.8}
manifest = make_artifact(args.output, metrics=metrics, primary_metric="accuracy", spec=spec)
report = "<!doctype html><title>Report</title><h1>How it went</h1><script>document.title = 'taken'</script>"
(args.output / "report.html").write_text(report)
counts = dataclasses.replace(manifest.accounting, target_density=density, density=density)
seal(args.output, dataclasses.replace(manifest, accounting=counts, seed=seed))
emit("result", directory=str(args.output))

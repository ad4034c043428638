"""Memory of a loaded model, dense and sparse: BERT-base's shape with 3 % of the weights, uneven masks.

Run: make bench-runtime. Each model is loaded in a process of its own and computes 128 tokens with one thread. What
counts is the resident memory (VmRSS, at the peak VmHWM) less that of the same process before loading, when Python,
torch, transformers' model class and the runtime are imported. Other programs on the machine do not change it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from pruned_bert import pruned_bert, write_artifact

import mvprune
from mvprune.artifact import Coding, Values
from mvprune.runtime import optimize

DENSITY = 0.03
EMBEDDINGS = ("int4", "int8", "fp16")
RUNTIMES = ("dense", "sparse")


def main() -> None:
    """Prints a table as Markdown, or with --of the figures of one model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", nargs=2, metavar=("RUNTIME", "FOLDER"), help="only this model, in this process")
    args = parser.parse_args()
    if args.of:
        print(json.dumps(memory_here(*args.of)))
        return
    print("| runtime, embeddings | loaded | after a call | peak |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        optimize(pruned_bert(DENSITY, "uneven"), threads=1)  # the processes need not time matrices then
        for embeddings in EMBEDDINGS:
            coding = Coding(embeddings=Values(embeddings))
            folder = write_artifact(Path(scratch) / embeddings, pruned_bert(DENSITY, "uneven"), coding=coding)
            for runtime in RUNTIMES:
                cells = (f"{size / 1e6:.1f} MB" for size in memory_of(runtime, folder).values())
                print(f"| {runtime}, {embeddings} | {' | '.join(cells)} |")


def memory_of(runtime: str, folder: Path) -> dict[str, int]:
    """`memory_here` in a process of its own."""
    command = [sys.executable, __file__, "--of", runtime, str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    figures: dict[str, int] = json.loads(found.stdout)
    return figures


def memory_here(runtime: Any, folder: str) -> dict[str, int]:
    """Resident bytes above those of the imports: of the loaded model, after a call, and at the peak of both."""
    torch.set_num_threads(1)
    ids = torch.ones(1, 128, dtype=torch.long)
    load = mvprune.runtime.load  # imports all that it needs, as the model's class was imported above
    imported = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    model: Any = load(folder, runtime=runtime)
    loaded = resident("VmRSS")
    with torch.inference_mode():
        model(input_ids=ids, attention_mask=ids)
    found = {"loaded": loaded, "called": resident("VmRSS"), "peak": resident("VmHWM")}
    return {name: size - imported for name, size in found.items()}


def resident(field: str) -> int:
    """Bytes of this process, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    main()

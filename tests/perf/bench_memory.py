"""Peak memory of a fine-pruning step beside a dense step by transformers' Trainer.

Run: make bench. Every kind runs in a process of its own, for three steps; on the CPU the peak resident size counts,
less what the process has before its model is built, on a GPU the peak of what torch allocates.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from contextlib import nullcontext

import torch
from bench_step import KINDS, SHAPES, build, model_of
from rich.console import Console
from rich.table import Table

from mvprune_core import METHODS
from mvprune_core.base.heap import freed_memory_kept
from mvprune_core.models.prunable import prunable_layers

_STEPS = 3


def peak(shape: str, kind: str, tokens: int) -> int:
    """Bytes at the peak of a few steps, in this process."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    before = _resident()
    step = build(shape, kind, tokens, "bf16" if device.type == "cuda" else "fp32", device)
    with freed_memory_kept() if kind in METHODS else nullcontext():
        for _ in range(_STEPS):
            step()
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before


def _resident() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123 (no file on disk)
        return int(file.read().split()[1]) * resource.getpagesize()


def main() -> None:
    """Prints one table, or with --kind one number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="BERT-base")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--kind", choices=KINDS)
    args = parser.parse_args()
    if args.kind:
        print(peak(args.shape, args.kind, args.tokens))
        return
    weights = sum(layer.weight.numel() for layer in prunable_layers(model_of(args.shape)).values())
    table = Table(title=f"peak memory of a training step, {args.shape}, {args.tokens} tokens")
    for column in ("kind", "peak", "of dense", "bytes a prunable weight above dense"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    dense = 0
    for kind in KINDS:
        command = [sys.executable, __file__, "--shape", args.shape, "--tokens", str(args.tokens), "--kind", kind]
        found = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
        dense = dense or found
        table.add_row(kind, f"{found / 1e9:.2f} GB", f"{found / dense:.2f}x", f"{(found - dense) / weights:+.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()

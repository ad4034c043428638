"""One step of fine-pruning by two ranks on a core each, beside the same step by one process on one core.

Run: python tests/perf/bench_ranks.py (BERT-base, 32 × 128 tokens: minutes; nothing else should run). The rivals are
interleaved, the minimum of N rounds. Rank 0 is the one process too: the others wait meanwhile. `sum` is the all-reduce
of gradients of the model's size by itself. Memory is the peak of the resident set of rank 0, which has computed whole
batches too, and of rank 1, which has not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_step import SHAPES, model_of
from rich.console import Console
from rich.table import Table

from mvprune.data.tasks import get_task
from mvprune_core import Callback, SoftMovement, TorchGroup, Training
from mvprune_core.base.group import ALONE
from mvprune_core.tasks.batching import Examples
from mvprune_core.tasks.losses import CrossEntropy
from mvprune_core.training.curves import Curve
from mvprune_core.training.loop import Trainer
from mvprune_core.training.masking import Masks
from mvprune_core.training.optimization import build_optimizer

TOTAL, AT, DENSITY = 1000, 700, 0.1


def trainer_of(shape: str, examples: int, tokens: int) -> Trainer:
    """A trainer at the final density, of a model of this shape and one batch."""
    ids = np.random.default_rng(0).integers(5, 1000, (examples, tokens)).astype(np.int32)
    split = Examples({"input_ids": list(ids)}, {"labels": torch.zeros(examples).long()}, 0)
    settings = Training(batch_size=examples, max_steps=TOTAL).settings(get_task("sst2"))
    torch.manual_seed(0)
    model = model_of(shape, dropout=0.0)
    masks = Masks(model, SoftMovement().for_run(TOTAL), density=DENSITY, total_steps=TOTAL, seed=0)
    masks.update(AT)
    model.train()
    trainer = Trainer(
        model=model,
        optimizer=build_optimizer(model, settings, masks),
        examples=split,
        loss=CrossEntropy(),
        settings=settings,
        curve=Curve("pruning", TOTAL),
        seed=0,
        callback=Callback(),
        masks=masks,
    )
    trainer.step = AT
    return trainer


def seconds(work: Any) -> float:
    """The time of a call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def peak() -> int:
    """The peak of the resident set of this process, in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def measure(args: argparse.Namespace) -> None:
    """One rank; rank 0 prints the table."""
    torch.set_num_threads(1)
    group = TorchGroup.meet("cpu", Path(args.meeting), args.rank, args.ranks)
    trainer, indices = trainer_of(args.shape, args.examples, args.tokens), np.arange(args.examples)
    gradients = [torch.zeros_like(each) for each in trainer.model.parameters() if each.requires_grad]
    best = {name: float("inf") for name in ("one", "several", "sum")}
    for turn in range(args.rounds + 1):
        found = {"one": float("inf")}
        if group.rank == 0:
            trainer.group = ALONE
            found["one"] = seconds(lambda: trainer.train_step(indices))
        trainer.group = group
        for name, work in (("several", lambda: trainer.train_step(indices)), ("sum", lambda: group.sum_(gradients))):
            group.gather(None)  # all begin together
            found[name] = seconds(work)
        if turn:  # the first round warms up
            best = {name: min(value, found[name]) for name, value in best.items()}
    memory = group.gather(peak())
    if group.rank == 0:
        table = Table(title=f"{args.shape}, {args.examples} × {args.tokens} tokens, minimum of {args.rounds}")
        for column in ("", "step", "speed", "memory of a rank"):
            table.add_column(column, justify="left" if not column else "right")
        table.add_row("1 rank, 1 core", f"{best['one']:.3f} s", "1.00x", f"{memory[0] / 1e9:.2f} GB")
        ratio = f"{best['one'] / best['several']:.2f}x"
        table.add_row(
            f"{args.ranks} ranks, 1 core each", f"{best['several']:.3f} s", ratio, f"{memory[1] / 1e9:.2f} GB"
        )
        table.add_row("sum of the gradients", f"{best['sum']:.3f} s", "", "")
        Console().print(table)
    group.close()


def main() -> None:
    """Starts the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--shape", choices=SHAPES, default="BERT-base")
    parser.add_argument("--examples", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--meeting", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        measure(args)
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *sys.argv, "--meeting", f"{folder}/meeting"]
        ranks = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(args.ranks)]
        sys.exit(max(rank.wait() for rank in ranks))


if __name__ == "__main__":
    main()

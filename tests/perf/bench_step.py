"""One fine-pruning step against a dense step by transformers' Trainer, and against a layer that sorts in every pass.

Run: make bench. The rivals are interleaved, and the minimum of N rounds counts. On the CPU, by default with one thread,
that is the CPU time, which other programs on the machine change less than the wall time.

dense      transformers' Trainer: fused AdamW, clipping at 1, embeddings frozen
a method   a step of mvprune_core at the final density, with the same optimizer and clipping
distilled  movement with a teacher's cached logits
locked_dense  locked_mask with dense products; locked_mask itself has sparse ones where they are measured to be faster
sorting    as the original research code did it: every forward pass sorts every score matrix; Trainer's step otherwise

All steps of a table have the same dropout: BERT's, and none, which is the default of mvprune.

An event of oBERT, which estimates the Fisher matrix and prunes, is timed once; so is an exchange of weights of RigL and
sparse momentum, which they do at intervals.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from mvprune.data.tasks import get_task
from mvprune_core import METHODS, Callback, LockedMask, Movement, Training
from mvprune_core.base.heap import freed_memory_kept
from mvprune_core.methods.regrowth import Regrowth
from mvprune_core.models.prunable import prunable_layers
from mvprune_core.tasks.batching import Examples
from mvprune_core.tasks.losses import CrossEntropy
from mvprune_core.tasks.outputs import ClassLogits
from mvprune_core.training.curves import Curve
from mvprune_core.training.distillation import DistillationLoss
from mvprune_core.training.loop import Trainer as OurTrainer
from mvprune_core.training.masking import Masks
from mvprune_core.training.optimization import build_optimizer
from mvprune_core.training.precision import with_length_buckets

SHAPES = {
    "BERT-small": {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 2048},
    "BERT-base": {},
}
KINDS = ("dense", *METHODS, "distilled", "locked_dense", "sorting")
USUAL_KINDS = ("dense", "movement", "soft_movement", "distilled", "sorting")
DROPOUT = 0.1
TOTAL, AT = 1000, 700  # steps; the densities of all default schedules are final then
LENGTH = 128
DENSITY = 0.1

Step = Callable[[], None]


class _TopV(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, density: float) -> Tensor:
        order = scores.flatten().sort(descending=True)[1]
        mask = torch.zeros_like(scores)
        mask.view(-1)[order[: int(density * scores.numel())]] = 1.0
        return mask

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class SortingLinear(nn.Module):
    """A linear layer that selects its mask by a full sort in every forward pass."""

    def __init__(self, inner: nn.Linear, density: float) -> None:
        super().__init__()
        self._density = density
        self.weight, self.bias = inner.weight, inner.bias
        self.scores = nn.Parameter(torch.randn_like(inner.weight) * 1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, _TopV.apply(self.scores, self._density) * self.weight, self.bias)


def model_of(shape: str, dropout: float = DROPOUT) -> BertForSequenceClassification:
    """A model with random weights, embeddings frozen."""
    torch.manual_seed(0)
    chances = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = BertForSequenceClassification(BertConfig(vocab_size=1000, **chances, **SHAPES[shape]))
    model.bert.embeddings.requires_grad_(False)
    return model


def trainer_step(model: nn.Module, batch: dict[str, Tensor], precision: str, passes: int = 1) -> Step:
    """One optimizer step as Trainer does it: forward and backward of each part of the batch, clipping, update."""
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        optim="adamw_torch_fused",
        max_grad_norm=1.0,
        learning_rate=3e-5,
        bf16=precision == "bf16",
        use_cpu=not torch.cuda.is_available(),
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(model, arguments)
    trainer.create_optimizer_and_scheduler(num_training_steps=1000)
    trainer.current_gradient_accumulation_steps = passes  # what train() sets before its loop
    model = trainer.accelerator.prepare_model(model)  # autocast, as train() does
    optimizer = trainer.optimizer
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    parts = [
        dict(zip(batch, part, strict=True)) for part in zip(*(x.chunk(passes) for x in batch.values()), strict=True)
    ]

    def step() -> None:
        for part in parts:
            trainer.training_step(model, dict(part))
        trainer.accelerator.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        trainer.lr_scheduler.step()
        model.zero_grad()

    return step


def our_step(
    model: nn.Module, batch: dict[str, Tensor], precision: Any, kind: str, density: float, passes: int = 1
) -> Step:
    """One step of mvprune's `Trainer` at the final density."""
    size = len(batch["labels"])
    ids = [row.numpy().astype(np.int32) for row in batch["input_ids"].cpu()]
    examples = Examples({"input_ids": ids}, {"labels": batch["labels"].cpu()}, pad_token=0)
    method = (LockedMask if kind == "locked_dense" else METHODS.get(kind, Movement))().for_run(TOTAL)
    given = None
    if isinstance(method, LockedMask):
        given = {f"{name}.weight": torch.rand_like(layer.weight) < density for name, layer in layers_of(model)}
    masks = Masks(model, method, density=density, total_steps=TOTAL, seed=0, given=given)
    distillation = None
    if kind == "distilled":
        starts = torch.arange(size + 1)
        distillation = DistillationLoss(
            {"logits": torch.randn(size, 2).half()}, {"logits": starts}, (ClassLogits(),), temperature=2.0, alpha=0.9
        )
    options = Training(max_steps=TOTAL, batch_size=size, precision=precision, accumulation_steps=passes)
    settings = options.settings(get_task("sst2"))
    ours = OurTrainer(
        model=model,
        optimizer=build_optimizer(model, settings, masks),
        examples=with_length_buckets(examples, precision),
        loss=CrossEntropy(),
        settings=settings,
        curve=Curve("pruning", TOTAL),
        seed=0,
        callback=Callback(),
        masks=masks,
        distillation=distillation,
    )
    if kind == "locked_dense":
        ours._products = None
    indices = np.arange(size)
    model.train()
    ours.step = AT
    began = time.perf_counter()
    if (samples := masks.gradient_samples(AT)) > 0:
        ours._sample_gradients(masks, samples)
    masks.update(AT)
    seconds = time.perf_counter() - began
    if samples:
        Console().print(f"an event of {kind}, {samples} gradients: {seconds:.1f} s")
    if isinstance(method, Regrowth):  # AT is a multiple of its interval
        Console().print(f"an exchange of weights of {kind}: {seconds:.2f} s")

    def step() -> None:
        ours.train_step(indices)

    return step


def layers_of(model: nn.Module) -> list[tuple[str, nn.Linear]]:
    """The layers that are pruned, by name."""
    return [(name, layer) for name, layer in prunable_layers(model).items() if isinstance(layer, nn.Linear)]


def build(
    shape: str,
    kind: str,
    tokens: int,
    precision: str,
    device: torch.device,
    density: float = DENSITY,
    dropout: float = DROPOUT,
    passes: int = 1,
) -> Step:
    """A function that runs one training step, with the batch in so many passes."""
    ids = torch.randint(5, 1000, (tokens // LENGTH, LENGTH))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.zeros(len(ids)).long()}
    batch = {name: value.to(device) for name, value in batch.items()}
    model = model_of(shape, dropout)
    if kind not in ("dense", "sorting"):
        return our_step(model.to(device), batch, precision, kind, density, passes)
    if kind == "sorting":
        for name, layer in layers_of(model):
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, SortingLinear(layer, density))
    return trainer_step(model.to(device), batch, precision, passes)


def main() -> None:
    """Prints a table for each dropout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(USUAL_KINDS))
    parser.add_argument("--density", type=float, default=DENSITY)
    parser.add_argument("--dropout", type=float, nargs="+", default=[DROPOUT, 0.0])
    parser.add_argument("--accumulation-steps", type=int, default=1, help="passes that a batch is split into")
    parser.add_argument("--precision", choices=("fp32", "bf16"), help="default: bf16 on a GPU, else fp32")
    parser.add_argument(
        "--keep-freed-memory", action="store_true", help="all steps as mvprune trains, dense ones too: see heap.py"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    precision = args.precision or ("bf16" if device.type == "cuda" else "fp32")
    with freed_memory_kept() if args.keep_freed_memory else nullcontext():
        for dropout in args.dropout:
            compare(args, precision, device, dropout)


def compare(args: argparse.Namespace, precision: str, device: torch.device, dropout: float) -> None:
    """Measures all steps with one dropout, and prints their table."""
    passes = args.accumulation_steps
    title = f"one training step, {args.density:.0%}, dropout {dropout:g}, {device.type} {precision}"
    title += f", {args.threads} threads, {passes} passes" + ", freed memory kept" * args.keep_freed_memory
    table = Table(title=f"{title}, minimum and median of {args.rounds}")
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    for column in ("shape", "tokens", "step", "minimum", "to dense", "median", "to dense"):
        table.add_column(column, justify="left" if column in ("shape", "step") else "right")
    for tokens in args.tokens:
        for shape in args.shapes:
            options = precision, device, args.density, dropout, passes
            steps = {kind: build(shape, kind, tokens, *options) for kind in args.kinds}
            times: dict[str, list[float]] = {kind: [] for kind in steps}
            for turn in range(args.rounds + 1):
                for kind, step in steps.items():
                    start = clock()
                    step()
                    if device.type == "cuda":
                        torch.cuda.synchronize()
                    if turn:  # the first round warms up
                        times[kind].append(clock() - start)
            for kind, found in times.items():
                cells = (
                    cell
                    for of in (min, statistics.median)
                    for cell in (f"{of(found):.4f} s", f"{of(found) / of(times['dense']):.3f}x")
                )
                table.add_row(shape, str(tokens), kind, *cells)
            del steps
    Console().print(table)


if __name__ == "__main__":
    main()

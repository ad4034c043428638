"""One fine-pruning step against a dense step, and against a masked linear that sorts in every forward pass.

Run: make bench. CPU: one thread, the rivals interleaved, the minimum of N rounds; ratios are what counts.

dense      the plain model, embeddings frozen, the same optimizer
movement   exact top-v once a step, fp32 scores (mvprune_core)
sorting    as the original research code did it: every forward pass sorts every score matrix
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import BertConfig, BertForSequenceClassification

from mvprune_core import Movement
from mvprune_core.masking import Masks, prunable_layers

SHAPES = {
    "BERT-small": BertConfig(
        hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048, vocab_size=1000
    ),
    "BERT-base": BertConfig(vocab_size=1000),
}
DENSITY = 0.1


class _TopV(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        order = scores.flatten().sort(descending=True)[1]
        mask = torch.zeros_like(scores)
        mask.view(-1)[order[: int(DENSITY * scores.numel())]] = 1.0
        return mask

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class SortingLinear(nn.Module):
    """A linear layer that selects its mask by a full sort in every forward pass."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = inner.weight, inner.bias
        self.scores = nn.Parameter(torch.zeros_like(inner.weight))

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, _TopV.apply(self.scores) * self.weight, self.bias)


def build(config: BertConfig, kind: str, batch: dict[str, Tensor]) -> Callable[[], None]:
    """A function that runs one training step."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(config)
    model.bert.embeddings.requires_grad_(False)
    masks, scores = None, []
    if kind == "movement":
        masks = Masks(model, Movement(), seed=0, target=DENSITY)
        scores = list(masks.scores)
    elif kind == "sorting":
        for name, layer in prunable_layers(model).items():
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, SortingLinear(layer))
        scores = [layer.scores for layer in model.modules() if isinstance(layer, SortingLinear)]
    apart = {id(score) for score in scores}
    weights = [p for p in model.parameters() if p.requires_grad and id(p) not in apart]
    groups: list[dict[str, Any]] = [{"params": weights, "lr": 3e-5}]
    if scores:
        groups.append({"params": scores, "lr": 1e-2, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(groups, fused=True)
    model.train()

    def step() -> None:
        model(**batch).loss.backward()
        for parameters in (weights, scores):
            if parameters:
                nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if masks is not None:
            masks.select(DENSITY)

    return step


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=1024)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    table = Table(title=f"one training step, {args.tokens} tokens, {args.threads} thread(s), minimum of {args.rounds}")
    for column in ("shape", "dense", "movement", "sorting", "movement / dense", "sorting / dense"):
        table.add_column(column, justify="left" if column == "shape" else "right")
    for name, config in SHAPES.items():
        ids = torch.randint(5, config.vocab_size, (args.tokens // 128, 128))
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.zeros(len(ids)).long()}
        steps = {kind: build(config, kind, batch) for kind in ("dense", "movement", "sorting")}
        best = dict.fromkeys(steps, float("inf"))
        for turn in range(args.rounds + 1):
            for kind, step in steps.items():
                start = time.perf_counter()
                step()
                if turn:  # the first round warms up
                    best[kind] = min(best[kind], time.perf_counter() - start)
        table.add_row(
            name,
            *(f"{best[kind]:.3f} s" for kind in steps),
            *(f"{best[kind] / best['dense']:.2f}x" for kind in ("movement", "sorting")),
        )
    Console().print(table)


if __name__ == "__main__":
    main()

"""The coding of embeddings, chosen by what the task's metric loses: int8 or fp16, or what fits into a target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from mvprune.artifact import Coding, Values, round_values
from mvprune.artifact.base import Base
from mvprune.data.tasks import Task
from mvprune_core.plan import ResolvedRun
from mvprune_core.stages import Folded
from mvprune_core.state import load_tensors, tensors_of
from mvprune_core.target_size import CANDIDATES, Candidate, choose, estimated_bytes, note_on_target

TOLERANCE = 0.001
"""What the primary metric may lose by int8: 0.1 points; of a perplexity, that fraction."""


def round_matrices(model: nn.Module, pruned: Collection[str], coding: Coding, base: Base | None) -> dict[str, Tensor]:
    """Rounds a model, in place, whose values are rounded to another coding of the matrices that are not pruned.

    Args:
        model, pruned, coding, base: see `round_values`.

    Returns:
        the matrices that it changed, as they were. Those of the base model do not change.
    """
    matrices = {name: tensor for name, tensor in tensors_of(model).items() if tensor.dim() > 1 and name not in pruned}
    before = {name: tensor.clone() for name, tensor in matrices.items()}
    round_values(model, pruned, coding, base)
    return {name: tensor for name, tensor in before.items() if not torch.equal(tensor, matrices[name])}


def quantize_embeddings(
    folded: Folded, metrics: dict[str, float], run: ResolvedRun, measure: Callable[[Folded], dict[str, float]]
) -> tuple[Folded, dict[str, float], str]:
    """Rounds the embeddings of a folded model to int8, unless the task's metric loses by it.

    Args:
        folded: the model, with embeddings in fp16.
        metrics: of the task, with these.
        run: what is compressed, and how.
        measure: gives the metrics of the model as it is.

    Returns:
        the model, its metrics, and a note; "" if nothing was lost.
    """
    model = folded.loaded.model
    coding = replace(folded.coding, embeddings=Values.INT8)
    before = round_matrices(model, folded.pruned, coding, run.base)
    if not before:
        return folded, metrics, ""
    quantized = measure(folded)
    if is_worth_it(run.data.task, metrics, quantized):
        return replace(folded, coding=coding), quantized, ""
    load_tensors(model, before)
    folded.curve.add_evaluation(folded.steps, metrics)
    name = run.data.task.primary_metric
    note = (
        f"the embeddings are stored in fp16: with int8 the {name} would be {quantized[name]:.4f}, not "
        f"{metrics[name]:.4f}"
    )
    return folded, metrics, note


def fit_target(
    folded: Folded, metrics: dict[str, float], run: ResolvedRun, measure: Callable[[Folded], dict[str, float]]
) -> tuple[Folded, dict[str, float], str]:
    """Rounds the embeddings of a folded model so that its artifact fits into the run's target and loses least.

    Args:
        folded: the model, its values rounded.
        metrics: of the task, with these.
        run: what is compressed, and how; with a target.
        measure: gives the metrics of the model as it is.

    Returns:
        the model, its metrics, and a note on all candidates.
    """
    loaded, task = folded.loaded, run.data.task
    candidates = []
    for embeddings in CANDIDATES:
        coding = replace(folded.coding, embeddings=embeddings)
        before = round_matrices(loaded.model, folded.pruned, coding, run.base)
        found = measure(folded) if before else metrics
        total = estimated_bytes(loaded.model, loaded.tokenizer, folded.pruned, coding)
        candidates.append(Candidate(embeddings, total, found))
        load_tensors(loaded.model, before)
    target = run.target_bytes or 0
    chosen = choose(candidates, target, task)
    coding = replace(folded.coding, embeddings=chosen.embeddings)
    round_matrices(loaded.model, folded.pruned, coding, run.base)
    folded.curve.add_evaluation(folded.steps, dict(chosen.metrics))
    return replace(folded, coding=coding), dict(chosen.metrics), note_on_target(candidates, chosen, target, task)


def is_worth_it(task: Task, before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    """Whether the primary metric loses at most `TOLERANCE` from metrics `before` to `after`."""
    old, new = before[task.primary_metric], after[task.primary_metric]
    if task.higher_is_better:
        return old - new <= TOLERANCE
    return new - old <= TOLERANCE * old

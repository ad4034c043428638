"""How an artifact is stored, chosen by what it loses: embeddings in int8 or fp16, or what fits into a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from mvprune.artifact import Coding, Values, round_values
from mvprune.artifact.base import Base
from mvprune.data.tasks import Task
from mvprune_core.base.state import load_tensors, tensors_of
from mvprune_core.runs.divergence import divergence
from mvprune_core.runs.measurements import Measurement
from mvprune_core.runs.resolved import ResolvedRun
from mvprune_core.runs.stages import FinalModel
from mvprune_core.storing.positions import can_trim_positions, rows_for, trim_positions
from mvprune_core.storing.target_size import (
    CANDIDATES,
    Candidate,
    Sizes,
    Storage,
    check_fits,
    choose,
    finest,
    note_on_target,
    storages,
)
from mvprune_core.storing.word_steps import Words

TOLERANCE = 0.001
"""The loss of the primary metric that int8 may cost: 0.1 points; of a perplexity, that fraction."""


def round_matrices(
    final: FinalModel, coding: Coding, base: Base | None = None, words: Words | None = None, grade: int = 0
) -> dict[str, Tensor]:
    """Rounds the model of a `FinalModel`, in place, to another coding of its matrices.

    Args:
        final: its values are rounded to its own coding.
        coding: the other one.
        base: the base model of a delta artifact; its matrices do not change.
        words, grade: the word embeddings, and the steps that they have in int8.

    Returns:
        the matrices that changed, as they were.
    """
    unchanged = final.pruned if coding.values is final.coding.values else ()
    tensors = tensors_of(final.loaded.model)
    matrices = {name: tensor for name, tensor in tensors.items() if tensor.dim() > 1 and name not in unchanged}
    before = {name: tensor.clone() for name, tensor in matrices.items()}
    if words is not None:
        words.round_in(final.loaded.model, grade)
    round_values(final.loaded.model, final.pruned, coding, base)
    return {name: tensor for name, tensor in before.items() if not torch.equal(tensor, matrices[name])}


def quantize_embeddings(
    final: FinalModel, measured: Measurement, run: ResolvedRun, measure: Callable[[FinalModel], Measurement]
) -> tuple[FinalModel, Measurement, tuple[str, ...]]:
    """Rounds the embeddings of a final model to int8, unless the task's metric loses by it. If it does, only the word
    embeddings are rounded, and the small matrices stay in fp16.

    Args:
        final: the model, with embeddings in fp16.
        measured: its evaluation, with these.
        run: what is compressed, and how.
        measure: evaluates the model as it is.

    Returns:
        the model, its evaluation, and notes on what would have been lost.
    """
    model, name, notes = final.loaded.model, _metric_in_words(run), list[str]()
    primary = run.data.task.primary_metric
    for others, kept in ((None, "positions, token types, pooler and head"), (Values.FP16, "embeddings")):
        coding = replace(final.coding, embeddings=Values.INT8, others=others)
        before = round_matrices(final, coding, run.base)
        if not before:
            return final, measured, ()
        quantized = measure(final)
        if is_worth_it(run.data.task, measured, quantized):
            return replace(final, coding=coding), quantized, tuple(notes)
        load_tensors(model, before)
        stored = f"the {kept} are stored in fp16: with int8 the"
        notes.append(f"{stored} {name} would be {quantized.metrics[primary]:.4f}, not {measured.metrics[primary]:.4f}")
    final.curve.add_evaluation(final.steps, measured.metrics)
    return final, measured, tuple(notes[1:])


def fit_target(
    final: FinalModel,
    found: Measurement,
    run: ResolvedRun,
    measure: Callable[[FinalModel], Measurement],
    read: Callable[[FinalModel], dict[str, Tensor]],
    others: int,
) -> tuple[FinalModel, Measurement, tuple[str, ...]]:
    """Rounds and trims a final model so that its artifact fits into the run's target and loses least.

    Compared are the outputs of what would be stored with those of the finest way, for the finest ways that fit: of
    those of which no other is as fine in every part. A metric of few examples is too coarse for this.

    Args:
        final: the model, its values rounded to the finest coding.
        found: its evaluation, with these.
        run: what is compressed, and how; with a target.
        measure: evaluates the model as it is.
        read: gives its outputs for some examples, which `divergence` compares; {} where the task has none.
        others: bytes of all files but the weights.

    Returns:
        the model, its evaluation, and notes on all candidates.

    Raises:
        CompressionError: TARGET_NOT_REACHED, nothing fits.
    """
    loaded, task, target = final.loaded, run.data.task, run.spec.target_bytes or 0
    rows = rows_for(loaded.model, run.max_length) if can_trim_positions(loaded.model) else None
    is_trimmable = rows is not None and not final.trimmed
    words = Words.unread(loaded.model).read_by(run.train)
    sizes = Sizes(loaded.model, final.pruned, words, others, rows if is_trimmable else None)
    made = storages(
        CANDIDATES if run.spec.weight_dtype is None else (final.coding.values,),
        (False, True) if is_trimmable else (final.trimmed,),
    )
    ways = [sizes.finer(way, target) for way in made]
    totals = {way: sizes.total(way) for way in ways}
    smallest = min(ways, key=totals.__getitem__)
    check_fits(smallest, totals[smallest], target)
    name, outputs, exact = task.primary_metric, run.objective.outputs, read(final)
    # Trimming the positions changes nothing for inputs of max_length tokens.
    losses, measured = {(ways[0].coding, 0): 0.0}, {(ways[0].coding, 0): found}

    def candidate(way: Storage) -> Candidate:
        key = way.coding, way.grade
        if key not in losses:
            before = round_matrices(final, way.coding, words=words, grade=way.grade)
            if not before:
                losses[key], measured[key] = 0.0, found
            elif exact:
                losses[key] = divergence(read(final), exact, outputs)
            else:
                measured[key] = measure(final)
                losses[key] = _lost(task, found, measured[key])
            load_tensors(loaded.model, before)
        return Candidate(way, totals[way], losses[key])

    candidates = [candidate(way) for way in finest([way for way in ways if totals[way] <= target])]
    chosen = choose(candidates)
    coding, trimmed = chosen.storage.coding, chosen.storage.trimmed
    round_matrices(final, coding, words=words, grade=chosen.storage.grade)
    stored = measured.get((coding, chosen.storage.grade)) or measure(final)
    final.curve.add_evaluation(final.steps, stored.metrics)
    loss = outputs[0].difference if exact else f"loss of {name}"
    metric = f"{_metric_in_words(run)} {stored.metrics[name]:.4f} (of the finest {found.metrics[name]:.4f})"
    notes = [note_on_target(candidates, chosen, candidate(ways[0]), target, loss, metric)]
    if trimmed and not final.trimmed:
        notes.append(trim_positions(loaded.model, loaded.tokenizer, run.max_length))
    return replace(final, coding=coding, trimmed=trimmed), stored, tuple(notes)


def _metric_in_words(run: ResolvedRun) -> str:
    """The primary metric, and what it is of where that is not all validation examples."""
    name, examples = run.data.task.primary_metric, run.on_the_way.examples
    return name if examples is run.validation else f"{name} of the {len(examples):,} examples evaluated in training"


def _lost(task: Task, before: Measurement, after: Measurement) -> float:
    """The loss of the primary metric; below 0 where it gains."""
    sign = 1 if task.higher_is_better else -1
    return sign * (before.metrics[task.primary_metric] - after.metrics[task.primary_metric])


def is_worth_it(task: Task, before: Measurement, after: Measurement) -> bool:
    """Whether the primary metric loses at most `TOLERANCE`."""
    scale = 1.0 if task.higher_is_better else before.metrics[task.primary_metric]
    return _lost(task, before, after) <= TOLERANCE * scale

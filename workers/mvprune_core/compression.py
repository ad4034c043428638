"""`compress`: from a model and data to a pruned model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import torch

from mvprune.common.collection import without_collection
from mvprune.spec.patterns import parse_pattern
from mvprune.spec.problem import Problem
from mvprune_core.base.callbacks import Callback, Silent
from mvprune_core.base.errors import CompressionError, Reason, is_out_of_memory
from mvprune_core.base.group import ALONE, Group, check_group
from mvprune_core.base.interruption import stop_scope
from mvprune_core.base.notes import Notes
from mvprune_core.base.options import given_fields, refuse
from mvprune_core.base.storage import Cache, Checkpoints
from mvprune_core.models.checkpoint_checks import check_range
from mvprune_core.models.loading import Source, find_model, load_model
from mvprune_core.runs.assembly import Assembly, draft
from mvprune_core.runs.baselines import SharedBaseline
from mvprune_core.runs.keys import run_keys
from mvprune_core.runs.plan import resolve
from mvprune_core.runs.precision import Attempt
from mvprune_core.runs.resolved import Request
from mvprune_core.runs.result import Result, model_source
from mvprune_core.runs.spec import Spec, SpecKeywords
from mvprune_core.runs.steps import CompressionRun
from mvprune_core.storing.reopening import try_writing
from mvprune_core.tasks import TaskData, measured_by, objective_for
from mvprune_core.tasks.metrics import check_packages

_CHECKPOINT_SECONDS = 300.0


def compress(
    model: str | Path | Source,
    data: TaskData,
    *,
    spec: Spec = Spec(),  # noqa: B008 (immutable)
    device: str | None = None,
    callback: Callback | None = None,
    dense_baseline: bool | SharedBaseline = True,
    revision: str | None = None,
    cache: str | Path | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = _CHECKPOINT_SECONDS,
    group: Group = ALONE,
    **options: Unpack[SpecKeywords],
) -> Result:
    """Fine-tunes a Transformer on a task while pruning it.

    The dense baseline is the model itself if it is fine-tuned for the task already, else the model fine-tuned with the
    same settings, steps and seed. Pruning starts from the original weights in both cases; only a method that is meant
    for trained models, such as oBERT, goes on from the dense baseline or the teacher that was fine-tuned for this run.
    The final evaluation is of the model that the artifact stores: masks applied, values rounded as in the file.

    Args:
        model: a folder, a name under MVPRUNE_MODELS, a hub id, or a `Source` that `find_model` returned.
        data: what `load_task` returned.
        spec: what is asked for.
        device: a torch device; by default a GPU if there is one.
        callback: receives phases, steps and evaluations.
        dense_baseline: whether to evaluate the dense model; False saves its training, unless it is the teacher. A
            `SharedBaseline`: the dense model of another run; nothing dense is trained, so the teacher must be named.
        revision: revision of a hub model.
        cache: folder for tokenised data, teachers' logits and texts, and dense baselines, shared by all runs; None: no
            cache.
        checkpoint: folder to resume from and save to; the result is the same as without interruption. The checkpoint of
            a different run, such as one with other settings or another number of threads, is not used, with a warning.
        checkpoint_seconds: seconds between two checkpoints.
        group: the processes that train together, such as `TorchGroup.join("cuda")` under torchrun. All of them call
            `compress` with the same arguments and get the same result; rank 0 calls `callback` and writes checkpoints.
        options: fields of the spec, in place of what it has, such as density=0.03: see `Spec` and `RunOptions`.

    Raises:
        ValueError: an argument out of range.
        RunTooShort: (a ValueError) the data and the settings give too few steps for the schedule.
        CompressionError: the model or the run cannot be used; `reason` says why.
        RanksDiverged: the ranks of the group do not compute the same.
        Stopped: `request_stop` was called.
    """
    asked, why = replace(spec, **options).with_method(data)
    given = given_fields(asked)
    objective = objective_for(measured_by(data, asked.metric or ""), given)
    settled = asked.settled(objective, dense_baseline)
    refuse([Problem(*each) for each in data.task.kind.option_problems(objective.data, given)])
    check_packages(objective.imports)
    request = Request(
        spec=settled,
        objective=objective,
        source=find_model(model, revision),
        device=torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")),
        dense_baseline=dense_baseline,
    )
    with _memory_errors(), stop_scope(), _flushed_denormals():
        called = (callback or Callback()) if group.rank == 0 else Silent()
        chosen = [why] if why else []
        if settled.pattern is not None and asked.density is None and settled.density is not None:
            chosen.append(parse_pattern(settled.pattern).density_note)
        run = _prepare(request, called, cache, checkpoint, checkpoint_seconds, group, chosen)
        with run.checkpoints or nullcontext():
            # A named teacher comes first: one that does not fit is refused before anything is trained.
            distillation = run.distillation() if run.resolved.named_teacher else None
            baseline = run.baseline()
            distillation = distillation or run.distillation()
            masked = run.prune(distillation)
            final = run.apply_masks(masked)
            assembly = Assembly(run, baseline, masked)
            final, measured = run.evaluator.evaluate_stored(final, assembly.other_bytes)
            tested = run.evaluator.test(final, measured)
            counts = run.account(final)
            above_constant = run.evaluator.above_constant(final, measured.metrics, baseline)
            result = assembly.result(final, measured, tested, counts, above_constant)
        result.model.cpu()
    return result


def _prepare(
    request: Request,
    callback: Callback,
    cache: str | Path | None,
    checkpoint: str | Path | None,
    checkpoint_seconds: float,
    group: Group,
    chosen: Sequence[str],
) -> CompressionRun:
    """Loads the model and resolves the request. Nothing is trained yet. `chosen`: notes on the request."""
    callback.on_phase("loading")
    notes = Notes(callback)
    notes.add(*request.data.notes, *chosen)
    if group.size > 1:
        notes.add(f"{group.size} ranks train together; another number of ranks gives the same result up to rounding")
    folder = None if checkpoint is None else Path(checkpoint)
    results = Cache(Path(cache) if cache is not None else folder and folder / "cache", group)
    with ThreadPoolExecutor(1) as beside:  # hashing lets other threads run
        source = beside.submit(model_source, request.source)
        with without_collection():  # transformers imports the code of the model
            student = load_model(request.source, request.objective, request.spec.seed)
        notes.add(*student.notes)
        resolved = resolve(request, student, source, results, Attempt(folder, group), notes)
    names = [f"{name}.weight" for name in resolved.layers_of(student.model)]
    if not request.spec.delta:  # else tensors that training does not change are not stored
        check_range(request.source.name, student.model, request.spec.coding, names)
    info = draft(resolved, student.model, names, notes.texts)
    try_writing(request.source.name, student, resolved.train.padding_side, info, resolved.sample)
    keys = run_keys(resolved)
    if not resolved.is_kept:
        check_group(group, student.model, resolved.settings, keys)
    callback.on_plan(resolved.phases)
    checkpoints = None if folder is None else Checkpoints(folder, keys.checkpoints, checkpoint_seconds, group)
    return CompressionRun(
        resolved=resolved,
        keys=keys,
        student=student,
        callback=callback,
        notes=notes,
        cache=results,
        checkpoints=checkpoints,
        group=group,
    )


@contextmanager
def _flushed_denormals() -> Iterator[None]:
    """Treats denormal numbers as 0: a CPU computes with them a hundred times more slowly.

    The momentum of a masked weight halves every seven steps, so it is denormal after a thousand. torch's threads
    inherit the setting from the thread that starts them, at the first large tensor, and keep it.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def _memory_errors() -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise CompressionError(
            Reason.OUT_OF_MEMORY,
            "the memory is used up; take a smaller batch_size or max_length, more accumulation_steps, or a machine "
            "with more memory",
        ) from error

"""`compress`: from a model and data to a pruned model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Literal

import torch

from mvprune.artifact import Coding, Values
from mvprune.common.collection import without_collection
from mvprune.common.suggestions import must_be_one_of
from mvprune.spec.patterns import Pattern
from mvprune.spec.rules import problems, value_problems
from mvprune_core.assembly import Assembly, draft
from mvprune_core.baselines import SharedBaseline
from mvprune_core.callbacks import Callback, Silent
from mvprune_core.checkpoint_checks import check_range
from mvprune_core.distillation import Teacher
from mvprune_core.errors import CompressionError, Reason, is_out_of_memory
from mvprune_core.given_masks import find_mask
from mvprune_core.group import ALONE, Group, check_group
from mvprune_core.interruption import stop_scope
from mvprune_core.keys import run_keys
from mvprune_core.methods import LockedMask, Method, get_method
from mvprune_core.metrics import check_packages
from mvprune_core.models import Source, find_model, load_model
from mvprune_core.notes import Notes
from mvprune_core.options import given_fields, refuse
from mvprune_core.plan import Plan, resolve
from mvprune_core.reopening import try_writing
from mvprune_core.result import Result, model_source
from mvprune_core.run import CompressionRun
from mvprune_core.settings import Training
from mvprune_core.storage import Cache, Checkpoints
from mvprune_core.structure_kinds import KINDS, Structure, StructureOptions
from mvprune_core.target_size import OTHERS
from mvprune_core.tasks import TaskData, objective_for

DEFAULT_METHOD = "soft_movement"
_CHECKPOINT_SECONDS = 300.0


def compress(
    model: str | Path | Source,
    data: TaskData,
    *,
    method: str | Method | None = None,
    density: float | None = None,
    mask_from: str | Path | Source | None = None,
    mask_revision: str | None = None,
    pattern: str | None = None,
    structure: Structure | None = None,
    structure_density: float | None = None,
    structure_block_size: int | None = None,
    structure_fill: bool = False,
    training: Training = Training(),  # noqa: B008 (immutable)
    teacher: Teacher | Literal["baseline"] | None = "baseline",
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    allow_density_miss: bool = False,
    keep_fine_tuned: bool = False,
    weight_dtype: str | None = None,
    embedding_dtype: str | None = None,
    trim_vocabulary: bool = False,
    trim_positions: bool = False,
    target_bytes: int | None = None,
    delta: bool = False,
    seed: int = 0,
    device: str | None = None,
    callback: Callback | None = None,
    dense_baseline: bool | SharedBaseline = True,
    revision: str | None = None,
    cache: str | Path | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = _CHECKPOINT_SECONDS,
    group: Group = ALONE,
) -> Result:
    """Fine-tunes a Transformer on a task while pruning it.

    The dense baseline is the model itself if it is fine-tuned for the task already, else the model fine-tuned with the
    same settings, steps and seed. Pruning starts from the original weights in both cases. The final evaluation is of
    the model that the artifact stores: masks folded in, values rounded as in the file.

    Args:
        model: a folder, a name under MVPRUNE_MODELS, a hub id, or a `Source` that `find_model` returned.
        data: what `load_task` returned.
        method: the name of a method, or a `Method` with options; by default soft_movement, or locked_mask with
            `mask_from`.
        density: fraction of the prunable weights to KEEP, in (0, 1]; 0.03 is the "3 %" of the literature. It may be
            left out with `mask_from` or `pattern`: the density is then theirs.
        mask_from: a model or an artifact with zeros: its zeros are the mask, which stays as it is. A model, as
            `model`, or the folder of an artifact. It must have the architecture and the size of `model`.
        mask_revision: revision of `mask_from` on the hub.
        pattern: an N:M pattern, such as "2:4": of every M consecutive weights of a row, the N most important ones stay.
            The method must rank weights: movement, soft_movement, magnitude, one_shot_magnitude, random or platon. M
            must divide the length of every pruned matrix' rows.
        structure: "heads", "units", "heads_and_units", "blocks_and_units" or "layers": whole attention heads and
            feed-forward units are pruned, square blocks of the attention matrices and units, or layers of the encoder,
            by the mean importance of their weights in the whole model, and the result is a smaller model without them.
            Every layer keeps at least one of each, or the encoder at least one layer. The density counts only the
            weights of what may be removed. For the methods that `pattern` is for, and for the architectures that
            docs/models.md lists.
        structure_density: with `structure`: fraction of the weights whose structures stay, above `density`. Inside
            these, only the most important weights are kept, of all matrices together, so that the density is reached.
        structure_block_size: with `structure` "blocks_and_units": rows and columns of a block, by default 32. It must
            divide the size of a head.
        structure_fill: with `structure` "blocks_and_units": once the density is reached, all weights of the heads and
            units that stay come back, and are trained to the end. The result's density is higher than `density`.
        training: fine-tuning settings; by default the task's.
        teacher: the teacher for distillation. "baseline": the dense baseline, unless there is none, the density is 1 or
            the task is masked language modelling, which cannot be distilled. None: no distillation.
        include: patterns of layer names to prune, such as `*.attention.*`; by default every matrix of the blocks.
        exclude: patterns of layer names to leave dense.
        allow_density_miss: accept a result whose density is off by more than 10 % (relative).
        keep_fine_tuned: with density 1: evaluate and store a model that is fine-tuned for the task as it is; do not
            train it again. Another model is fine-tuned as usual. Only without a teacher.
        weight_dtype: how the artifact stores the kept weights: fp32, fp16, bf16, or int8 or int4 (with per-row
            scales). None: fp16, or what `target_bytes` chooses.
        embedding_dtype: how it stores all other matrices, mainly the embeddings; the same choices. With int4, those of
            positions, token types, pooler and head are int8. None: int8 if the task's primary metric loses at most 0.1
            points by it (a perplexity: 0.1 %), else int8 for the word embeddings only, by the same rule, else fp16;
            with a note.
        trim_vocabulary: store only the embeddings of tokens that the data uses, and of those that a WordPiece tokenizer
            composes all other words from.
        trim_positions: store only the embeddings of the positions of `training.max_length` tokens. The model then
            takes no longer inputs. For the architectures of `mvprune.sources.model_types.TRIMMABLE`; without delta.
        target_bytes: bytes of all files of the artifact, at most. Chosen are the coding of the embeddings and that of
            the kept weights without a `weight_dtype` (fp16, int8 or int4), that of positions, token types, pooler and
            head (fp16 or int8), whether the positions are trimmed, and how few steps the words of rare tokens have in
            int8 (`mvprune_core.word_steps`). The finest ways to store that fit are measured, and the one that loses
            least is stored; a note names all. A target that none can reach is an error, before training where that is
            known. Without embedding_dtype and delta.
        delta: the artifact refers to the model for tensors that training did not change, and needs the model to load.
        seed: seed of new heads, batches, dropout, gates and ties. The same seed, number of threads and choice of sparse
            products (see docs/models.md) give the same model.
        device: a torch device; by default a GPU if there is one.
        callback: receives phases, steps and evaluations.
        dense_baseline: whether to evaluate the dense model; False saves its training, unless it is the teacher. A
            `SharedBaseline`: the dense model of another run; nothing dense is trained, so the teacher must be named.
        revision: revision of a hub model.
        cache: folder for tokenised data, teachers' logits and dense baselines, shared by all runs; None: no cache.
        checkpoint: folder to resume from and save to; the result is the same as without interruption. The checkpoint of
            a different run, such as one with other settings or another number of threads, is not used, with a warning.
        checkpoint_seconds: seconds between two checkpoints.
        group: the processes that train together, such as `TorchGroup.join("cuda")` under torchrun. All of them call
            `compress` with the same arguments and get the same result; rank 0 calls `callback` and writes checkpoints.

    Raises:
        ValueError: an argument out of range.
        RunTooShort: (a ValueError) the data and the settings give too few steps for the schedule.
        CompressionError: the model or the run cannot be used; `reason` says why.
        RanksDiverged: the ranks of the group do not compute the same.
        Stopped: `request_stop` was called.
    """
    chosen = get_method(method or (DEFAULT_METHOD if mask_from is None else LockedMask.name))
    given = {
        "density": density,
        "mask_from": mask_from,
        "mask_revision": mask_revision,
        "pattern": pattern,
        "structure": structure,
        "structure_density": structure_density,
        "structure_block_size": structure_block_size,
        "structure_fill": structure_fill,
        "include": include,
        "exclude": exclude,
        "allow_density_miss": allow_density_miss,
        "keep_fine_tuned": keep_fine_tuned,
        "weight_dtype": weight_dtype,
        "embedding_dtype": embedding_dtype,
        "trim_vocabulary": trim_vocabulary,
        "trim_positions": trim_positions,
        "target_bytes": target_bytes,
        "delta": delta,
        "seed": seed,
        "teacher": _teacher_option(teacher),
        "baseline": f"job:{dense_baseline.name}" if isinstance(dense_baseline, SharedBaseline) else None,
    }
    given |= given_fields(training) | given_fields(chosen) | given_fields(chosen.schedule)
    given = {name: value for name, value in given.items() if value is not None or name == "seed"}
    refuse(value_problems(given))
    refuse(problems(given, chosen.facts, data.task))
    objective = objective_for(data)
    check_packages(objective.imports)
    if teacher == "baseline":
        teacher = Teacher() if objective.outputs and dense_baseline and density != 1 else None
    if teacher is not None and not isinstance(teacher, Teacher):
        raise ValueError(f'teacher must be a Teacher, "baseline" or None, got {teacher!r}')
    if isinstance(dense_baseline, SharedBaseline) and teacher is not None and teacher.model is None:
        raise ValueError("teacher must name a model or be None with a SharedBaseline, got the dense baseline")
    parsed = None if pattern is None else Pattern.parse(pattern)
    plan = Plan(
        data=data,
        objective=objective,
        source=find_model(model, revision),
        method=chosen,
        mask_from=None if mask_from is None else find_mask(mask_from, mask_revision),
        density=density if parsed is None else parsed.density,
        pattern=parsed,
        structure=None
        if structure is None
        else StructureOptions(
            structure, structure_density, structure_block_size or KINDS[structure].block_size, structure_fill
        ),
        training=training,
        teacher=teacher,
        dense_baseline=dense_baseline,
        seed=seed,
        include=tuple(include),
        exclude=tuple(exclude),
        device=torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")),
        coding=Coding(
            Values.FP16 if weight_dtype is None else _values("weight_dtype", weight_dtype),
            Values.FP16 if embedding_dtype is None else _values("embedding_dtype", embedding_dtype),
            OTHERS[-1] if embedding_dtype == Values.INT4 else None,
        ),
        may_quantize_weights=weight_dtype is None,
        may_quantize_embeddings=embedding_dtype is None,
        trim_vocabulary=trim_vocabulary,
        trim_positions=trim_positions,
        target_bytes=target_bytes,
        delta=delta,
        allow_density_miss=allow_density_miss,
        keep_fine_tuned=keep_fine_tuned,
    )
    with _memory_errors(), stop_scope(), _flushed_denormals():
        called = (callback or Callback()) if group.rank == 0 else Silent()
        run = _prepare(plan, called, cache, checkpoint, checkpoint_seconds, group)
        run.notes.add(*[parsed.density_note] if parsed is not None and density is None else [])
        with run.checkpoints or nullcontext():
            # A named teacher comes first: one that does not fit is refused before anything is trained.
            distillation = run.distillation() if run.resolved.named_teacher else None
            baseline = run.baseline()
            distillation = distillation or run.distillation()
            masked = run.prune(distillation)
            folded = run.fold(masked)
            assembly = Assembly(run, baseline, masked)
            folded, evaluated = run.evaluate(folded, assembly.other_bytes)
            counts = run.account(folded)
            above_constant = run.above_constant(folded, evaluated, baseline)
            result = assembly.result(folded, evaluated, counts, above_constant)
        result.model.cpu()
    return result


def _teacher_option(teacher: Teacher | str | None) -> str | None:
    """What the rules know of a teacher; None: the default."""
    if teacher is None:
        return "none"
    if not isinstance(teacher, Teacher):
        return None if teacher == "baseline" else teacher
    return "baseline" if teacher.model is None else str(teacher.model)


def _prepare(
    plan: Plan,
    callback: Callback,
    cache: str | Path | None,
    checkpoint: str | Path | None,
    checkpoint_seconds: float,
    group: Group,
) -> CompressionRun:
    """Loads the model and resolves the plan. Nothing is trained yet."""
    callback.on_phase("loading")
    notes = Notes(callback)
    notes.add(*plan.data.notes)
    if group.size > 1:
        notes.add(f"{group.size} ranks train together; another number of ranks gives the same result up to rounding")
    folder = None if checkpoint is None else Path(checkpoint)
    results = Cache(Path(cache) if cache is not None else folder and folder / "cache", group)
    with ThreadPoolExecutor(1) as beside:  # hashing lets other threads run
        source = beside.submit(model_source, plan.source)
        with without_collection():  # transformers imports the code of the model
            student = load_model(plan.source, plan.objective, plan.seed)
        notes.add(*student.notes)
        resolved = resolve(plan, student, source, results, notes)
    names = [f"{name}.weight" for name in resolved.layers_of(student.model)]
    if not plan.delta:  # what training leaves alone is then not stored
        check_range(plan.source.name, student.model, plan.coding, names)
    info = draft(resolved, student.model, names, notes.texts)
    try_writing(plan.source.name, student, resolved.train.padding_side, info, resolved.sample)
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


def _values(option: str, given: str) -> Values:
    if given not in tuple(Values):
        raise ValueError(f"{option} {must_be_one_of(Values, given)}")
    return Values(given)


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

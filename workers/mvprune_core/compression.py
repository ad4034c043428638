"""The whole way: load, dense baseline, prune while fine-tuning, fold, evaluate, count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

from mvprune.artifact import Coding, DatasetSource, ResultInfo, Values
from mvprune.common.suggestions import must_be_one_of
from mvprune_core.accounting import account, check_density
from mvprune_core.callbacks import Callback
from mvprune_core.distillation import Teacher
from mvprune_core.errors import CompressionError, Reason, is_out_of_memory
from mvprune_core.interruption import stops_alone
from mvprune_core.methods import Method, get_method
from mvprune_core.metrics import check_packages
from mvprune_core.models import Source, find_model
from mvprune_core.phases import Phases
from mvprune_core.plan import Plan
from mvprune_core.result import Result, versions
from mvprune_core.settings import Settings, Training
from mvprune_core.tasks import TaskData, objective_for

_CHECKPOINT_SECONDS = 300.0
_MAX_SEED = 2**32 - 1


def compress(
    model: str | Path | Source,
    data: TaskData,
    *,
    method: str | Method = "soft_movement",
    density: float,
    training: Training = Training(),  # noqa: B008 (immutable)
    teacher: Teacher | Literal["baseline"] | None = "baseline",
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    allow_density_miss: bool = False,
    values: str = "fp16",
    embeddings: str = "fp16",
    trim_vocabulary: bool = False,
    delta: bool = False,
    seed: int = 0,
    device: str | None = None,
    callback: Callback | None = None,
    dense_baseline: bool = True,
    revision: str | None = None,
    cache: str | Path | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = _CHECKPOINT_SECONDS,
) -> Result:
    """Fine-tunes a Transformer on a task while pruning it.

    The dense baseline is the model as it is where it is fine-tuned for the task already, else the model fine-tuned with
    the same settings, steps and seed. Pruning starts from the original weights either way. What is evaluated in the end
    is what the artifact stores: masks folded in, values rounded as the format does.

    Args:
        model: a folder, a name under MVPRUNE_MODELS, a hub id, or what `find_model` made of one.
        data: of `load_task`.
        method: name or options of the method.
        density: fraction of the prunable weights to KEEP, in (0, 1]; 0.03 is the "3 %" of the literature.
        training: fine-tuning settings; unset ones are the task's.
        teacher: distils from it. "baseline": from the dense baseline, where there is one, something is pruned and the
            task can be distilled, as masked language models cannot. None: labels alone.
        include: patterns of layer names to prune, such as `*.attention.*`; by default every matrix of the blocks.
        exclude: patterns of layer names to leave dense.
        allow_density_miss: a density off by more than 10 % (relative) is a result all the same.
        values: how the artifact stores the kept weights: fp32, fp16, bf16 or int8 (with one scale a row).
        embeddings: how it stores every other matrix, the embeddings above all; the same choices.
        trim_vocabulary: the artifact keeps the embeddings of those tokens alone that the data uses.
        delta: the artifact refers to the model for tensors that the task did not change, and needs it when loaded.
        seed: of new heads, batches, dropout, gates and ties. The same seed and number of threads give the same model.
        device: a torch device; by default a GPU where there is one.
        callback: is told about phases, steps and evaluations.
        dense_baseline: whether to evaluate the dense model too; False saves its training.
        revision: of a model of the hub.
        cache: folder for tokenised data, teachers' logits and dense baselines, shared by all runs; None keeps nothing.
        checkpoint: folder to resume from and to save to; the result is the same as without interruption. What another
            run left there, as one with other settings or another number of threads, is not used, with a warning.
        checkpoint_seconds: between two checkpoints.

    Raises:
        ValueError: an argument out of its range.
        RunTooShort: a ValueError too; the data and the settings give too few steps for the schedule.
        CompressionError: everything that is wrong with the model or the run; `reason` says what.
        Stopped: `request_stop` was called.
    """
    if not isinstance(density, int | float) or not 0 < density <= 1:
        raise ValueError(
            f"density: {density!r} given; a fraction in (0, 1] is allowed: the part of the weights to keep"
        )
    if not isinstance(seed, int) or not 0 <= seed <= _MAX_SEED:
        raise ValueError(f"seed: {seed!r} given; a whole number from 0 to {_MAX_SEED} is allowed")
    for field, patterns in (("include", include), ("exclude", exclude)):
        if isinstance(patterns, str):
            raise ValueError(f"{field}: {patterns!r} given; a list of patterns is allowed, such as [{patterns!r}]")
    check_packages()
    objective = objective_for(data)
    if teacher == "baseline":
        teacher = Teacher() if objective.outputs and dense_baseline and density < 1 else None
    if teacher is not None and not isinstance(teacher, Teacher):
        raise ValueError(f'teacher: {teacher!r} given; a Teacher, "baseline" or None is allowed')
    if teacher is not None and not objective.outputs:
        raise ValueError(f"teacher: given, but the task {data.task.name} cannot be distilled; leave it out")
    plan = Plan(
        data=data,
        objective=objective,
        source=model if isinstance(model, Source) else find_model(model, revision),
        method=get_method(method),
        density=density,
        teacher=teacher,
        seed=seed,
        include=tuple(include),
        exclude=tuple(exclude),
        device=torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")),
        coding=Coding(_values("values", values), _values("embeddings", embeddings)),
        trim_vocabulary=trim_vocabulary,
        delta=delta,
        allow_density_miss=allow_density_miss,
    )
    with _memory_errors(), stops_alone(), _flushed_denormals():
        phases = Phases(plan, training, callback or Callback(), _folder(cache), _folder(checkpoint), checkpoint_seconds)
        dense = phases.dense_metrics() if dense_baseline else {}
        loaded, pruned = phases.prune()
        accounting, layers = account(loaded.model, pruned, density)
        if not allow_density_miss:
            remedy = "take more steps, store finer values"
            check_density(density, accounting.kept_weights, accounting.prunable_weights, remedy)
        evaluated = phases.evaluate(loaded)
        loaded.model.cpu()
    metrics = {f"dense/{name}": value for name, value in dense.items()}
    metrics |= {f"eval/{name}": value for name, value in evaluated.items()}
    metrics |= {f"delta/{name}": value - dense[name] for name, value in evaluated.items() if dense_baseline}
    info = ResultInfo(
        spec=_spec(phases.plan, phases.method, phases.settings),
        model=phases.model_source,
        dataset=DatasetSource(data.task.name, data.fingerprint, len(data.train), len(data.validation)),
        metrics=metrics,
        primary_metric=data.task.primary_metric,
        accounting=accounting,
        layers=layers,
        versions=versions(),
        seed=seed,
        notes=(*data.columns, *phases.notes.texts),
    )
    return Result(loaded.model, loaded.tokenizer, pruned, info, phases.history(), plan.coding, phases.base)


def _folder(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _values(option: str, given: str) -> Values:
    if given not in tuple(Values):
        raise ValueError(f"{option} {must_be_one_of(Values, given)}")
    return Values(given)


def _spec(plan: Plan, method: Method, settings: Settings) -> Mapping[str, Any]:
    spec: dict[str, Any] = {
        "model": plan.source.name,
        "model_revision": plan.source.revision,
        "task": plan.data.task.name,
        "method": {method.name: asdict(method)},  # type: ignore[call-overload]
        "target_density": plan.density,
        "training": {name: value for name, value in asdict(settings).items() if value is not None},
        "seed": plan.seed,
    }
    if plan.teacher is not None:
        teacher = plan.teacher
        named = teacher.model.name if isinstance(teacher.model, Source) else str(teacher.model or "")
        spec["teacher"] = {
            "model": named,
            "revision": teacher.revision or "",
            "temperature": teacher.temperature,
            "alpha": teacher.alpha,
            "hidden_states": teacher.hidden_states,
        }
    options = {
        "include": list(plan.include),
        "exclude": list(plan.exclude),
        "allow_density_miss": plan.allow_density_miss,
        "trim_vocabulary": plan.trim_vocabulary,
        "delta": plan.delta,
    }
    coding = {"values": plan.coding.values.value, "embeddings": plan.coding.embeddings.value}
    return spec | coding | {name: value for name, value in options.items() if value}


@contextmanager
def _flushed_denormals() -> Iterator[None]:
    """The momentum of a dead weight halves every seven steps: after a thousand it is denormal, and stays so, and a CPU
    is a hundred times slower with such numbers. torch's threads take the setting over from the one that starts them, by
    the first large tensor, and keep it."""
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

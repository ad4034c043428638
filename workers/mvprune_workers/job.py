"""One job inside the trainer: from a CompressionSpec to an artifact in a folder."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from google.protobuf.json_format import MessageToDict

from mvprune.artifact import WEIGHTS_FILE, ArtifactError, read_manifest
from mvprune.artifact.header import open_header
from mvprune.common.excerpts import hidden, with_discreet_errors
from mvprune.common.units import percent
from mvprune.data.loading import Columns, find_task_files
from mvprune.data.phases import Phase
from mvprune.data.tasks import Task, UnknownTask, get_task
from mvprune.export import export
from mvprune.sources.references import (
    HubModel,
    InvalidReference,
    Roots,
    check_inside,
    check_revision,
    resolve_model,
    resolve_path,
)
from mvprune.sources.schemes import shown
from mvprune.spec.annotations import manifest_key
from mvprune.v1 import job_pb2
from mvprune_core import (
    METHODS,
    Callback,
    CompressionError,
    Method,
    Progress,
    Reason,
    RunTooShort,
    SharedBaseline,
    Teacher,
    Training,
    find_model,
    load_task,
)
from mvprune_core import compress as compress_model
from mvprune_core.given_masks import find_mask
from mvprune_core.group import ALONE, Group
from mvprune_core.models import Source
from mvprune_workers.disk import check_disk
from mvprune_workers.events import CheckpointEvent, MetricEvent, ProgressEvent, TrainerEvent
from mvprune_workers.folders import Folders
from mvprune_workers.inputs import fetched_path
from mvprune_workers.latency import add_latency
from mvprune_workers.position import Position
from mvprune_workers.timetable import Timetable

log = logging.getLogger(__name__)

_PROGRESS_SECONDS = 0.25
_METRIC_POINTS = 500  # in a phase, at most
_LOG_LINES = 40  # in a phase, at most
_DTYPES = ("weight_dtype", "embedding_dtype")
_SPEC = job_pb2.CompressionSpec.DESCRIPTOR.fields_by_name
_ADDED = ("mask_from",)  # of the core's spec: what was found out, such as a digest
_TEACHER = ("temperature", "alpha", "hidden_states")


def run_job(
    spec: job_pb2.CompressionSpec,
    folders: Folders,
    device: str,
    emit: Callable[[TrainerEvent], None],
    *,
    accumulation_factor: int,
    checkpoint_seconds: float,
    measure_latency: bool = False,
    group: Group = ALONE,
    first_here: int = 0,
) -> None:
    """Compresses what `spec` says and writes the artifact, resuming from what lies in the checkpoint folder.

    The ranks of a group do the work together; rank 0 emits and writes. `first_here` is the first of those that share
    their folders with this one.

    Every batch is cut into `accumulation_factor` times as many passes as the spec says, up to one an example. With
    `measure_latency` the metrics have latency_ratio and latency_ms.
    References are honoured under the roots of the environment alone (see mvprune.sources.references.Roots).

    Raises:
        CompressionError: what is wrong with the model, the data, the options or this machine.
        Stopped: `request_stop` was called.
    """
    roots = Roots.from_environment()
    source = _find_model(spec.model, spec.model_revision, roots, folders)
    check_disk(folders.output, source.folder, spec.target_density or 1.0)
    teacher, baseline = _teacher(spec, folders, roots, group, first_here), _baseline(spec, folders)
    mask = _mask(spec.locked_mask.mask_from, folders, roots)
    with _invalid(Reason.INVALID_DATASET, InvalidReference, UnknownTask):
        load = partial(_load_data, spec, roots, folders)
        data = with_discreet_errors(load, CompressionError, when=roots.discreet)
    with _invalid(Reason.DENSITY_NOT_REACHED, ValueError):
        method, training = _method(spec), _training(spec.training, data.task, accumulation_factor)
    log.info("%s examples to train on, %s to evaluate on", f"{len(data.train):,}", f"{len(data.validation):,}")
    for columns in data.columns:
        log.info("%s", columns)
    with _invalid(Reason.DENSITY_NOT_REACHED, RunTooShort):
        result = compress_model(
            source,
            data,
            method=method,
            density=spec.target_density or None,
            mask_from=mask,
            pattern=spec.pattern or None,
            structure=_given(spec).get("structure"),
            structure_density=_given(spec).get("structure_density"),
            structure_block_size=_given(spec).get("structure_block_size"),
            structure_fill=spec.structure_fill,
            training=training,
            teacher=teacher,
            include=tuple(spec.include),
            exclude=tuple(spec.exclude),
            allow_density_miss=spec.allow_density_miss,
            keep_fine_tuned=spec.keep_fine_tuned,
            **{option: given for option, given in _given(spec).items() if option in _DTYPES},
            trim_vocabulary=spec.trim_vocabulary,
            trim_positions=spec.trim_positions,
            target_bytes=_given(spec).get("target_bytes"),
            delta=spec.delta,
            seed=spec.seed,
            device=device,
            callback=None if group.rank else Reports(emit, Position(folders.position)),
            dense_baseline=baseline,
            cache=folders.cache,
            checkpoint=folders.checkpoint,
            checkpoint_seconds=checkpoint_seconds,
            group=group,
        )
    if group.rank:
        return
    result.info = replace(result.info, model=replace(result.info.model, name=spec.model))
    if measure_latency:
        add_latency(result, source.folder)
    manifest = result.save(folders.output, spec=complete_spec(spec, result.info.spec))
    counts = manifest.accounting
    log.info(
        "kept %s of %s weights (density %s), %s bytes in all files, %s dense",
        *(f"{counts.kept_weights:,}", f"{counts.prunable_weights:,}", percent(counts.density)),
        *(f"{manifest.total_bytes:,}", f"{counts.dense_bytes:,}"),
    )


def check_device(device: str, ranks: int) -> None:
    """Raises CompressionError MISSING_DEPENDENCY unless torch can use a GPU for each rank, where there should be some.

    To be called before ranks connect.
    """
    if device != "cuda":
        return
    if not torch.cuda.is_available():
        raise CompressionError(
            Reason.MISSING_DEPENDENCY,
            f"the job was given a GPU, but torch {torch.__version__} of this worker cannot use it; "
            "install a build of torch with CUDA, or submit with --gpus 0",
        )
    if (found := torch.cuda.device_count()) < ranks:
        raise CompressionError(
            Reason.MISSING_DEPENDENCY,
            f"the job was given {ranks} GPUs, but torch of this worker sees {found}; submit with --gpus {found}",
        )


def complete_spec(spec: job_pb2.CompressionSpec, used: Mapping[str, Any]) -> dict[str, Any]:
    """`spec` as JSON with the keys of manifests, and with every option that was used.

    Args:
        used: the spec of the core's result, with the keys of manifests.
    """
    complete = job_pb2.CompressionSpec()
    complete.CopyFrom(spec)
    training = dict(used["training"])
    if spec.training.HasField("max_steps"):  # one of the two decides
        training.pop("epochs", None)
    complete.training.ClearField("preset")  # the epochs say it
    _fill(complete.training, training)
    _fill(complete, {key: used[key] for key in (manifest_key(_SPEC[name]) for name in _DTYPES)})
    complete.trim_positions = used.get("trim_positions", False)  # target_bytes may have chosen it
    if spec.structure == job_pb2.CompressionSpec.BLOCKS_AND_UNITS:
        complete.structure_block_size = used["structure_block_size"]
    if not spec.target_density:  # that of the mask
        complete.target_density = used["target_density"]
    name = str(spec.WhichOneof("method"))
    _fill(getattr(complete, name), used["method"][name])
    if "teacher" in used:
        _fill(complete.teacher, {option: used["teacher"][option] for option in _TEACHER})
    else:
        complete.teacher.none = True
    recorded = _with_manifest_keys(_SPEC, MessageToDict(complete, preserving_proto_field_name=True))
    return recorded | {name: used[name] for name in _ADDED if name in used}


class Reports(Callback):
    """Turns what the core tells into events and log lines, few enough for long runs, and into a position."""

    def __init__(
        self, emit: Callable[[TrainerEvent], None], position: Position, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._emit = emit
        self._position = position
        self._clock = clock
        self._next_progress = -math.inf
        self._density = 1.0
        self._timetable = Timetable(clock)

    def on_plan(self, phases: Sequence[Phase]) -> None:
        """See Callback."""
        self._timetable.plan(phases)

    def on_phase(self, name: str) -> None:
        """See Callback."""
        log.info("phase: %s", name)
        self._next_progress = -math.inf
        self._timetable.begin(name)
        self._position.set(name, 0)
        self._emit(ProgressEvent(name, density=self._density, eta_seconds=self._timetable.left()))

    def on_step(self, progress: Progress) -> None:
        """See Callback."""
        step, total = progress.step, progress.total_steps
        self._density = progress.density
        self._timetable.step(step)
        self._show(progress.phase, step, total, _finite(progress.loss))
        if _is_due(step, total, _METRIC_POINTS):
            self._record(f"{progress.phase}/loss", step, progress.loss)
            self._record(f"{progress.phase}/density", step, progress.density)
        if _is_due(step, total, _LOG_LINES):
            density = percent(self._density)
            log.info("%s: step %d of %d, loss %.4f, density %s", progress.phase, step, total, progress.loss, density)

    def on_examples(self, phase: str, done: int, total: int) -> None:
        """See Callback."""
        self._timetable.read(phase, done)
        self._show(phase, done, total, None)

    def on_resume(self, phase: str, step: int) -> None:
        """See Callback."""
        log.info("%s: resuming after step %d", phase, step)
        self._timetable.resume(step)

    def on_checkpoint(self, steps: int) -> None:
        """See Callback."""
        self._emit(CheckpointEvent(steps))

    def on_evaluate(self, phase: str, step: int, metrics: Mapping[str, float]) -> None:
        """See Callback."""
        log.info("%s model: %s", phase, ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
        self._timetable.evaluated(phase)
        for name, value in metrics.items():
            self._record(f"{phase}/{name}", step, value)

    def on_note(self, text: str) -> None:
        """See Callback."""
        log.warning("note: %s", text)

    def _show(self, phase: str, step: int, total: int, loss: float | None) -> None:
        self._position.set(phase, step)
        now = self._clock()
        if now >= self._next_progress or step == total:
            self._next_progress = now + _PROGRESS_SECONDS
            eta = self._timetable.left()
            self._emit(ProgressEvent(phase, step, total, self._density, loss, eta))

    def _record(self, metric: str, step: int, value: float) -> None:
        if math.isfinite(value):
            self._emit(MetricEvent(metric, step, value, time.time()))


def _load_data(spec: job_pb2.CompressionSpec, roots: Roots, folders: Folders) -> Any:
    task, dataset = get_task(spec.task), spec.dataset
    if roots.data is not None and not (dataset.train or dataset.hub_id):
        found = find_task_files(task, roots.data)
        for path in found.paths if found else ():
            check_inside(path, roots)
    return load_task(
        task.name,
        train=_find_file(dataset.train, roots, folders),
        validation=_find_file(dataset.validation, roots, folders),
        hub_id=dataset.hub_id or None,
        hub_config=dataset.hub_config or None,
        columns=Columns(
            text=dataset.text_column or None,
            text_pair=dataset.text_pair_column or None,
            label=dataset.label_column or None,
        ),
        data_root=roots.data,
    )


def _find_file(reference: str, roots: Roots, folders: Folders) -> Path | None:
    if not reference:
        return None
    return fetched_path(reference, roots, folders) or resolve_path(reference, roots)


def _find_model(
    reference: str,
    revision: str,
    roots: Roots,
    folders: Folders,
    find: Callable[[str | Path, str | None], Source] = find_model,
) -> Source:
    with _invalid(Reason.INVALID_MODEL, InvalidReference):
        fetched = fetched_path(reference, roots, folders)
        if fetched is not None:
            return replace(find(fetched, None), name=shown(reference))
        found = resolve_model(reference, roots)
        if revision:
            check_revision(revision)
    with hidden(when=roots.discreet):
        return find(found.id if isinstance(found, HubModel) else found, revision or None)


def _teacher(
    spec: job_pb2.CompressionSpec, folders: Folders, roots: Roots, group: Group, first_here: int
) -> Teacher | Literal["baseline"] | None:
    if not spec.HasField("teacher"):
        return "baseline"
    teacher = spec.teacher
    if teacher.none:
        return None
    source = None  # the dense baseline
    if teacher.job:
        with _invalid(Reason.INVALID_MODEL, ArtifactError):
            folder = group.gather(_unpack(folders, roots) if group.rank == first_here else None)[first_here]
        assert folder is not None  # noqa: S101 - the first rank has unpacked it
        source = replace(find_model(folder, None), name=teacher.job)
    elif teacher.model:
        source = _find_model(teacher.model, teacher.revision, roots, folders)
    given = _given(teacher)
    return Teacher(source, **{option: given[option] for option in _TEACHER if option in given})


def _mask(mask: job_pb2.Mask, folders: Folders, roots: Roots) -> Source | None:
    if mask.job:
        with _invalid(Reason.INVALID_MODEL, ArtifactError):
            read_manifest(folders.mask)
        return Source(mask.job, "", folders.mask)
    return _find_model(mask.model, mask.revision, roots, folders, find_mask) if mask.model else None


def _baseline(spec: job_pb2.CompressionSpec, folders: Folders) -> bool | SharedBaseline:
    """The argument `dense_baseline` of `compress`."""
    if spec.target_density == 1 or spec.baseline.none:  # at density 1 the result is the dense model
        return False
    job, is_teacher = spec.baseline.job or spec.teacher.job, bool(spec.teacher.job)
    if not job:
        return True
    with _invalid(Reason.INVALID_MODEL, ArtifactError):
        manifest = read_manifest(folders.teacher)
    return SharedBaseline(job, manifest, is_teacher=is_teacher, required=bool(spec.baseline.job))


def _unpack(folders: Folders, roots: Roots) -> Path:
    """The teacher's artifact as a dense Hugging Face folder; a delta's base model is found as a job's model is.

    Raises:
        ArtifactError, CompressionError: it cannot be had.
    """
    artifact = folders.teacher
    model, is_delta = read_manifest(artifact).model, bool(open_header(artifact / WEIGHTS_FILE).base)
    base = _find_model(model.name, model.revision, roots, folders).folder if is_delta else None
    return export(artifact, artifact.with_name(f"{artifact.name}-dense"), to="dense", base=base).folder


def _method(spec: job_pb2.CompressionSpec) -> Method:
    name = str(spec.WhichOneof("method"))
    options = _given(getattr(spec, name))
    options.pop("mask_from", None)  # an argument of `compress`
    method: Any = METHODS[name]
    if "schedule" in options:  # what is not given is the method's own
        options["schedule"] = replace(method().schedule, **_given(options["schedule"]))
    chosen: Method = method(**options)
    return chosen


def _training(given: job_pb2.Training, task: Task, accumulation_factor: int) -> Training:
    training = Training(**_given(given))
    passes = min(training.accumulation_steps * accumulation_factor, training.settings(task).batch_size)
    return replace(training, accumulation_steps=max(training.accumulation_steps, passes))


def _given(message: Any) -> dict[str, Any]:
    """The fields that are set, words of enums as the core has them."""
    return {
        field.name: field.enum_type.values_by_number[value].name.lower() if field.enum_type else value
        for field, value in message.ListFields()
    }


def _fill(message: Any, options: Mapping[str, Any]) -> None:
    """Sets the fields with these keys of manifests; None leaves them unset."""
    fields = {manifest_key(field): field for field in message.DESCRIPTOR.fields}
    for key, value in options.items():
        field = fields[key]
        if isinstance(value, Mapping):
            _fill(getattr(message, field.name), value)
        elif value is not None:
            words = field.enum_type and field.enum_type.values_by_name
            setattr(message, field.name, words[value.upper()].number if words else value)


def _with_manifest_keys(fields: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A message as JSON; `fields`: those of the message by name."""
    found = {}
    for name, value in values.items():
        field, is_message = fields[name], isinstance(value, Mapping)
        inner = _with_manifest_keys(field.message_type.fields_by_name, value) if is_message else value
        found[manifest_key(field)] = inner
    return found


def _is_due(step: int, total: int, times: int) -> bool:
    """Whether to report at `step` so as to report about `times` times in `total` steps, the last step included."""
    return step == total or step % math.ceil(total / times) == 0


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@contextmanager
def _invalid(reason: Reason, *errors: type[Exception]) -> Iterator[None]:
    try:
        yield
    except errors as error:
        raise CompressionError(reason, str(error)) from error

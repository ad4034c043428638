"""One job inside the trainer: from a CompressionSpec to an artifact in a folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from google.protobuf.json_format import MessageToDict

from mvprune.artifact import WEIGHTS_FILE, ArtifactError, read_manifest
from mvprune.artifact.header import open_header
from mvprune.artifact.history import read_history
from mvprune.common.excerpts import hidden, with_discreet_errors
from mvprune.common.units import percent
from mvprune.data.loading import Columns, find_task_files
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
from mvprune.sources.schemes import model_name, shown
from mvprune.spec.annotations import manifest_key
from mvprune.spec.parameters import PARAMETERS
from mvprune.spec.run_options import RunOptions
from mvprune.v1 import job_pb2
from mvprune_core import (
    METHODS,
    CompressionError,
    Reason,
    RunTooShort,
    SharedBaseline,
    Spec,
    Teacher,
    Training,
    find_model,
    load_task,
)
from mvprune_core import compress as compress_model
from mvprune_core.base.group import ALONE, Group
from mvprune_core.models.loading import Source
from mvprune_core.runs.given_masks import find_mask
from mvprune_workers.disk import check_disk
from mvprune_workers.events import TrainerEvent
from mvprune_workers.folders import Folders
from mvprune_workers.inputs import fetched_path
from mvprune_workers.latency import add_latency
from mvprune_workers.position import Position
from mvprune_workers.reports import Reports

log = logging.getLogger(__name__)

_SPEC = job_pb2.CompressionSpec.DESCRIPTOR.fields_by_name
_ADDED = ("mask_from",)  # of the core's spec: what was found out, such as a digest
_TEACHER = ("temperature", "alpha", "hidden_states", "writes_targets")


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
    `measure_latency` the metrics have what `add_latency` adds.
    References are honoured under the roots of the environment alone (see mvprune.sources.references.Roots).

    Raises:
        CompressionError: what is wrong with the model, the data, the options or this machine.
        Stopped: `request_stop` was called.
    """
    roots = Roots.from_environment()
    source = _find_model(spec.model, spec.model_revision, roots, folders)
    check_disk(folders.output, source.folder, spec.target_density or 1.0)
    teacher, baseline = _teacher(spec.teacher, folders, roots, group, first_here), _baseline(spec, folders)
    mask = _mask(spec.locked_mask.mask_from, folders, roots)
    with _invalid(Reason.INVALID_DATASET, InvalidReference, UnknownTask):
        load = partial(_load_data, spec, roots, folders)
        data = with_discreet_errors(load, CompressionError, when=roots.discreet)
    with _invalid(Reason.DENSITY_NOT_REACHED, ValueError):
        asked = spec_of(spec, data.task, accumulation_factor, teacher)
    notes: tuple[str, ...] = ()
    if accumulation_factor > 1:
        passes = asked.training.accumulation_steps
        notes = (f"memory ran out before: every batch is cut into {passes} passes, which does not change the result",)
        log.warning("note: %s", *notes)
    log.info("%s examples to train on, %s to evaluate on", f"{len(data.train):,}", f"{len(data.validation):,}")
    for columns in data.columns:
        log.info("%s", columns)
    with _invalid(Reason.DENSITY_NOT_REACHED, RunTooShort):
        result = compress_model(
            source,
            data,
            spec=asked,
            mask_from=mask,
            start_from=str(folders.beginning) if spec.start_from else None,
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
    model, all_notes = replace(result.info.model, name=model_name(spec.model)), (*result.info.notes, *notes)
    result.info = replace(result.info, model=model, notes=all_notes)
    if measure_latency:
        add_latency(result, source.folder)
    found = {name: result.info.spec[name] for name in _ADDED if name in result.info.spec}
    manifest = result.save(folders.output, spec=complete_spec(spec, result.used) | found)
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


def spec_of(
    message: job_pb2.CompressionSpec, task: Task, accumulation_factor: int = 1, teacher: str | Source | None = None
) -> Spec:
    """What a job asks of the core, whatever masks it names.

    Args:
        message: what the job asks.
        task: of the job.
        accumulation_factor: see `run_job`.
        teacher: the model that is the teacher, if it is not the dense baseline.

    Raises:
        ValueError: an option out of range.
    """
    given = _given(message)
    name = str(message.WhichOneof("method"))
    options = {option: value for option, value in given.get(name, {}).items() if option != "mask_from"}
    if "schedule" in options:  # what is not given is the method's own
        options["schedule"] = replace(METHODS[name]().schedule, **options["schedule"])
    training = Training(**given.get("training", {}))
    passes = min(training.accumulation_steps * accumulation_factor, training.settings(task).batch_size)
    weights = {option: given["teacher"][option] for option in _TEACHER if option in given.get("teacher", {})}
    of_run = {one.name: PARAMETERS[one.name].fields[0].removeprefix("spec.") for one in fields(RunOptions)}
    return Spec(
        method=METHODS[name](**options),
        training=replace(training, accumulation_steps=max(training.accumulation_steps, passes)),
        teacher="baseline" if "teacher" not in given else None if message.teacher.none else Teacher(teacher, **weights),
        **{option: given[field] for option, field in of_run.items() if field in given},
    )


def complete_spec(spec: job_pb2.CompressionSpec, used: Spec) -> dict[str, Any]:
    """`spec` as JSON with the keys of manifests, and with every option that was used."""
    complete = job_pb2.CompressionSpec()
    complete.CopyFrom(spec)
    _fill(complete, used)
    complete.training.ClearField("preset")  # the epochs say it
    if spec.training.HasField("max_steps"):  # one of the two decides
        complete.training.ClearField("epochs")
    complete.start_from = spec.start_from
    if not spec.target_density:  # that of the mask
        complete.target_density = used.density or 0.0
    _fill(getattr(complete, str(spec.WhichOneof("method"))), used.chosen_method)
    if used.distilled_from is None:
        complete.teacher.none = True
    return _with_manifest_keys(_SPEC, MessageToDict(complete, preserving_proto_field_name=True))


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
        test=_find_file(dataset.test, roots, folders),
        hold_out=dataset.hold_out,
        hub_id=dataset.hub_id or None,
        hub_config=dataset.hub_config or None,
        columns=Columns.named_in(dataset),
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
        if isinstance(found, HubModel):
            return find(found.id, found.revision or revision or None)
        return find(found, revision or None)


def _teacher(teacher: job_pb2.Teacher, folders: Folders, roots: Roots, group: Group, first_here: int) -> Source | None:
    """The model that is the teacher; None: there is none, or it is the dense baseline."""
    if not teacher.job:
        return _find_model(teacher.model, teacher.revision, roots, folders) if teacher.model else None
    with _invalid(Reason.INVALID_MODEL, ArtifactError):
        folder = group.gather(_unpack(folders, roots) if group.rank == first_here else None)[first_here]
    assert folder is not None  # noqa: S101 - the first rank has unpacked it
    return replace(find_model(folder, None), name=teacher.job)


def _mask(mask: job_pb2.Mask, folders: Folders, roots: Roots) -> Source | None:
    if mask.job:
        with _invalid(Reason.INVALID_MODEL, ArtifactError):
            read_manifest(folders.beginning)
        return Source(mask.job, "", folders.beginning)
    return _find_model(mask.model, mask.revision, roots, folders, find_mask) if mask.model else None


def _baseline(spec: job_pb2.CompressionSpec, folders: Folders) -> bool | SharedBaseline:
    """The argument `dense_baseline` of `compress`."""
    is_dense = spec.target_density == 1 and not spec.baseline.job  # then the result is the dense model
    if is_dense or spec.baseline.none:
        return False
    job, is_teacher = spec.baseline.job or spec.teacher.job, bool(spec.teacher.job)
    if not job:
        return True
    with _invalid(Reason.INVALID_MODEL, ArtifactError):
        manifest, history = read_manifest(folders.teacher), read_history(folders.teacher)
    return SharedBaseline(
        job,
        manifest,
        is_teacher=is_teacher,
        required=bool(spec.baseline.job),
        resampled=history.resampled,
    )


def _unpack(folders: Folders, roots: Roots) -> Path:
    """The teacher's artifact as a dense Hugging Face folder; a delta's base model is found as a job's model is.

    Raises:
        ArtifactError, CompressionError: it cannot be had.
    """
    artifact = folders.teacher
    model, is_delta = read_manifest(artifact).model, bool(open_header(artifact / WEIGHTS_FILE).base)
    base = _find_model(model.name, model.revision, roots, folders).folder if is_delta else None
    return export(artifact, artifact.with_name(f"{artifact.name}-dense"), to="dense", base=base).folder


def _given(message: Any) -> dict[str, Any]:
    """The fields that are set: words of enums as the core has them, messages as mappings."""
    found = {}
    for field, value in message.ListFields():
        if isinstance(field.default_value, list):
            value = tuple(value)
        elif field.enum_type is not None:
            value = field.enum_type.values_by_number[value].name.lower()
        found[field.name] = _given(value) if field.message_type is not None else value
    return found


def _fill(message: Any, options: Any) -> None:
    """Sets the fields of a message that have the names of an object's attributes.

    What is None stays as it is. So do lists, and the source of a teacher or a mask.
    """
    for field in message.DESCRIPTOR.fields:
        value = getattr(options, field.name, None)
        is_source = field.containing_oneof is not None and field.containing_oneof.name == "source"
        if value is None or is_source or isinstance(field.default_value, list):
            continue
        if field.message_type is not None:
            _fill(getattr(message, field.name), value)
        else:
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


@contextmanager
def _invalid(reason: Reason, *errors: type[Exception]) -> Iterator[None]:
    try:
        yield
    except errors as error:
        raise CompressionError(reason, str(error)) from error

"""When the files that a job reads were modified: an equal job that ran after that has the same result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mvprune.data.loading import find_task_files
from mvprune.data.tasks import get_task
from mvprune.sources.buckets import bucket_path
from mvprune.sources.references import HubModel, InvalidReference, Roots, resolve_model, resolve_path
from mvprune.sources.uploads import is_upload
from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND

_NEVER = 1 << 62  # no job was created after it


class Inputs(NamedTuple):
    """The inputs of a job.

    Attributes:
        modified_us: when the newest file among them was modified; later than every job where a file cannot be read.
        is_complete: whether all inputs are files of this machine, or uploads, whose content never changes.
    """

    modified_us: int
    is_complete: bool


def inputs_of(spec: job_pb2.CompressionSpec, roots: Roots) -> Inputs:
    """The models, and the data of a job that was checked."""
    newest, is_complete = 0.0, True
    try:
        for path in (*_of_models(spec, roots), *_of_data(spec, roots)):
            if path is None:
                is_complete = False
            else:
                newest = max(newest, path.stat().st_mtime)
    except (InvalidReference, OSError):
        return Inputs(_NEVER, is_complete)
    return Inputs(round(newest * SECOND), is_complete)


def _of_models(spec: job_pb2.CompressionSpec, roots: Roots) -> Iterator[Path | None]:
    """The files of the models; None for a model that is not on this machine."""
    for reference in filter(None, (spec.model, spec.teacher.model, spec.locked_mask.mask_from.model)):
        if is_upload(reference):
            continue
        found = None if bucket_path(reference, roots) else resolve_model(reference, roots)
        if found is None or isinstance(found, HubModel):
            yield None
        else:
            yield from found.iterdir()


def _of_data(spec: job_pb2.CompressionSpec, roots: Roots) -> Iterator[Path | None]:
    """The data files; None for data that are not on this machine."""
    dataset = spec.dataset
    for reference in filter(None, (dataset.train, dataset.validation, dataset.test)):
        if not is_upload(reference):
            yield None if bucket_path(reference, roots) else resolve_path(reference, roots)
    if dataset.train:
        return
    files = None
    if roots.data is not None and not dataset.hub_id:
        files = find_task_files(get_task(spec.task), roots.data)
    if files is None:
        yield None
    else:
        yield from files.paths

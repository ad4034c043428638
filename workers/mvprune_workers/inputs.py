"""Inputs that the supervisor, which has the credentials, fetches for the trainer: from buckets, and what clients sent.

They are stored in the cache that the jobs of a machine share. `fetched_path` is where the trainer reads them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mvprune.artifact import WEIGHTS_FILE, read_manifest
from mvprune.artifact.header import open_header
from mvprune.sources.buckets import bucket_path
from mvprune.sources.references import InvalidReference, Roots
from mvprune.sources.schemes import BUCKET, UPLOAD
from mvprune.sources.uploads import Kind, is_upload, parse
from mvprune.v1 import job_pb2, worker_pb2
from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.layout import ArtifactCorrupt, fetch
from mvprune_workers.buckets import fetch_file, fetch_model
from mvprune_workers.folders import Folders
from mvprune_workers.uploads import ContentLost, fetch_upload


class BadInput(Exception):
    """An input cannot be used.

    Attributes:
        reason: says whether it is the model or the data.
        lost: SHA-256 of chunks that the store has lost.
    """

    def __init__(self, reason: job_pb2.Failure.Reason, message: str, lost: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.lost = tuple(lost)


def fetched_path(reference: str, roots: Roots, folders: Folders) -> Path | None:
    """Where the trainer reads an input that the supervisor fetched; None for one that the trainer finds itself.

    Raises:
        InvalidReference: malformed, or in a bucket that is not allowed.
    """
    if is_upload(reference):
        parse(reference)
    elif not bucket_path(reference, roots):
        return None
    return folders.inputs / hashlib.sha256(reference.encode()).hexdigest() / PurePosixPath(reference).name


@dataclass(frozen=True)
class Input:
    """An input of a job that is fetched: a model's folder, or a data file."""

    reference: str
    kind: Kind

    def fetch(
        self, uploads: Iterable[worker_pb2.UploadedInput], store: BlobStore, roots: Roots, folders: Folders
    ) -> None:
        """Fetches it to its `fetched_path`; can be repeated.

        Args:
            uploads: of the claim.
            store: the artifact store, with the content of uploads.

        Raises:
            BadInput: it is not there, has other content than was sent, or may not be read.
            StoreUnavailable, OSError: it could not be read or written now.
        """
        try:
            link = fetched_path(self.reference, roots, folders)
            if link is not None:
                _link(link, self._fetched(uploads, store, roots, folders.cache))
        except InvalidReference as error:
            reason = job_pb2.Failure.INVALID_MODEL if self.kind is Kind.MODEL else job_pb2.Failure.INVALID_DATASET
            raise BadInput(reason, str(error), error.chunks if isinstance(error, ContentLost) else ()) from error

    def _fetched(
        self, uploads: Iterable[worker_pb2.UploadedInput], store: BlobStore, roots: Roots, cache: Path
    ) -> Path:
        path = bucket_path(self.reference, roots)
        if path is not None:
            return fetch_model(path, cache) if self.kind is Kind.MODEL else fetch_file(path, cache)
        upload = next((one for one in uploads if one.reference == self.reference), None)
        if upload is None:
            raise InvalidReference(f"{self.reference} is not on the server any more; send it again, and submit again")
        return fetch_upload(upload, self.kind, store, cache)


def fetch_all(
    inputs: Iterable[Input],
    uploads: Sequence[worker_pb2.UploadedInput],
    store: BlobStore,
    roots: Roots,
    folders: Folders,
    say: Callable[[str], None],
) -> None:
    """Fetches inputs; see `Input.fetch`. Raises the first BadInput, with what the store has lost of all inputs."""
    errors: list[BadInput] = []
    for one in inputs:
        say(f"fetching {one.reference}")
        try:
            one.fetch(uploads, store, roots, folders)
        except BadInput as error:
            errors.append(error)
    if errors:
        first = errors[0]
        raise BadInput(first.reason, str(first), [sha256 for error in errors for sha256 in error.lost]) from first


def inputs_of(spec: job_pb2.CompressionSpec) -> list[Input]:
    """The inputs of `spec` that are fetched."""
    models = _fetched((spec.model, spec.teacher.model, spec.locked_mask.mask_from.model), Kind.MODEL)
    return models + _fetched((spec.dataset.train, spec.dataset.validation, spec.dataset.test), Kind.DATA)


def fetch_beginning(option: str, job: str, artifact: str, store: BlobStore, folder: Path) -> None:
    """Fetches the artifact of the job that an option names: the mask, or the model to go on from; can be repeated.

    Args:
        artifact: projects/{project}/artifacts/{sha256}.

    Raises:
        BadInput: it is not there any more, or not whole.
        StoreUnavailable, OSError: it could not be read or written now.
    """
    try:
        fetch(store, artifact.rpartition("/")[2], folder)
    except ArtifactCorrupt as error:
        rule = f"{option} must be a job whose artifact is in the store"
        remedy = "submit again with another job" + (", or with that model's folder" if option == "mask_from" else "")
        problem = f"{rule}, got {job}, whose artifact was deleted or damaged ({error}); {remedy}"
        raise BadInput(job_pb2.Failure.INVALID_MODEL, problem) from error


def base_of(artifact: Path) -> list[Input]:
    """The base model of an artifact, if that is a delta and the model is fetched. Raises ArtifactError."""
    is_delta = bool(open_header(artifact / WEIGHTS_FILE).base)
    return _fetched([read_manifest(artifact).model.name], Kind.MODEL) if is_delta else []


def _fetched(references: Iterable[str], kind: Kind) -> list[Input]:
    return [Input(reference, kind) for reference in references if reference.startswith((BUCKET, UPLOAD))]


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(target)

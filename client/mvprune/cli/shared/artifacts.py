"""Artifacts as a command line names them: by a folder on this machine, or by the job that made them."""

from __future__ import annotations

import argparse
import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mvprune.cli.shared.commands import CONNECTION
from mvprune.cli.shared.live import live
from mvprune.cli.shared.local import refusals
from mvprune.cli.shared.options import Parser, command_parser, connect, plain_parser
from mvprune.cli.shared.types import one_of, path
from mvprune.client.display import COLUMNS
from mvprune.common.exceptions import IntegrityError, NotFound, ServerUnreachable
from mvprune.common.files import expanded

if TYPE_CHECKING:
    from mvprune.artifact import Manifest
    from mvprune.client.client import Client
    from mvprune.client.models import Artifact, ArtifactFile
    from mvprune.client.source import Source

_NAME = re.compile(r"(?:projects/[^/]+/(?:jobs|artifacts)/)?[A-Za-z0-9][A-Za-z0-9-]*")
ARTIFACT_OR_JOB = "an artifact's folder, or a job's id or name"
_FETCHED = "A job's artifact is downloaded to a temporary folder. To use it several times, run `mvpctl download`."
_MAX_HEADER = 20 << 20  # more than a reader takes


class Fetched(NamedTuple):
    """An artifact on this machine.

    Attributes:
        job: the name of the job that it is from; "" where its folder was given.
        labels: the job's.
        gates: which of the job's gates passed, in words; "" if it has none.
    """

    folder: Path
    job: str = ""
    labels: Mapping[str, str] = {}
    gates: str = ""


def artifact_parser(name: str, example: str, details: str = "", *, connects: bool = True) -> Parser:
    """A parser with an artifact's folder or job, its base, and the form of the answer.

    Args:
        connects: whether there are options for the server that is asked for jobs; else only the environment and the
            settings say which one it is.
    """
    details = "\n\n".join(filter(None, (details, _FETCHED)))
    if connects:
        parser = command_parser(name, example, details, job=False)
    else:
        parser = plain_parser(name, example, details)
        parser.set_defaults(**{**dict.fromkeys(CONNECTION), "insecure": False})
    parser.add_argument("artifact", type=artifact_or_job, metavar="ARTIFACT|JOB", help=ARTIFACT_OR_JOB)
    parser.add_argument("--base", type=path, metavar="DIR", help="the base model's folder, for a delta artifact")
    return parser


def add_activations(parser: Parser) -> None:
    """The option for what the sparse runtime computes with."""
    parser.add_argument(
        "--activations",
        type=one_of("fp32", "int8"),
        metavar="A",
        help="of the sparse runtime: fp32, or int8 in the layers that it makes faster on this machine; default: the "
        "artifact's",
    )


def add_hypotheses(parser: Parser) -> None:
    """--candidate-labels and --hypothesis-template."""
    group = parser.add_argument_group("zero-shot classification, by a model of natural language inference")
    group.add_argument(
        "--candidate-labels",
        type=lambda text: tuple(label.strip() for label in text.split(",")),
        metavar="A,B,...",
        help="labels to choose from, in place of the model's classes",
    )
    group.add_argument(
        "--hypothesis-template", metavar="TEXT", help="with {} in the place of a label; default: 'This example is {}.'"
    )


def add_runtime(parser: Parser, default: str) -> None:
    """The options for the runtime."""
    names = ("dense", "sparse")
    shown = " or ".join(f"{name} (default)" if name == default else name for name in names)
    parser.add_argument("--runtime", type=one_of(*names), default=default, metavar="R", help=shown)
    add_activations(parser)


@contextlib.contextmanager
def fetched(args: argparse.Namespace, *packages: str) -> Iterator[Fetched]:
    """The artifact that was named: its folder, or that of the job, downloaded for the time being.

    A command whose `packages` take seconds to import does that inside: what was mistyped is said at once, and nothing
    is downloaded without them.

    Raises:
        ModuleNotFoundError: a package is missing.
        ArtifactError: the folder is none, or no artifact's.
    """
    for package in packages:
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    if is_folder(args.artifact):
        from mvprune.artifact import read_manifest

        read_manifest(folder := expanded(args.artifact))
        yield Fetched(folder)
        return
    with tempfile.TemporaryDirectory(prefix="mvpctl-") as scratch:
        with connect(args) as client:
            with as_job(args.artifact):
                job = client.get(args.artifact)
            with live(args.form.progress) as progress:
                folder = client.download(job, Path(scratch) / "artifact", progress.bytes)
        yield Fetched(folder, job.name, job.labels, COLUMNS["gates"].cell(job))


def is_folder(given: str) -> bool:
    """Whether a folder is meant, not a job: it is there, or nothing of a server has such a name."""
    return Path(given).is_dir() or not _NAME.fullmatch(given)


def artifact_or_job(text: str) -> str:
    """The type of an argument that `is_folder` is asked about."""
    if not text:
        raise argparse.ArgumentTypeError(f"must be {ARTIFACT_OR_JOB}, got ''")
    return text


@contextlib.contextmanager
def as_job(given: str) -> Iterator[None]:
    """Around the question about a job: errors say why it was asked, as who mistypes a folder does not know it.

    Raises:
        NotFound, ServerUnreachable: with a note.
    """
    try:
        yield
    except (NotFound, ServerUnreachable) as error:
        error.add_note(f"{given} is not a folder on this machine, so a job was requested from the server")
        raise


def manifest_of(given: str, client: Client | None) -> Manifest:
    """The manifest of a folder, or of a job's artifact.

    Args:
        client: to ask for jobs; None where only folders are given.

    Raises:
        LocalRefusal: it is not valid.
        IntegrityError: the server's is not the one that the artifact is named by.
    """
    with refusals("runtime"):
        from mvprune.artifact import Manifest, read_manifest

        if client is None or is_folder(given):
            return read_manifest(expanded(given))
        with as_job(given):
            return Manifest.from_json(client.manifest(given))


def fetch_outline(client: Client, artifact: Artifact, folder: Path) -> None:
    """Fetches what `mvprune.artifact.inspection` reads of an artifact: its manifest, and the header of its weights. The
    weights themselves are a hole in the file.

    Raises:
        IntegrityError: the manifest is not the one that the artifact is named by, or there are no weights.
    """
    from mvprune.artifact.manifest import MANIFEST_FILE
    from mvprune.sources.model_config import WEIGHTS_FILE

    source = _source(client, artifact)
    (folder / MANIFEST_FILE).write_bytes(client.manifest(artifact.name))
    weights = _file(artifact, WEIGHTS_FILE)
    with (folder / WEIGHTS_FILE).open("wb") as file:
        head = b"".join(source.blocks(weights, 0, min(8, weights.size_bytes)))
        end = min(8 + int.from_bytes(head, "little"), weights.size_bytes, _MAX_HEADER)
        for block in (head, *source.blocks(weights, len(head), end)):
            file.write(block)
        file.truncate(weights.size_bytes)


def _source(client: Client, artifact: Artifact) -> Source:
    from mvprune.client.source import Source  # urllib is slow to import

    return Source(client._core._transport, artifact)


def _file(artifact: Artifact, path: str) -> ArtifactFile:
    found = next((file for file in artifact.files if file.path == path), None)
    if found is None:
        raise IntegrityError(f"refused: {artifact.name} has no {path}")
    return found

"""Tools about artifacts: what they hold, how to use them, comparison, download."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvprune.artifact.comparison import compare
from mvprune.artifact.manifest import Manifest
from mvprune.cli.compare import result_rows as compared_rows
from mvprune.client.display import RESULT_COLUMNS, result_rows
from mvprune.client.models import Artifact
from mvprune.common.exceptions import bad_field
from mvprune.common.units import size
from mvprune.mcp.arguments import text, texts
from mvprune.mcp.job_facts import check_several
from mvprune.mcp.tool import Answer, Call, Tool
from mvprune.mcp.words import pairs, table

_JOB = text("a job's id or name, or an artifact's name projects/P/artifacts/SHA256", required=True)


@dataclass(frozen=True)
class FileFacts:
    """A file of an artifact."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class ArtifactFacts:
    """An artifact. `use` are commands; DIR stands for its folder. Metrics are fractions."""

    artifact: str
    job: str
    digest: str
    total_bytes: int
    dense_bytes: int
    density: float
    primary_metric: str
    metrics: Mapping[str, float]
    files: list[FileFacts]
    use: list[str]


@dataclass(frozen=True)
class ComparedFacts:
    """An artifact beside others; `differences`: by how much its metrics are above the first one's."""

    job: str
    digest: str
    method: str
    density: float
    total_bytes: int
    metrics: Mapping[str, float]
    differences: Mapping[str, float]


@dataclass(frozen=True)
class ComparisonFacts:
    """Artifacts side by side. `options`: the submitted options that differ, a value for each."""

    artifacts: list[ComparedFacts]
    options: Mapping[str, list[Any]]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Downloaded:
    """Where an artifact was written; `use` are commands."""

    artifact: str
    folder: str
    use: list[str]


def commands(folder: str, job: str = "") -> list[str]:
    """How to use the artifact in a folder; first, where a job is given, how to get it."""
    quoted = shlex.quote(folder)
    return [
        *([f"mvpctl download {shlex.quote(job)} {quoted}"] if job else []),
        f"mvpctl serve {quoted}  # answers over HTTP",
        f"mvpctl benchmark {quoted}  # its speed on this machine",
        f"mvpctl export {quoted} onnx/ --to onnx",
        f"mvprune.load({folder!r})  # in Python",
    ]


async def _get(call: Call) -> Answer:
    found = await call.client.artifact(call.given["job"])
    counts, job = found.accounting, found.job.rpartition("/")[2]
    facts = ArtifactFacts(
        artifact=found.name,
        job=job,
        digest=found.sha256,
        total_bytes=found.total_bytes,
        dense_bytes=counts.dense_bytes,
        density=counts.density,
        primary_metric=found.primary_metric,
        metrics=dict(found.metrics),
        files=[FileFacts(one.path, one.size_bytes, one.sha256) for one in found.files],
        use=commands("DIR", job),
    )
    return Answer(_text(found, facts), facts)


def _text(found: Artifact, facts: ArtifactFacts) -> str:
    files = table(["FILE", "BYTES"], [[one.path, size(one.size_bytes)] for one in facts.files])
    head = pairs([("artifact", found.name), ("job", facts.job)])
    use = "\n".join(("to use it:", *(f"  {command}" for command in facts.use)))
    return "\n\n".join((head, table(RESULT_COLUMNS, result_rows(found)), files, use))


async def _compare(call: Call) -> Answer:
    jobs = call.given["jobs"]
    check_several("jobs", jobs, 2, 10)
    manifests = [(job, Manifest.from_json(await call.client.manifest(job))) for job in jobs]
    found = compare(manifests)
    ones = [
        ComparedFacts(one.name, one.digest, one.method, one.density, one.bytes, one.metrics, one.differences)
        for one in found.artifacts
    ]
    options = {name: list(values) for name, values in found.options.items()}
    columns = ["", *(one.job for one in ones)]
    shown = table(columns, compared_rows(found.artifacts))
    shown += "".join(f"\nnote: {note}" for note in found.notes)
    if options:
        rows = [[name, *("-" if value is None else str(value) for value in of)] for name, of in options.items()]
        shown += f"\n\n{table(['OPTION', *columns[1:]], rows)}"
    return Answer(shown, ComparisonFacts(ones, options, found.notes))


async def _download(call: Call) -> Answer:
    root, given = call.rights.downloads or Path(), call.given["folder"]  # not offered without a root
    folder = (root / given).resolve()
    if root not in folder.parents:
        raise bad_field("folder", f"must be a new folder below {root}, got {given!r:.200}")
    artifact = await call.client.artifact(call.given["job"])
    written: Path = await call.client.download(artifact, folder)
    facts = Downloaded(artifact.name, str(written), commands(str(written)))
    return Answer("\n".join((f"downloaded and verified: {written}", *facts.use)), facts)


TOOLS = (
    Tool(
        "get_artifact",
        "Show an artifact",
        "Shows the artifact of a job: the pruned model beside the dense one, its files, and the commands to use it.",
        {"job": _JOB},
        ArtifactFacts,
        _get,
    ),
    Tool(
        "compare_jobs",
        "Compare jobs",
        "Compares the artifacts of 2 to 10 jobs: metrics with their difference to the first, sizes, and the options "
        "that differ.",
        {"jobs": texts("ids or names of jobs that have SUCCEEDED, or names of artifacts", required=True)},
        ComparisonFacts,
        _compare,
    ),
    Tool(
        "download_artifact",
        "Download an artifact",
        "Downloads and verifies the artifact of a job into a new folder on the machine of this MCP server.",
        {"job": _JOB, "folder": text("name of a new folder below the one for downloads", required=True)},
        Downloaded,
        _download,
        writes=True,
    ),
)

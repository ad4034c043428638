"""mvpctl inspect"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mvprune.artifact.card import activations_of, flops_in_words, pattern_of, structures_of
from mvprune.cli.shared.artifacts import ARTIFACT_OR_JOB, artifact_or_job, as_job, fetch_outline, is_folder
from mvprune.cli.shared.local import refusals
from mvprune.cli.shared.options import command_parser, connect
from mvprune.cli.shared.output import answer, print_fields, print_table
from mvprune.common.files import expanded
from mvprune.common.units import percent, size, smaller
from mvprune.sources.schemes import shown

if TYPE_CHECKING:
    from mvprune.artifact.inspection import Inspection

_DETAILS = """Checks the digests of all files of a folder. For a job, downloads the manifest and the header of the
weights, not the weights."""


def inspect_command(argv: Sequence[str]) -> None:
    """Shows what an artifact holds."""
    parser = command_parser("inspect", "mvpctl inspect out/\n  mvpctl inspect sst2-k3x9 -o json", _DETAILS, job=False)
    parser.add_argument("artifact", type=artifact_or_job, metavar="ARTIFACT|JOB", help=ARTIFACT_OR_JOB)
    args = parser.parse_args(argv)
    with refusals("runtime"):
        from mvprune.artifact.inspection import inspect

        if is_folder(args.artifact):
            found = inspect(expanded(args.artifact))
        else:
            with connect(args) as client, tempfile.TemporaryDirectory() as folder:
                with as_job(args.artifact):
                    artifact = client.artifact(args.artifact)
                fetch_outline(client, artifact, Path(folder))
                found = inspect(folder, outline=True)
    answer(args.form, found, [found.digest], lambda: _print(found))


def _print(found: Inspection) -> None:
    print_table(
        ["MATRIX", "SHAPE", "KEPT", "DENSITY", "STORED", "BYTES"],
        [
            [
                matrix.name,
                " x ".join(map(str, matrix.shape)),
                f"{matrix.kept:,}",
                percent(matrix.density),
                f"{matrix.layout} {matrix.values}",
                f"{matrix.bytes:,}",
            ]
            for matrix in found.matrices
        ],
        numbers=True,
        expendable=("SHAPE", "STORED"),
    )
    print()
    _print_kinds(found)
    print()
    _print_parts(found)
    print()
    print_fields(_provenance(found))


def _print_kinds(found: Inspection) -> None:
    counts = found.manifest.accounting
    rows = [(one.kind, one.matrices, one.weights, one.kept, one.density, one.bytes) for one in found.kinds]
    size_of_all = sum(one.bytes for one in found.kinds)
    totals = len(found.matrices), counts.prunable_weights, counts.kept_weights, counts.density, size_of_all
    print_table(
        ["TYPE", "MATRICES", "WEIGHTS", "KEPT", "DENSITY", "BYTES"],
        [
            [kind, str(matrices), f"{weights:,}", f"{kept:,}", percent(density), f"{stored:,}"]
            for kind, matrices, weights, kept, density, stored in [*rows, ("all", *totals)]
        ],
        numbers=True,
    )


def _print_parts(found: Inspection) -> None:
    counts, total = found.manifest.accounting, found.manifest.total_bytes
    dense = sum(part.dense_bytes for part in found.parts)
    print_table(
        ["PART", "PARAMETERS", "OF THE BASE", "FP32", "BYTES", "RATIO"],
        [
            *(
                [
                    part.part,
                    f"{part.parameters:,}",
                    f"{part.base_parameters:,}",
                    size(part.dense_bytes),
                    f"{part.bytes:,}",
                    smaller(part.dense_bytes, part.bytes),
                ]
                for part in found.parts
            ),
            ["names and shapes", "", "", "", f"{found.header_bytes:,}", ""],
            ["weights file", "", "", size(dense), f"{counts.sparse_bytes:,}", smaller(dense, counts.sparse_bytes)],
            ["other files", "", "", "", f"{total - counts.sparse_bytes:,}", ""],
            ["all files", "", "", size(dense), f"{total:,}", smaller(dense, total)],
        ],
        numbers=True,
    )


def _provenance(found: Inspection) -> list[tuple[str, str]]:
    manifest, checked = found.manifest, found.verified_files
    model, data = manifest.model, manifest.dataset
    return [
        ("artifact", found.digest),
        ("verified", "the manifest; download it to verify its files" if checked is None else f"all {checked} files"),
        ("base model", " ".join(filter(None, (shown(model.name), model.revision and f"revision {model.revision}")))),
        ("", f"sha256 {model.sha256}"),
        ("delta", "needs the base model to be loaded" if found.delta else ""),
        ("data", f"{data.name}, {data.train_rows:,} rows to train on, {data.validation_rows:,} to evaluate on"),
        ("", f"fingerprint {data.fingerprint}"),
        ("spec", f"sha256 {manifest.spec_sha256}"),
        ("pattern", pattern_of(manifest)),
        ("structures", structures_of(manifest)),
        ("activations", activations_of(manifest)),
        ("FLOPs", flops_in_words(manifest.accounting)),
        ("seed", str(manifest.seed)),
        *(("note", note) for note in manifest.notes),
        ("versions", ", ".join(f"{package} {version}" for package, version in sorted(manifest.versions.items()))),
    ]

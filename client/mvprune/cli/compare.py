"""mvpctl compare"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mvprune.cli.shared.artifacts import ARTIFACT_OR_JOB, artifact_or_job, is_folder, manifest_of
from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.options import command_parser, connect
from mvprune.cli.shared.output import answer, print_table
from mvprune.common.units import percent, size, smaller

if TYPE_CHECKING:
    from mvprune.artifact.comparison import Compared, Comparison

_DETAILS = """Shows metrics with their difference to the first artifact, and the submitted options that differ."""
_NONE = "-"


def compare_command(argv: Sequence[str]) -> None:
    """Shows artifacts side by side."""
    example = "mvpctl compare out/ other/\n  mvpctl compare sst2-k3x9 sst2-m4p2 out/ -o json"
    parser = command_parser("compare", example, _DETAILS, job=False)
    parser.add_argument(
        "artifacts", nargs="+", type=artifact_or_job, metavar="ARTIFACT|JOB", help=f"each {ARTIFACT_OR_JOB}"
    )
    args = parser.parse_args(argv)
    if len(args.artifacts) < 2:
        raise UsageError(f"ARTIFACT|JOB must be given at least twice, got {len(args.artifacts)}", parser.prog)
    from mvprune.artifact.comparison import compare

    with contextlib.ExitStack() as stack:
        asks = not all(map(is_folder, args.artifacts))
        client = stack.enter_context(connect(args)) if asks else None
        found = compare([(given, manifest_of(given, client)) for given in args.artifacts])
    answer(args.form, found, [one.digest for one in found.artifacts], lambda: _print(found))


def _print(found: Comparison) -> None:
    ones = found.artifacts
    columns = ["", *(one.name for one in ones)]
    print_table(columns, result_rows(ones), numbers=True)
    for note in found.notes:
        print(f"note: {note}")
    if found.options:
        print()
        rows = [[name, *(_word(value) for value in values)] for name, values in found.options.items()]
        print_table(["OPTION", *columns[1:]], rows, numbers=True)


def result_rows(ones: Sequence[Compared]) -> list[list[str]]:
    """What came out, a row each: its name, and a cell for each artifact."""
    return [*_metrics(ones), *_counts(ones), *_densities(ones)]


def _metrics(ones: Sequence[Compared]) -> list[list[str]]:
    names = dict.fromkeys(name for one in ones for name in one.metrics)
    rank = {"eval": 0, "dense": 1, "delta": 2}
    ordered = sorted(names, key=lambda name: (rank.get(name.partition("/")[0], 3), name))
    return [[name, *(_metric(one, name, first=one is ones[0]) for one in ones)] for name in ordered]


def _metric(one: Compared, name: str, *, first: bool) -> str:
    if name not in one.metrics:
        return _NONE
    value = f"{one.metrics[name]:.4f}"
    return value if first or name not in one.differences else f"{value} ({one.differences[name]:+.4f})"


def _counts(ones: Sequence[Compared]) -> list[list[str]]:
    return [
        ["method", *(one.method or _NONE for one in ones)],
        ["density asked", *(percent(one.target_density) for one in ones)],
        ["density reached", *(percent(one.density) for one in ones)],
        ["non-zero weights", *(f"{one.kept_weights:,}" for one in ones)],
        ["bytes", *(f"{size(one.bytes)}, {smaller(one.dense_bytes, one.bytes)}" for one in ones)],
        ["of the weights file", *(size(one.sparse_bytes) for one in ones)],
        ["of the encoder", *(size(one.encoder_bytes) for one in ones)],
        ["of the embeddings", *(size(one.embedding_bytes) for one in ones)],
        ["FLOPs", *(f"{one.sparse_flops:,}" if one.dense_flops else _NONE for one in ones)],
        ["FLOPs, dense", *(f"{one.dense_flops:,}" if one.dense_flops else _NONE for one in ones)],
    ]


def _densities(ones: Sequence[Compared]) -> list[list[str]]:
    kinds = dict.fromkeys(kind for one in ones for kind in one.densities)
    return [
        [f"density of {kind}", *(percent(one.densities[kind]) if kind in one.densities else _NONE for one in ones)]
        for kind in kinds
    ]


def _word(value: Any) -> str:
    return _NONE if value is None else str(value)

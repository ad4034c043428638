"""mvpctl benchmark"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvprune.cli.shared.artifacts import add_activations, artifact_parser, fetched
from mvprune.cli.shared.errors import LocalRefusal
from mvprune.cli.shared.local import refusals
from mvprune.cli.shared.output import answer, print_fields, print_table
from mvprune.cli.shared.types import positive_number, seconds
from mvprune.common.units import counted, size

if TYPE_CHECKING:
    from mvprune.runtime import Latency

_DETAILS = """Runs the model alternately in torch (fp32) and in the sparse runtime, on random tokens, and prints the
minimum times, and how far the outputs differ. Nothing else should run on the machine meanwhile."""


def benchmark_command(argv: Sequence[str]) -> None:
    """Times an artifact, dense and sparse."""
    parser = artifact_parser(
        "benchmark",
        "mvpctl benchmark out/ --batch 1 --tokens 128 --threads 1\n  mvpctl benchmark sst2-k3x9 --activations int8",
        _DETAILS,
    )
    parser.add_argument("--batch", type=positive_number, default=1, metavar="N", help="examples a call; default 1")
    parser.add_argument("--tokens", type=positive_number, default=128, metavar="N", help="tokens each; default 128")
    parser.add_argument("--threads", type=positive_number, default=1, metavar="N", help="threads a call; default 1")
    parser.add_argument("--seconds", type=seconds, default=3.0, metavar="S", help="minimum duration; default 3")
    add_activations(parser)
    args = parser.parse_args(argv)
    with refusals("runtime"):
        from mvprune.runtime import measure

        try:
            with fetched(args) as source:
                found = measure(
                    source.folder,
                    batch=args.batch,
                    tokens=args.tokens,
                    threads=args.threads,
                    seconds=args.seconds,
                    base=args.base,
                    activations=args.activations,
                )
        except ValueError as error:  # a number that the model does not take
            raise LocalRefusal(str(error)) from error
    answer(args.form, found, [f"{found.ratio:.2f}"], lambda: _print(found, args.activations is None))


def _print(found: Latency, are_own: bool) -> None:
    print_table(
        ["", "dense", "sparse", "ratio"],
        [
            ["time", _milliseconds(found.dense_seconds), _milliseconds(found.sparse_seconds), f"{found.ratio:.2f}x"],
            ["weights in memory", size(found.dense_bytes), size(found.sparse_bytes), _smaller(found)],
        ],
        numbers=True,
    )
    layers = ", ".join(f"{count} {backend}" for backend, count in found.layers.items())
    print_fields(
        [
            ("a call", f"{found.batch} x {found.tokens} tokens, {counted(found.threads, 'thread')}"),
            ("linear layers", layers),
            ("kernel", found.isa or "none"),
            ("activations", found.activations + ", as the artifact says" * (are_own and found.activations != "fp32")),
            ("difference", f"{found.difference:.2g} of the largest output"),
            *([("not sparse", found.reason)] if found.reason else []),
            *([("not int8", found.activations_reason)] if found.activations_reason else []),
        ]
    )


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms"


def _smaller(found: Latency) -> str:
    return f"{found.dense_bytes / found.sparse_bytes:.2f}x"

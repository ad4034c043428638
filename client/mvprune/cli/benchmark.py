"""mvpctl benchmark"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvprune.cli.shared.artifacts import add_activations, artifact_parser, fetched
from mvprune.cli.shared.errors import LocalRefusal
from mvprune.cli.shared.local import refusals
from mvprune.cli.shared.output import answer, print_fields, print_table
from mvprune.cli.shared.types import one_of, positive_number, seconds
from mvprune.common.units import counted, size

if TYPE_CHECKING:
    from mvprune.runtime import Latency, RivalLatency

_DETAILS = """Runs the model in turns in torch (fp32), in the sparse runtime, and as dense int8 models, its rivals, on
random tokens. Prints the minimum times, and how far the outputs of the sparse runtime differ. Rivals have all weights
of the unpruned model. Nothing else should run on the machine meanwhile."""
_DENSE, _SPARSE = "torch fp32", "sparse runtime"
_RIVALS = {"torch_int8": "torch int8 (dynamic)", "onnx_int8": "ONNX Runtime int8 (dynamic)"}


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
    parser.add_argument(
        "--rivals",
        type=one_of(*_RIVALS),
        nargs="*",
        default=["torch_int8"],
        metavar="RIVAL",
        help="dense int8 models to compare with: torch_int8 (default), onnx_int8, which takes 10 to 20 s to export and "
        "needs mvprune[export]; or none",
    )
    args = parser.parse_args(argv)
    with refusals("runtime"):
        try:
            with fetched(args, "torch") as source:
                from mvprune.runtime import measure

                found = measure(
                    source.folder,
                    batch=args.batch,
                    tokens=args.tokens,
                    threads=args.threads,
                    seconds=args.seconds,
                    base=args.base,
                    activations=args.activations,
                    rivals=args.rivals,
                )
        except ValueError as error:  # a number that the model does not take
            raise LocalRefusal(str(error)) from error
    answer(args.form, found, [f"{found.ratio:.2f}"], lambda: _print(found, args.activations is None))


def _print(found: Latency, are_own: bool) -> None:
    whole, pruned = _DENSE, _DENSE
    if found.unpruned_seconds != found.dense_seconds:  # heads, units or layers were removed
        pruned += ", pruned model"
    times = {whole: found.unpruned_seconds, pruned: found.dense_seconds}
    times |= {_rival(one): one.seconds for one in found.rivals}
    dense = {name: time for name, time in times.items() if time is not None}
    first, *_ = dense.values()
    memory = {pruned: size(found.dense_bytes), _SPARSE: size(found.sparse_bytes)}
    rows = [
        [name, f"{1000 * time:.2f} ms", f"{first / time:.2f}x", memory.get(name, "")]
        for name, time in {**dense, _SPARSE: found.sparse_seconds}.items()
    ]
    print_table(["", "time", "speed", "weights in memory"], rows, numbers=True)
    speeds = [f"{time / found.sparse_seconds:.2f} times as fast as {name}" for name, time in dense.items()]
    print_fields(
        [
            (_SPARSE, ", ".join(speeds)),
            ("a call", f"{found.batch} x {found.tokens} tokens, {counted(found.threads, 'thread')}"),
            ("linear layers", ", ".join(f"{count} {backend}" for backend, count in found.layers.items())),
            ("kernel", found.isa or "none"),
            ("activations", found.activations + ", as the artifact says" * (are_own and found.activations != "fp32")),
            ("difference", f"{found.difference:.2g} of the largest output (of 1 if that is smaller)"),
            ("not sparse", found.reason),
            ("not int8", found.activations_reason),
            *((f"no {_RIVALS[one.name]}", one.reason) for one in found.rivals),
        ]
    )


def _rival(one: RivalLatency) -> str:
    part = "" if one.int8 == one.matrices else f", {one.int8} of {one.matrices} matrices"
    return _RIVALS[one.name] + part

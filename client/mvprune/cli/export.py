"""mvpctl export"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvprune.cli.shared.artifacts import artifact_parser, fetched
from mvprune.cli.shared.errors import UsageError
from mvprune.cli.shared.live import live
from mvprune.cli.shared.local import refusals
from mvprune.cli.shared.output import answer
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.types import one_of, path
from mvprune.common.units import size

if TYPE_CHECKING:
    from mvprune.export import Exported

_DETAILS = """dense  a Hugging Face folder in fp32, for from_pretrained without mvprune
onnx   model.onnx, any number of examples and tokens, checked with onnxruntime against torch; of models that write text
       with a cache of keys and values, of encoder-decoders as three files; --quantize int8: what onnxruntime runs fast,
       for a model of which whole layers, heads or units were removed
csr    scipy's compressed sparse rows, one .npz for every pruned matrix"""

_NEEDS = {"dense": "transformers", "onnx": "onnxruntime", "csr": "scipy"}


def export_command(argv: Sequence[str]) -> None:
    """Writes an artifact in another format."""
    example = "mvpctl export out/ --to onnx onnx/ --quantize int8\n  mvpctl export sst2-k3x9 --to dense model/"
    parser = artifact_parser("export", example, _DETAILS)
    parser.add_argument("directory", type=path, metavar="OUT", help="a new or empty folder")
    parser.add_argument("--to", required=True, type=one_of(*_NEEDS), metavar="F", help="one of these")
    parser.add_argument("--quantize", type=one_of("int8"), metavar="WORD", help="int8, with onnx: round the products")
    args = parser.parse_args(argv)
    if args.quantize and args.to != "onnx":
        raise UsageError(f"--quantize: is for --to onnx, got --to {args.to}", parser.prog)
    with refusals("export"):
        from mvprune.artifact.files import check_free
        from mvprune.export import export

        check_free(args.directory)  # before anything is fetched
        with fetched(args, _NEEDS[args.to]) as source, live(args.form.progress) as progress:
            done = export(
                source.folder,
                args.directory,
                to=args.to,
                base=args.base,
                quantize=args.quantize,
                on_progress=progress.doing,
            )
    answer(args.form, {**vars(done), "folder": str(done.folder)}, [str(done.folder)], lambda: _print(done))


def _print(done: Exported) -> None:
    total = sum(done.files.values())
    print(clean(f"exported to {done.folder}: {len(done.files)} files, {size(total)}"))
    for note in done.notes:
        print(clean(f"note: {note}"))
    if done.difference is not None:
        limit = "" if done.tolerance is None else f"; {done.tolerance:.0e} is allowed"
        print(f"checked: outputs are within {done.difference:.1e} of torch's{limit}")

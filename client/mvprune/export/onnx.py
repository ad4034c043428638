"""ONNX files, checked against the model they were made of."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxscript  # noqa: F401 (torch's exporter needs it, and says so late)

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.model import load
from mvprune.export.graphs import TOLERANCE, refusing
from mvprune.export.writing import graphs_of
from mvprune.export.written import Written
from mvprune.runtime._onnx import round_to_int8, trace
from mvprune.sources.model_config import CONFIG_FILE

_INT8 = "the metrics in the manifest are not those of the rounded model, and onnxruntime computes zeros as any weight"


def write(
    artifact: Path,
    folder: Path,
    base: str | Path | None,
    on_progress: Callable[[str], None],
    quantize: str | None = None,
) -> Written:
    """The files of `graphs_of`: fp32, any number of examples and tokens.

    With `quantize` int8 they are checked in fp32, and then rounded.

    Returns:
        How far their outputs are off torch's (see `Graphs.check`), and what `TOLERANCE` is; None for int8, which has no
        limit.

    Raises:
        ArtifactError: torch or onnxruntime cannot export or run this model; or by more than `TOLERANCE`.
    """
    on_progress("loading the model")
    model: Any = load(artifact, base)
    graphs = graphs_of(model)
    on_progress("tracing the model")
    made = graphs.all()
    for graph in made:
        outputs = list(graphs.run(graph.model, graph.example))
        with refusing(model, "torch cannot export it"):
            trace(graph.model, graph.example, outputs, folder / graph.file, graph.sizes)
    config = json.loads(model.config.to_json_string(use_diff=True))
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n")
    on_progress("checking it with onnxruntime")
    difference = graphs.check(folder)
    if quantize is None:
        return Written(difference, TOLERANCE, graphs.notes)
    on_progress("rounding it to int8")
    rounded = sum(_round(model, folder / graph.file) for graph in made)
    if not rounded:
        raise ArtifactError(
            f"{type(model).__name__} has no matrix that onnxruntime computes in int8; leave quantize out"
        )
    return Written(graphs.check(folder, math.inf), None, (f"int8: {rounded} products; {_INT8}", *graphs.notes))


def _round(model: Any, path: Path) -> int:
    """Rounds a file to int8.

    Returns:
        How many of its products are computed so.
    """
    fp32 = path.rename(path.with_name("fp32.onnx"))
    with refusing(model, "onnxruntime cannot round it to int8"):
        round_to_int8(fp32, path)
    fp32.unlink()
    return sum(node.op_type == "MatMulInteger" for node in onnx.load(path).graph.node)

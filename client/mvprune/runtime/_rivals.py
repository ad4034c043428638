"""What else computes a model on a CPU: the unpruned model in int8, with which the sparse runtime is compared."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mvprune.artifact.base import find_base
from mvprune.artifact.config import build_config
from mvprune.artifact.described import read_config
from mvprune.artifact.errors import needs
from mvprune.artifact.manifest import Manifest
from mvprune.runtime._onnx import quiet, round_to_int8, run, trace
from mvprune.spec.structures import KINDS

Call = Callable[[], object]
_MOST = 0.5  # of a model's weights: a rival with fewer in int8 does not deserve the name


class CannotRunHere(Exception):
    """A rival does not work on this machine, or with this model; the text says why."""


class Rival(NamedTuple):
    """A way to compute the unpruned model.

    Attributes:
        call: computes it once.
        int8: how many of its matrices are in int8.
        matrices: how many it has, embeddings aside.
    """

    call: Call
    int8: int
    matrices: int


@dataclass(frozen=True)
class RivalLatency:
    """The time of a rival.

    Attributes:
        name: torch_int8 (`torch.ao.quantization.quantize_dynamic` of all nn.Linear) or onnx_int8 (ONNX Runtime's
            `quantize_dynamic`).
        seconds: the minimum time of one call; None: it was not measured.
        ratio: seconds / the seconds of the sparse runtime.
        int8: how many of its matrices are in int8.
        matrices: how many it has, embeddings aside.
        reason: why it was not measured, "" if it was.
    """

    name: str
    seconds: float | None = None
    ratio: float | None = None
    int8: int = 0
    matrices: int = 0
    reason: str = ""


def unpruned(model: Any, manifest: Manifest, base: str | Path | None) -> Any:
    """The model before its pruning: `model` itself, unless heads, units or layers were removed; else one of that shape
    with random weights.

    Args:
        model: of an artifact, dense.
        manifest: of the artifact.
        base: the folder of the base model, the only one that knows the number of removed layers; None: it is looked
            for.

    Raises:
        CannotRunHere: layers were removed, and the base is not found.
    """
    kinds = KINDS.get(str(manifest.spec.get("structure") or "").lower(), ())
    if not kinds:
        return model
    config = copy.deepcopy(model.config)  # that of the whole model, except for its number of layers
    if "layers" in kinds:
        try:
            folder = find_base(manifest.model) if base is None else Path(base)
            config.num_hidden_layers = build_config(read_config(folder)).num_hidden_layers
        except ValueError as error:  # what is not found, or not valid
            raise CannotRunHere(
                "how many layers the unpruned model has is known only by its folder, and that was not found; pass "
                "base=FOLDER, --base FOLDER in a shell"
            ) from error
    with torch.random.fork_rng([]):
        return type(model)(config).eval()


def rival(name: str, model: Any, inputs: Mapping[str, Tensor], threads: int) -> Rival:
    """Builds a rival, and runs it once.

    Args:
        name: one of `RIVALS`.
        model: dense, fp32, in evaluation mode; it is not changed.
        inputs: of every call.
        threads: of every call.

    Raises:
        CannotRunHere: it does not work here, or most of its weights would stay in fp32.
    """
    try:
        built = RIVALS[name](model, inputs, threads)
        with torch.inference_mode():
            built.call()
    except CannotRunHere:
        raise
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise CannotRunHere(f"{type(error).__name__}: {first:.200}") from error
    return built


def torch_int8(model: Any, inputs: Mapping[str, Tensor], threads: int = 0) -> Rival:
    """torch's dynamic quantization: the weights of all nn.Linear are int8, their inputs are rounded in each call.

    Threads are those of torch.
    """
    from torch.ao.nn.quantized.dynamic import Linear
    from torch.ao.quantization import quantize_dynamic

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated for a package that does not do this on CPUs
        made: Any = quantize_dynamic(model, {nn.Linear}, torch.qint8)  # type: ignore[no-untyped-call]
    replaced = [name for name, module in made.named_modules() if isinstance(module, Linear)]
    int8 = {id(weight): weight.numel() for weight in (model.get_submodule(name).weight for name in replaced)}
    embeddings = {id(module.weight) for module in made.modules() if isinstance(module, nn.Embedding)}
    others = [one.numel() for one in made.parameters() if one.dim() > 1 and id(one) not in embeddings]
    _check(list(int8.values()), others, "torch quantizes nn.Linear only")
    return Rival(lambda: made(**inputs), len(int8), len(int8) + len(others))


def onnx_int8(model: Any, inputs: Mapping[str, Tensor], threads: int) -> Rival:
    """ONNX Runtime's dynamic quantization of the model that torch exports for exactly these inputs."""
    with needs("it", "export"), TemporaryDirectory() as folder:
        path = Path(folder) / "int8.onnx"
        round_to_int8(prepared(model, inputs, Path(folder)), path)
        int8, others = _matrices(path)
        _check(int8, others, "ONNX Runtime quantizes products with constant matrices only")
        return Rival(session(path, inputs, threads), len(int8), len(int8) + len(others))


def prepared(model: Any, inputs: Mapping[str, Tensor], folder: Path) -> Path:
    """Writes prepared.onnx, the model with shapes in it, as quantization wants them, beside dense.onnx without them."""
    import onnxscript  # noqa: F401 (torch's exporter needs it, and says so late)
    from onnxruntime.quantization.shape_inference import quant_pre_process

    path, dense = folder / "prepared.onnx", folder / "dense.onnx"
    with quiet():
        trace(model, inputs, list(run(model, inputs))[:1], dense)
        quant_pre_process(dense, path)
    return path


def session(path: Path, inputs: Mapping[str, Tensor], threads: int) -> Call:
    """Runs an ONNX file, which is not needed any more then."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that wait for more work would take the cores of the next contender.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    opened = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    arrays = {name: value.numpy() for name, value in inputs.items()}
    return lambda: opened.run(None, arrays)


RIVALS: Mapping[str, Callable[[Any, Mapping[str, Tensor], int], Rival]] = {
    "torch_int8": torch_int8,
    "onnx_int8": onnx_int8,
}


def _matrices(path: Path) -> tuple[list[int], list[int]]:
    """The numbers of weights of the matrices in a quantized file: those in int8, and the others."""
    import onnx

    graph = onnx.load(path).graph
    sizes = {one.name: torch.Size(one.dims).numel() for one in graph.initializer if len(one.dims) > 1}
    int8: dict[str, int] = {}
    others: dict[str, int] = {}
    for node in graph.node:
        found = int8 if node.op_type == "MatMulInteger" else others if node.op_type in ("MatMul", "Gemm") else {}
        found |= {name: sizes[name] for name in node.input if name in sizes}
    return list(int8.values()), list(others.values())


def _check(int8: list[int], others: list[int], why: str) -> None:
    """Raises CannotRunHere if most weights are not in int8."""
    if sum(int8) < _MOST * (sum(int8) + sum(others)) or not int8:
        share = sum(int8) / max(1, sum(int8) + sum(others))
        raise CannotRunHere(f"{why}: {share:.0%} of this model's weights, embeddings aside")

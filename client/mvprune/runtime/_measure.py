"""How fast an artifact runs on this machine: sparse, against the dense model in fp32 and in int8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mvprune.artifact import Manifest, load, read_manifest
from mvprune.artifact.positions import longest_input
from mvprune.common.suggestions import must_be_one_of
from mvprune.runtime import kernel
from mvprune.runtime._choice import fastest
from mvprune.runtime._compressed import Compressed
from mvprune.runtime._linear import SparseLinear, backends
from mvprune.runtime._optimize import optimize
from mvprune.runtime._rivals import RIVALS, CannotRunHere, Rival, RivalLatency, rival, unpruned
from mvprune.runtime._used import used
from mvprune.runtime._vocabulary import Vocabulary
from mvprune.runtime.kernel import Activations


@dataclass(frozen=True)
class Latency:
    """The minimum time of one call of a model, in seconds, what it changes, and the conditions of the measurement.

    Attributes:
        dense_seconds: the pruned model in torch, in fp32.
        sparse_seconds: the same model in the sparse runtime.
        ratio: dense_seconds / sparse_seconds.
        unpruned_seconds: the model before its pruning, in torch, in fp32: dense_seconds, unless heads, units or layers
            were removed. None: its shape is not known; the rivals' `reason` says why.
        rivals: of the sparse runtime: the model before its pruning, in int8.
        batch: examples per call.
        tokens: tokens per example.
        threads: threads per call.
        isa: the native kernel's instruction set, "" if it is unavailable.
        reason: why the model does not use the sparse runtime, "" if it does.
        activations: int8 if a layer uses them, else fp32.
        activations_reason: why no layer uses the requested int8 activations, "" if one does.
        difference: the largest difference of an output (a logit) to the dense model's, as a fraction of the largest
            output, or of 1 if that is smaller.
        layers: the number of linear layers by backend: kernel, int8, csr, dense.
        dense_bytes: memory of all parameters and buffers.
        sparse_bytes: the same for the sparse model, including compressed weights.
    """

    dense_seconds: float
    sparse_seconds: float
    ratio: float
    unpruned_seconds: float | None
    rivals: tuple[RivalLatency, ...]
    batch: int
    tokens: int
    threads: int
    isa: str
    reason: str
    activations: str
    activations_reason: str
    difference: float
    layers: Mapping[str, int]
    dense_bytes: int
    sparse_bytes: int


def measure(
    directory: str | Path,
    *,
    batch: int = 1,
    tokens: int = 128,
    threads: int = 1,
    seconds: float = 3.0,
    base: str | Path | None = None,
    activations: Activations | None = None,
    rivals: Sequence[str] = ("torch_int8",),
) -> Latency:
    """Times an artifact on random tokens: dense, sparse and rivals in turns.

    Args:
        directory: the artifact.
        batch: examples per call.
        tokens: tokens per example.
        threads: threads of torch and the kernel.
        seconds: minimum duration; at least five rounds are run.
        base: the folder of the base model, for a delta artifact, and for one without some layers, whose rivals have
            them; None: it is looked for.
        activations: of the sparse runtime, see `optimize`; None: what the artifact's manifest says.
        rivals: torch_int8 and onnx_int8, see `RivalLatency`; the latter is built in 10 to 20 seconds.

    Raises:
        ArtifactError: the artifact is not valid.
        ValueError: a number is less than 1, `tokens` exceeds the model's positions, or there are no such activations or
            rivals.
    """
    for name, value in (("batch", batch), ("tokens", tokens), ("threads", threads)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    for name in rivals:
        if name not in RIVALS:
            raise ValueError(f"rivals {must_be_one_of(list(RIVALS), name)}")
    manifest = read_manifest(directory)
    activations = activations or manifest.activations
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        dense = load(directory, base)
        inputs = _example(dense, batch, tokens)
        sparse = optimize(load(directory, base), activations=activations, tokens=batch * tokens, threads=threads)
        whole, built = _rivals(rivals, dense, manifest, base, inputs, threads)
        calls = {name: one.call for name, one in built.items() if isinstance(one, Rival)}
        calls |= {"dense": lambda: dense(**inputs), "sparse": lambda: sparse(**inputs)}
        if whole is not None and whole is not dense:
            calls["unpruned"] = lambda: whole(**inputs)
        with torch.inference_mode():
            difference = _difference(sparse(**inputs)[0], dense(**inputs)[0])
            best = fastest(calls, seconds)
    finally:
        torch.set_num_threads(before)
    runs = used(sparse, activations=activations)
    return Latency(
        dense_seconds=best["dense"],
        sparse_seconds=best["sparse"],
        ratio=best["dense"] / best["sparse"],
        unpruned_seconds=best.get("unpruned", None if whole is None else best["dense"]),
        rivals=tuple(
            RivalLatency(name, best[name], best[name] / best["sparse"], one.int8, one.matrices)
            if isinstance(one, Rival)
            else RivalLatency(name, reason=str(one))
            for name, one in built.items()
        ),
        batch=batch,
        tokens=tokens,
        threads=threads,
        isa=kernel.isa(),
        reason=runs.reason,
        activations=runs.activations,
        activations_reason=runs.activations_reason,
        difference=difference,
        layers=backends(sparse),
        dense_bytes=model_bytes(dense),
        sparse_bytes=model_bytes(sparse),
    )


def _rivals(
    names: Sequence[str],
    dense: Any,
    manifest: Manifest,
    base: str | Path | None,
    inputs: Mapping[str, Tensor],
    threads: int,
) -> tuple[Any, dict[str, Rival | CannotRunHere]]:
    """The unpruned model, None if its shape is not known, and its rivals, or why there is none."""
    try:
        whole = unpruned(dense, manifest, base)
    except CannotRunHere as error:
        return None, dict.fromkeys(names, error)
    found: dict[str, Rival | CannotRunHere] = {}
    for name in names:
        try:
            found[name] = rival(name, whole, inputs, threads)
        except CannotRunHere as error:
            found[name] = error
    return whole, found


def model_bytes(model: nn.Module) -> int:
    """Bytes of parameters, buffers and compressed weights in memory; each tensor counts once."""
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    size = sum(tensor.nbytes for tensor in tensors.values())
    for module in model.modules():
        if isinstance(module, Compressed):
            size += module.nbytes
        if isinstance(module, Vocabulary):
            size += module.extra_nbytes
        if isinstance(module, SparseLinear) and module.bias is not None:
            size += module.bias.nbytes
    return size


def _difference(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max().clamp_min(1.0))


def _example(model: Any, batch: int, tokens: int) -> dict[str, Tensor]:
    """Random tokens, none of them padding.

    Raises:
        ValueError: the model has fewer positions.
    """
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.config.vocab_size, (batch, tokens), generator=generator)
    made = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.config.is_encoder_decoder:
        made["decoder_input_ids"] = ids
    try:
        with torch.inference_mode():
            model(**made)
    except (IndexError, RuntimeError, ValueError) as error:  # what is raised for a position that has no embedding
        limit = longest_input(model) or "an unknown number"
        raise ValueError(f"tokens must be at most {limit}, the model's positions, got {tokens} ({error})") from error
    return made

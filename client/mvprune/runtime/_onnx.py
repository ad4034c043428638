"""A transformers model as an ONNX file: traced by torch, rounded by onnxruntime."""

from __future__ import annotations

import contextlib
import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_STATE = ("use_cache", "use_mems")  # what a model may return for its next call, which a file without state cannot take


def trace(
    model: Any,
    example: Mapping[str, Tensor],
    outputs: Sequence[str],
    path: Path,
    sizes: Mapping[str, Mapping[int, Any]] | None = None,
) -> None:
    """Writes a model as an ONNX file: fp32; inputs and outputs have the names that transformers gives.

    Args:
        example: inputs.
        outputs: the names of those that the file has.
        path: of the file.
        sizes: input → axis → the `torch.export.Dim` of its length, or its name; None: the lengths are those of the
            example.

    Raises:
        Exception: whatever torch's exporter raises on this model.
    """
    with quiet():
        torch.onnx.export(
            _Tuples(model, list(example), outputs),
            tuple(example.values()),
            path,
            input_names=list(example),
            output_names=list(outputs),
            dynamic_shapes=None if sizes is None else (tuple(sizes[name] for name in example),),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def round_to_int8(source: Path, target: Path) -> None:
    """Rounds an ONNX file: weights to int8 with a scale for each output, embeddings with one scale; inputs are rounded
    to 8 bits when it runs. One scale for a matrix loses more (MiniLM on SST-2: 0.7 points in place of 0.0), and is no
    faster.

    Raises:
        Exception: whatever onnxruntime raises on this file.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with quiet():
        quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True)


class _Tuples(torch.nn.Module):
    """The model with positional inputs and a tuple of outputs, as ONNX has them."""

    def __init__(self, model: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, inputs, outputs
        self.fixed = fixed_arguments(model)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = self.model(**dict(zip(self.inputs, inputs, strict=True)), **self.fixed)
        return tuple(outputs[name] for name in self.outputs)


def run(model: Any, example: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The outputs that are tensors, by name."""
    with torch.no_grad():
        outputs = model(**example, **fixed_arguments(model))
    return {name: value for name, value in outputs.items() if isinstance(value, Tensor)}


def fixed_arguments(model: Any) -> dict[str, bool]:
    """Arguments that are the same in every call."""
    known = inspect.signature(model.forward).parameters
    return {"return_dict": True} | {name: False for name in _STATE if name in known}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what exporters say: warnings about themselves, and the whole graph of a model that they refuse."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)

"""An ONNX file, checked against the model it was made of."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import onnxscript  # noqa: F401 (torch's exporter needs it, and says so late)
import torch

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.model import load
from mvprune.model_config import CONFIG_FILE

ONNX_FILE = "model.onnx"

_SHAPES = ((2, 8), (1, 5), (3, 16))  # examples × tokens: of the export, then of further checks
TOLERANCE = 1e-4
"""How far an output may be off torch's, as a fraction of the largest."""


def write(artifact: Path, folder: Path, base: str | Path | None, on_progress: Callable[[str], None]) -> float:
    """model.onnx: fp32, any number of examples and tokens; inputs and outputs have the names that transformers gives.

    Returns:
        How far its outputs are off torch's: see `check`.

    Raises:
        ArtifactError: by more than `TOLERANCE`.
    """
    on_progress("loading the model")
    model: Any = load(artifact, base)
    model.config.return_dict = True
    names = _inputs(model)
    example = _example(model, names, *_SHAPES[0])
    with torch.no_grad():
        outputs = list(model(**example).keys())
    on_progress("tracing the model")
    sizes = {0: torch.export.Dim("examples"), 1: torch.export.Dim("tokens", max=_longest(model))}
    with warnings.catch_warnings():  # of torch's exporter, about itself, like its log
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
        torch.onnx.export(
            _Tuples(model, names),
            tuple(example.values()),
            folder / ONNX_FILE,
            input_names=names,
            output_names=outputs,
            dynamic_shapes=(tuple(sizes for _ in names),),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    (folder / CONFIG_FILE).write_text(json.dumps(_plain_config(model), indent=2) + "\n")
    on_progress("checking it with onnxruntime")
    return check(model, folder / ONNX_FILE, names)


class _Tuples(torch.nn.Module):
    """The model with positional inputs and a tuple of outputs, as ONNX has them."""

    def __init__(self, model: Any, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs: tuple[torch.Tensor, ...] = self.model(**dict(zip(self.names, inputs, strict=True))).to_tuple()
        return outputs


def _inputs(model: Any) -> list[str]:
    types = getattr(model.config, "type_vocab_size", 0)
    return ["input_ids", "attention_mask", *(["token_type_ids"] if types > 1 else [])]


def _longest(model: Any) -> int:
    return int(getattr(model.config, "max_position_embeddings", 0) or 512)


def _example(model: Any, names: list[str], examples: int, tokens: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(examples)
    ids = torch.randint(0, model.config.vocab_size, (examples, tokens), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, tokens - 1 :] = 0  # one padded token
    made = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    return {name: made[name] for name in names}


def _plain_config(model: Any) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(model.config.to_json_string(use_diff=True))
    return config


def check(model: Any, path: Path, names: list[str]) -> float:
    """Compares an ONNX file with the model on inputs of several shapes.

    Returns:
        The largest difference of an output, as a fraction of the largest output (of 1 if that is smaller).

    Raises:
        ArtifactError: it is more than `TOLERANCE`.
    """
    largest = 0.0
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for examples, tokens in _SHAPES:
        example = _example(model, names, examples, tokens)
        with torch.no_grad():
            expected = model(**example)
        found = session.run(list(expected.keys()), {name: value.numpy() for name, value in example.items()})
        for name, output in zip(expected.keys(), found, strict=True):
            wanted = expected[name].numpy()
            off = float(np.abs(output - wanted).max() / max(np.abs(wanted).max(), 1.0))
            if not off <= TOLERANCE:
                raise ArtifactError(f"{path.name}: {name} differs from torch's by {off:.1e} of its size")
            largest = max(largest, off)
    return largest

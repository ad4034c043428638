"""An ONNX file, checked against the model it was made of."""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import onnxscript  # noqa: F401 (torch's exporter needs it, and says so late)
import torch
from torch import Tensor

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.model import load
from mvprune.artifact.positions import longest_input
from mvprune.export.written import Written
from mvprune.runtime._onnx import round_to_int8, run, trace
from mvprune.sources.model_config import CONFIG_FILE

ONNX_FILE = "model.onnx"

log = logging.getLogger(__name__)

_SHAPES = ((2, 8), (1, 5), (3, 16), (5, 11))  # examples × tokens: of the export, then of further checks
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_UNBOUNDED = 512  # tokens, for models with relative positions
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SHOWN = 200  # characters of another library's message
TOLERANCE = 1e-4
"""How far an output may be off torch's, as a fraction of the largest."""
_INT8 = "the metrics in the manifest are not those of the rounded model, and onnxruntime computes zeros as any weight"
_NO_CACHE = "the graph has no cache of keys and values: each call computes all tokens of the text so far"


def write(
    artifact: Path,
    folder: Path,
    base: str | Path | None,
    on_progress: Callable[[str], None],
    quantize: str | None = None,
) -> Written:
    """model.onnx: fp32, any number of examples and tokens; inputs and outputs have the names that transformers gives.

    With `quantize` int8 it is checked in fp32, and then rounded.

    Returns:
        How far its outputs are off torch's (see `check`), and what `TOLERANCE` is; None for int8, which has no limit.

    Raises:
        ArtifactError: torch or onnxruntime cannot export or run this model; or by more than `TOLERANCE`.
    """
    on_progress("loading the model")
    model: Any = load(artifact, base)
    on_progress("tracing the model")
    example = _example(model, *_SHAPES[0])
    outputs = list(_run(model, example))
    sizes = {0: torch.export.Dim("examples"), 1: torch.export.Dim("tokens", max=_longest(model))}
    with _refusing(model, "torch cannot export it"):
        trace(model, example, outputs, folder / ONNX_FILE, sizes)
    (folder / CONFIG_FILE).write_text(json.dumps(_plain_config(model), indent=2) + "\n")
    on_progress("checking it with onnxruntime")
    difference = check(model, folder / ONNX_FILE)
    notes = (_NO_CACHE,) if model.can_generate() else ()
    if quantize is None:
        return Written(difference, TOLERANCE, notes)
    on_progress("rounding it to int8")
    fp32 = (folder / ONNX_FILE).rename(folder / "fp32.onnx")
    with _refusing(model, "onnxruntime cannot round it to int8"):
        round_to_int8(fp32, folder / ONNX_FILE)
    fp32.unlink()
    rounded = sum(node.op_type == "MatMulInteger" for node in onnx.load(folder / ONNX_FILE).graph.node)
    if not rounded:
        raise ArtifactError(
            f"{type(model).__name__} has no matrix that onnxruntime computes in int8; leave quantize out"
        )
    return Written(check(model, folder / ONNX_FILE, math.inf), None, (f"int8: {rounded} products; {_INT8}", *notes))


def check(model: Any, path: Path, tolerance: float = TOLERANCE) -> float:
    """Compares an ONNX file with the model on inputs of several shapes, with padding.

    Returns:
        The largest difference of an output, as a fraction of the largest output (of 1 if that is smaller).

    Raises:
        ArtifactError: it is more than `tolerance`, or one of the two cannot be run.
    """
    largest = 0.0
    with _refusing(model, "onnxruntime cannot open it"):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for examples, tokens in _SHAPES:
        example = _example(model, examples, tokens)
        expected = _run(model, example)
        with _refusing(model, f"onnxruntime cannot run it on {examples} × {tokens} tokens"):
            found = session.run(list(expected), {name: value.numpy() for name, value in example.items()})
        for (name, tensor), output in zip(expected.items(), found, strict=True):
            wanted = tensor.numpy()
            if output.shape != wanted.shape:
                shapes = f"{list(wanted.shape)} as in torch, got {list(output.shape)}"
                raise ArtifactError(f"{path.name}: the shape of {name} must be {shapes}")
            off = float(np.abs(output - wanted).max() / max(np.abs(wanted).max(), 1.0))
            if not off <= tolerance:
                raise ArtifactError(f"{path.name}: {name} must be within {tolerance:.0e} of torch's, got {off:.1e}")
            largest = max(largest, off)
    return largest


def _run(model: Any, example: dict[str, Tensor]) -> dict[str, Tensor]:
    with _refusing(model, "it cannot be run on examples of random tokens"):
        return run(model, example)


@contextlib.contextmanager
def _refusing(model: Any, what: str) -> Iterator[None]:
    """Around one call of another library, which may raise anything: what it says becomes one sentence.

    Raises:
        ArtifactError: with the first line of the message; the debug log has all of it.
    """
    try:
        yield
    except Exception as error:
        log.debug("export to ONNX: %s", what, exc_info=error)
        cause: BaseException = error  # torch wraps what happened in advice about its exporter
        while cause.__cause__ is not None:
            cause = cause.__cause__
        line = next((line.strip() for line in str(cause).splitlines() if line.strip()), "")
        said = f"{type(cause).__name__}: {_COLOURS.sub('', line)}".removesuffix(": ")
        raise ArtifactError(f"{type(model).__name__} cannot be exported to ONNX: {what} ({said:.{_SHOWN}})") from None


def _longest(model: Any) -> int:
    return longest_input(model) or _UNBOUNDED


def _example(model: Any, examples: int, tokens: int) -> dict[str, Tensor]:
    """Random tokens as a tokenizer gives them: the end-of-sequence token comes last, padding after it.

    Some models look for these two tokens, and demand that each example has one end.
    """
    config, known = model.config, inspect.signature(model.forward).parameters
    tokens = min(tokens, _longest(model))
    pad, end = _token(config, "pad_token_id"), _token(config, "eos_token_id")
    generator = torch.Generator().manual_seed(examples)
    words = torch.tensor([token for token in range(config.vocab_size) if token not in (pad, end)] or [0])
    ids = words[torch.randint(0, len(words), (examples, tokens), generator=generator)]
    mask = torch.ones_like(ids)
    for row in range(examples):
        length = max(1, tokens - 1 - 2 * row) if "attention_mask" in known else tokens
        mask[row, length:] = 0
        if pad is not None:
            ids[row, length:] = pad
        if end is not None:
            ids[row, length - 1] = end
    made = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    has_types = (getattr(config, "type_vocab_size", None) or 0) > 1
    return {name: made[name] for name in _INPUTS if name in known and (has_types or name != "token_type_ids")}


def _token(config: Any, name: str) -> int | None:
    """A special token's id, if it is in the vocabulary; of several the first."""
    found = getattr(config, name, None)
    token = found[0] if isinstance(found, list) and found else found
    return token if isinstance(token, int) and 0 <= token < config.vocab_size else None


def _plain_config(model: Any) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(model.config.to_json_string(use_diff=True))
    return config

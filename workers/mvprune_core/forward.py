"""Checks before training: the model can read its examples, and its outputs do not depend on the batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mvprune_core.batching import Examples, Side
from mvprune_core.errors import CompressionError, Reason, is_out_of_memory
from mvprune_core.hub import first_line

_CPU = torch.device("cpu")
_TOLERANCE = 1e-3  # of the largest output; rounding changes a hundredth of that, or less
_SMALLEST = 0.1  # smaller outputs are compared with this instead
_FULL, _BLOCKS = "original_full", "block_sparse"


def check_forward(
    model: Any, examples: Examples, read: Callable[[Any, Any], object] = lambda model, batch: model(**batch)
) -> None:
    """Runs `read` on the CPU for the longest example, by default the forward pass of the model.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, with the error of the model's own code.
    """
    longest = np.array([examples.lengths.argmax()])
    batch = examples.batch(longest, _CPU, np.random.default_rng(0))
    with _reading(model, int(examples.lengths[longest[0]])):
        read(model, batch)


def padding_side(model: Any, splits: Sequence[Examples]) -> Side:
    """The padding side with which the outputs for an example do not depend on the rest of its batch. Runs on the CPU.

    Compares the shortest example of each split alone and in a batch with the longest, so it also checks that the model
    can read its examples. Padding on the left suits outputs for whole examples only: outputs for tokens would change
    their places.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, the outputs depend on the batch with either side, or the forward
            pass fails; with the error of the model's own code.
    """
    difference = max(_difference(model, split, "right") for split in splits)
    if difference <= _TOLERANCE:
        return "right"
    if max(_difference(model, split, "left") for split in splits) <= _TOLERANCE:
        return "left"
    raise CompressionError(
        Reason.UNSUPPORTED_ARCHITECTURE,
        f"the outputs of {type(model).__name__} for an example must not depend on the rest of its batch, but padding "
        f"changes them by {difference:.1%} of the largest; give a model that leaves padding out of its computation, "
        "such as BERT (docs/models.md lists architectures)",
    )


def set_padding_side(tokenizer: Any, side: Side) -> None:
    """Sets the padding side of a tokenizer, so that it is saved with it."""
    if tokenizer.padding_side != side:
        tokenizer.padding_side = tokenizer.init_kwargs["padding_side"] = side


def without_batch_effects(model: Any) -> tuple[str, ...]:
    """Turns off, in place, options of a model that make its outputs depend on the batch.

    Returns:
        Notes, if that changes the model's outputs.
    """
    if getattr(model.config, "trigram_input", False):
        # MobileBERT concatenates each embedding with its neighbours, which are zeros or padding at the end of a text.
        with torch.no_grad():
            model.get_input_embeddings().weight[model.config.pad_token_id] = 0
    if getattr(model.config, "attention_type", None) != _BLOCKS:
        return ()
    model.config.attention_type = _FULL
    for module in [*model.modules()]:
        if hasattr(module, "set_attention_type"):
            module.set_attention_type(_FULL)
    return (
        f"the model's attention is block-sparse, which {type(model).__name__} gives up at the first short batch; full "
        "attention was used throughout",
    )


def _difference(model: Any, examples: Examples, side: Side) -> float:
    """The change of the shortest example's outputs in a batch with the longest, relative to the largest output."""
    short, long = int(examples.lengths.argmin()), int(examples.lengths.argmax())
    count = int(examples.lengths[short])
    if count == examples.lengths[long] or examples.masking is not None:
        check_forward(model, examples)
    if count == examples.lengths[long]:
        return 0.0
    plain = replace(examples, masking=None, padding_side=side)
    beside, alone = (_outputs(model, plain, chosen) for chosen in ([short, long], [short]))
    differences = [0.0]
    for name, expected in alone.items():
        found = beside[name] if beside[name].shape == expected.shape else beside[name][:count]
        apart = (found - expected).abs().nan_to_num(nan=math.inf).max()  # NaN: padding that attends to no token
        differences.append(float(apart) / max(float(expected.abs().max()), _SMALLEST))
    return max(differences)


def _outputs(model: Any, examples: Examples, chosen: list[int]) -> dict[str, Tensor]:
    """The logits of the first of the chosen examples, by name."""
    with _reading(model, int(examples.lengths[chosen].max())):
        output = model(**examples.batch(np.array(chosen), _CPU))
    return {name: value[0].float() for name, value in output.items() if name.endswith("logits")}


@contextmanager
def _reading(model: Any, tokens: int) -> Iterator[None]:
    model.eval()
    try:
        with torch.inference_mode():
            yield
    except Exception as error:  # a model's own code may raise anything
        if is_out_of_memory(error):
            raise
        raise CompressionError(
            Reason.UNSUPPORTED_ARCHITECTURE,
            f"{type(model).__name__} cannot read the data; its forward pass over an example of {tokens} tokens ends "
            f"with {type(error).__name__}: {first_line(error)}",
        ) from error

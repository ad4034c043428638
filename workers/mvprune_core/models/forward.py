"""Checks before training: the model can read its examples, and its outputs do not depend on the batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mvprune_core.base.errors import CompressionError, Reason, is_out_of_memory
from mvprune_core.base.hub import first_line
from mvprune_core.tasks.batching import DECODER_IDS, DECODER_MASK, Examples, Side

_CPU = torch.device("cpu")
TOLERANCE = 3e-4  # of the largest value; rounding changes a hundredth of that, or less
_ENCODED = "encoder_last_hidden_state"
_STATES = ("last_hidden_state", _ENCODED)
_SMALLEST = 0.1  # smaller logits are compared with this instead: one of them may be near 0 by chance
_TINY = 1e-30  # where all values are 0
_COMPARED = 3  # examples of a split that are compared with themselves in company
_FULL, _BLOCKS = "original_full", "block_sparse"


def check_forward(
    model: Any, examples: Examples, read: Callable[[Any, Any], object] = lambda model, batch: readings(model, batch)
) -> None:
    """Runs `read` on the CPU for the longest example, by default the forward pass of the model.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, with the error of the model's own code.
    """
    longest = np.array([examples.lengths.argmax()])
    batch = replace(examples, targets={}).batch(longest, _CPU, np.random.default_rng(0))
    with _reading(model, int(examples.lengths[longest[0]])):
        read(model, batch)


def padding_side(model: Any, splits: Sequence[Examples]) -> Side:
    """The padding side with which the outputs for an example do not depend on the rest of its batch. Runs on the CPU.

    Compares examples of several lengths, alone and in a batch with the longest of their split, in what `readings`
    returns. So it also checks that the model can read its examples. Padding on the left suits outputs for whole
    examples only: outputs for tokens would change their places.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, the outputs depend on the batch with either side, or the forward
            pass fails; with the error of the model's own code.
    """
    difference = max(padding_difference(model, split, "right") for split in splits)
    if difference <= TOLERANCE:
        return "right"
    if max(padding_difference(model, split, "left") for split in splits) <= TOLERANCE:
        return "left"
    raise CompressionError(
        Reason.UNSUPPORTED_ARCHITECTURE,
        f"the outputs of {type(model).__name__} for an example must not depend on the rest of its batch, but padding "
        f"changes them or the hidden states by {difference:.2%} of the largest value; give a model that leaves "
        "padding out of its computation, such as BERT (docs/models.md lists architectures)",
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


def readings(model: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a model computes for a batch: its logits and, since those of a new head are near 0 whatever it reads, the
    last hidden states of its body.

    Args:
        model: in evaluation mode.
        batch: arguments of its forward pass, with input_ids. Without those of the decoder, the decoder of a model that
            writes reads the input.

    Returns:
        By name, float32; the first dimension is the batch.
    """
    found: dict[str, Tensor] = {}

    def keep(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        found.update({name: output[name].float() for name in _STATES if output.get(name) is not None})

    if model.config.is_encoder_decoder and model.can_generate() and DECODER_IDS not in batch:
        batch = {**batch, DECODER_IDS: batch["input_ids"], DECODER_MASK: batch["attention_mask"]}
    with model.base_model.register_forward_hook(keep):
        output = model(**batch)
    return found | {name: value.float() for name, value in output.items() if name.endswith("logits")}


def of_example(
    name: str, row: Tensor, alone: Tensor, count: int, side: Side, answered: int | None = None
) -> Tensor | None:
    """Of a row of `readings` the part that should equal those of the example without padding.

    Args:
        name: of the value.
        row: of the example in a batch.
        alone: the value of the example without padding.
        count: tokens of the example.
        side: where the batch is padded.
        answered: tokens of the example that its decoder reads, which is padded on the right; None: the same tokens.

    Returns:
        None: nothing of it, as Funnel's states of groups of tokens.
    """
    if answered is not None and name != _ENCODED:
        count, side = answered, "right"
    if name in _STATES:
        if len(alone) != count:
            return None
        return row[-count:] if side == "left" else row[:count]
    return row if row.shape == alone.shape else row[:count]  # logits of tokens must not change their places


def apart(name: str, found: Tensor, expected: Tensor) -> float:
    """The largest difference between two values of `readings` for an example, relative to the largest expected one."""
    difference = (found - expected).abs().nan_to_num(nan=math.inf).max()  # NaN: padding that attends to no token
    largest = max(float(expected.abs().max()), _SMALLEST if name.endswith("logits") else _TINY)
    return float(difference) / largest


def padding_difference(model: Any, examples: Examples, side: Side) -> float:
    """The largest change of what is read of some examples in a batch with the longest."""
    order = np.argsort(examples.lengths, kind="stable")
    shorter = order[examples.lengths[order] < examples.lengths[order[-1]]]
    if not len(shorter) or examples.masking is not None:
        check_forward(model, examples)
    if not len(shorter):
        return 0.0
    chosen = np.unique(shorter[np.linspace(0, len(shorter) // 2, _COMPARED, dtype=np.int64)])
    plain = replace(examples, masking=None, targets={}, padding_side=side)
    beside = read(model, plain, [*chosen, order[-1]])
    differences = [0.0]
    for row, number in enumerate(chosen):
        count = int(examples.lengths[number])
        answered = int(examples.output_lengths[number]) if examples.decoder else None
        for name, alone in read(model, plain, [number]).items():
            found = of_example(name, beside[name][row], alone[0], count, side, answered)
            if found is not None:
                differences.append(apart(name, found, alone[0]))
    return max(differences)


def read(model: Any, examples: Examples, chosen: Sequence[int]) -> dict[str, Tensor]:
    """The `readings` of some examples in a batch, on the CPU; `chosen` are their numbers.

    Raises:
        CompressionError: UNSUPPORTED_ARCHITECTURE, with the error of the model's own code.
    """
    with _reading(model, int(examples.lengths[chosen].max())):
        return readings(model, examples.batch(np.array(chosen), _CPU))


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

"""Texts that a model writes for examples, by the settings of its generation_config.json and without sampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from mvprune_core.base.group import ALONE, Group
from mvprune_core.tasks.batching import Indices, Sources
from mvprune_core.tasks.passes import in_batches

_LANES = 16  # texts that are written at a time; a beam is one


def write_texts(
    model: nn.Module,
    sources: Sources,
    device: torch.device,
    group: Group = ALONE,
    report: Callable[[int], None] = lambda done: None,
) -> list[str]:
    """What a model writes for each example, without blanks around it; of a decoder, what follows the example.

    Args:
        model: left in evaluation mode.
        sources: what it reads.
        device: where the model is.
        group: the ranks, which share the batches; all of them return all texts.
        report: receives the number of examples that this rank has written texts for, after each batch.
    """
    writer: Any = model.eval()
    examples, done = sources.examples, 0
    size = max(1, _LANES // (writer.generation_config.num_beams or 1))

    def write(indices: Indices) -> list[str]:
        nonlocal done
        batch = examples.batch(indices, device)
        ids, mask = batch["input_ids"], batch["attention_mask"]
        with torch.inference_mode():
            written = writer.generate(ids, attention_mask=mask, do_sample=False, **sources.settings)
        begin = 0 if writer.config.is_encoder_decoder else ids.shape[1]
        texts = examples.tokenizer.batch_decode(written[:, begin:], skip_special_tokens=True)
        done += len(indices)
        report(done)
        return [text.strip() for text in texts]

    found = [""] * len(examples)
    for indices, texts in in_batches(examples, write, batch_size=size, group=group):
        for index, text in zip(indices, texts, strict=True):
            found[index] = text
    return found

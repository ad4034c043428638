"""Tiny encoder-decoders, and texts that they learn to write."""

from __future__ import annotations

import random
from typing import Any

import torch
import transformers
from tests.unit.core.architectures import RIGHT
from transformers import PreTrainedModel

from mvprune.data.loading import TextPairs, TextToTextData
from mvprune.data.tasks import get_task

ENCODER_DECODERS = ("bart", "mbart", "pegasus", "t5", "mt5", "marian", "encoder-decoder")
_LARGE = {"init_std": 0.2, "initializer_factor": 8.0}
_BERT = {"initializer_range": 0.2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_WITHOUT = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "dropout_rate"), 0.0)


def encoder_decoder(name: str, layers: int = 2, **changes: Any) -> PreTrainedModel:
    """Of one of `ENCODER_DECODERS`, without dropout, its initial values so large that its logits depend on what it
    reads. A text ends with [SEP]. `layers` are those of each part of an encoder-decoder, the others have one."""
    torch.manual_seed(1)
    if name == "encoder-decoder":
        sizes = RIGHT["bert"] | _BERT | {"num_hidden_layers": layers}
        parts = [transformers.AutoConfig.for_model("bert", **sizes) for _ in ("encoder", "decoder")]
        config: Any = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(*parts, **changes)
    else:
        config = transformers.AutoConfig.for_model(
            name, **(RIGHT.get(name, RIGHT["bart"]) | _WITHOUT | _LARGE | changes)
        )
    model: PreTrainedModel = transformers.AutoModelForSeq2SeqLM.from_config(config)
    return model


def pairs(count: int, seed: int) -> TextPairs:
    """Texts of several words; their first two are what is to be written."""
    source = random.Random(seed)
    texts = [[f"word{source.randrange(20)}" for _ in range(source.randint(2, 9))] for _ in range(count)]
    return TextPairs(tuple(map(" ".join, texts)), tuple((" ".join(words[:2]),) for words in texts))


def text_data(task: str = "summarization", train: int = 200, validation: int = 20) -> TextToTextData:
    return TextToTextData(get_task(task), pairs(train, 1), pairs(validation, 2))

"""What the service knows of model types is what transformers has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    EncoderDecoderConfig,
)

from mvprune.common.blocks import in_block
from mvprune.sources.model_types import (
    BASES,
    DECODERS,
    ENCODER_DECODERS,
    OF_NO_TEXT,
    WITHOUT_CHECKPOINTING,
    name_in_task,
    name_without_head,
    names_outside,
    problem_with_head,
)

TASKS = (
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)


def layers(model: nn.Module) -> set[str]:
    return {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}


def test_heads() -> None:
    def has(auto: Any, model_type: str) -> bool:
        made = EncoderDecoderConfig if model_type == "encoder-decoder" else type(AutoConfig.for_model(model_type))
        return made in auto._model_mapping

    for model_type in (*BASES, *DECODERS, *ENCODER_DECODERS):
        problem = problem_with_head("Seq2SeqLM", "t", model_type, is_decoder=True)
        assert bool(problem) != has(AutoModelForSeq2SeqLM, model_type)
    for model_type in DECODERS:
        assert has(AutoModelForCausalLM, model_type)
        assert problem_with_head("CausalLM", "t", model_type, is_decoder=False) == ""
    assert problem_with_head("CausalLM", "t", "bert", is_decoder=False) == (
        "must be a decoder, such as GPT-2, OPT, Llama or Qwen, for the task t, got a bert"
    )
    for auto in TASKS:
        head = auto.__name__.removeprefix("AutoModelFor")
        for model_type in (*BASES, *DECODERS, *ENCODER_DECODERS):
            assert bool(problem_with_head(head, "t", model_type, is_decoder=True)) != has(auto, model_type)
    assert problem_with_head("MaskedLM", "t", "gpt2", is_decoder=True) == (
        "must be of a type that transformers has an AutoModelForMaskedLM for, for the task t, got a gpt2; give an "
        "encoder, such as BERT"
    )
    for model_type in OF_NO_TEXT.pattern.split("|"):
        for auto in (*TASKS, AutoModelForCausalLM, AutoModelForSeq2SeqLM):
            assert CONFIG_MAPPING[model_type] not in auto._model_mapping


@pytest.mark.parametrize("model_type", BASES)
def test_names(model_type: str) -> None:
    length = "n_layers" if model_type == "distilbert" else "num_hidden_layers"
    config = AutoConfig.for_model(model_type, **{length: 1})
    with torch.device("meta"):
        plain = {*layers(AutoModel.from_config(config))}
        blocks = {name for name in plain if in_block(name)}
        models = [task.from_config(config) for task in TASKS]
    assert blocks
    assert plain - blocks <= set(names_outside(model_type, has_head=False))
    assert {name_without_head(name_in_task(name, model_type), model_type) for name in blocks} == blocks
    assert {model.supports_gradient_checkpointing for model in models} == {model_type not in WITHOUT_CHECKPOINTING}
    for model in models:
        found = layers(model)
        assert {name for name in found if in_block(name)} == {name_in_task(name, model_type) for name in blocks}
        assert {name for name in found if not in_block(name)} <= set(names_outside(model_type, has_head=True))
        assert all(name_in_task(name, model_type) == name for name in found if in_block(name))

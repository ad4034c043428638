"""What the service knows of model types is what transformers has."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from mvprune.common.blocks import in_block
from mvprune.sources.model_types import BASES, WITHOUT_CHECKPOINTING, name_in_task, names_outside

TASKS = (
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)


def layers(model: nn.Module) -> set[str]:
    return {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}


@pytest.mark.parametrize("model_type", BASES)
def test_names(model_type: str) -> None:
    length = "n_layers" if model_type == "distilbert" else "num_hidden_layers"
    config = AutoConfig.for_model(model_type, **{length: 1})
    with torch.device("meta"):
        blocks = {name for name in layers(AutoModel.from_config(config)) if in_block(name)}
        models = [task.from_config(config) for task in TASKS]
    assert blocks
    assert {model.supports_gradient_checkpointing for model in models} == {model_type not in WITHOUT_CHECKPOINTING}
    for model in models:
        found = layers(model)
        assert {name for name in found if in_block(name)} == {name_in_task(name, model_type) for name in blocks}
        assert {name for name in found if not in_block(name)} <= set(names_outside(model_type))
        assert all(name_in_task(name, model_type) == name for name in found if in_block(name))

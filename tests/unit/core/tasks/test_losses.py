"""The core's losses are those of transformers' models, and their gradients.

They are not compared bit for bit: some processors' products depend on where in memory the factors lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from tests.unit.core.architectures import LEFT, RIGHT
from torch import Tensor, nn

from mvprune_core.tasks.heads import PROBABILITY, REGRESSION
from mvprune_core.tasks.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Loss,
    NextTokenCrossEntropy,
    SpanCrossEntropy,
    SquaredError,
)

SEQUENCE = "SequenceClassification"
IDS = torch.cat([torch.randint(5, 40, (3, 8), generator=torch.Generator().manual_seed(0)), torch.full((3, 1), 3)], 1)
INPUTS = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
OF_TOKENS = torch.tensor([[-100, *range(3), *range(3), 0, 1]] * 3)
SPANS = {"start_positions": torch.tensor([0, 4, 8]), "end_positions": torch.tensor([2, 8, 11])}  # 11 is cut off
CASES: list[tuple[str, dict[str, Any], Loss, dict[str, Tensor]]] = [
    (SEQUENCE, {"problem_type": "single_label_classification"}, CrossEntropy(), {"labels": torch.tensor([2, 0, 1])}),
    (SEQUENCE, {"problem_type": REGRESSION, "num_labels": 1}, SquaredError(), {"labels": torch.tensor([2.0, 0.5, -1])}),
    (
        SEQUENCE,
        {"problem_type": PROBABILITY, "num_labels": 1},
        BinaryCrossEntropy(),
        {"labels": torch.tensor([[0.2], [0.0], [1.0]])},
    ),
    ("TokenClassification", {}, CrossEntropy(), {"labels": OF_TOKENS}),
    ("QuestionAnswering", {"num_labels": 2}, SpanCrossEntropy(), SPANS),
    ("MaskedLM", {}, CrossEntropy(), {"labels": OF_TOKENS}),
    ("CausalLM", {}, NextTokenCrossEntropy(), {"labels": OF_TOKENS}),
]
# Longformer wants separators for questions.
# In CausalLM, the models of the second line compare a token's logits with its own label: the labels come shifted.
WITHOUT = {("longformer", "QuestionAnswering"), ("big_bird", "MaskedLM")}
WITHOUT |= {(name, "CausalLM") for name in ("bart", "mbart", "xlm", "xlnet")}
# What the losses do with it does not depend on the architecture.
OF_BF16 = ("bart", "bert", "deberta-v2", "gpt2", "llama", "t5", "xlnet")


def learned(model: nn.Module, loss: Tensor) -> list[Tensor]:
    """The loss and the gradients."""
    model.zero_grad()
    loss.backward()
    return [loss.detach(), *(one.grad for one in model.parameters() if one.grad is not None)]


@pytest.mark.slow
@pytest.mark.parametrize(("head", "options", "loss", "labels"), CASES)
def test_the_loss_is_the_models_own(head: str, options: dict[str, Any], loss: Loss, labels: dict[str, Tensor]) -> None:
    """In fp32 and in bf16."""
    compared = 0
    for name, sizes in (RIGHT | LEFT).items():
        config = transformers.AutoConfig.for_model(name, **sizes, **({"num_labels": 3} | options))
        kind = getattr(transformers, f"AutoModelFor{head}")
        without = config.is_encoder_decoder and head == "MaskedLM"  # see MaskedLanguageModelling.loss
        if type(config) not in kind._model_mapping or without or (name, head) in WITHOUT:
            continue
        torch.manual_seed(0)
        model = kind.from_config(config).eval()
        for bf16 in [False, True] if name in OF_BF16 else [False]:
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                own = learned(model, model(**INPUTS, **labels).loss)
                core = learned(model, loss(model(**INPUTS), labels))
            where = f"{name}, {bf16=}"
            torch.testing.assert_close(core, own, msg=lambda text, where=where: f"{where}: {text}")  # type: ignore[misc]
        compared += 1
    assert compared > 15
